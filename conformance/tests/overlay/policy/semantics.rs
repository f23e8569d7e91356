//! What policies mean, over two nodes: rows 4, 7, 8, 9, 10 and 16. The judge of the
//! details is the evaluator of the planner's tests; here a packet shows that it arrives
//! in the kernel.

use tweed_lab::{Cluster, LabError, labels, namespace_manifest};

use super::scene::{ALL, NONE, Scene, ingress};
use super::{cluster_policy, policy};

#[test]
fn rows_4_7_8_9_10_and_16_by_packets() -> Result<(), LabError> {
    rows(Scene::new()?, &IPV4)
}

#[test]
fn rows_4_7_8_9_10_and_16_by_packets_of_ipv6() -> Result<(), LabError> {
    rows(Scene::in_cluster(Cluster::start_ipv6(2)?)?, &IPV6)
}

/// The networks of one family that the policies name.
struct Networks {
    all: &'static str,
    /// The length of a prefix that is one address.
    host: u8,
    of_node_1: &'static str,
    of_node_2: &'static str,
}

const IPV4: Networks = Networks {
    all: "0.0.0.0/0",
    host: 32,
    of_node_1: "10.244.1.0/24",
    of_node_2: "10.244.2.0/24",
};
const IPV6: Networks = Networks {
    all: "'::/0'",
    host: 128,
    of_node_1: "'fd00:10:244:1::/64'",
    of_node_2: "'fd00:10:244:2::/64'",
};

fn rows(mut scene: Scene, networks: &Networks) -> Result<(), LabError> {
    let scene = &mut scene;
    both_ends_have_to_allow(scene)?;
    ports_and_protocols(scene)?;
    blocks_and_exceptions(scene, networks)?;
    labels_of_namespaces_and_pods(scene)?;
    named_ports(scene)?;
    networks_inside_the_cluster(scene, networks)
}

/// Row 7.
fn both_ends_have_to_allow(scene: &mut Scene) -> Result<(), LabError> {
    let egress = |spec: &str| {
        let spec = format!("{{podSelector: {{}}, policyTypes: [Egress], egress: {spec}}}");
        [
            policy("shop", "egress", &spec),
            policy("other", "egress", &spec),
        ]
    };
    scene.with(&[])?;
    assert_eq!(scene.reached()?, [ALL.to_vec(), ALL.to_vec()]);
    let [near, far] = egress("[{}]");
    scene.with(&[near.clone(), far.clone(), ingress("deny", "[]")])?;
    assert_eq!(scene.reached()?, [NONE, NONE], "the sender may all");
    let [no_near, no_far] = egress("[]");
    scene.with(&[no_near, no_far, ingress("allow", "[{}]")])?;
    assert_eq!(scene.reached()?, [NONE, NONE], "the receiver may all");
    scene.with(&[near, far, ingress("allow", "[{}]")])?;
    assert_eq!(scene.reached()?, [ALL, ALL]);
    Ok(())
}

/// Rows 9 and 10: `endPort`, and protocols that are another's.
fn ports_and_protocols(scene: &mut Scene) -> Result<(), LabError> {
    scene.with(&[ingress(
        "ports",
        "[{ports: [{protocol: UDP, port: 7002, endPort: 7003}, {protocol: TCP, port: 7001}]}]",
    )])?;
    assert_eq!(scene.reached()?, [[7002, 7003], [7002, 7003]]);
    scene.with(&[ingress("sctp", "[{ports: [{protocol: SCTP, port: 7001}]}]")])?;
    assert_eq!(scene.reached()?, [NONE, NONE]);
    scene.with(&[
        ingress("sctp", "[{ports: [{protocol: SCTP}]}]"),
        ingress("udp", "[{ports: [{protocol: UDP, port: 7001}]}]"),
    ])?;
    assert_eq!(scene.reached()?, [[7001], [7001]]);
    Ok(())
}

/// Rows 8 and 10: `ipBlock` with `except`.
fn blocks_and_exceptions(scene: &mut Scene, networks: &Networks) -> Result<(), LabError> {
    let Networks { all, host, .. } = networks;
    let near = format!("'{}/{host}'", scene.near.address());
    let except = ingress(
        "except",
        &format!("[{{from: [{{ipBlock: {{cidr: {all}, except: [{near}]}}}}]}}]"),
    );
    scene.with(std::slice::from_ref(&except))?;
    assert_eq!(scene.reached()?, [NONE.to_vec(), ALL.to_vec()]);
    let other = ingress(
        "other",
        &format!(
            "[{{from: [{{ipBlock: {{cidr: {near}}}}}], ports: [{{protocol: UDP, port: 7002}}]}}]"
        ),
    );
    scene.with(&[except, other])?;
    assert_eq!(scene.reached()?, [vec![7002], ALL.to_vec()]);
    Ok(())
}

/// Row 10: selectors, and labels that change.
fn labels_of_namespaces_and_pods(scene: &mut Scene) -> Result<(), LabError> {
    let rules = "[{from: [{namespaceSelector: {matchLabels: {team: blue}}}], \
                   ports: [{protocol: UDP, port: 7001}]}, \
                  {from: [{podSelector: {matchExpressions: [\
                    {key: tier, operator: In, values: [front, back]}, \
                    {key: app, operator: NotIn, values: [far]}, \
                    {key: app, operator: Exists}, \
                    {key: old, operator: DoesNotExist}]}}], \
                   ports: [{protocol: UDP, port: 7002}]}, \
                  {from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}, \
                    podSelector: {matchLabels: {app: far}}}], \
                   ports: [{protocol: UDP, port: 7003}]}]";
    scene.with(&[ingress("selectors", rules)])?;
    assert_eq!(scene.reached()?, [[7002], [7003]]);
    let blue = namespace_manifest("other", &labels("team=blue"));
    scene.cluster.objects().set("namespace/other", blue);
    let mut manifest = scene.near.manifest.clone().unwrap();
    manifest.labels.insert("old".to_owned(), "yes".to_owned());
    scene.cluster.apply_pod(&manifest)?;
    scene.becomes(&[vec![], vec![7001, 7003]])?;
    let plain = namespace_manifest("other", &labels(""));
    scene.cluster.objects().set("namespace/other", plain);
    manifest.labels.remove("old");
    scene.cluster.apply_pod(&manifest)?;
    scene.becomes(&[vec![7002], vec![7003]])
}

/// Row 4: a name is the number that the destination pod gives it.
fn named_ports(scene: &mut Scene) -> Result<(), LabError> {
    let named = ingress("named", "[{ports: [{protocol: UDP, port: web}]}]");
    scene.with(&[named])?;
    assert_eq!(scene.reached()?, [NONE, NONE], "no port has the name");
    let mut manifest = scene.server.manifest.clone().unwrap();
    for (protocol, port, expected) in [
        ("UDP", 7001, vec![7001]),
        ("UDP", 7002, vec![7002]),
        ("TCP", 7002, vec![]),
    ] {
        manifest.ports = vec![("web".to_owned(), protocol.to_owned(), port)];
        scene.cluster.apply_pod(&manifest)?;
        scene.becomes(&[expected.clone(), expected])?;
    }
    Ok(())
}

/// Row 16: `networks` matches pods, and the Admin tier comes before what
/// NetworkPolicies allow.
fn networks_inside_the_cluster(scene: &mut Scene, networks: &Networks) -> Result<(), LabError> {
    let deny = |network: &str| {
        let spec = format!(
            "{{tier: Admin, priority: 9, subject: {{namespaces: {{matchLabels: \
             {{kubernetes.io/metadata.name: other}}}}}}, egress: [{{action: Deny, \
             to: [{{networks: [{network}]}}], \
             protocols: [{{udp: {{destinationPort: {{range: {{start: 7001, end: 7002}}}}}}}}]}}]}}"
        );
        cluster_policy("networks", &spec)
    };
    let allow = ingress("allow", "[{}]");
    // Each kind of object is read on its own, and the flags are NetworkPolicies.
    scene.with(&[deny(networks.of_node_1), allow.clone()])?;
    scene.becomes(&[ALL.to_vec(), vec![7003]])?;
    scene.with(&[deny(networks.of_node_2), allow])?;
    scene.becomes(&[ALL.to_vec(), ALL.to_vec()])
}
