//! A collection that the server does not have, or not any more, or in another version.

use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::network_policy::NetworkPolicy;

use super::*;

type Policy = ClusterNetworkPolicy;

const VERSION: &str = "/apis/policy.networking.k8s.io/v1alpha2";
/// What is said of a server without the kind.
const LACKS: &str = "the API server has no clusternetworkpolicies.policy.networking.k8s.io \
                     of policy.networking.k8s.io/v1alpha2";

/// What a server without the path says.
fn not_found() -> Answer {
    Answer::Whole(404, "404 page not found\n".to_owned())
}

/// The groups of a server, with these versions of the group of policies.
fn groups(versions: &[&str]) -> Answer {
    let versions: Vec<Value> = (versions.iter().map(|one| json!({"version": one}))).collect();
    let mut groups = vec![json!({"name": "apps", "versions": [{"version": "v1"}]})];
    if !versions.is_empty() {
        groups.push(json!({"name": "policy.networking.k8s.io", "versions": versions}));
    }
    Answer::Whole(
        200,
        json!({"kind": "APIGroupList", "groups": groups}).to_string(),
    )
}

fn resources(names: &[&str]) -> Answer {
    let names: Vec<Value> = names.iter().map(|one| json!({"name": one})).collect();
    let list = json!({"kind": "APIResourceList", "resources": names});
    Answer::Whole(200, list.to_string())
}

/// A watcher that asks again without a long pause.
fn watched(server: &Server) -> Watched<Policy> {
    let watched = Watched::prepared(|watcher| {
        let pause = Duration::from_millis(10);
        let pauses = watcher.absent_pauses.with_min_delay(pause);
        watcher.absent_pauses = pauses.with_max_delay(pause);
    });
    watched.write_kubeconfig(&format!("http://{}", server.address));
    watched
}

#[tokio::test]
async fn a_missing_crd_is_an_empty_list_until_it_is_installed() {
    let mut server = Server::start(vec![
        not_found(),
        not_found(),
        groups(&[]),
        not_found(),
        not_found(),
        list_of::<Policy>(&["a"], "9"),
        quiet(),
    ])
    .await;
    let mut watched = watched(&server);
    assert_eq!(watched.listed().await, [Event::Init, Event::InitDone]);
    assert!(watched.known().is_empty());
    assert_eq!(watched.absent().await, LACKS);
    // Nothing is said again while it is missing, and it is no failure.
    let seen = watched.listed().await;
    assert_eq!(seen.len(), 3, "{seen:?}");
    assert_eq!(watched.known(), ["a"]);
    let list = first_page::<Policy>();
    assert_eq!(
        server.asked(7).await,
        [
            list.clone(),
            format!("{VERSION} as JSON"),
            "/apis as JSON".to_owned(),
            list.clone(),
            list.clone(),
            list,
            watch_from::<Policy>("9"),
        ]
    );
    watched.end().await;
}

#[tokio::test]
async fn a_crd_that_is_removed_while_it_is_watched_leaves_an_empty_list() {
    let server = Server::start(vec![
        list_of::<Policy>(&["a", "b"], "9"),
        Answer::Stream(
            vec![line("DELETED", &object::<Policy>("b", "10"))],
            End::Clean,
        ),
        not_found(),
        resources(&["others"]),
        not_found(),
        list_of::<Policy>(&["c"], "20"),
        quiet(),
    ])
    .await;
    let mut watched = watched(&server);
    watched.listed().await;
    let seen = watched.listed().await;
    assert_eq!(
        seen,
        [
            Event::Delete(Policy::example("b")),
            Event::Init,
            Event::InitDone
        ]
    );
    assert!(watched.known().is_empty());
    assert_eq!(watched.absent().await, LACKS);
    watched.listed().await;
    assert_eq!(watched.known(), ["c"]);
    watched.end().await;
}

#[tokio::test]
async fn another_version_is_named_and_the_own_is_used_when_it_is_served() {
    let server = Server::start(vec![
        not_found(),
        not_found(),
        groups(&["v1beta1", "v1alpha1"]),
        list_of::<Policy>(&["a"], "9"),
        Answer::Stream(vec![], End::Clean),
        not_found(),
        not_found(),
        groups(&["v1beta1"]),
    ])
    .await;
    let mut watched = watched(&server);
    let reason = watched.absent().await;
    assert!(
        reason.ends_with("(the group is in v1beta1, v1alpha1)"),
        "{reason}"
    );
    watched.listed().await;
    assert_eq!(watched.known(), ["a"]);
    let reason = watched.absent().await;
    assert!(watched.known().is_empty());
    assert!(reason.ends_with("(the group is in v1beta1)"), "{reason}");
    watched.end().await;
}

#[tokio::test]
async fn a_404_that_the_server_does_not_confirm_is_a_failure_and_keeps_the_policies() {
    let server = Server::start(vec![
        list_of::<Policy>(&["a"], "9"),
        // From a proxy: everything is missing.
        not_found(),
        not_found(),
        not_found(),
        // The server has it.
        not_found(),
        resources(&["clusternetworkpolicies"]),
        // It cannot say.
        not_found(),
        refusal(503, "starting"),
        list_of::<Policy>(&["b"], "10"),
        quiet(),
    ])
    .await;
    let mut watched = watched(&server);
    watched.listed().await;
    let reason = watched.lost().await;
    assert!(reason.contains("404"), "{reason}");
    assert_eq!(watched.known(), ["a"]);
    let reason = watched.lost().await;
    assert!(reason.contains("503: starting"), "{reason}");
    assert_eq!(watched.known(), ["a"]);
    watched.restored().await;
    assert_eq!(watched.known(), ["b"]);
    watched.end().await;
}

#[tokio::test]
async fn a_failure_while_it_is_missing_is_reported_and_ends() {
    let server = Server::start(vec![
        not_found(),
        not_found(),
        groups(&[]),
        refusal(500, "etcd is away"),
        not_found(),
        list_of::<Policy>(&["a"], "9"),
        quiet(),
    ])
    .await;
    let mut watched = watched(&server);
    watched.absent().await;
    watched.lost().await;
    assert!(watched.known().is_empty());
    let seen = watched.restored().await;
    assert_eq!(seen, [Event::Restored]);
    watched.listed().await;
    assert_eq!(watched.known(), ["a"]);
    watched.end().await;
}

fn forbidden() -> Answer {
    refusal(403, "clusternetworkpolicies is forbidden")
}

#[tokio::test]
async fn a_missing_right_to_read_what_the_server_has_is_named() {
    let server = Server::start(vec![
        forbidden(),
        resources(&["clusternetworkpolicies"]),
        // It cannot say.
        forbidden(),
        refusal(503, "starting"),
        list_of::<Policy>(&["a"], "9"),
        quiet(),
    ])
    .await;
    let mut watched = watched(&server);
    let Loss { reason, forbidden } = watched.loss().await;
    let right = "get, list and watch clusternetworkpolicies.policy.networking.k8s.io (";
    assert!(reason.contains(right), "{reason}");
    assert!(forbidden);
    // As long as that is what is known.
    let seen = watched.restored().await;
    assert!(
        !seen.iter().any(|event| matches!(event, Event::Lost(_))),
        "{seen:?}"
    );
    assert_eq!(watched.known(), ["a"]);
    watched.end().await;
}

/// A server asks for rights first: it answers 403 whether it has the kind or not.
#[tokio::test]
async fn without_the_right_a_kind_that_the_server_does_not_have_is_absent_until_it_comes() {
    let server = Server::start(vec![
        forbidden(),
        not_found(),
        groups(&[]),
        forbidden(),
        not_found(),
        groups(&[]),
        forbidden(),
        resources(&["clusternetworkpolicies"]),
        // It goes again.
        forbidden(),
        not_found(),
        groups(&[]),
        list_of::<Policy>(&["a"], "9"),
        quiet(),
    ])
    .await;
    let mut watched = watched(&server);
    let is_missing = [
        Event::Init,
        Event::InitDone,
        Event::Absent(LACKS.to_owned()),
    ];
    let is_absent = |event: &Event<Policy>| matches!(event, Event::Absent(_));
    assert_eq!(watched.until(is_absent).await, is_missing);
    let seen = watched.until(|event| matches!(event, Event::Lost(_))).await;
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(
        seen[0],
        Event::Init,
        "what was said of it is not true any more"
    );
    assert_eq!(watched.until(is_absent).await, is_missing);
    assert_eq!(watched.restored().await, [Event::Restored]);
    watched.listed().await;
    assert_eq!(watched.known(), ["a"]);
    watched.end().await;
}

#[tokio::test]
async fn a_kind_that_every_server_has_is_never_absent() {
    let server = Server::start(vec![
        not_found(),
        list_of::<NetworkPolicy>(&["a"], "9"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<NetworkPolicy>::start(&server);
    let reason = watched.lost().await;
    assert!(reason.contains("404"), "{reason}");
    watched.restored().await;
    assert_eq!(watched.known(), ["a"]);
    watched.end().await;
}
