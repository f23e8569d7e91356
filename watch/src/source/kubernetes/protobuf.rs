//! The API's protobuf: what a list, an event of a watch and a refusal say. Of a
//! Node only the few fields that are used are looked at; all others are passed
//! over by their length, without a copy.
//!
//! Written by hand because that is what it takes: a dozen fields, and a list
//! whose items are decoded while the body still comes in. Field numbers are
//! those of `k8s.io/api/core/v1/generated.proto` and of
//! `k8s.io/apimachinery/pkg/{apis/meta/v1,runtime}/generated.proto`; they never
//! change within `v1`.

use crate::source::manifest::{NotNode, node_name};
use tweed_core::object::node::{Node, NodeAddress, VtepOverride};

use super::said::{Said, Status};

/// What every object starts with (`runtime/serializer/protobuf`).
pub(super) const MAGIC: &[u8] = b"k8s\0";

/// Field numbers of what is around objects.
pub(super) mod field {
    /// `runtime.Unknown.raw`: the object.
    pub const UNKNOWN_RAW: u64 = 2;
    /// `NodeList.metadata`.
    pub const LIST_METADATA: u64 = 1;
    /// `NodeList.items`.
    pub const LIST_ITEMS: u64 = 2;
}

/// Why bytes are no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Malformed {
    #[error("a number has no end")]
    Varint,
    #[error("a field reaches beyond the end")]
    Length,
    #[error("wire type {0} is not known")]
    WireType(u64),
    #[error("it does not start as the API's objects do")]
    Magic,
    #[error("an event is of the kind {0:?}")]
    Kind(String),
}

/// Why an object is no Node.
#[derive(Debug, thiserror::Error)]
pub(super) enum Undecodable {
    #[error("it is no message: {0}")]
    Malformed(#[from] Malformed),
    #[error("it {0}")]
    NotNode(#[from] NotNode),
}

/// A field's value, as far as it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Of fixed size: no field that is used is.
    Fixed,
}

/// The key of a field: its number and its wire type.
pub(super) fn key(varint: u64) -> (u64, u64) {
    (varint >> 3, varint & 7)
}

/// The wire types.
pub(super) mod wire_type {
    pub const VARINT: u64 = 0;
    pub const FIXED_64: u64 = 1;
    pub const LENGTH_DELIMITED: u64 = 2;
    pub const FIXED_32: u64 = 5;
}

/// The longest varint, in bytes.
pub(super) const LONGEST_VARINT: usize = 10;

/// The number that `bytes` start with, and how many bytes it takes.
pub(super) fn varint(bytes: &[u8]) -> Result<(u64, usize), Malformed> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(LONGEST_VARINT).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok((value, at + 1));
        }
    }
    Err(Malformed::Varint)
}

/// The fields of a message, in their order.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Result<u64, Malformed> {
        let (number, length) = varint(self.0)?;
        self.take(length)?;
        Ok(number)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u64, Value<'a>), Malformed> {
        let (number, kind) = key(self.number()?);
        let value = match kind {
            wire_type::VARINT => Value::Number(self.number()?),
            wire_type::FIXED_64 => self.take(8).map(|_| Value::Fixed)?,
            wire_type::FIXED_32 => self.take(4).map(|_| Value::Fixed)?,
            wire_type::LENGTH_DELIMITED => {
                let length = usize::try_from(self.number()?).map_err(|_| Malformed::Length)?;
                Value::Bytes(self.take(length)?)
            }
            other => return Err(Malformed::WireType(other)),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Malformed>;

    /// What is malformed is the last that is said.
    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field().inspect_err(|_| self.0 = &[]))
    }
}

/// What is not UTF-8 becomes text to refuse.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The object inside the envelope that the API puts around it.
pub(super) fn object_in(envelope: &[u8]) -> Result<&[u8], Malformed> {
    let unknown = envelope.strip_prefix(MAGIC).ok_or(Malformed::Magic)?;
    let mut object: &[u8] = &[];
    for field in Fields(unknown) {
        if let (field::UNKNOWN_RAW, Value::Bytes(raw)) = field? {
            object = raw;
        }
    }
    Ok(object)
}

/// `metadata` of a list: its version, and what to ask for the next page with.
pub(super) fn list_metadata(bytes: &[u8]) -> Result<(Option<String>, Option<String>), Malformed> {
    let (mut version, mut go_on) = (None, None);
    for field in Fields(bytes) {
        match field? {
            (2, Value::Bytes(bytes)) => version = some(bytes),
            (3, Value::Bytes(bytes)) => go_on = some(bytes),
            _ => {}
        }
    }
    Ok((version, go_on))
}

fn some(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| text(bytes))
}

/// What the API says instead of what was asked for (`meta/v1.Status`).
pub(super) fn status(object: &[u8]) -> Result<Status, Malformed> {
    let mut status = Status::default();
    for field in Fields(object) {
        match field? {
            (3, Value::Bytes(message)) => status.message = text(message),
            (6, Value::Number(code)) => status.code = u16::try_from(code).unwrap_or_default(),
            _ => {}
        }
    }
    Ok(status)
}

/// A Node's metadata.
#[derive(Default)]
struct Metadata {
    name: String,
    uid: String,
    version: Option<String>,
    created: Option<i64>,
}

impl Metadata {
    fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut metadata = Self::default();
        for field in Fields(bytes) {
            match field? {
                (1, Value::Bytes(name)) => metadata.name = text(name),
                (5, Value::Bytes(uid)) => metadata.uid = text(uid),
                (6, Value::Bytes(version)) => metadata.version = some(version),
                (8, Value::Bytes(time)) => metadata.created = seconds(time)?,
                _ => {}
            }
        }
        Ok(metadata)
    }
}

/// Seconds since 1970 of a `meta/v1.Time`, which is empty for none.
fn seconds(time: &[u8]) -> Result<Option<i64>, Malformed> {
    let mut seconds = None;
    for field in Fields(time) {
        if let (1, Value::Number(number)) = field? {
            // Times before 1970 are sent as two's complement.
            seconds = Some(number.cast_signed());
        }
    }
    Ok(seconds)
}

/// `spec`: `podCIDRs`, or `podCIDR` alone.
fn pod_cidrs(spec: &[u8]) -> Result<Vec<String>, Malformed> {
    let (mut single, mut several) = (None, Vec::new());
    for field in Fields(spec) {
        match field? {
            (1, Value::Bytes(cidr)) => single = some(cidr),
            (7, Value::Bytes(cidr)) => several.extend(some(cidr)),
            _ => {}
        }
    }
    if several.is_empty() {
        several.extend(single);
    }
    Ok(several)
}

/// Adds `status.addresses`.
fn addresses(status: &[u8], addresses: &mut Vec<NodeAddress>) -> Result<(), Malformed> {
    for field in Fields(status) {
        if let (5, Value::Bytes(entry)) = field? {
            let (mut kind, mut address) = (String::new(), String::new());
            for field in Fields(entry) {
                match field? {
                    (1, Value::Bytes(bytes)) => kind = text(bytes),
                    (2, Value::Bytes(bytes)) => address = text(bytes),
                    _ => {}
                }
            }
            addresses.push(NodeAddress { kind, address });
        }
    }
    Ok(())
}

/// Decodes a Node, without an envelope; gives its version too.
fn versioned_node(object: &[u8]) -> Result<(Node, Option<String>), Undecodable> {
    let mut metadata = Metadata::default();
    let mut node = Node {
        vtep: VtepOverride::default(),
        ..Node::default()
    };
    for field in Fields(object) {
        match field? {
            (1, Value::Bytes(bytes)) => metadata = Metadata::read(bytes)?,
            (2, Value::Bytes(bytes)) => node.pod_cidrs = pod_cidrs(bytes)?,
            (3, Value::Bytes(bytes)) => addresses(bytes, &mut node.addresses)?,
            _ => {}
        }
    }
    node.name = node_name(metadata.name)?;
    node.uid = metadata.uid;
    node.created = metadata.created;
    Ok((node, metadata.version))
}

/// Decodes a Node of a list.
pub(super) fn node(object: &[u8]) -> Result<Node, Undecodable> {
    versioned_node(object).map(|(node, _)| node)
}

/// Decodes an event of a watch, less the length before it; an error means that
/// it is none at all.
pub(super) fn event(frame: &[u8]) -> Result<Said, Malformed> {
    let (mut kind, mut raw): (&[u8], &[u8]) = (&[], &[]);
    for field in Fields(frame) {
        match field? {
            (1, Value::Bytes(bytes)) => kind = bytes,
            // A `runtime.RawExtension`.
            (2, Value::Bytes(extension)) => {
                for field in Fields(extension) {
                    if let (1, Value::Bytes(bytes)) = field? {
                        raw = bytes;
                    }
                }
            }
            _ => {}
        }
    }
    let object = object_in(raw)?;
    let said = match kind {
        b"ERROR" => Said::Error(status(object)?),
        b"BOOKMARK" => Said::Bookmark(metadata_of(object).version),
        b"ADDED" | b"MODIFIED" => match versioned_node(object) {
            Ok((node, version)) => Said::Changed(node, version),
            Err(why) => Said::NotNode(why.to_string(), metadata_of(object).version),
        },
        b"DELETED" => {
            let metadata = metadata_of(object);
            match node_name(metadata.name) {
                Ok(name) => Said::Deleted(name, metadata.version),
                Err(why) => Said::NotNode(Undecodable::from(why).to_string(), metadata.version),
            }
        }
        other => return Err(Malformed::Kind(text(other))),
    };
    Ok(said)
}

/// As much of an object's metadata as can be read.
fn metadata_of(object: &[u8]) -> Metadata {
    let read = Fields(object).find_map(|field| match field {
        Ok((1, Value::Bytes(bytes))) => Metadata::read(bytes).ok(),
        _ => None,
    });
    read.unwrap_or_default()
}
