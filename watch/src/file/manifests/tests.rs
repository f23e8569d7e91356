use std::fmt::Write as _;

use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::node::{Node, NodeAddress};
use tweed_core::object::pod::Pod;

use super::*;
use crate::tests::kinds::for_each_kind;

for_each_kind!(
    a_list_can_be_of_any_form,
    an_empty_file_has_no_objects,
    other_kinds_are_skipped,
    an_object_of_another_group_or_version_is_of_another_kind,
    an_invalid_manifest_breaks_the_file,
    hostile_files_are_refused_in_limited_memory,
    five_thousand_documents_are_within_the_limits,
);

#[test]
fn several_documents() {
    let text = "
# The nodes of the lab.
---
apiVersion: v1
kind: Node
metadata:
  name: a
spec:
  podCIDRs: [10.244.1.0/24]
status:
  addresses:
  - {type: InternalIP, address: 192.0.2.1}
---
---
kind: Node
metadata: {name: b, creationTimestamp: 2026-11-21T10:00:00Z}
";
    let nodes = parse::<Node>(text.as_bytes()).unwrap();
    let expected = [
        Node {
            name: "a".to_owned(),
            pod_cidrs: vec!["10.244.1.0/24".to_owned()],
            addresses: vec![NodeAddress {
                kind: "InternalIP".to_owned(),
                address: "192.0.2.1".to_owned(),
            }],
            ..Node::default()
        },
        Node {
            name: "b".to_owned(),
            created: Some(1_795_255_200),
            ..Node::default()
        },
    ];
    assert_eq!(nodes, expected);
}

/// The names of the objects in `text`, in which "Node" stands for the kind.
fn names<K: Kind>(text: &str) -> Result<Vec<String>, Broken> {
    let objects = parse::<K>(text.replace("Node", K::NAME).as_bytes())?;
    Ok(objects.iter().map(|object| object.key().name).collect())
}

fn a_list_can_be_of_any_form<K: Kind>() {
    for text in [
        "kind: List\nitems:\n- kind: Node\n  metadata: {name: a}\n- kind: Node\n  metadata: {name: b}\n",
        "kind: NodeList\nitems:\n- metadata: {name: a}\n- metadata: {name: b}\n",
        r#"{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a"}}, {"kind": "Node", "metadata": {"name": "b"}}]}"#,
        "{\"kind\": \"Node\",\n\t\"metadata\": {\"name\": \"a\"}}\n{\"kind\": \"Node\", \"metadata\": {\"name\": \"b\"}}",
        "{kind: Node, metadata: {name: a}}\n---\n{kind: Node, metadata: {name: b}}",
    ] {
        assert_eq!(names::<K>(text), Ok(vec!["a".into(), "b".into()]), "{text}");
    }
}

fn an_empty_file_has_no_objects<K: Kind>() {
    for text in [
        "",
        "\n",
        "---\n",
        "# nothing\n",
        "kind: List\nitems: []\n",
        "kind: List",
    ] {
        assert_eq!(names::<K>(text), Ok(vec![]), "{text:?}");
    }
}

fn other_kinds_are_skipped<K: Kind>() {
    let text = "kind: ConfigMap\nmetadata: {name: x}\n---\nkind: Node\nmetadata: {name: a}\n";
    assert_eq!(names::<K>(text), Ok(vec!["a".into()]));
}

fn an_object_of_another_group_or_version_is_of_another_kind<K: Kind>() {
    let own = K::api_version();
    let text = format!(
        "{{kind: Node, apiVersion: example.com/v1, metadata: {{name: x}}}}\n---\n\
         {{kind: NodeList, apiVersion: example.com/v1, items: [{{metadata: {{name: y}}}}]}}\n---\n\
         {{kind: Node, apiVersion: {own}, metadata: {{name: a}}}}\n---\n\
         {{kind: NodeList, apiVersion: {own}, items: [{{metadata: {{name: b}}}}]}}\n"
    );
    assert_eq!(names::<K>(&text), Ok(vec!["a".into(), "b".into()]));
}

#[test]
fn each_kind_is_read_from_the_same_file() {
    let text = "
{kind: Node, metadata: {name: n}, spec: {podCIDRs: [10.244.1.0/24]}}
---
{kind: Pod, metadata: {name: p, namespace: x}, spec: {nodeName: n, containers: []}}
---
{kind: Pod, metadata: {name: p}}
---
{kind: Namespace, metadata: {name: x}}
---
{kind: NetworkPolicy, apiVersion: networking.k8s.io/v1, metadata: {name: q}, spec: {podSelector: odd}}
---
{kind: NetworkPolicy, apiVersion: crd.projectcalico.org/v1, metadata: {name: r}}
---
{kind: ConfigMap, metadata: {name: x}, data: {}}
";
    assert_eq!(names_of::<Node>(text), ["n"]);
    assert_eq!(names_of::<Pod>(text), ["x/p", "default/p"]);
    assert_eq!(names_of::<Namespace>(text), ["x"]);
    assert_eq!(names_of::<NetworkPolicy>(text), ["default/q"]);
    assert!(names_of::<ClusterNetworkPolicy>(text).is_empty());
}

fn names_of<K: Kind>(text: &str) -> Vec<String> {
    let objects = parse::<K>(text.as_bytes()).unwrap();
    objects.iter().map(|one| one.key().to_string()).collect()
}

fn an_invalid_manifest_breaks_the_file<K: Kind>() {
    let broken = |text: &str| {
        names::<K>(text)
            .unwrap_err()
            .to_string()
            .replace(K::KINDS, "Nodes")
            .replace(K::NAME, "Node")
            .replace("default/", "")
    };
    assert_eq!(broken("metadata: {name: a}"), "object 1 has no kind");
    assert_eq!(
        broken("kind: Node\n---\nkind: Node\nmetadata: {name: a}"),
        "object 1 has no metadata.name"
    );
    assert_eq!(
        broken(
            "kind: List\nitems:\n- kind: Node\n  metadata: {name: a}\n- kind: Node\n  metadata: {name: a b}"
        ),
        "object 3 has the name \"a b\", which no Node can have"
    );
    assert_eq!(
        broken("kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata: {name: a}"),
        "there are two Nodes of the name a"
    );
    assert_eq!(parse::<K>(b"kind: \xff").unwrap_err(), Broken::NotText);
    for text in [
        "kind: [",
        "kind: Node\n metadata: {}",
        "just words",
        "- kind: Node",
        "{\"kind\": \"List\", \"items\": [{\"kind\": \"Node\", \"metad",
        "kind: Node\nkind: Node\nmetadata: {name: a}",
        "\u{1b}[2J",
    ] {
        let why = names::<K>(text).unwrap_err();
        assert!(matches!(why, Broken::Syntax(_)), "{text:?}: {why}");
        let message = why.to_string();
        assert!(message.chars().all(|c| !c.is_control()), "{message:?}");
    }
}

fn hostile_files_are_refused_in_limited_memory<K: Kind>() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let below = vec![format!("*a{}", level - 1); 9].join(", ");
        writeln!(bomb, "a{level}: &a{level} [{below}]").unwrap();
    }
    bomb.push_str("kind: Node\nmetadata: {name: *a11}\n");
    assert!(matches!(names::<K>(&bomb), Err(Broken::Syntax(_))));

    let deep = format!("kind: {}", "[".repeat(100_000));
    assert!(matches!(names::<K>(&deep), Err(Broken::Syntax(_))));
    let deep = "{\"items\":[".repeat(100_000);
    assert!(matches!(names::<K>(&deep), Err(Broken::Syntax(_))));
}

fn five_thousand_documents_are_within_the_limits<K: Kind>() {
    let documents: String = (0..5000)
        .map(|number| format!("---\nkind: Node\nmetadata: {{name: n{number}}}\n"))
        .collect();
    assert_eq!(names::<K>(&documents).map(|names| names.len()), Ok(5000));
}
