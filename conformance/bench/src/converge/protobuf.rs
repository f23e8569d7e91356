//! What stands around Nodes in an answer of the API, in both encodings where it is
//! an event. Field numbers are those of `k8s.io/apimachinery/pkg/runtime` and
//! `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`.

use bytes::Bytes;
use prost::Message;

use super::fleet::Encoded;

/// What every protobuf object of the API starts with.
const MAGIC: &[u8] = b"k8s\0";

/// `runtime.Unknown`: the envelope of an object.
#[derive(Message)]
struct Unknown {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
}

#[derive(Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Message)]
struct NodeList {
    #[prost(message, optional, tag = "1")]
    metadata: Option<ListMeta>,
    /// Each encoded already.
    #[prost(bytes = "bytes", repeated, tag = "2")]
    items: Vec<Bytes>,
}

#[derive(Message)]
struct ListMeta {
    #[prost(string, tag = "2")]
    resource_version: String,
    #[prost(string, tag = "3")]
    token: String,
}

#[derive(Message)]
struct WatchEvent {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(message, optional, tag = "2")]
    object: Option<RawExtension>,
}

#[derive(Message)]
struct RawExtension {
    #[prost(bytes = "bytes", tag = "1")]
    raw: Bytes,
}

fn envelope(kind: &str, raw: Bytes) -> Bytes {
    let unknown = Unknown {
        type_meta: Some(TypeMeta {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
        }),
        raw,
    };
    [MAGIC, &unknown.encode_to_vec()].concat().into()
}

/// A page of a list; `token` asks for the next one, and is empty in the last.
pub fn node_list(version: &str, token: &str, items: Vec<Bytes>) -> Bytes {
    let list = NodeList {
        metadata: Some(ListMeta {
            resource_version: version.to_owned(),
            token: token.to_owned(),
        }),
        items,
    };
    envelope("NodeList", list.encode_to_vec().into())
}

/// An event of a watch. As protobuf its length stands before it, as four bytes.
pub fn watch_event(kind: &str, node: &Encoded) -> Encoded {
    let event = WatchEvent {
        kind: kind.to_owned(),
        object: Some(RawExtension {
            raw: envelope("Node", node.protobuf.clone()),
        }),
    };
    let event = event.encode_to_vec();
    let length = (event.len() as u32).to_be_bytes();
    let head = format!(r#"{{"type":"{kind}","object":"#);
    Encoded {
        json: [head.as_bytes(), &node.json, b"}\n"].concat().into(),
        protobuf: [&length, event.as_slice()].concat().into(),
    }
}
