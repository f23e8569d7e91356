//! Lists: pages, objects that are invalid, answers that are not understood.

use super::*;

for_each_kind!(async
    a_list_in_pages_is_one_list,
    five_thousand_objects_in_ten_pages_are_one_list,
    a_list_whose_pages_expired_is_asked_for_in_one_piece,
    a_list_that_fails_half_way_changes_nothing,
    a_page_that_the_server_is_too_busy_for_is_asked_for_again,
    pages_of_two_servers_are_not_one_list,
    garbage_instead_of_a_list_is_reported,
    an_invalid_object_affects_no_other,
    it_ends_when_the_receiver_is_closed,
);

async fn a_list_in_pages_is_one_list<K: TestKind>() {
    let first = first_page::<K>();
    let mut server = Server::start(vec![
        page(
            &[object::<K>("a", "3"), object::<K>("b", "4")],
            "9",
            "second",
        ),
        page(&[object::<K>("c", "5")], "9", "third"),
        page(&[object::<K>("d", "6")], "9", ""),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    let seen = watched.listed().await;
    assert_eq!(seen[0], Event::Init);
    assert_eq!(seen[1], Event::InitApply(K::object("a", VALUE)));
    assert_eq!(seen.len(), 6);
    assert_eq!(watched.known(), ["a", "b", "c", "d"]);
    assert_eq!(
        server.asked(4).await,
        [
            first.clone(),
            format!("{first}&continue=second"),
            format!("{first}&continue=third"),
            watch_from::<K>("9"),
        ]
    );
    watched.end().await;
}

async fn five_thousand_objects_in_ten_pages_are_one_list<K: TestKind>() {
    let pages = (0..10).map(|number| {
        let objects: Vec<Value> = (0..500)
            .map(|of_page| object::<K>(&format!("n{}", number * 500 + of_page), "3"))
            .collect();
        let token = match number {
            9 => String::new(),
            number => format!("after {number}"),
        };
        page(&objects, "9", &token)
    });
    let mut server = Server::start(pages.chain([quiet()]).collect()).await;
    let mut watched = Watched::<K>::start(&server);
    assert_eq!(watched.listed().await.len(), 5002);
    assert_eq!(server.asked(11).await[10], watch_from::<K>("9"));
    watched.end().await;
}

async fn a_list_whose_pages_expired_is_asked_for_in_one_piece<K: TestKind>() {
    let mut server = Server::start(vec![
        page(
            &[object::<K>("a", "3"), object::<K>("x", "4")],
            "9",
            "second",
        ),
        refusal(410, "the provided continue parameter is too old"),
        list_of::<K>(&["a", "b"], "10"),
        refusal(410, "too old resource version"),
        list_of::<K>(&["c"], "20"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    watched.listed().await;
    assert_eq!(watched.known(), ["a", "b"]);
    // The next one is asked for in pages again.
    watched.listed().await;
    assert_eq!(watched.known(), ["c"]);
    let asked = server.asked(6).await;
    assert_eq!(
        asked[2..],
        [
            format!("{}?", K::PATH),
            watch_from::<K>("10"),
            first_page::<K>(),
            watch_from::<K>("20"),
        ]
    );
    watched.end().await;
}

async fn a_list_that_fails_half_way_changes_nothing<K: TestKind>() {
    let server = Server::start(vec![
        list_of::<K>(&["a", "b"], "9"),
        refusal(410, "too old"),
        page(&[object::<K>("a", "10")], "11", "second"),
        refusal(500, "etcd is away"),
        refusal(500, "etcd is away"),
        refusal(500, "etcd is away"),
        refusal(500, "etcd is away"),
        refusal(500, "etcd is away"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    let reason = watched.lost().await;
    assert!(reason.ends_with("answered 500: etcd is away"), "{reason}");
    assert_eq!(watched.known(), ["a", "b"]);
    watched.end().await;
}

/// The pages before are not asked for again.
async fn a_page_that_the_server_is_too_busy_for_is_asked_for_again<K: TestKind>() {
    let first = first_page::<K>();
    let mut server = Server::start(vec![
        page(&[object::<K>("a", "3")], "9", "second"),
        refusal(429, "too many requests"),
        refusal(503, "the server is shutting down"),
        page(&[object::<K>("b", "4")], "9", ""),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    assert_eq!(watched.listed().await.len(), 4);
    assert_eq!(watched.known(), ["a", "b"]);
    let second = format!("{first}&continue=second");
    assert_eq!(
        server.asked(5).await,
        [
            first,
            second.clone(),
            second.clone(),
            second,
            watch_from::<K>("9"),
        ]
    );
    watched.end().await;
}

/// The kubeconfig names another server while a page is waited for.
async fn pages_of_two_servers_are_not_one_list<K: TestKind>() {
    // It does not answer the request for the second page.
    let mut first = Server::start(vec![page(&[object::<K>("a", "3")], "9", "second")]).await;
    let mut second = Server::start(vec![
        list_of::<K>(&["b"], "9"),
        list_of::<K>(&["c"], "20"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::prepared(|watcher| {
        watcher.client.answer_timeout = Duration::from_secs(2);
    });
    watched.write_kubeconfig(&format!("http://{}", first.address));
    first.asked(2).await;
    watched.write_kubeconfig(&format!("http://{}", second.address));
    watched.listed().await;
    assert_eq!(watched.known(), ["c"]);
    let page = first_page::<K>();
    assert_eq!(
        second.asked(3).await,
        [
            format!("{page}&continue=second"),
            page,
            watch_from::<K>("20")
        ]
    );
    watched.end().await;
}

async fn garbage_instead_of_a_list_is_reported<K: TestKind>() {
    for garbage in [
        "",
        "{",
        "[]",
        "no JSON",
        "{\"items\": 7}",
        "{\"items\": []}",
    ] {
        let server = Server::start(vec![
            Answer::Whole(200, garbage.to_owned()),
            list_of::<K>(&["a"], "9"),
            quiet(),
        ])
        .await;
        let mut watched = Watched::<K>::start(&server);
        let reason = watched.lost().await;
        assert!(reason.contains("invalid answer"), "{reason}");
        watched.restored().await;
        assert_eq!(watched.known(), ["a"]);
        watched.end().await;
    }
}

async fn an_invalid_object_affects_no_other<K: TestKind>() {
    let (odd, odd_decoded) = K::odd("odd", "7");
    let mut server = Server::start(vec![
        page(
            &[
                json!({}),
                json!(7),
                json!({"metadata": "x"}),
                odd,
                object::<K>("a", "8"),
            ],
            "9",
            "",
        ),
        Answer::Stream(
            vec![
                "\n".to_owned(),
                line(
                    "ADDED",
                    &json!({"metadata": {"name": "no name", "resourceVersion": "10"}}),
                ),
                line("MODIFIED", &json!("x")),
                line("DELETED", &json!({})),
                line("ADDED", &object::<K>("b", "11")),
            ],
            End::Clean,
        ),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    watched.listed().await;
    assert_eq!(watched.known(), ["a", "odd"]);
    assert_eq!(watched.object("odd"), &odd_decoded);
    let seen = watched.until(|e| matches!(e, Event::Apply(_))).await;
    assert_eq!(seen.len(), 1);
    assert_eq!(watched.known(), ["a", "b", "odd"]);
    assert_eq!(server.asked(3).await[2], watch_from::<K>("11"));
    watched.end().await;
}

async fn it_ends_when_the_receiver_is_closed<K: TestKind>() {
    let server = Server::start(vec![list_of::<K>(&["a"], "9")]).await;
    let mut watched = Watched::<K>::start(&server);
    watched.events.close();
    watched.task.await.unwrap();
    assert!(server.count() <= 1);
}
