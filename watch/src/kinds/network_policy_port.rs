//! Decoding of the ports of a NetworkPolicy's rule.
//!
//! What the API refuses matches nothing here: a port that is neither a number nor a
//! name, `"80"` as text among them, because a name has a letter; `endPort` without a
//! number before it or below it.

use serde_json::Value;

use tweed_core::object::network_policy::{Port, PortMatch};

use super::{lossy, only_keys, optional_text};

/// A `NetworkPolicyPort`.
#[derive(prost::Message)]
pub(super) struct PolicyPort {
    #[prost(bytes = "vec", tag = "1")]
    protocol: Vec<u8>,
    #[prost(message, optional, tag = "2")]
    port: Option<IntOrString>,
    #[prost(int32, optional, tag = "3")]
    end_port: Option<i32>,
    /// What JSON has in place of a port; the number is ours.
    #[prost(bytes = "vec", tag = "10000")]
    invalid: Vec<u8>,
}

/// A `util.intstr.IntOrString`.
#[derive(prost::Message)]
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
        let port = match self.invalid.is_empty() {
            true => port_match(self.port, self.end_port),
            false => PortMatch::Invalid(lossy(self.invalid)),
        };
        Port {
            protocol: match self.protocol.is_empty() {
                true => "TCP".to_owned(),
                false => lossy(self.protocol),
            },
            port,
        }
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

impl From<Value> for PolicyPort {
    fn from(port: Value) -> Self {
        let invalid = |port: Value| Self {
            invalid: port.to_string().into_bytes(),
            ..Self::default()
        };
        let Some(fields) = only_keys(port.clone(), &["protocol", "port", "endPort"]) else {
            return invalid(port);
        };
        let mut fields = Value::Object(fields);
        let Ok(first) = fields.get("port").map_or(Ok(None), IntOrString::of_json) else {
            return invalid(port);
        };
        let end_port = match fields.get("endPort") {
            None | Some(Value::Null) => None,
            Some(end) => match end.as_i64().and_then(|end| i32::try_from(end).ok()) {
                Some(end) => Some(end),
                None => return invalid(port),
            },
        };
        Self {
            protocol: optional_text(&mut fields, "protocol"),
            port: first,
            end_port,
            invalid: Vec::new(),
        }
    }
}

/// A value that is neither a number of 32 bits nor a text.
struct NotIntOrString;

impl IntOrString {
    fn of_json(value: &Value) -> Result<Option<Self>, NotIntOrString> {
        match value {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(Self {
                of: 1,
                number: 0,
                text: text.clone().into_bytes(),
            })),
            value => {
                let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
                let number = number.ok_or(NotIntOrString)?;
                Ok(Some(Self {
                    of: 0,
                    number,
                    text: Vec::new(),
                }))
            }
        }
    }
}
