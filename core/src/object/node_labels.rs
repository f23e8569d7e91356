//! Labels of Nodes, of which a cluster has thousands.

use std::iter::zip;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::selector::Labels;

/// Ends each text. No label has it: the API server refuses it.
const END: char = '\0';

/// The labels of a Node, by ascending key. As a map they would take most of the memory that
/// the agent needs, so all keys are one text, which Nodes share, and all values another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeLabels {
    keys: Arc<str>,
    values: Arc<str>,
}

impl NodeLabels {
    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let mut labels = self.iter();
        labels.find_map(|(one, value)| (one == key).then_some(value))
    }

    /// Each label.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let keys = self.keys.split_terminator(END);
        zip(keys, self.values.split_terminator(END))
    }

    /// Whether there is no label.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The labels as other objects have them.
    pub fn to_labels(&self) -> Labels {
        let own = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        self.iter().map(own).collect()
    }

    /// Uses the memory of `other` for what is the same in both.
    pub fn share(&mut self, other: &Self) {
        for (own, other) in [
            (&mut self.keys, &other.keys),
            (&mut self.values, &other.values),
        ] {
            if own == other {
                own.clone_from(other);
            }
        }
    }
}

impl From<Labels> for NodeLabels {
    /// A label with [`END`] in it is none, and is left out.
    fn from(labels: Labels) -> Self {
        let (mut keys, mut values) = (String::new(), String::new());
        for (key, value) in &labels {
            if !key.contains(END) && !value.contains(END) {
                keys.extend([key.as_str(), "\0"]);
                values.extend([value.as_str(), "\0"]);
            }
        }
        Self {
            keys: keys.into(),
            values: values.into(),
        }
    }
}

impl<const N: usize> From<[(String, String); N]> for NodeLabels {
    fn from(labels: [(String, String); N]) -> Self {
        Labels::from(labels).into()
    }
}

impl Serialize for NodeLabels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for NodeLabels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Labels::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> Labels {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        all.iter().map(own).collect()
    }

    #[test]
    fn labels_are_what_they_were_made_of() {
        let rows: [&[(&str, &str)]; 4] = [
            &[],
            &[("a", "")],
            &[("", "x"), ("zone", "z1")],
            &[("a", "1"), ("b", ""), ("c", "3")],
        ];
        for row in rows {
            let labels = labels(row);
            let packed = NodeLabels::from(labels.clone());
            assert_eq!(packed.to_labels(), labels);
            assert_eq!(packed.is_empty(), labels.is_empty());
            for key in ["", "a", "b", "c", "zone"] {
                assert_eq!(packed.get(key), labels.get(key).map(String::as_str));
            }
            let json = serde_json::to_string(&packed).unwrap();
            assert_eq!(json, serde_json::to_string(&labels).unwrap());
            assert_eq!(serde_json::from_str::<NodeLabels>(&json).unwrap(), packed);
        }
    }

    #[test]
    fn a_label_that_the_api_server_refuses_does_not_change_others() {
        let all = labels(&[("a", "1"), ("b\0", "2"), ("c", "\0"), ("d", "4")]);
        let packed = NodeLabels::from(all);
        assert_eq!(packed.to_labels(), labels(&[("a", "1"), ("d", "4")]));
    }

    #[test]
    fn equal_keys_and_equal_values_are_stored_once() {
        let first = NodeLabels::from(labels(&[("a", "1")]));
        let mut second = NodeLabels::from(labels(&[("a", "2")]));
        second.share(&first);
        assert!(Arc::ptr_eq(&first.keys, &second.keys));
        assert_eq!((first.get("a"), second.get("a")), (Some("1"), Some("2")));
        let mut third = NodeLabels::from(labels(&[("a", "1")]));
        third.share(&first);
        assert!(Arc::ptr_eq(&first.values, &third.values));
    }
}
