//! Decoding of label selectors.
//!
//! A selector that cannot be understood as a whole must not select by what is left of
//! it: it gets a requirement with an operator that is unknown, which says what is wrong
//! and selects nothing.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use tweed_core::object::selector::{LabelSelector, Operator, Requirement};

use super::metadata::{Label, labels, labels_of};
use super::{exact, lossy, or_empty, or_invalid, strict, text};

/// A `meta/v1.LabelSelector`.
#[derive(prost::Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Selector {
    #[prost(message, repeated, tag = "1")]
    #[serde(deserialize_with = "only_labels")]
    match_labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    #[serde(deserialize_with = "only_expressions")]
    match_expressions: Vec<Expression>,
    /// What JSON has in place of a selector; the number is ours.
    #[prost(bytes = "vec", tag = "10000")]
    #[serde(skip)]
    invalid: Vec<u8>,
}

/// A `meta/v1.LabelSelectorRequirement`.
#[derive(prost::Message, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expression {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "only_text")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    #[serde(deserialize_with = "only_text")]
    operator: Vec<u8>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    #[serde(default, deserialize_with = "only_texts")]
    values: Vec<Vec<u8>>,
}

impl Selector {
    /// The selector in JSON. One that cannot be understood selects nothing.
    pub fn of_json(value: Value) -> Self {
        or_invalid(value, |invalid| Self {
            invalid,
            ..Self::default()
        })
    }
}

/// Deserializes a selector, which is none if it is null.
pub(super) fn selector<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Selector>, D::Error> {
    Ok(Option::deserialize(deserializer)?.map(Selector::of_json))
}

/// Deserializes labels, which are none if they are null.
fn only_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Label>, D::Error> {
    match Option::deserialize(deserializer)? {
        None => Ok(Vec::new()),
        Some(value) => labels_of(value).ok_or_else(|| D::Error::custom("no labels")),
    }
}

/// Deserializes expressions, which are none if they are null.
fn only_expressions<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Expression>, D::Error> {
    let values: Vec<Value> = or_empty(deserializer)?;
    let expressions: Result<_, _> = values.iter().map(strict).collect();
    expressions.map_err(D::Error::custom)
}

/// Deserializes text, which must not be missing.
fn only_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let value = Option::deserialize(deserializer)?.map(text);
    value.ok_or_else(|| D::Error::custom("null"))
}

/// Deserializes a list of text, which is none if it is null.
fn only_texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
    let values: Vec<Value> = or_empty(deserializer)?;
    Ok(values.into_iter().map(text).collect())
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
            match_labels: labels(selector.match_labels).into_iter().collect(),
            match_expressions,
        }
    }
}

impl From<Expression> for Requirement {
    fn from(expression: Expression) -> Self {
        let values = exact(expression.values.into_iter().map(lossy));
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
