//! Failures of a server and of the access to it.

use super::*;
use crate::client::body::BodyError;

for_each_kind!(async
    an_error_of_the_server_is_reported_once_and_recovered_from,
    an_overloaded_server_is_reported_and_asked_again,
    refused_credentials_and_missing_rights_are_different_failures,
    an_unreachable_server_is_reported_and_waited_for,
    a_broken_kubeconfig_is_reported,
    a_kubeconfig_that_was_corrected_is_read_again_after_any_refusal,
    it_stops_while_a_server_does_not_answer,
    a_server_that_becomes_silent_is_a_failure,
);

async fn an_error_of_the_server_is_reported_once_and_recovered_from<K: TestKind>() {
    let html = Answer::Whole(502, "<html>\nbad gateway</html>".to_owned());
    let mut server = Server::start(vec![
        refusal(500, "etcd is away"),
        refusal(500, "etcd is away"),
        html,
        list_of::<K>(&["a"], "9"),
        refusal(503, "shutting down"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    let url = format!("the API server http://{}/ ", server.address);
    assert_eq!(
        watched.lost().await,
        format!("{url}answered 500: etcd is away")
    );
    // The same failure is not reported twice.
    assert_eq!(
        watched.lost().await,
        format!("{url}answered 502: <html> bad gateway</html>")
    );
    let seen = watched.restored().await;
    assert!(seen.contains(&Event::InitDone));
    assert_eq!(
        watched.lost().await,
        format!("{url}answered 503: shutting down")
    );
    assert_eq!(watched.known(), ["a"]);
    watched.restored().await;
    assert_eq!(
        server.asked(6).await[4..],
        [watch_from::<K>("9"), watch_from::<K>("9")]
    );
    watched.end().await;
}

async fn refused_credentials_and_missing_rights_are_different_failures<K: TestKind>() {
    // Of a kind that may be absent, the server is asked whether it has it.
    let asked = || K::OPTIONAL.then(|| refusal(503, "starting"));
    let mut answers = vec![
        refusal(401, "Unauthorized"),
        // From a proxy.
        Answer::Whole(401, json!({"error": "who are you?"}).to_string()),
        refusal(403, "nodes is forbidden: User \"x\" cannot list resource"),
    ];
    answers.extend(asked());
    answers.push(list_of::<K>(&["a"], "9"));
    let forbidden = vec![line("ERROR", &status(403, "no watch"))];
    answers.push(Answer::Stream(forbidden, End::Clean));
    answers.extend(asked());
    answers.push(quiet());
    let server = Server::start(answers).await;
    let mut watched = Watched::<K>::start(&server);
    let reason = watched.lost().await;
    assert!(reason.contains("credentials (401)"), "{reason}");
    let reason = watched.lost().await;
    assert!(reason.contains("cannot list resource): RBAC"), "{reason}");
    watched.restored().await;
    let reason = watched.lost().await;
    assert!(reason.contains("(403: no watch): RBAC"), "{reason}");
    watched.restored().await;
    watched.end().await;
}

async fn an_unreachable_server_is_reported_and_waited_for<K: TestKind>() {
    // Nobody listens there, and no other test can before the end of this one.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = held.local_addr().unwrap();
    let mut watched = Watched::<K>::without_kubeconfig();
    let reason = watched.lost().await;
    assert!(reason.contains("/kubeconfig cannot be used: "), "{reason}");
    assert!(reason.contains("No such file"), "{reason}");
    watched.write_kubeconfig(&format!("http://{address}"));
    let reason = watched.lost().await;
    let expected = format!("the API server http://{address}/ cannot be reached: ");
    assert!(reason.starts_with(&expected), "{reason}");
    assert!(reason.contains("Connection refused"), "{reason}");
    let server = Server::start(vec![list_of::<K>(&["a"], "9"), quiet()]).await;
    watched.write_kubeconfig(&format!("http://{}", server.address));
    watched.restored().await;
    assert_eq!(watched.known(), ["a"]);
    watched.end().await;
    drop(held);
}

async fn a_broken_kubeconfig_is_reported<K: TestKind>() {
    let mut watched = Watched::<K>::without_kubeconfig();
    watched.lost().await;
    std::fs::write(watched.folder.path().join("kubeconfig"), "clusters: 7").unwrap();
    let reason = watched.lost().await;
    assert!(reason.contains("cannot be used"), "{reason}");
    watched.end().await;
}

/// It named another user, or something that is no API server.
async fn a_kubeconfig_that_was_corrected_is_read_again_after_any_refusal<K: TestKind>() {
    for (code, body) in [
        (403, status(403, "no").to_string()),
        (404, status(404, "no").to_string()),
        (503, status(503, "no").to_string()),
        (200, "<html>Sign in</html>".to_owned()),
    ] {
        let wrong = (0..100).map(|_| Answer::Whole(code, body.clone()));
        let wrong = Server::start(wrong.collect()).await;
        let right = Server::start(vec![list_of::<K>(&["a"], "9"), quiet()]).await;
        let mut watched = Watched::<K>::start(&wrong);
        watched.lost().await;
        watched.write_kubeconfig(&format!("http://{}", right.address));
        watched.listed().await;
        assert_eq!(watched.known(), ["a"]);
        watched.end().await;
    }
}

async fn it_stops_while_a_server_does_not_answer<K: TestKind>() {
    let mut server = Server::start(vec![]).await;
    let watched = Watched::<K>::start(&server);
    server.asked(1).await;
    watched.end().await;
}

async fn an_overloaded_server_is_reported_and_asked_again<K: TestKind>() {
    let mut server = Server::start(vec![
        refusal(429, "too many requests"),
        list_of::<K>(&["a"], "9"),
        refusal(429, "too many requests"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<K>::start(&server);
    for _ in 0..2 {
        let reason = watched.lost().await;
        assert!(reason.ends_with("429: too many requests"), "{reason}");
        watched.restored().await;
    }
    assert_eq!(watched.known(), ["a"]);
    let watch = watch_from::<K>("9");
    assert_eq!(
        server.asked(4).await,
        [first_page::<K>(), first_page::<K>(), watch.clone(), watch]
    );
    watched.end().await;
}

async fn a_server_that_becomes_silent_is_a_failure<K: TestKind>() {
    let mut cut = line("ADDED", &object::<K>("a", "1"));
    cut.truncate(10);
    let server = Server::start(vec![Answer::Stream(vec![cut], End::Open), quiet()]).await;
    let folder = tempfile::tempdir().unwrap();
    write_kubeconfig(folder.path(), &format!("http://{}", server.address));
    let client = ApiClient::new(Access::Kubeconfig(folder.path().join("kubeconfig")));
    let mut failures = Vec::new();
    for of_failure in [BodyError::of_watch, BodyError::of_answer] {
        let request = http::Request::get(K::PATH).body(Vec::new()).unwrap();
        let response = client.open(request, Duration::from_millis(20)).await;
        let (mut response, _) = response.unwrap();
        let error = response.body.line().await.unwrap_err();
        failures.push(of_failure(error, &response.url));
    }
    assert!(
        matches!(
            failures[0],
            Failure::Broken {
                is_silent: true,
                ..
            }
        ),
        "{failures:?}"
    );
    assert!(
        matches!(failures[1], Failure::Silent { .. }),
        "{failures:?}"
    );
}
