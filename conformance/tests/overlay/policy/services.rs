//! Services, whose rules stand in for kube-proxy's: policies are asked about the pod
//! behind a Service, row 4 for its named ports; a pod that reaches itself; row 11, a
//! NodePort whose node replaces the client's address.

use std::net::SocketAddr;

use tweed_lab::{ClusterPod, LabError, Netns, OUTSIDE};

use super::scene::{ALL, NONE, Scene, ingress};
use super::traffic::Listener;
use super::{DENY_ALL, cluster_policy, policy};

/// The node port of the server on the node that a client reaches.
const LOCAL: u16 = 30_080;
/// The node port of the server on the other node.
const REMOTE: u16 = 30_081;

/// A service: its cluster IP and port.
fn service(number: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 96, 0, number], port))
}

/// What kube-proxy does on a node for these Services, each with one backend. The source
/// is replaced for a pod that reaches itself, and for clients outside.
fn serve(node: &Netns, services: &[(SocketAddr, SocketAddr)]) -> Result<(), LabError> {
    let to_backends: String = services
        .iter()
        .map(|(from, to)| {
            format!(
                "ip daddr {} udp dport {} dnat to {to}\n",
                from.ip(),
                from.port()
            )
        })
        .collect();
    let to_itself: String = services
        .iter()
        .map(|(_, to)| format!("ip saddr {0} ip daddr {0} masquerade\n", to.ip()))
        .collect();
    node.nft(&format!(
        "table ip services {{\n\
         chain prerouting {{ type nat hook prerouting priority -100\n{to_backends} }}\n\
         chain postrouting {{ type nat hook postrouting priority 99\n{to_itself}\
         ip saddr {OUTSIDE} ct status dnat masquerade\n}}\n}}\n"
    ))
}

/// Gives the server's and the other pod's port of the name `web` these numbers.
fn name_ports(scene: &mut Scene, second: &ClusterPod, numbers: [u16; 2]) -> Result<(), LabError> {
    for (pod, number) in [&scene.server, second].into_iter().zip(numbers) {
        let mut manifest = pod.manifest.clone().unwrap();
        manifest.ports = vec![("web".to_owned(), "UDP".to_owned(), number)];
        scene.cluster.apply_pod(&manifest)?;
    }
    Ok(())
}

/// Row 4: the name of a port is asked of the pod behind the Service, and each pod's has
/// another number.
#[test]
fn a_service_leads_to_the_named_port_of_each_pod_behind_it() -> Result<(), LabError> {
    let mut scene = Scene::new()?;
    let second = scene.cluster.labelled_pod(2, "shop/second", "app=server")?;
    let listeners = [
        (
            service(1, 80),
            Listener::open(&scene.cluster, 1, &scene.server, 7101)?,
        ),
        (
            service(1, 81),
            Listener::open(&scene.cluster, 1, &scene.server, 7102)?,
        ),
        (
            service(2, 80),
            Listener::open(&scene.cluster, 2, &second, 7102)?,
        ),
        (
            service(2, 81),
            Listener::open(&scene.cluster, 2, &second, 7101)?,
        ),
    ];
    let services = listeners
        .each_ref()
        .map(|(from, listener)| (*from, listener.at()));
    for node in [1, 2] {
        serve(scene.cluster[node].node.netns(), &services)?;
    }
    let heard = |from: &ClusterPod| -> Result<Vec<bool>, LabError> {
        let hears =
            |(to, listener): &(SocketAddr, Listener)| listener.hears_through(from.netns(), *to);
        listeners.iter().map(hears).collect()
    };
    let only_named = [true, false, true, false];
    name_ports(&mut scene, &second, [7101, 7102])?;

    scene.with(&[ingress("named", "[{ports: [{protocol: UDP, port: web}]}]")])?;
    listeners[0].1.wait(scene.near.netns(), true)?;
    listeners[2].1.wait(scene.far.netns(), true)?;
    assert_eq!(heard(&scene.near)?, only_named, "ingress, the near client");
    assert_eq!(heard(&scene.far)?, only_named, "ingress, the far client");

    let egress = "{podSelector: {matchLabels: {app: near}}, policyTypes: [Egress], egress: \
                  [{to: [{podSelector: {matchLabels: {app: server}}}], \
                  ports: [{protocol: UDP, port: web}]}]}";
    scene.with(&[policy("shop", "named", egress)])?;
    assert_eq!(heard(&scene.near)?, only_named, "egress");
    assert_eq!(
        heard(&scene.far)?,
        [true; 4],
        "a client that nothing selects"
    );
    Ok(())
}

/// A NetworkPolicy does not forbid it; the cluster's administrator may.
#[test]
fn a_pod_reaches_itself_through_a_service_unless_the_administrator_denies_it()
-> Result<(), LabError> {
    let mut scene = Scene::new()?;
    let server = scene.ports[0].at();
    serve(scene.cluster[1].node.netns(), &[(service(1, 80), server)])?;
    let reaches_itself =
        |scene: &Scene| scene.ports[0].hears_through(scene.server.netns(), service(1, 80));
    assert!(reaches_itself(&scene)?, "without a policy");

    scene.with(&[policy("shop", "deny", DENY_ALL)])?;
    assert_eq!(scene.reached()?, [NONE, NONE]);
    assert!(reaches_itself(&scene)?, "denied by NetworkPolicy");

    let rule = |action: &str, peer: &str| {
        format!(
            "{{action: {action}, from: [{{pods: {{namespaceSelector: {{}}, podSelector: {peer}}}}}]}}"
        )
    };
    let admin = |rules: &[String]| {
        let spec = format!(
            "{{tier: Admin, priority: 1, subject: {{pods: {{namespaceSelector: {{}}, \
             podSelector: {{matchLabels: {{app: server}}}}}}}}, ingress: [{}]}}",
            rules.join(", ")
        );
        cluster_policy("admin", &spec)
    };
    let deny = rule("Deny", "{}");
    scene.with(&[admin(std::slice::from_ref(&deny))])?;
    scene.becomes(&[vec![], vec![]])?;
    assert!(!reaches_itself(&scene)?, "denied by the administrator");

    let itself = rule("Accept", "{matchLabels: {app: server}}");
    let near = rule("Accept", "{matchLabels: {app: near}}");
    scene.with(&[admin(&[itself, near, deny])])?;
    scene.becomes(&[ALL.to_vec(), vec![]])?;
    assert!(reaches_itself(&scene)?, "allowed by the administrator");
    Ok(())
}

/// Row 11, as docs/policy.md has it: a policy sees the client if the pod is on the node
/// that was reached, and that node if it is on another one.
#[test]
fn a_node_port_is_evaluated_by_the_client_here_and_by_the_node_elsewhere() -> Result<(), LabError> {
    let mut scene = Scene::new()?;
    let remote = scene.cluster.labelled_pod(2, "shop/remote", "app=server")?;
    let listeners = [
        Listener::open(&scene.cluster, 1, &scene.server, 7101)?,
        Listener::open(&scene.cluster, 2, &remote, 7101)?,
    ];
    let node = scene.cluster[1].node.address();
    let ports = [LOCAL, REMOTE].map(|port| SocketAddr::new(node.into(), port));
    let services = [0, 1].map(|index: usize| (ports[index], listeners[index].at()));
    serve(scene.cluster[1].node.netns(), &services)?;
    let heard = |scene: &Scene| -> Result<[bool; 2], LabError> {
        let outside = scene.cluster.underlay().outside();
        let [local, remote] = &listeners;
        Ok([
            local.hears_through(outside, ports[0])?,
            remote.hears_through(outside, ports[1])?,
        ])
    };
    let block = |name: &str, address: std::net::Ipv4Addr| {
        ingress(
            name,
            &format!("[{{from: [{{ipBlock: {{cidr: {address}/32}}}}]}}]"),
        )
    };
    assert_eq!(heard(&scene)?, [true, true], "without a policy");
    let (client, node) = (block("client", OUTSIDE), block("node", node));
    for (policies, expected) in [
        (vec![ingress("deny", "[]")], [false, false]),
        (vec![client.clone()], [true, false]),
        (vec![node.clone()], [false, true]),
        (vec![client, node], [true, true]),
    ] {
        scene.with(&policies)?;
        assert_eq!(heard(&scene)?, expected, "{policies:?}");
    }
    Ok(())
}
