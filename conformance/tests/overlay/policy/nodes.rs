//! Nodes as the ends of a connection: the own node, other nodes, nodes as peers, and pods
//! on the host's network, which are their node.

use std::net::SocketAddr;

use serde_json::json;
use tweed_lab::{LabError, Netns};

use super::scene::{ALL, NONE, Scene, ingress};
use super::traffic::Listener;
use super::{cluster_policy, policy};

fn node(scene: &Scene, index: u8) -> &Netns {
    scene.cluster[index].node.netns()
}

/// Both nodes, as they receive.
fn nodes(scene: &Scene) -> Result<[Listener; 2], LabError> {
    Ok([
        Listener::on_node(&scene.cluster, 1, 7101)?,
        Listener::on_node(&scene.cluster, 2, 7101)?,
    ])
}

#[test]
fn nodes_to_pods_and_pods_to_nodes() -> Result<(), LabError> {
    let mut scene = Scene::new()?;
    from_nodes(&mut scene)?;
    to_nodes(&mut scene)?;
    excepted_nodes(&mut scene)?;
    selected_nodes(&mut scene)?;
    pods_on_the_host_network(&mut scene)
}

/// The own node always reaches its pods. Another one comes with the overlay's address,
/// and counts as its addresses.
fn from_nodes(scene: &mut Scene) -> Result<(), LabError> {
    scene.with(&[ingress("deny", "[]")])?;
    assert_eq!(scene.reached()?, [NONE, NONE]);
    assert!(scene.ports[0].hears(node(scene, 1))?, "the own node");
    assert!(!scene.ports[0].hears(node(scene, 2))?, "another node");
    let address = scene.cluster[2].node.address();
    let block = format!("[{{from: [{{ipBlock: {{cidr: {address}/32}}}}]}}]");
    scene.with(&[ingress("block", &block)])?;
    assert_eq!(scene.reached()?, [NONE, NONE]);
    assert!(
        scene.ports[0].hears(node(scene, 2))?,
        "a node by its address"
    );
    Ok(())
}

/// A pod to its own node is evaluated as to any address.
fn to_nodes(scene: &mut Scene) -> Result<(), LabError> {
    let [own, other] = nodes(scene)?;
    let egress = |rules: &str| {
        let spec = format!(
            "{{podSelector: {{matchLabels: {{app: near}}}}, policyTypes: [Egress], egress: {rules}}}"
        );
        policy("shop", "egress", &spec)
    };
    let heard = |scene: &Scene| -> Result<[bool; 2], LabError> {
        let near = scene.near.netns();
        Ok([own.hears(near)?, other.hears(near)?])
    };
    scene.with(&[])?;
    assert_eq!(heard(scene)?, [true, true], "without a policy");
    scene.with(&[egress("[]")])?;
    assert_eq!(heard(scene)?, [false, false], "egress denied");
    let address = scene.cluster[1].node.address();
    let block = format!("[{{to: [{{ipBlock: {{cidr: {address}/32}}}}]}}]");
    scene.with(&[egress(&block)])?;
    assert_eq!(heard(scene)?, [true, false], "the own node allowed");
    Ok(())
}

/// An exception of a node's address holds for its address on the overlay too: there the
/// same programs listen, and from there it sends. One of the pods' range is about pods.
fn excepted_nodes(scene: &mut Scene) -> Result<(), LabError> {
    let [_, other] = nodes(scene)?;
    let overlay = SocketAddr::from(([10, 244, 2, 0], other.at().port()));
    let address = scene.cluster[2].node.address();
    let both = |except: &str| {
        let block = format!("{{ipBlock: {{cidr: 0.0.0.0/0, except: [{except}]}}}}");
        let spec = format!(
            "{{podSelector: {{}}, policyTypes: [Ingress, Egress], \
             ingress: [{{from: [{block}]}}], egress: [{{to: [{block}]}}]}}"
        );
        policy("shop", "block", &spec)
    };
    let node_alone = format!("{address}/32");
    for (except, passes, pods) in [
        ("", true, ALL.as_slice()),
        (node_alone.as_str(), false, ALL.as_slice()),
        ("10.244.0.0/16", true, NONE.as_slice()),
    ] {
        scene.with(&[both(except)])?;
        let near = scene.near.netns();
        assert_eq!(other.hears(near)?, passes, "to the node: {except}");
        let heard = other.hears_through(near, overlay)?;
        assert_eq!(heard, passes, "to its overlay address: {except}");
        let heard = scene.ports[0].hears(node(scene, 2))?;
        assert_eq!(heard, passes, "from the node: {except}");
        assert_eq!(scene.reached()?, [pods, pods], "pods: {except}");
    }
    Ok(())
}

/// The peer `nodes` of a ClusterNetworkPolicy.
fn selected_nodes(scene: &mut Scene) -> Result<(), LabError> {
    let [own, other] = nodes(scene)?;
    let labels = &mut scene.cluster.entry(2)?.manifest.labels;
    labels.insert("zone".to_owned(), "a".to_owned());
    let spec = "{tier: Admin, priority: 1, subject: {namespaces: {matchLabels: \
                {kubernetes.io/metadata.name: shop}}}, egress: [\
                {action: Accept, to: [{nodes: {matchLabels: {zone: a}}}]}, \
                {action: Deny, to: [{networks: [0.0.0.0/0]}]}]}";
    scene.with(&[cluster_policy("zone", spec)])?;
    own.wait(scene.near.netns(), false)?;
    other.wait(scene.near.netns(), true)?;
    assert_eq!(scene.reached()?[0], NONE, "a pod is no node");
    Ok(())
}

/// No selector finds a pod that has its node's address, and no policy applies to it.
fn pods_on_the_host_network(scene: &mut Scene) -> Result<(), LabError> {
    let listeners = nodes(scene)?;
    let address = scene.cluster[2].node.address();
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "namespace": "shop", "name": "host", "uid": "uid-of-host",
                      "labels": { "team": "blue" } },
        "spec": { "nodeName": "node2", "hostNetwork": true, "containers": [{ "name": "main" }] },
        "status": { "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] },
    });
    scene
        .cluster
        .objects()
        .set("pod/shop/host", pod.to_string());
    // The near client gets the same label at the same time: it shows that the Pods have
    // been read.
    let mut manifest = scene.near.manifest.clone().unwrap();
    manifest.labels.insert("team".to_owned(), "blue".to_owned());
    scene.cluster.apply_pod(&manifest)?;
    let blue = "{podSelector: {matchLabels: {team: blue}}";
    scene.with(&[ingress("blue", &format!("[{{from: [{blue}}}]}}]"))])?;
    scene.ports[0].wait(scene.near.netns(), true)?;
    assert!(!scene.ports[0].hears(node(scene, 2))?, "as a peer");

    let deny = format!("{blue}, policyTypes: [Ingress, Egress]}}");
    scene.with(&[policy("shop", "deny", &deny)])?;
    scene.ports[0].wait(scene.near.netns(), false)?;
    for pod in [&scene.far, &scene.server] {
        assert!(listeners[1].hears(pod.netns())?, "as a subject");
    }
    Ok(())
}
