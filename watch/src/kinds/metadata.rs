//! The metadata of objects, as far as it is used.

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use tweed_core::object::selector::Labels;

use super::{bytes, lossy, text};
use crate::kind::{InvalidName, allowed, valid_name};

/// The namespace of an object that names none: a server always names it, and in a
/// file it is the one that `kubectl` would use.
const DEFAULT_NAMESPACE: &str = "default";

message! {
    /// The used fields of `meta/v1.ObjectMeta`.
    pub(super) struct Metadata {
        name: text = 1,
        namespace: text = 3,
        #[prost(bytes = "vec", tag = 5)]
        #[serde(deserialize_with = "bytes")]
        pub(super) uid: Vec<u8>,
        creation_timestamp: one(Time) = 8,
        deletion_timestamp: one(Time) = 9,
        #[prost(message, repeated, tag = "11")]
        #[serde(deserialize_with = "labels_of_json")]
        pub labels: Vec<Label>,
        #[prost(message, repeated, tag = "12")]
        #[serde(deserialize_with = "labels_of_json")]
        pub annotations: Vec<Label>,
    }
}

/// A `meta/v1.Time`; in protobuf the server encodes "none" as an empty message.
#[derive(prost::Message, Deserialize)]
#[serde(from = "Value")]
pub(super) struct Time {
    #[prost(int64, optional, tag = "1")]
    pub seconds: Option<i64>,
}

/// An entry of a `map<string, string>`.
#[derive(prost::Message)]
pub(super) struct Label {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

impl Metadata {
    /// The name, if an object of `kind` can have it.
    pub fn name(&mut self, kind: &'static str) -> Result<String, InvalidName> {
        valid_name(kind, lossy(std::mem::take(&mut self.name)))
    }

    /// The namespace, if there can be one of this name.
    pub fn namespace(&mut self) -> Result<String, InvalidName> {
        if self.namespace.is_empty() {
            return Ok(DEFAULT_NAMESPACE.to_owned());
        }
        let namespace = lossy(std::mem::take(&mut self.namespace));
        allowed(namespace, |name| {
            format!("is in the namespace {name}, which cannot exist")
        })
    }

    /// The creation in seconds since 1970.
    pub fn created(&self) -> Option<i64> {
        self.creation_timestamp
            .as_ref()
            .and_then(|time| time.seconds)
    }

    /// Whether the object is being deleted.
    pub fn is_deleted(&self) -> bool {
        let deletion = self.deletion_timestamp.as_ref();
        deletion.is_some_and(|time| time.seconds.is_some())
    }

    /// The value of an annotation.
    pub fn annotation(&mut self, key: &str) -> Option<String> {
        take(&mut self.annotations, key)
    }

    /// The value of a label.
    pub fn label(&mut self, key: &str) -> Option<String> {
        take(&mut self.labels, key)
    }

    /// The labels.
    pub fn labels(&mut self) -> Labels {
        labels(std::mem::take(&mut self.labels))
    }
}

/// The value under a key, which is taken out.
fn take(entries: &mut [Label], key: &str) -> Option<String> {
    let found = entries.iter_mut().find(|one| one.key == key.as_bytes())?;
    Some(lossy(std::mem::take(&mut found.value)))
}

impl From<Value> for Time {
    /// A time that cannot be read must not make an object the oldest of several that
    /// claim the same address: it counts as the youngest.
    fn from(time: Value) -> Self {
        let read = (time.as_str()).and_then(|text| text.parse::<Timestamp>().ok());
        Self {
            seconds: Some(read.map_or(i64::MAX, Timestamp::as_second)),
        }
    }
}

/// Labels by key.
pub(super) fn labels(entries: Vec<Label>) -> Labels {
    let pairs = entries.into_iter().map(|l| (lossy(l.key), lossy(l.value)));
    pairs.collect()
}

/// The labels in a JSON object; its values become text. `None` if it is none.
pub(super) fn labels_of(value: Value) -> Option<Vec<Label>> {
    let Value::Object(fields) = value else {
        return None;
    };
    let labels = fields.into_iter().map(|(key, value)| Label {
        key: key.into_bytes(),
        value: text(value),
    });
    Some(labels.collect())
}

fn labels_of_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Label>, D::Error> {
    Ok(labels_of(Value::deserialize(deserializer)?).unwrap_or_default())
}
