//! Decoding of the ports of a NetworkPolicy's rule.
//!
//! What the API refuses matches nothing here: a port that is neither a number nor a
//! name, `"80"` as text among them, because a name has a letter; `endPort` without a
//! number before it or below it.

use serde::Deserialize;
use serde_json::Value;

use tweed_core::object::network_policy::{Port, PortMatch};

use super::{bytes, lossy, or_invalid, protocol};

/// A `NetworkPolicyPort`.
#[derive(prost::Message, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PolicyPort {
    #[prost(bytes = "vec", tag = "1")]
    #[serde(deserialize_with = "bytes")]
    protocol: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    port: Option<IntOrString>,
    #[prost(int32, optional, tag = "3")]
    end_port: Option<i32>,
    /// What JSON has in place of a port; the number is ours.
    #[prost(bytes = "vec", tag = "10000")]
    #[serde(skip)]
    invalid: Vec<u8>,
}

/// A `util.intstr.IntOrString`.
#[derive(prost::Message, Deserialize)]
#[serde(from = "Json")]
struct IntOrString {
    /// 0 for a number, 1 for a text.
    #[prost(int64, tag = "1")]
    of: i64,
    #[prost(int32, tag = "2")]
    number: i32,
    #[prost(bytes = "vec", tag = "3")]
    text: Vec<u8>,
}

impl PolicyPort {
    /// The port that it stands for.
    pub fn read(self) -> Port {
        let port = if self.invalid.is_empty() {
            port_match(self.port, self.end_port)
        } else {
            PortMatch::Invalid(lossy(self.invalid))
        };
        Port {
            protocol: protocol(self.protocol),
            port,
        }
    }

    /// The port in JSON.
    pub fn of_json(value: Value) -> Self {
        or_invalid(value, |invalid| Self {
            invalid,
            ..Self::default()
        })
    }
}

fn port_match(port: Option<IntOrString>, end: Option<i32>) -> PortMatch {
    match (port, end) {
        (None, None) => PortMatch::All,
        (None, Some(end)) => PortMatch::Invalid(format!("endPort {end} without a port")),
        (Some(IntOrString { of: 0, number, .. }), end) => {
            range(i64::from(number), i64::from(end.unwrap_or(number)))
        }
        (Some(IntOrString { of: 1, text, .. }), None) if is_port_name(&text) => {
            PortMatch::Named(lossy(text))
        }
        (Some(IntOrString { of: 1, text, .. }), None) => PortMatch::Invalid(lossy(text)),
        (Some(IntOrString { of: 1, text, .. }), Some(end)) => {
            PortMatch::Invalid(format!("{} to {end}", lossy(text)))
        }
        (Some(IntOrString { of, .. }), _) => PortMatch::Invalid(format!("a port of type {of}")),
    }
}

/// The ports from `first` to `last`, if they are ports in that order.
pub(super) fn range(first: i64, last: i64) -> PortMatch {
    match (u16::try_from(first), u16::try_from(last)) {
        (Ok(from), Ok(to)) if 0 < from && from <= to => PortMatch::Range(from, to),
        _ if first == last => PortMatch::Invalid(first.to_string()),
        _ => PortMatch::Invalid(format!("{first} to {last}")),
    }
}

/// Whether the API takes this as a port's name (`validation.IsValidPortName`).
pub(super) fn is_port_name(name: &[u8]) -> bool {
    let allowed = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    (1..=15).contains(&name.len())
        && name.iter().all(allowed)
        && name.iter().any(u8::is_ascii_lowercase)
        && !name.starts_with(b"-")
        && !name.ends_with(b"-")
        && !name.windows(2).any(|two| two == b"--")
}

/// How JSON has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Json {
    Number(i32),
    Text(String),
}

impl From<Json> for IntOrString {
    fn from(json: Json) -> Self {
        match json {
            Json::Number(number) => Self {
                number,
                ..Self::default()
            },
            Json::Text(text) => Self {
                of: 1,
                text: text.into_bytes(),
                ..Self::default()
            },
        }
    }
}
