//! Label selectors: `k8s.io/apimachinery/pkg/apis/meta/v1`, `LabelSelector`.

use std::collections::BTreeMap;

/// `metadata.labels`.
pub type Labels = BTreeMap<String, String>;

/// A selector over labels. Without any requirement it selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, PartialOrd, Ord, Hash)]
pub struct LabelSelector {
    /// `matchLabels`: each of these labels with this value, in the order of their keys. Policies
    /// may have tens of thousands of selectors, and a map of one label has room for eleven.
    pub match_labels: Box<[(String, String)]>,
    /// `matchExpressions`: each of these.
    pub match_expressions: Vec<Requirement>,
}

/// One entry of `matchExpressions`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// What must hold of its value.
    pub operator: Operator,
    /// The values of `In` and `NotIn`.
    pub values: Vec<String>,
}

/// The operator of a [`Requirement`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The label exists and has one of the values.
    In,
    /// The label does not exist or has none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// An operator that this build does not know, as it stands in the object: who
    /// uses it cannot be represented.
    Unknown(String),
}

impl LabelSelector {
    /// The first operator that this build does not know.
    pub fn unknown_operator(&self) -> Option<&str> {
        let mut operators = self.match_expressions.iter();
        operators.find_map(|requirement| match &requirement.operator {
            Operator::Unknown(operator) => Some(operator.as_str()),
            _ => None,
        })
    }

    /// Whether it selects an object with these labels. An unknown operator selects
    /// nothing.
    pub fn selects(&self, labels: &Labels) -> bool {
        self.selects_by(|key| labels.get(key).map(String::as_str))
    }

    /// As [`LabelSelector::selects`], for labels that are stored in another way.
    pub fn selects_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.all_hold(&label, false)
    }

    /// Whether it may select an object with these labels: what an unknown operator
    /// requires counts as given.
    pub fn may_select(&self, labels: &Labels) -> bool {
        self.may_select_by(|key| labels.get(key).map(String::as_str))
    }

    /// As [`LabelSelector::may_select`], for labels that are stored in another way.
    pub fn may_select_by<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.all_hold(&label, true)
    }

    fn all_hold<'a>(&self, label: &impl Fn(&str) -> Option<&'a str>, unknown: bool) -> bool {
        let equal = |(key, value): &(String, String)| label(key) == Some(value.as_str());
        let holds = |one: &Requirement| one.holds(label).unwrap_or(unknown);
        self.match_labels.iter().all(equal) && self.match_expressions.iter().all(holds)
    }
}

impl Requirement {
    /// None for an operator that is not known.
    fn holds<'a>(&self, label: &impl Fn(&str) -> Option<&'a str>) -> Option<bool> {
        let value = label(&self.key);
        let listed = || value.is_some_and(|value| self.values.iter().any(|one| one == value));
        Some(match self.operator {
            Operator::In => listed(),
            Operator::NotIn => !listed(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Unknown(_) => return None,
        })
    }
}
