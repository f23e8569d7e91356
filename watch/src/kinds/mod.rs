//! The kinds that can be watched.
//!
//! Each kind has one set of structs for all encodings. Their field numbers are
//! those of `k8s.io/api/core/v1/generated.proto` and
//! `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`; they never change
//! within `v1`. Text is held as bytes, because a protobuf `string` that is not
//! UTF-8 would make the whole object invalid; in JSON and YAML a value of another
//! type becomes its text. The consumer refuses such text by name.

mod node;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Text for an object. Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The text of a JSON value.
pub(crate) fn text(value: Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.into_bytes(),
        other => other.to_string().into_bytes(),
    }
}

/// Deserializes text; null is empty text.
pub(crate) fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    Ok(value.map(text).unwrap_or_default())
}

/// Deserializes a list; null is empty, and a value that is no list is its only
/// item.
fn items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(match Option::<Value>::deserialize(deserializer)? {
        None => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(other) => vec![other],
    })
}
