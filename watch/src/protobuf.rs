//! The protobuf around objects: envelopes, the metadata of a list, an event of
//! a watch and the status of a failed request.
//!
//! Field numbers are those of
//! `k8s.io/apimachinery/pkg/{apis/meta/v1,runtime}/generated.proto`; they never
//! change within `v1`.

use prost::Message as _;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;

use crate::event::{EventType, Head, Status, WatchEvent};
use crate::kind::{InvalidObject, Kind};

/// The first bytes of every object (`runtime/serializer/protobuf`).
pub(crate) const MAGIC: &[u8] = b"k8s\0";

/// Why bytes are not what they should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a number has no end")]
    Varint,
    #[error("a field reaches beyond the end")]
    Length,
    #[error("wire type {0} is not known")]
    WireType(u64),
    #[error("it does not start as the API's objects do")]
    Magic,
    #[error("{0}")]
    Message(#[from] prost::DecodeError),
    #[error("an event's type is not known: {0}")]
    EventType(#[from] serde::de::value::Error),
}

/// `runtime.Unknown`, the envelope around an object.
#[derive(prost::Message)]
struct Unknown {
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

/// `meta/v1.ListMeta`.
#[derive(prost::Message)]
pub(crate) struct ListMetadata {
    #[prost(string, tag = "2")]
    pub resource_version: String,
    #[prost(string, tag = "3")]
    pub continue_token: String,
}

/// `meta/v1.WatchEvent`.
#[derive(prost::Message)]
struct EventMessage {
    #[prost(string, tag = "1")]
    of: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

/// `runtime.RawExtension`: an object in its envelope.
#[derive(prost::Message)]
struct RawExtension {
    #[prost(bytes = "vec", tag = "1")]
    raw: Vec<u8>,
}

/// `meta/v1.Status`.
#[derive(prost::Message)]
struct StatusMessage {
    #[prost(string, tag = "3")]
    message: String,
    #[prost(int32, tag = "6")]
    code: i32,
}

/// An object of any kind.
#[derive(prost::Message)]
struct Object {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
}

/// `meta/v1.ObjectMeta`.
#[derive(prost::Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
    #[prost(string, optional, tag = "6")]
    resource_version: Option<String>,
}

fn open_envelope(envelope: &[u8]) -> Result<Vec<u8>, Malformed> {
    let unknown = envelope.strip_prefix(MAGIC).ok_or(Malformed::Magic)?;
    Ok(Unknown::decode(unknown)?.raw)
}

/// Decodes the status of a failed request.
pub(crate) fn status(envelope: &[u8]) -> Result<Status, Malformed> {
    let StatusMessage { message, code } = StatusMessage::decode(&*open_envelope(envelope)?)?;
    let code = u16::try_from(code).unwrap_or_default();
    Ok(Status { code, message })
}

/// Decodes an object of a list.
pub(crate) fn object<K: Kind>(object: &[u8]) -> Result<K, InvalidObject> {
    Ok(K::from_message(K::Message::decode(object)?)?)
}

/// Decodes an event of a watch, without the length before it. An error means
/// that it is no event.
pub(crate) fn event<K: Kind>(frame: &[u8]) -> Result<WatchEvent<K>, Malformed> {
    let EventMessage { of, object } = EventMessage::decode(frame)?;
    let envelope = object.unwrap_or_default().raw;
    let of: Result<_, serde::de::value::Error> = EventType::deserialize(of.into_deserializer());
    let of = of?;
    if of == EventType::Error {
        return status(&envelope).map(WatchEvent::Error);
    }
    let object = open_envelope(&envelope)?;
    Ok(WatchEvent::new(of, head(&object), || self::object(&object)))
}

fn head(object: &[u8]) -> Head {
    let mut read = Object::default();
    // An error ends the decoding and leaves what was read before it: the
    // version of an object that is invalid further on still counts.
    let _ = read.merge(object);
    let metadata = read.metadata.unwrap_or_default();
    Head {
        namespace: metadata.namespace,
        name: metadata.name,
        version: metadata.resource_version,
    }
}
