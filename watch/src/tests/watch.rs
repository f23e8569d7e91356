//! Watches: changes, resumed watches, expired versions.

use super::*;

for_each_kind!(async
    a_heartbeat_is_no_change,
    a_watch_is_resumed_from_the_last_version,
    a_watch_that_is_cut_within_a_line_is_resumed_silently,
    a_watch_that_is_cut_at_once_is_reported,
    a_watch_whose_bookmarks_fail_to_come_is_resumed_silently,
    an_expired_version_causes_a_list_silently,
    garbage_in_a_watch_is_reported_and_causes_a_list,
);

async fn a_heartbeat_is_no_change<K: TestKind>() {
    let mut heartbeat = object::<K>("b", "10");
    heartbeat["status"]["conditions"] = json!([{"type": "Ready", "lastHeartbeatTime": "now"}]);
    heartbeat["metadata"]["annotations"] = json!({"a": "b"});
    let server = Server::start(vec![
        list_of::<K>(&["a", "b"], "9"),
        Answer::Stream(vec![line("MODIFIED", &heartbeat)], End::Open),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    watched.listed().await;
    let event = watched.events.recv().await.unwrap();
    assert_eq!(applied(&event).as_deref(), Some("b"));
    assert!(!watched.store.apply(event));
    watched.end().await;
}

async fn a_watch_is_resumed_from_the_last_version<K: TestKind>() {
    let moved = K::json("b", "11", "192.0.2.9");
    let mut server = Server::start(vec![
        list_of::<K>(&["a", "b"], "9"),
        Answer::Stream(
            vec![
                line("ADDED", &object::<K>("c", "10")),
                line("MODIFIED", &moved),
                line("DELETED", &object::<K>("c", "12")),
            ],
            End::Clean,
        ),
        Answer::Stream(vec![bookmark("20")], End::Clean),
        Answer::Stream(vec![line("ADDED", &object::<K>("d", "21"))], End::Open),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    watched.listed().await;
    let named = |event: &Event<K>| match event {
        Event::Apply(object) => object.key().name,
        Event::Delete(key) => format!("not {}", key.name),
        other => format!("{other:?}"),
    };
    let seen = watched.until(|e| named(e) == "d").await;
    assert_eq!(
        seen.iter().map(named).collect::<Vec<_>>(),
        ["c", "b", "not c", "d"]
    );
    assert_eq!(watched.known(), ["a", "b", "d"]);
    assert_eq!(watched.object("b"), &K::object("b", "192.0.2.9"));
    assert_eq!(
        server.asked(4).await[1..],
        [
            watch_from::<K>("9"),
            watch_from::<K>("12"),
            watch_from::<K>("20")
        ]
    );
    watched.end().await;
}

async fn a_watch_that_is_cut_within_a_line_is_resumed_silently<K: TestKind>() {
    let next = line("ADDED", &object::<K>("c", "11"));
    for end in [End::Cut, End::Clean] {
        let mut server = Server::start(vec![
            list_of::<K>(&["a"], "9"),
            Answer::Stream(
                vec![
                    line("ADDED", &object::<K>("b", "10")),
                    next[..next.len() / 2].to_owned(),
                ],
                end,
            ),
            Answer::Stream(vec![next.clone()], End::Open),
        ])
        .await;
        let mut watched = Watched::<K>::start(&server);
        watched.listed().await;
        let seen = watched.until(|e| applied(e).as_deref() == Some("c")).await;
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert_eq!(watched.known(), ["a", "b", "c"]);
        assert_eq!(
            server.asked(3).await[1..],
            [watch_from::<K>("9"), watch_from::<K>("10")]
        );
        watched.end().await;
    }
}

async fn a_watch_that_is_cut_at_once_is_reported<K: TestKind>() {
    let server = Server::start(vec![
        list_of::<K>(&["a"], "9"),
        Answer::Stream(vec!["{".to_owned()], End::Cut),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    let reason = watched.lost().await;
    assert!(reason.contains("broke off"), "{reason}");
    watched.restored().await;
    assert_eq!(watched.known(), ["a"]);
    watched.end().await;
}

async fn a_watch_whose_bookmarks_fail_to_come_is_resumed_silently<K: TestKind>() {
    let mut server = Server::start(vec![
        list_of::<K>(&["a"], "9"),
        // In this watch bookmarks are expected from now on.
        Answer::Stream(vec![bookmark("20")], End::Open),
        // A server may have nothing newer to say than what the watch began with.
        Answer::Stream(vec![bookmark("20")], End::Open),
        Answer::Stream(vec![line("ADDED", &object::<K>("b", "21"))], End::Open),
    ])
    .await;
    let mut watched = Watched::<K>::prepared(|watcher| {
        // A watch in which none has come is not given up.
        watcher.max_silence.without_bookmarks = 10 * STUCK;
        watcher.max_silence.with_bookmarks = Duration::from_millis(50);
    });
    watched.write_kubeconfig(&format!("http://{}", server.address));
    watched.listed().await;
    watched
        .until(|event| applied(event).as_deref() == Some("b"))
        .await;
    assert_eq!(
        server.asked(4).await[1..],
        [
            watch_from::<K>("9"),
            watch_from::<K>("20"),
            watch_from::<K>("20")
        ]
    );
    watched.end().await;
}

async fn an_expired_version_causes_a_list_silently<K: TestKind>() {
    let expired = || line("ERROR", &status(410, "too old resource version"));
    let ways = [
        refusal(410, "too old resource version"),
        Answer::Whole(410, "Gone".to_owned()),
        Answer::Stream(vec![expired()], End::Clean),
        Answer::Stream(vec![bookmark("10"), expired()], End::Open),
    ];
    for way in ways {
        let mut server = Server::start(vec![
            list_of::<K>(&["a", "b"], "9"),
            way,
            list_of::<K>(&["a", "c"], "30"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::<K>::start(&server);
        watched.listed().await;
        assert_eq!(watched.known(), ["a", "b"]);
        let seen = watched.listed().await;
        assert_eq!(seen.len(), 4, "{seen:?}");
        assert_eq!(watched.known(), ["a", "c"]);
        assert_eq!(
            server.asked(4).await[1..],
            [
                watch_from::<K>("9"),
                first_page::<K>(),
                watch_from::<K>("30")
            ]
        );
        watched.end().await;
    }
}

async fn garbage_in_a_watch_is_reported_and_causes_a_list<K: TestKind>() {
    for garbage in [
        "no JSON\n",
        "[]\n",
        "{\"type\": \"NEWS\", \"object\": {}}\n",
        "{\"type\": \"ADDED\"}\n",
    ] {
        let mut server = Server::start(vec![
            list_of::<K>(&["a"], "9"),
            Answer::Stream(
                vec![line("ADDED", &object::<K>("b", "10")), garbage.to_owned()],
                End::Open,
            ),
            list_of::<K>(&["a", "c"], "20"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::<K>::start(&server);
        let reason = watched.lost().await;
        assert!(reason.contains("invalid answer"), "{reason}");
        assert_eq!(watched.known(), ["a", "b"]);
        watched.restored().await;
        assert_eq!(watched.known(), ["a", "c"]);
        assert_eq!(
            server.asked(4).await[2..],
            [first_page::<K>(), watch_from::<K>("20")]
        );
        watched.end().await;
    }
}

/// Each of them would be listed again at once otherwise.
#[tokio::test]
async fn watches_that_expire_after_an_event_are_delayed_longer_and_longer() {
    const ROUNDS: u32 = 7;
    let mut answers = Vec::new();
    for _ in 0..ROUNDS {
        let added = line("ADDED", &object::<Node>("b", "10"));
        let expired = line("ERROR", &status(410, "too old resource version"));
        answers.push(list_of::<Node>(&["a"], "9"));
        answers.push(Answer::Stream(vec![added, expired], End::Clean));
    }
    answers.push(list_of::<Node>(&["a", "c"], "20"));
    answers.push(quiet());
    let server = Server::start(answers).await;
    let began = std::time::Instant::now();
    let mut watched = Watched::<Node>::start(&server);
    for _ in 0..=ROUNDS {
        watched.listed().await;
    }
    assert_eq!(watched.known(), ["a", "c"]);
    // 10 ms, 20 ms, 40 ms and so on, and a random time after each.
    let least = Duration::from_millis(10) * (2_u32.pow(ROUNDS) - 1);
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    watched.end().await;
}
