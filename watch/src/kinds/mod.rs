//! The kinds that can be watched, and the decoding of fields that they share.
//!
//! Field numbers are those of `k8s.io/api/core/v1/generated.proto` and
//! `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`; they never change
//! within `v1`. Text is decoded from `bytes`, because a `string` that is not
//! UTF-8 would make the whole object invalid.

mod namespace;
mod node;

use serde_json::Value;

/// Text of a protobuf field. Bytes that are not UTF-8 become U+FFFD, which the
/// consumer refuses.
fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// A field that is present and not null.
fn given(value: Option<Value>) -> Option<Value> {
    value.filter(|value| !value.is_null())
}

/// The text of a field; JSON in place of a value that is no text.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// The text of a field that may be missing.
fn optional_text(value: Option<Value>) -> String {
    given(value).map(text).unwrap_or_default()
}
