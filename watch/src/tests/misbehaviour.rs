//! A server that says what no API server should: huge objects, versions that go
//! nowhere, credentials that end.

use super::*;
use crate::client::body::MAX_OBJECT;
use crate::list::MAX_PAGES;

for_each_kind!(async
    an_object_of_two_megabytes_is_an_object,
    an_object_without_measure_affects_no_other_that_is_known,
    a_list_whose_pages_never_end_is_refused_and_what_is_known_stays,
    repeated_reordered_and_rewound_versions_lose_no_change,
    credentials_are_read_again_when_the_server_refuses_them,
    a_version_of_one_server_is_not_gone_on_from_at_another,
);

/// An object with so many bytes in a field that is not used.
fn object_of<K: TestKind>(name: &str, version: &str, bytes: usize) -> Value {
    let mut object = object::<K>(name, version);
    object["metadata"]["managedFields"] = json!([{"manager": "x".repeat(bytes)}]);
    object
}

/// The same in protobuf: field 17 of the metadata is `managedFields`.
fn message_of<K: TestKind>(name: &str, bytes: usize) -> Message {
    let metadata = kinds::message_metadata::<K>(name, "1").text(17, &"x".repeat(bytes));
    K::message(metadata)
}

async fn an_object_of_two_megabytes_is_an_object<K: TestKind>() {
    const BYTES: usize = 2 << 20;
    let json = [object::<K>("a", "1"), object_of::<K>("b", "1", BYTES)];
    let protobuf = [
        protobuf::message::<K>("a", "1"),
        message_of::<K>("b", BYTES),
    ];
    let frame = protobuf::frame("ADDED", &protobuf::envelope(&message_of::<K>("c", BYTES)));
    let line = line("ADDED", &object_of::<K>("c", "10", BYTES));
    for (list, watch) in [
        (page(&json, "9", ""), Answer::Stream(vec![line], End::Open)),
        (
            Answer::Protobuf(200, protobuf::page(&protobuf, "9", "")),
            Answer::ProtobufStream(vec![frame], End::Open),
        ),
    ] {
        let server = Server::start(vec![list, watch]).await;
        let mut watched = Watched::<K>::start(&server);
        watched.listed().await;
        assert_eq!(watched.known(), ["a", "b"]);
        assert_eq!(watched.object("b"), &K::object("b", VALUE));
        watched.until(|e| applied(e).as_deref() == Some("c")).await;
        watched.end().await;
    }
}

async fn an_object_without_measure_affects_no_other_that_is_known<K: TestKind>() {
    // Only the lengths are said: the agent must not wait for what it would not take.
    let length = (MAX_OBJECT as u32 + 1).to_be_bytes().to_vec();
    let huge = |name| line("ADDED", &object_of::<K>(name, "10", 2 * MAX_OBJECT));
    for watch in [
        Answer::ProtobufStream(vec![length], End::Open),
        Answer::Stream(vec![huge("b")], End::Open),
    ] {
        let items = protobuf::page(&[message_of::<K>("b", MAX_OBJECT)], "9", "");
        let mut server = Server::start(vec![
            list_of::<K>(&["a"], "9"),
            watch,
            Answer::Protobuf(200, items),
            list_of::<K>(&["a", "c"], "20"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::<K>::start(&server);
        let reason = watched.lost().await;
        assert!(reason.contains("an object of 1"), "{reason}");
        assert_eq!(watched.known(), ["a"]);
        // The list with it is refused too, and what is known stays.
        let reason = watched.lost().await;
        assert!(reason.contains("an object of 1"), "{reason}");
        assert_eq!(watched.known(), ["a"]);
        watched.restored().await;
        assert_eq!(watched.known(), ["a", "c"]);
        assert_eq!(server.asked(5).await[4], watch_from::<K>("20"));
        watched.end().await;
    }
}

async fn a_list_whose_pages_never_end_is_refused_and_what_is_known_stays<K: TestKind>() {
    let one = |token: &str| page(&[object::<K>("b", "1")], "9", token);
    let same = vec![one("t"), one("t")];
    let new = (0..MAX_PAGES).map(|number| one(&number.to_string()));
    for (pages, failure) in [
        (same, "the same continue token"),
        (new.collect(), "more than 1000 pages"),
    ] {
        let count = pages.len();
        let mut answers = vec![
            list_of::<K>(&["a"], "9"),
            refusal(410, "too old resource version: 9"),
        ];
        answers.extend(pages);
        answers.push(list_of::<K>(&["a", "c"], "20"));
        answers.push(quiet());
        let mut server = Server::start(answers).await;
        let mut watched = Watched::<K>::start(&server);
        let reason = watched.lost().await;
        assert!(reason.contains(failure), "{reason}");
        assert_eq!(watched.known(), ["a"]);
        watched.restored().await;
        assert_eq!(watched.known(), ["a", "c"]);
        let last = count + 4;
        assert_eq!(server.asked(last).await[last - 1], watch_from::<K>("20"));
        watched.end().await;
    }
}

async fn repeated_reordered_and_rewound_versions_lose_no_change<K: TestKind>() {
    let changed = |name, version, value| line("MODIFIED", &K::json(name, version, value));
    let mut server = Server::start(vec![
        list_of::<K>(&["a", "b"], "50"),
        Answer::Stream(
            vec![
                changed("a", "60", "192.0.2.2"),
                // Again, with an older version, and with one far back.
                changed("a", "60", "192.0.2.2"),
                changed("b", "55", "192.0.2.3"),
                line("DELETED", &object::<K>("b", "7")),
                line("DELETED", &object::<K>("b", "7")),
                bookmark("3"),
                line("ADDED", &object::<K>("c", "3")),
            ],
            End::Clean,
        ),
        // A version that the server does not have any more, or not yet.
        refusal(410, "too old resource version: 3"),
        list_of::<K>(&["c", "d"], "4"),
        refusal(504, "Timeout: Too large resource version: 4, current: 2"),
        Answer::Stream(vec![line("ADDED", &object::<K>("e", "5"))], End::Open),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    watched.listed().await;
    watched.until(|e| applied(e).as_deref() == Some("c")).await;
    assert_eq!(watched.known(), ["a", "c"]);
    assert_eq!(watched.object("a"), &K::object("a", "192.0.2.2"));
    watched.listed().await;
    assert_eq!(watched.known(), ["c", "d"]);
    let reason = watched.lost().await;
    assert!(reason.contains("504"), "{reason}");
    watched.until(|e| applied(e).as_deref() == Some("e")).await;
    assert_eq!(watched.known(), ["c", "d", "e"]);
    assert_eq!(
        server.asked(6).await[1..],
        [
            watch_from::<K>("50"),
            watch_from::<K>("3"),
            first_page::<K>(),
            watch_from::<K>("4"),
            watch_from::<K>("4"),
        ]
    );
    watched.end().await;
}

async fn credentials_are_read_again_when_the_server_refuses_them<K: TestKind>() {
    let added = Answer::Stream(vec![line("ADDED", &object::<K>("b", "11"))], End::Open);
    let mut server = Server::start(vec![
        list_of::<K>(&["a"], "9"),
        Answer::Stream(vec![bookmark("10")], End::Clean),
        Answer::For("second", Box::new(added)),
    ])
    .await;
    let mut watched = Watched::<K>::without_kubeconfig();
    let token = watched.folder.path().join("token");
    std::fs::write(&token, "first").unwrap();
    let server_url = format!("http://{}", server.address);
    write_kubeconfig_as(
        watched.folder.path(),
        json!({"server": server_url}),
        json!({"tokenFile": token}),
    );
    watched.listed().await;
    let reason = watched.lost().await;
    assert!(reason.contains("credentials (401)"), "{reason}");
    assert_eq!(watched.known(), ["a"]);
    // The kubelet puts the next one in the place of it, by rename.
    let next = watched.folder.path().join("next");
    std::fs::write(&next, "second").unwrap();
    std::fs::rename(&next, &token).unwrap();
    watched.until(|e| applied(e).as_deref() == Some("b")).await;
    assert_eq!(watched.known(), ["a", "b"]);
    let count = server.count();
    assert_eq!(server.asked(count).await[count - 1], watch_from::<K>("10"));
    let credentials = server.credentials();
    assert_eq!(credentials[0], "Bearer first");
    assert_eq!(credentials[count - 1], "Bearer second");
    watched.end().await;
}

/// A cluster that was restored at another address may not have reached the version for
/// hours, and says nothing until then.
async fn a_version_of_one_server_is_not_gone_on_from_at_another<K: TestKind>() {
    let mut answers = vec![
        list_of::<K>(&["a", "b"], "900"),
        Answer::Stream(vec![bookmark("1000")], End::Clean),
    ];
    answers.extend((0..100).map(|_| refusal(503, "shutting down")));
    let first = Server::start(answers).await;
    let mut second = Server::start(vec![quiet(), list_of::<K>(&["a", "c"], "20"), quiet()]).await;
    let mut watched = Watched::<K>::start(&first);
    watched.lost().await;
    watched.write_kubeconfig(&format!("http://{}", second.address));
    watched.restored().await;
    assert_eq!(watched.known(), ["a", "c"]);
    assert_eq!(
        second.asked(3).await[1..],
        [first_page::<K>(), watch_from::<K>("20")]
    );
    watched.end().await;
}
