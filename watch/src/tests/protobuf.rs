//! The watcher over a server that answers in protobuf.

use super::kinds::message_metadata;
use super::*;
use crate::protobuf::MAGIC;

for_each_kind!(async
    an_object_is_the_same_in_both_encodings,
    a_list_in_pages_and_in_pieces_is_one_list,
    the_next_page_is_requested_while_one_arrives,
    a_watch_is_resumed_from_the_last_version,
    a_watch_that_is_cut_within_an_event_is_resumed_silently,
    refusals_are_understood,
    a_server_without_protobuf_is_asked_for_json,
    an_invalid_object_affects_no_other,
    garbage_is_reported_and_recovered_from,
);

pub(super) fn message<K: TestKind>(name: &str, version: &str) -> Message {
    K::message(message_metadata::<K>(name, version))
}

pub(super) fn envelope(object: &Message) -> Vec<u8> {
    let type_meta = Message::default().text(1, "v1").text(2, "Example");
    let unknown = Message::default()
        .message(1, type_meta)
        .bytes(2, &object.0)
        .text(3, "")
        .text(4, "");
    [MAGIC, &unknown.0].concat()
}

pub(super) fn page(items: &[Message], version: &str, token: &str) -> Vec<u8> {
    let metadata = Message::default()
        .text(1, "")
        .text(2, version)
        .text(3, token);
    let list = Message::default()
        .message(1, metadata)
        .fixed(9)
        .number(8, 300);
    let list = items
        .iter()
        .fold(list, |list, item| list.message(2, item.clone()));
    envelope(&list)
}

/// A list of objects of these names, all of one version.
fn list_of<K: TestKind>(names: &[&str], version: &str) -> Answer {
    let messages = names.iter().map(|name| message::<K>(name, version));
    let messages: Vec<Message> = messages.collect();
    Answer::Protobuf(200, page(&messages, version, ""))
}

fn status(code: u16, message: &str) -> Message {
    Message::default()
        .text(2, "Failure")
        .text(3, message)
        .number(6, u64::from(code))
}

pub(super) fn frame(of: &str, envelope: &[u8]) -> Vec<u8> {
    let raw = Message::default().bytes(1, envelope);
    let event = Message::default().text(1, of).message(2, raw).0;
    let length = u32::try_from(event.len()).unwrap();
    [&length.to_be_bytes(), event.as_slice()].concat()
}

pub(super) fn event(of: &str, object: &Message) -> Vec<u8> {
    frame(of, &envelope(object))
}

async fn an_object_is_the_same_in_both_encodings<K: TestKind>() {
    for answer in [list_of::<K>(&["a"], "9"), super::list_of::<K>(&["a"], "9")] {
        let server = Server::start(vec![answer, quiet()]).await;
        let mut watched = Watched::<K>::start(&server);
        let seen = watched.listed().await;
        assert_eq!(seen[1], Event::InitApply(K::object("a", VALUE)));
        watched.end().await;
    }
}

async fn a_list_in_pages_and_in_pieces_is_one_list<K: TestKind>() {
    let first = first_page::<K>();
    let whole = page(&[message::<K>("a", "3"), message::<K>("b", "4")], "9", "");
    // One byte at a time: every number and every object is cut somewhere.
    let pieces = whole.chunks(1).map(<[u8]>::to_vec).collect();
    let mut server = Server::start(vec![
        Answer::Protobuf(200, page(&[message::<K>("c", "5")], "9", "second")),
        Answer::ProtobufStream(pieces, End::Clean),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    watched.listed().await;
    assert_eq!(watched.known(), ["a", "b", "c"]);
    assert_eq!(
        server.asked(3).await,
        [
            first.clone(),
            format!("{first}&continue=second"),
            watch_from::<K>("9")
        ]
    );
    watched.end().await;
}

async fn the_next_page_is_requested_while_one_arrives<K: TestKind>() {
    let first = first_page::<K>();
    let mut part = page(
        &[message::<K>("b", "4"), message::<K>("c", "5")],
        "9",
        "second",
    );
    part.truncate(part.len() / 2);
    let mut server = Server::start(vec![
        // It has begun and does not end.
        Answer::ProtobufStream(vec![part], End::Open),
        list_of::<K>(&["a"], "9"),
    ])
    .await;
    let watched = Watched::<K>::start(&server);
    assert_eq!(server.asked(2).await[1], format!("{first}&continue=second"));
    watched.end().await;
}

async fn a_watch_is_resumed_from_the_last_version<K: TestKind>() {
    let bookmark = Message::default().message(1, Message::default().text(6, "20"));
    let all = [
        event("ADDED", &message::<K>("c", "10")),
        event("MODIFIED", &message::<K>("b", "11")),
        event("DELETED", &message::<K>("c", "12")),
        event("BOOKMARK", &bookmark),
    ]
    .concat();
    let (first, second) = all.split_at(all.len() / 3);
    let mut server = Server::start(vec![
        list_of::<K>(&["a"], "9"),
        Answer::ProtobufStream(vec![first.to_vec(), second.to_vec()], End::Clean),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    watched.listed().await;
    let gone = Event::Delete(K::example("c"));
    let seen = watched.until(|event| *event == gone).await;
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(watched.known(), ["a", "b"]);
    assert_eq!(server.asked(3).await[2], watch_from::<K>("20"));
    watched.end().await;
}

async fn a_watch_that_is_cut_within_an_event_is_resumed_silently<K: TestKind>() {
    let next = event("ADDED", &message::<K>("c", "11"));
    for (end, cut) in [(End::Cut, 2), (End::Clean, next.len() / 2)] {
        let mut server = Server::start(vec![
            list_of::<K>(&["a"], "9"),
            Answer::ProtobufStream(
                vec![
                    event("ADDED", &message::<K>("b", "10")),
                    next[..cut].to_vec(),
                ],
                end,
            ),
            Answer::ProtobufStream(vec![next.clone()], End::Open),
        ])
        .await;
        let mut watched = Watched::<K>::start(&server);
        watched.listed().await;
        let seen = watched.until(|e| applied(e).as_deref() == Some("c")).await;
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(
            server.asked(3).await[1..],
            [watch_from::<K>("9"), watch_from::<K>("10")]
        );
        watched.end().await;
    }
}

async fn refusals_are_understood<K: TestKind>() {
    let refused = |code, message| Answer::Protobuf(code, envelope(&status(code, message)));
    let expired = envelope(&status(410, "too old resource version"));
    let mut answers = vec![refused(403, "nodes is forbidden")];
    // Of a kind that may be absent, the server is asked whether it has it.
    answers.extend(K::OPTIONAL.then(|| refusal(503, "starting")));
    answers.extend([
        list_of::<K>(&["a"], "9"),
        refused(410, "too old resource version"),
        list_of::<K>(&["a", "b"], "20"),
        Answer::ProtobufStream(vec![frame("ERROR", &expired)], End::Open),
        list_of::<K>(&["a", "c"], "30"),
        quiet(),
    ]);
    let count = answers.len();
    let mut server = Server::start(answers).await;
    let mut watched = Watched::<K>::start(&server);
    let reason = watched.lost().await;
    assert!(
        reason.contains("(403: nodes is forbidden): RBAC"),
        "{reason}"
    );
    for known in [&["a"][..], &["a", "b"], &["a", "c"]] {
        watched.listed().await;
        assert_eq!(watched.known(), known);
    }
    let last = watch_from::<K>("30");
    assert_eq!(server.asked(count).await.last(), Some(&last));
    watched.end().await;
}

async fn a_server_without_protobuf_is_asked_for_json<K: TestKind>() {
    let first = first_page::<K>();
    for code in [406, 415] {
        let mut server = Server::start(vec![
            refusal(code, "no such media type"),
            super::list_of::<K>(&["a"], "9"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::<K>::start(&server);
        let seen = watched.listed().await;
        assert_eq!(seen[0], Event::Init, "without a word");
        assert_eq!(
            server.asked(3).await,
            [
                first.clone(),
                format!("{first} as JSON"),
                format!("{} as JSON", watch_from::<K>("9"))
            ]
        );
        watched.end().await;
    }
}

async fn an_invalid_object_affects_no_other<K: TestKind>() {
    let broken = Message(vec![0x0a, 0xff, 0x01]);
    let nameless = K::message(Message::default().text(6, "10"));
    let odd = K::message(message_metadata::<K>("no name", "10"));
    let server = Server::start(vec![
        Answer::Protobuf(
            200,
            page(
                &[
                    Message::default(),
                    broken.clone(),
                    nameless.clone(),
                    odd.clone(),
                    message::<K>("a", "8"),
                ],
                "9",
                "",
            ),
        ),
        Answer::ProtobufStream(
            vec![
                event("ADDED", &broken),
                event("MODIFIED", &nameless),
                event("ADDED", &odd),
                event("DELETED", &Message::default()),
                event("ADDED", &message::<K>("b", "11")),
            ],
            End::Open,
        ),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    watched.listed().await;
    assert_eq!(watched.known(), ["a"]);
    let seen = watched.until(|e| matches!(e, Event::Apply(_))).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(watched.known(), ["a", "b"]);
    watched.end().await;
}

async fn garbage_is_reported_and_recovered_from<K: TestKind>() {
    let whole = page(&[message::<K>("a", "3")], "9", "");
    let too_long = [
        MAGIC,
        &[
            0x12, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x12, 0xff, 0xff, 0xff, 0x7f,
        ],
    ];
    let unversioned = envelope(&Message::default().message(2, message::<K>("a", "3")));
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
            list_of::<K>(&["a"], "9"),
            Answer::ProtobufStream(vec![event("NEWS", &message::<K>("b", "10"))], End::Open),
            list_of::<K>(&["a", "c"], "20"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::<K>::start(&server);
        let reason = watched.lost().await;
        assert!(reason.contains("invalid answer"), "{garbage:x?}: {reason}");
        watched.listed().await;
        assert_eq!(watched.known(), ["a"]);
        let reason = watched.lost().await;
        assert!(reason.contains("NEWS"), "{reason}");
        watched.listed().await;
        assert_eq!(watched.known(), ["a", "c"]);
        watched.end().await;
    }
}
