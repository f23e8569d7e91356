//! The protobuf around objects: envelopes, the metadata of a list, an event of
//! a watch and the status of a failed request.
//!
//! Field numbers are those of
//! `k8s.io/apimachinery/pkg/{apis/meta/v1,runtime}/generated.proto`; they never
//! change within `v1`.

use prost::Message as _;
use prost::bytes::Bytes;
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
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
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
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

/// The object inside `envelope`, without a copy.
fn open_envelope(mut envelope: Bytes) -> Result<Bytes, Malformed> {
    if !envelope.starts_with(MAGIC) {
        return Err(Malformed::Magic);
    }
    let unknown = envelope.split_off(MAGIC.len());
    Ok(Unknown::decode(unknown)?.raw)
}

/// Decodes the status of a failed request.
pub(crate) fn status(envelope: Bytes) -> Result<Status, Malformed> {
    Ok(Status::decode(open_envelope(envelope)?)?)
}

/// Decodes an object of a list.
pub(crate) fn object<K: Kind>(object: &[u8]) -> Result<K, InvalidObject> {
    Ok(K::from_fields(K::Fields::decode(object)?)?)
}

/// Decodes an event of a watch, without the length before it. An error means
/// that it is no event.
pub(crate) fn event<K: Kind>(frame: &[u8]) -> Result<WatchEvent<K>, Malformed> {
    let EventMessage { of, object } = EventMessage::decode(frame)?;
    let envelope = object.unwrap_or_default().raw;
    let of: Result<_, serde::de::value::Error> = EventType::deserialize(of.into_deserializer());
    let of = of?;
    if of == EventType::Error {
        return status(envelope).map(WatchEvent::Error);
    }
    let object = open_envelope(envelope)?;
    let mut head = Head::default();
    // An error ends the decoding and leaves what was read before it: the version
    // of an object that is invalid further on still counts.
    let _ = head.merge(&*object);
    Ok(WatchEvent::new(of, head, || self::object(&object)))
}
