//! The same source over a server that speaks protobuf.

use crate::fixture::NodeFixture as _;

use proptest::prelude::*;

use super::*;
use crate::source::kubernetes::protobuf::{self, MAGIC};

/// A message under construction.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn text(self, field: u64, value: &str) -> Self {
        self.bytes(field, value.as_bytes())
    }

    fn message(self, field: u64, value: Self) -> Self {
        self.bytes(field, &value.0)
    }

    /// Eight and four bytes of fixed size.
    fn fixed(mut self, field: u64) -> Self {
        self.varint(field << 3 | 1);
        self.0.extend([7; 8]);
        self.varint(field << 3 | 5);
        self.0.extend([7; 4]);
        self
    }
}

fn metadata(name: &str, version: &str) -> Message {
    Message::default()
        .text(1, name)
        .text(5, &format!("uid-{name}"))
        .text(6, version)
        .number(7, 0)
        .message(8, Message::default().number(1, 1_795_255_200).number(2, 0))
        .message(11, Message::default().text(1, "label").text(2, "value"))
        .fixed(99)
}

fn address(kind: &str, address: &str) -> Message {
    Message::default().text(1, kind).text(2, address)
}

fn with_metadata(metadata: Message) -> Message {
    Message::default()
        .message(1, metadata)
        .message(
            2,
            Message::default()
                .text(1, "10.244.1.0/24")
                .text(7, "10.244.1.0/24")
                .number(4, 1),
        )
        .message(
            3,
            Message::default()
                .message(4, Message::default().text(1, "Ready"))
                .message(5, address("InternalIP", "192.0.2.1"))
                .message(8, Message::default().text(1, "registry/image").number(2, 1)),
        )
}

fn node(name: &str, version: &str) -> Message {
    with_metadata(metadata(name, version))
}

fn envelope(kind: &str, object: &Message) -> Vec<u8> {
    let type_meta = Message::default().text(1, "v1").text(2, kind);
    let unknown = Message::default()
        .message(1, type_meta)
        .bytes(2, &object.0)
        .text(3, "")
        .text(4, "");
    [MAGIC, &unknown.0].concat()
}

fn page(items: &[Message], version: &str, go_on: &str) -> Vec<u8> {
    let metadata = Message::default()
        .text(1, "")
        .text(2, version)
        .text(3, go_on);
    let list = Message::default()
        .message(1, metadata)
        .fixed(9)
        .number(8, 300);
    let list = items
        .iter()
        .fold(list, |list, item| list.message(2, item.clone()));
    envelope("NodeList", &list)
}

fn list(names: &[&str], version: &str) -> Answer {
    let nodes: Vec<Message> = names.iter().map(|name| node(name, version)).collect();
    Answer::Protobuf(200, page(&nodes, version, ""))
}

fn status(code: u16, message: &str) -> Message {
    Message::default()
        .text(2, "Failure")
        .text(3, message)
        .number(6, u64::from(code))
}

fn frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let raw = Message::default().bytes(1, object);
    let event = Message::default().text(1, kind).message(2, raw).0;
    let length = u32::try_from(event.len()).unwrap();
    [&length.to_be_bytes(), event.as_slice()].concat()
}

fn told(kind: &str, object: &Message) -> Vec<u8> {
    frame(kind, &envelope("Node", object))
}

#[tokio::test]
async fn a_node_says_the_same_in_both_encodings() {
    let wanted = crate::fixture::node("a")
        .uid("uid-a")
        .created(1_795_255_200)
        .cidr("10.244.1.0/24")
        .internal("192.0.2.1");
    for answer in [list(&["a"], "9"), super::list(&["a"], "9")] {
        let server = Server::start(vec![answer, quiet()]).await;
        let mut watched = Watched::start(&server);
        let seen = watched.listed().await;
        assert_eq!(seen[1], Event::InitApply(wanted.clone()));
        watched.end().await;
    }
}

#[tokio::test]
async fn a_list_in_pages_and_in_pieces_is_one_list() {
    let whole = page(&[node("a", "3"), node("b", "4")], "9", "");
    // One byte at a time: every number and every object is cut somewhere.
    let pieces = whole.chunks(1).map(<[u8]>::to_vec).collect();
    let mut server = Server::start(vec![
        Answer::Protobuf(200, page(&[node("c", "5")], "9", "second")),
        Answer::ProtobufStream(pieces, StreamEnd::Clean),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    watched.listed().await;
    assert_eq!(watched.known(), ["a", "b", "c"]);
    assert_eq!(
        server.asked(3).await,
        [
            LIST.to_owned(),
            format!("{LIST}&continue=second"),
            watch_from("9")
        ]
    );
    watched.end().await;
}

#[tokio::test]
async fn the_next_page_is_asked_for_while_one_comes_in() {
    let mut first = page(&[node("b", "4"), node("c", "5")], "9", "second");
    first.truncate(first.len() / 2);
    let mut server = Server::start(vec![
        // It has begun and does not end.
        Answer::ProtobufStream(vec![first], StreamEnd::Open),
        list(&["a"], "9"),
    ])
    .await;
    let watched = Watched::start(&server);
    assert_eq!(server.asked(2).await[1], format!("{LIST}&continue=second"));
    watched.end().await;
}

#[tokio::test]
async fn a_watch_tells_what_changes_and_is_resumed_from_the_last_version() {
    let bookmark = Message::default().message(1, Message::default().text(6, "20"));
    let all = [
        told("ADDED", &node("c", "10")),
        told("MODIFIED", &node("b", "11")),
        told("DELETED", &node("c", "12")),
        told("BOOKMARK", &bookmark),
    ]
    .concat();
    let (first, second) = all.split_at(all.len() / 3);
    let mut server = Server::start(vec![
        list(&["a"], "9"),
        Answer::ProtobufStream(vec![first.to_vec(), second.to_vec()], StreamEnd::Clean),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    watched.listed().await;
    let gone = Event::Delete("c".into());
    let seen = watched.until(|event| *event == gone).await;
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(watched.known(), ["a", "b"]);
    assert_eq!(server.asked(3).await[2], watch_from("20"));
    watched.end().await;
}

#[tokio::test]
async fn a_watch_that_breaks_within_an_event_is_resumed_without_a_word() {
    let next = told("ADDED", &node("c", "11"));
    for (end, cut) in [(StreamEnd::Cut, 2), (StreamEnd::Clean, next.len() / 2)] {
        let mut server = Server::start(vec![
            list(&["a"], "9"),
            Answer::ProtobufStream(
                vec![told("ADDED", &node("b", "10")), next[..cut].to_vec()],
                end,
            ),
            Answer::ProtobufStream(vec![next.clone()], StreamEnd::Open),
        ])
        .await;
        let mut watched = Watched::start(&server);
        watched.listed().await;
        let is_c = |e: &Event<Node>| matches!(e, Event::Apply(node) if node.name == "c");
        let seen = watched.until(is_c).await;
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(
            server.asked(3).await[1..],
            [watch_from("9"), watch_from("10")]
        );
        watched.end().await;
    }
}

#[tokio::test]
async fn refusals_are_understood_in_protobuf_too() {
    let refused =
        |code, message| Answer::Protobuf(code, envelope("Status", &status(code, message)));
    let expired = envelope("Status", &status(410, "too old resource version"));
    let mut server = Server::start(vec![
        refused(403, "nodes is forbidden"),
        list(&["a"], "9"),
        refused(410, "too old resource version"),
        list(&["a", "b"], "20"),
        Answer::ProtobufStream(vec![frame("ERROR", &expired)], StreamEnd::Open),
        list(&["a", "c"], "30"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::start(&server);
    let reason = watched.lost().await;
    assert!(
        reason.contains("(403: nodes is forbidden): RBAC"),
        "{reason}"
    );
    for known in [&["a"][..], &["a", "b"], &["a", "c"]] {
        watched.listed().await;
        assert_eq!(watched.known(), known);
    }
    assert_eq!(server.asked(7).await[6], watch_from("30"));
    watched.end().await;
}

#[tokio::test]
async fn a_server_that_takes_no_request_for_protobuf_is_asked_for_json() {
    for code in [406, 415] {
        let mut server = Server::start(vec![
            refusal(code, "no such media type"),
            super::list(&["a"], "9"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::start(&server);
        let seen = watched.listed().await;
        assert_eq!(seen[0], Event::Init, "without a word");
        assert_eq!(
            server.asked(3).await,
            [
                LIST.to_owned(),
                format!("{LIST} as JSON"),
                format!("{} as JSON", watch_from("9"))
            ]
        );
        watched.end().await;
    }
}

#[tokio::test]
async fn an_object_that_is_no_node_costs_no_other() {
    let broken = Message(vec![0x0a, 0xff, 0x01]);
    let nameless = with_metadata(Message::default().text(6, "10"));
    let odd = with_metadata(metadata("no name", "10"));
    let server = Server::start(vec![
        Answer::Protobuf(
            200,
            page(
                &[
                    Message::default(),
                    broken.clone(),
                    nameless.clone(),
                    odd.clone(),
                    node("a", "8"),
                ],
                "9",
                "",
            ),
        ),
        Answer::ProtobufStream(
            vec![
                told("ADDED", &broken),
                told("MODIFIED", &nameless),
                told("ADDED", &odd),
                told("DELETED", &Message::default()),
                told("ADDED", &node("b", "11")),
            ],
            StreamEnd::Open,
        ),
    ])
    .await;
    let mut watched = Watched::start(&server);
    watched.listed().await;
    assert_eq!(watched.known(), ["a"]);
    let seen = watched.until(|e| matches!(e, Event::Apply(_))).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(watched.known(), ["a", "b"]);
    watched.end().await;
}

#[tokio::test]
async fn garbage_is_reported_and_mends_itself() {
    let whole = page(&[node("a", "3")], "9", "");
    let too_long = [
        MAGIC,
        &[
            0x12, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x12, 0xff, 0xff, 0xff, 0x7f,
        ],
    ];
    let unversioned = envelope("NodeList", &Message::default().message(2, node("a", "3")));
    for garbage in [
        Vec::new(),
        b"{}".to_vec(),
        whole[..whole.len() / 2].to_vec(),
        [MAGIC, &[0xff; 20]].concat(),
        [MAGIC, &[0x13]].concat(),
        too_long.concat(),
        unversioned,
    ] {
        let server = Server::start(vec![
            Answer::Protobuf(200, garbage.clone()),
            list(&["a"], "9"),
            Answer::ProtobufStream(vec![told("NEWS", &node("b", "10"))], StreamEnd::Open),
            list(&["a", "c"], "20"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::start(&server);
        let reason = watched.lost().await;
        assert!(reason.contains("makes no sense"), "{garbage:x?}: {reason}");
        watched.listed().await;
        assert_eq!(watched.known(), ["a"]);
        let reason = watched.lost().await;
        assert!(reason.contains("NEWS"), "{reason}");
        watched.listed().await;
        assert_eq!(watched.known(), ["a", "c"]);
        watched.end().await;
    }
}

#[test]
fn what_a_node_may_lack_or_say_oddly() {
    let bare = Message::default().message(1, Message::default().text(1, "a"));
    let named = crate::fixture::node("a");
    assert_eq!(protobuf::node(&bare.0).unwrap(), named);
    // An empty time is none; of the pod CIDRs the single one alone is enough.
    let old = Message::default()
        .message(1, Message::default().text(1, "a").text(8, ""))
        .message(2, Message::default().text(1, "10.244.1.0/24"));
    let expected = named.clone().cidr("10.244.1.0/24");
    assert_eq!(protobuf::node(&old.0).unwrap(), expected);
    let before_1970 = Message::default().number(1, u64::MAX);
    let old =
        Message::default().message(1, Message::default().text(1, "a").message(8, before_1970));
    assert_eq!(protobuf::node(&old.0).unwrap(), named.clone().created(-1));
    // What is not UTF-8 becomes text that is refused by name later.
    let odd = bare.message(2, Message::default().bytes(7, &[0xff]));
    assert_eq!(protobuf::node(&odd.0).unwrap(), named.cidr("\u{fffd}"));
}

proptest! {
    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = protobuf::node(&bytes);
        let _ = protobuf::event(&bytes);
        let _ = protobuf::object_in(&bytes).and_then(protobuf::status);
        let _ = protobuf::list_metadata(&bytes);
    }

    #[test]
    fn a_node_that_was_cut_or_changed_is_a_node_or_an_error(
        cut in 0..200_usize,
        at in 0..200_usize,
        byte in any::<u8>(),
    ) {
        let mut bytes = told("ADDED", &node("a", "1")).split_off(4);
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        bytes.truncate(bytes.len().saturating_sub(cut));
        let _ = protobuf::event(&bytes);
    }
}
