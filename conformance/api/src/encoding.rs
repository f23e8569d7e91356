//! Objects as they are sent: in JSON, Nodes in protobuf too.
//!
//! Field numbers are those of `k8s.io/api/core/v1/generated.proto`, and of `runtime` and
//! `meta/v1` of `k8s.io/apimachinery`. They stand apart from the agent's reader on purpose:
//! a number that is wrong in one of the two shows as a Node that is not understood.

use axum::body::Bytes;
use prost::encoding::{WireType, encode_key, encode_varint};
use serde_json::Value;

/// How a field is written. An array is the same field again and again.
enum Kind {
    Text,
    Number,
    /// A message with the seconds since 1970.
    Time,
    /// A message with one text: a quantity, or JSON.
    Wrapped,
    /// Entries with a key and a value of this kind.
    Map(&'static Kind),
    Message(&'static [Field]),
}

/// Its name in JSON, its number, its kind.
type Field = (&'static str, u32, Kind);

const NODE: &[Field] = &[
    ("metadata", 1, Kind::Message(METADATA)),
    ("spec", 2, Kind::Message(SPEC)),
    ("status", 3, Kind::Message(STATUS)),
];
const METADATA: &[Field] = &[
    ("name", 1, Kind::Text),
    ("uid", 5, Kind::Text),
    ("resourceVersion", 6, Kind::Text),
    ("creationTimestamp", 8, Kind::Time),
    ("labels", 11, Kind::Map(&Kind::Text)),
    ("annotations", 12, Kind::Map(&Kind::Text)),
    ("managedFields", 17, Kind::Message(MANAGED)),
];
const MANAGED: &[Field] = &[
    ("manager", 1, Kind::Text),
    ("operation", 2, Kind::Text),
    ("apiVersion", 3, Kind::Text),
    ("time", 4, Kind::Time),
    ("fieldsType", 6, Kind::Text),
    ("fieldsV1", 7, Kind::Wrapped),
    ("subresource", 8, Kind::Text),
];
const SPEC: &[Field] = &[
    ("podCIDR", 1, Kind::Text),
    ("providerID", 3, Kind::Text),
    ("podCIDRs", 7, Kind::Text),
];
const STATUS: &[Field] = &[
    ("capacity", 1, Kind::Map(&Kind::Wrapped)),
    ("allocatable", 2, Kind::Map(&Kind::Wrapped)),
    ("conditions", 4, Kind::Message(CONDITION)),
    ("addresses", 5, Kind::Message(ADDRESS)),
    ("images", 8, Kind::Message(IMAGE)),
];
const CONDITION: &[Field] = &[
    ("type", 1, Kind::Text),
    ("status", 2, Kind::Text),
    ("lastHeartbeatTime", 3, Kind::Time),
    ("lastTransitionTime", 4, Kind::Time),
    ("reason", 5, Kind::Text),
    ("message", 6, Kind::Text),
];
const ADDRESS: &[Field] = &[("type", 1, Kind::Text), ("address", 2, Kind::Text)];
const IMAGE: &[Field] = &[("names", 1, Kind::Text), ("sizeBytes", 2, Kind::Number)];

/// Second of 2026-11-21, the day of all times.
const DAY: u64 = 1_795_219_200;

/// A time of that day, as RFC 3339 has it.
pub fn time(second: u32) -> String {
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    format!("2026-11-21T{hours:02}:{minutes:02}:{seconds:02}Z")
}

fn seconds(time: &str) -> u64 {
    let parts = time.split(['T', ':', 'Z']).skip(1);
    let numbers = parts.filter_map(|part| part.parse::<u64>().ok());
    DAY + numbers.fold(0, |sum, number| sum * 60 + number)
}

fn number(tag: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(tag, WireType::Varint, out);
    encode_varint(value, out);
}

fn content(tag: u32, content: &[u8], out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

/// A message of fields with a content.
fn contents<'a>(fields: impl IntoIterator<Item = (u32, &'a [u8])>) -> Vec<u8> {
    let mut out = Vec::new();
    for (tag, bytes) in fields {
        content(tag, bytes, &mut out);
    }
    out
}

fn message(fields: &[Field], object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, tag, kind) in fields {
        match &object[name] {
            Value::Null => {}
            Value::Array(items) => items.iter().for_each(|item| kind.put(*tag, item, &mut out)),
            one => kind.put(*tag, one, &mut out),
        }
    }
    out
}

impl Kind {
    fn put(&self, tag: u32, value: &Value, out: &mut Vec<u8>) {
        let text = || (value.as_str()).map_or_else(|| value.to_string(), str::to_owned);
        match self {
            Self::Text => content(tag, text().as_bytes(), out),
            Self::Number => number(tag, value.as_u64().unwrap_or_default(), out),
            Self::Time => {
                let mut time = Vec::new();
                number(1, seconds(&text()), &mut time);
                content(tag, &time, out);
            }
            Self::Wrapped => content(tag, &contents([(1, text().as_bytes())]), out),
            Self::Map(kind) => {
                for (key, value) in value.as_object().into_iter().flatten() {
                    let mut entry = contents([(1, key.as_bytes())]);
                    kind.put(2, value, &mut entry);
                    content(tag, &entry, out);
                }
            }
            Self::Message(fields) => content(tag, &message(fields, value), out),
        }
    }
}

/// What stands around every object of the API in protobuf: `runtime.Unknown`.
fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
    let type_meta = contents([(1, &b"v1"[..]), (2, kind.as_bytes())]);
    [b"k8s\0", &contents([(1, &type_meta[..]), (2, raw)])[..]].concat()
}

/// An object, ready to be sent.
#[derive(Debug)]
pub struct Object {
    /// `metadata.namespace`; empty if its kind has none.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.nodeName`.
    pub node: String,
    json: Bytes,
    /// Without an envelope; empty if it is no Node.
    protobuf: Bytes,
}

impl Object {
    /// An object in JSON.
    #[must_use]
    pub fn new(object: &Value) -> Self {
        let text = |part: &str, field: &str| {
            let text = object[part][field].as_str();
            text.unwrap_or_default().to_owned()
        };
        let fields = if object["kind"] == "Node" { NODE } else { &[] };
        Self {
            namespace: text("metadata", "namespace"),
            name: text("metadata", "name"),
            node: text("spec", "nodeName"),
            json: object.to_string().into(),
            protobuf: message(fields, object).into(),
        }
    }

    /// In JSON.
    #[must_use]
    pub fn json(&self) -> Bytes {
        self.json.clone()
    }

    /// As an event of a watch. In protobuf its length stands before it, as four bytes.
    pub fn event(&self, kind: &str, protobuf: bool) -> Vec<u8> {
        if protobuf {
            let object = contents([(1, &envelope("Node", &self.protobuf)[..])]);
            let event = contents([(1, kind.as_bytes()), (2, &object)]);
            return [&(event.len() as u32).to_be_bytes(), &event[..]].concat();
        }
        let head = format!(r#"{{"type":"{kind}","object":"#);
        [head.as_bytes(), &self.json, b"}\n"].concat()
    }
}

/// A page of a list: `token` asks for the next one, and is empty in the last.
pub struct Page<'a> {
    pub kind: &'a str,
    pub api_version: &'a str,
    pub version: &'a str,
    pub token: &'a str,
    pub items: Vec<&'a Object>,
}

impl Page<'_> {
    pub fn json(&self) -> Vec<u8> {
        let Self {
            kind,
            api_version,
            version,
            token,
            items,
        } = self;
        let head = format!(
            r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":["#
        );
        let texts: Vec<&[u8]> = items.iter().map(|item| &item.json[..]).collect();
        [head.as_bytes(), &texts.join(&b","[..]), b"]}\n"].concat()
    }

    pub fn protobuf(&self) -> Vec<u8> {
        let metadata = contents([(2, self.version.as_bytes()), (3, self.token.as_bytes())]);
        let items = self.items.iter().map(|item| (2, &item.protobuf[..]));
        let metadata = [(1, &metadata[..])];
        envelope(self.kind, &contents(metadata.into_iter().chain(items)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_one_day() {
        assert_eq!(time(3671), "2026-11-21T01:01:11Z");
        assert_eq!(seconds("2026-11-21T01:01:11Z"), DAY + 3671);
    }
}
