//! Decoding of single objects and events.

use proptest::prelude::*;
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::network_policy::{NetworkPolicy, Peer, PortMatch};
use tweed_core::object::pod::Pod;
use tweed_core::object::selector::Operator;

use super::*;
use crate::event::{ListMetadata, WatchEvent};
use crate::{json, protobuf as proto};
use prost::Message as _;

fn node(message: &Message) -> Node {
    proto::object(&message.0).unwrap()
}

fn named(name: &str) -> Node {
    Node {
        name: name.to_owned(),
        ..Node::default()
    }
}

#[test]
fn a_node_may_lack_fields_or_have_odd_ones() {
    let bare = Message::default().message(1, Message::default().text(1, "a"));
    assert_eq!(node(&bare), named("a"));
    // An empty time is none. A single pod CIDR is enough.
    let old = Message::default()
        .message(1, Message::default().text(1, "a").text(8, "").text(9, ""))
        .message(2, Message::default().text(1, "10.244.1.0/24"));
    let expected = Node {
        pod_cidrs: vec!["10.244.1.0/24".to_owned()],
        ..named("a")
    };
    assert_eq!(node(&old), expected);
    let before_1970 = Message::default().number(1, u64::MAX);
    let old =
        Message::default().message(1, Message::default().text(1, "a").message(8, before_1970));
    let expected = Node {
        created: Some(-1),
        ..named("a")
    };
    assert_eq!(node(&old), expected);
    let deleted = Message::default().number(1, 1_795_255_200);
    let deleted =
        Message::default().message(1, Message::default().text(1, "a").message(9, deleted));
    let expected = Node {
        leaving: true,
        ..named("a")
    };
    assert_eq!(node(&deleted), expected);
    // Bytes that are not UTF-8 become text that the planner refuses by name.
    let odd = bare.message(2, Message::default().bytes(7, &[0xff]));
    let expected = Node {
        pod_cidrs: vec!["\u{fffd}".to_owned()],
        ..named("a")
    };
    assert_eq!(node(&odd), expected);
}

#[test]
fn a_policy_in_protobuf_that_is_not_understood_is_never_wider() {
    let metadata = Message::default().text(1, "a").text(3, "n");
    let of_spec = |spec: Message| -> NetworkPolicy {
        let message = Message::default().message(1, metadata.clone());
        proto::object(&message.message(2, spec).0).unwrap()
    };
    let of_rule = |rule: Message| {
        of_spec(Message::default().message(2, rule))
            .ingress
            .remove(0)
    };
    // A peer of a kind that is not known, and one of two kinds that exclude each other.
    let unknown = Message::default().message(9, Message::default());
    let block = Message::default().text(1, "10.0.0.0/8");
    let both = Message::default()
        .message(1, Message::default())
        .message(3, block);
    for peer in [Message::default(), unknown, both] {
        let rule = of_rule(Message::default().message(2, peer));
        assert!(matches!(&rule.peers[..], [Peer::Unknown(_)]), "{rule:?}");
    }
    let number = |number| Message::default().number(1, 0).number(2, number);
    let named = |name| Message::default().number(1, 1).text(3, name);
    for (port, end) in [
        (number(0), None),
        (number(70_000), None),
        (named("80"), None),
        (named(""), None),
        (named("web"), Some(9)),
        (Message::default().number(1, 2), None),
        (number(80), Some(79)),
    ] {
        let port = Message::default().message(2, port);
        let port = end.map_or(port.clone(), |end| port.number(3, end));
        let rule = of_rule(Message::default().message(1, port));
        let found = &rule.ports[0].port;
        assert!(matches!(found, PortMatch::Invalid(_)), "{found:?}");
    }
    let requirement = Message::default().text(1, "app").text(2, "Like");
    let selector = Message::default().message(2, requirement);
    let policy = of_spec(Message::default().message(1, selector));
    let operator = &policy.pod_selector.match_expressions[0].operator;
    assert_eq!(*operator, Operator::Unknown("Like".to_owned()));
}

#[test]
fn the_key_of_a_deleted_object_has_its_namespace() {
    let expected = ObjectKey {
        namespace: "n".to_owned(),
        name: "a".to_owned(),
    };
    let metadata = json!({"name": "a", "namespace": "n"});
    let line = line("DELETED", &json!({ "metadata": metadata }));
    let from_json = json::event::<Node>(line.as_bytes()).unwrap();
    let metadata = Message::default().text(1, "a").text(3, "n");
    let object = Message::default().message(1, metadata);
    let frame = protobuf::event("DELETED", &object).split_off(4);
    let from_protobuf = proto::event::<Node>(&frame).unwrap();
    for event in [from_json, from_protobuf] {
        assert!(
            matches!(&event, WatchEvent::Delete(key, None) if *key == expected),
            "{event:?}"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = proto::object::<Node>(&bytes);
        let _ = proto::object::<Namespace>(&bytes);
        let _ = proto::object::<Pod>(&bytes);
        let _ = proto::object::<NetworkPolicy>(&bytes);
        let _ = proto::object::<ClusterNetworkPolicy>(&bytes);
        let _ = proto::event::<Node>(&bytes);
        let _ = proto::status(bytes.clone().into());
        let _ = ListMetadata::decode(&*bytes);
    }

    #[test]
    fn an_object_that_was_cut_or_changed_is_an_object_or_an_error(
        cut in 0..200_usize,
        at in 0..200_usize,
        byte in any::<u8>(),
    ) {
        for message in [
            protobuf::message::<Node>("a", "1"),
            protobuf::message::<Pod>("a", "1"),
            protobuf::message::<NetworkPolicy>("a", "1"),
        ] {
        let mut bytes = protobuf::event("ADDED", &message).split_off(4);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let _ = proto::event::<Node>(&bytes);
        let _ = proto::event::<Namespace>(&bytes);
        let _ = proto::event::<Pod>(&bytes);
        let _ = proto::event::<NetworkPolicy>(&bytes);
        let _ = proto::event::<ClusterNetworkPolicy>(&bytes);
        }
    }
}
