//! The kinds that can be watched.
//!
//! Each kind has one set of structs for all encodings. Their field numbers are
//! those of `generated.proto` in `k8s.io/api/core/v1`, `k8s.io/api/discovery/v1`,
//! `k8s.io/api/networking/v1` and `k8s.io/apimachinery/pkg/apis/meta/v1`; they never
//! change within `v1`. Text is held as bytes, because a protobuf `string` that is not
//! UTF-8 would make the whole object invalid; in JSON and YAML a value of another
//! type becomes its text. The consumer refuses such text by name.

#[macro_use]
mod message;

mod cluster_network_policy;
mod endpoint_slice;
mod metadata;
mod namespace;
mod network_policy;
mod network_policy_port;
mod node;
mod pod;
mod selector;
mod service;
mod service_cidr;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{node::Node, pod::Pod};

use crate::kind::Kind;

/// Whether an object that a manifest names so, or a List of such objects, is of a kind
/// that can be watched.
pub(crate) fn is_known(kind: &str, api_version: Option<&str>) -> bool {
    is_of::<Node>(kind, api_version)
        || is_of::<Pod>(kind, api_version)
        || is_of::<Namespace>(kind, api_version)
        || is_of::<NetworkPolicy>(kind, api_version)
        || is_of::<ClusterNetworkPolicy>(kind, api_version)
        || is_of::<Service>(kind, api_version)
        || is_of::<EndpointSlice>(kind, api_version)
        || is_of::<ServiceCidr>(kind, api_version)
}

fn is_of<K: Kind>(kind: &str, api_version: Option<&str>) -> bool {
    let single = kind.strip_suffix("List").unwrap_or(kind);
    single == K::NAME && api_version.is_none_or(|version| version == K::api_version())
}

/// The values of a list without room for more. `collect` keeps the allocation of what it reads,
/// which has grown by doubling and has entries of another size.
pub(crate) fn exact<T>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.shrink_to_fit();
    values
}

/// Text for an object. Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The texts of a list that replaced a field with one text, which is the list's first
/// and stands alone in what old servers say.
fn list_or_first(list: Vec<Vec<u8>>, first: Vec<Vec<u8>>) -> Vec<String> {
    let texts = |values: Vec<Vec<u8>>| -> Vec<String> {
        let given = values.into_iter().filter(|value| !value.is_empty());
        exact(given.map(lossy))
    };
    match texts(list) {
        none if none.is_empty() => texts(first),
        all => all,
    }
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

/// Deserializes a list of text, as [`items`] reads it.
fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Vec<u8>>, D::Error> {
    Ok(items(deserializer)?.into_iter().map(text).collect())
}

/// Deserializes a list of objects, as [`items`] reads it.
fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(items(deserializer)?.into_iter().map(object_of).collect())
}

/// Deserializes an object; null is none.
fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(Option::<Value>::deserialize(deserializer)?.map(object_of))
}

/// What is no object is as good as an empty one.
fn object_of<T: DeserializeOwned + Default>(value: Value) -> T {
    let object = Some(value).filter(Value::is_object);
    let read = object.and_then(|object| serde_json::from_value(object).ok());
    read.unwrap_or_default()
}

/// Reads an object of a policy, in which an unknown field, or a field of the wrong type, must
/// not be as good as absent: what cannot be read becomes what `invalid` makes of its text.
fn or_invalid<T: DeserializeOwned>(value: Value, invalid: fn(Vec<u8>) -> T) -> T {
    strict(&value).unwrap_or_else(|_| invalid(value.to_string().into_bytes()))
}

/// Reads an object. serde would take a list of its fields for one too.
fn strict<T: DeserializeOwned>(value: &Value) -> Result<T, serde_json::Error> {
    if value.is_object() {
        T::deserialize(value)
    } else {
        Err(serde_json::Error::custom("it is no object"))
    }
}

/// Deserializes an object as [`strict`] reads it, which is none if it is null.
fn strict_object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let value = Option::<Value>::deserialize(deserializer)?;
    let object = value.map(|value| strict(&value).map_err(D::Error::custom));
    object.transpose()
}

/// Deserializes a list, which is none if it is null.
fn or_empty<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Deserializes a number; what is none of 32 bits is 0, which is no port.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let wide = Value::deserialize(deserializer)?.as_i64();
    let number = wide.and_then(|number| i32::try_from(number).ok());
    Ok(number.unwrap_or_default())
}

/// The items of the list `name` in a JSON object, as [`items`] reads them; none if it
/// has no such field.
fn list(object: &mut Value, name: &str) -> impl Iterator<Item = Value> {
    let items = match object.get_mut(name).map(Value::take) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(other) => vec![other],
    };
    items.into_iter()
}

/// The text of the field `name` of a JSON object; empty if it has no such field, or null.
fn optional_text(object: &mut Value, name: &str) -> Vec<u8> {
    match object.get_mut(name).map(Value::take) {
        None | Some(Value::Null) => Vec::new(),
        Some(value) => text(value),
    }
}

/// The name of a protocol; the API's default if the source gives none.
fn protocol(name: Vec<u8>) -> String {
    if name.is_empty() {
        "TCP".to_owned()
    } else {
        lossy(name)
    }
}

/// The fields of a JSON object that has no others than `known`.
fn only_keys(value: Value, known: &[&str]) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) if fields.keys().all(|key| known.contains(&key.as_str())) => {
            Some(fields)
        }
        _ => None,
    }
}
