//! Decoding of label selectors.
//!
//! A selector that cannot be understood as a whole must not select by what is left of
//! it: it gets a requirement with an operator that is unknown, which says what is wrong
//! and selects nothing.

use serde::Deserialize;
use serde_json::{Map, Value};

use tweed_core::object::selector::{LabelSelector, Operator, Requirement};

use super::metadata::{Label, labels, labels_of};
use super::{lossy, only_keys, text};

/// A `meta/v1.LabelSelector`.
#[derive(prost::Message, Deserialize)]
#[serde(from = "Value")]
pub(super) struct Selector {
    #[prost(message, repeated, tag = "1")]
    match_labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    match_expressions: Vec<Expression>,
    /// What JSON has in place of a selector; the number is ours.
    #[prost(bytes = "vec", tag = "10000")]
    invalid: Vec<u8>,
}

/// A `meta/v1.LabelSelectorRequirement`.
#[derive(prost::Message)]
struct Expression {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    operator: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    values: Vec<Vec<u8>>,
}

impl From<Value> for Selector {
    /// Null is the empty selector; who tells it from one looks first.
    fn from(value: Value) -> Self {
        if value.is_null() {
            return Self::default();
        }
        Self::of_json(value.clone()).unwrap_or_else(|| Self::invalid(&value))
    }
}

impl Selector {
    /// A selector that selects nothing, because of this value in place of one.
    pub fn invalid(value: &Value) -> Self {
        Self {
            invalid: value.to_string().into_bytes(),
            ..Self::default()
        }
    }

    fn of_json(value: Value) -> Option<Self> {
        let mut fields = only_keys(value, &["matchLabels", "matchExpressions"])?;
        let match_labels = match take(&mut fields, "matchLabels") {
            None => Vec::new(),
            Some(value) => labels_of(value)?,
        };
        let match_expressions = match take(&mut fields, "matchExpressions") {
            None => Vec::new(),
            Some(Value::Array(entries)) => {
                let entries = entries.into_iter().map(Expression::of_json);
                entries.collect::<Option<_>>()?
            }
            Some(_) => return None,
        };
        Some(Self {
            match_labels,
            match_expressions,
            invalid: Vec::new(),
        })
    }
}

impl Expression {
    fn of_json(value: Value) -> Option<Self> {
        let mut fields = only_keys(value, &["key", "operator", "values"])?;
        let values = match take(&mut fields, "values") {
            None => Vec::new(),
            Some(Value::Array(values)) => values.into_iter().map(text).collect(),
            Some(_) => return None,
        };
        Some(Self {
            key: text(take(&mut fields, "key")?),
            operator: text(take(&mut fields, "operator")?),
            values,
        })
    }
}

/// The field of this name, if it is there and not null.
fn take(fields: &mut Map<String, Value>, name: &str) -> Option<Value> {
    fields.remove(name).filter(|value| !value.is_null())
}

impl From<Selector> for LabelSelector {
    fn from(selector: Selector) -> Self {
        let expressions = selector.match_expressions.into_iter();
        let mut match_expressions: Vec<Requirement> = expressions.map(Requirement::from).collect();
        if !selector.invalid.is_empty() {
            match_expressions.push(Requirement {
                key: String::new(),
                operator: Operator::Unknown(lossy(selector.invalid)),
                values: Vec::new(),
            });
        }
        Self {
            match_labels: labels(selector.match_labels),
            match_expressions,
        }
    }
}

impl From<Expression> for Requirement {
    fn from(expression: Expression) -> Self {
        let values: Vec<String> = expression.values.into_iter().map(lossy).collect();
        // The API refuses `In` and `NotIn` without values, and values with the others.
        let operator = match (&*expression.operator, values.is_empty()) {
            (b"In", false) => Operator::In,
            (b"NotIn", false) => Operator::NotIn,
            (b"Exists", true) => Operator::Exists,
            (b"DoesNotExist", true) => Operator::DoesNotExist,
            _ => Operator::Unknown(lossy(expression.operator)),
        };
        Self {
            key: lossy(expression.key),
            operator,
            values,
        }
    }
}
