//! Parts of a collection: of one node, of one namespace.

use tweed_core::object::pod::Pod;

use super::*;

async fn asked_of(scope: Scope) -> Vec<String> {
    let mut server = Server::start(vec![
        page(&[object::<Pod>("a", "3")], "9", "second"),
        list_of::<Pod>(&["b"], "9"),
        Answer::Stream(vec![bookmark("10")], End::Clean),
        refusal(410, "too old"),
        list_of::<Pod>(&["a"], "11"),
        quiet(),
    ])
    .await;
    let mut watched = Watched::<Pod>::prepared_of(scope, |_| {});
    watched.write_kubeconfig(&format!("http://{}", server.address));
    watched.listed().await;
    assert_eq!(watched.known(), ["a", "b"]);
    watched.listed().await;
    let asked = server.asked(6).await;
    watched.end().await;
    asked
}

#[tokio::test]
async fn the_pods_of_a_node_are_selected_by_the_server() {
    let asked = asked_of(Scope::Node("worker-1.example".to_owned())).await;
    // Without a limit: for a page the server would read the pods of all nodes.
    let list = "/api/v1/pods?&fieldSelector=spec.nodeName%3Dworker-1.example";
    assert_eq!(asked[0], list);
    assert_eq!(asked[1], format!("{list}&continue=second"));
    let watch = asked[2].clone();
    assert!(watch.contains("watch=true"), "{watch}");
    let selector = "fieldSelector=spec.nodeName%3Dworker-1.example";
    assert!(watch.contains(selector), "{watch}");
    assert!(asked[3].contains(selector), "{asked:?}");
    assert_eq!(asked[4], list);
}

#[tokio::test]
async fn the_pods_of_a_namespace_are_a_collection_of_their_own() {
    let asked = asked_of(Scope::Namespace("shop-1".to_owned())).await;
    let path = "/api/v1/namespaces/shop-1/pods?";
    assert!(asked.iter().all(|one| one.starts_with(path)), "{asked:?}");
}

#[test]
fn a_namespace_that_cannot_exist_stays_one_part_of_the_path() {
    let path = Scope::Namespace("../nodes?x".to_owned()).path::<Pod>();
    assert_eq!(path, "/api/v1/namespaces/..%2Fnodes%3Fx/pods");
}
