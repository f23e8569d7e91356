//! Row 5: an address that is used again belongs to its new pod at once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use tweed_lab::{Cluster, LabError, PodManifest, labels, namespace_manifest, wait_until};

use super::traffic::{IN_FORCE_LIMIT, Listener};
use super::{DENY_ALL, policy};

/// A Pod of node 2 that has this address.
fn peer(name: &str, words: &str, address: IpAddr, phase: &str) -> PodManifest {
    PodManifest {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        labels: labels(words),
        node: "node2".to_owned(),
        addresses: vec![address],
        phase: phase.to_owned(),
        ..PodManifest::default()
    }
}

#[test]
fn an_address_that_is_used_again_has_the_rights_of_its_new_pod() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let text = namespace_manifest("shop", &labels(""));
    cluster.objects().set("namespace/shop", text);
    let server = cluster.labelled_pod(1, "shop/server", "app=server")?;
    // Its node knows it, and the API does not know its address yet: the objects below
    // say whose the address is.
    let there = cluster.labelled_pod(2, "shop/there", "app=there")?;
    let own = PodManifest {
        addresses: Vec::new(),
        ..there.manifest.clone().unwrap()
    };
    cluster.apply_pod(&own)?;
    let witness = cluster.labelled_pod(2, "shop/witness", "app=witness")?;
    for (who, port) in [("old", 7001), ("new", 7002)] {
        let spec = format!(
            "{{podSelector: {{matchLabels: {{app: server}}}}, policyTypes: [Ingress], ingress: \
             [{{from: [{{podSelector: {{matchLabels: {{app: {who}}}}}}}], \
             ports: [{{protocol: UDP, port: {port}}}]}}]}}"
        );
        cluster.apply(who, policy("shop", who, &spec))?;
    }
    let old = Listener::open(&cluster, 1, &server, 7001)?;
    let new = Listener::open(&cluster, 1, &server, 7002)?;
    old.wait(there.netns(), false)?;
    let address = there.address();
    // A pod that is being deleted has its rights until it has ended.
    let mut terminating = peer("old", "app=old", address, "Running").to_json();
    terminating["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    cluster.apply("pod/shop/old", terminating.to_string())?;
    old.wait(there.netns(), true)?;
    assert!(!new.hears(there.netns())?);

    // A completed pod loses its rights, before anybody else has the address.
    cluster.apply_pod(&peer("old", "app=old", address, "Succeeded"))?;
    old.wait(there.netns(), false)?;
    // Another pod has it, while the object of the completed one is still there.
    cluster.apply_pod(&peer("new", "app=new", address, "Running"))?;
    new.wait(there.netns(), true)?;
    assert!(!old.hears(there.netns())?);
    // The late delete of the old one takes nothing from the new one. The witness, who
    // gets the old one's label at the same time, shows that the Pods have been read.
    let label = labels("app=old");
    let own = witness.manifest.clone().unwrap();
    cluster.objects().remove("pod/shop/old");
    cluster.apply_pod(&PodManifest {
        labels: label,
        ..own
    })?;
    old.wait(witness.netns(), true)?;
    assert!(new.hears(there.netns())?);
    assert!(!old.hears(there.netns())?);
    Ok(())
}

/// The same for a pod of the node itself: whose the address is comes from the plugin's
/// store, before the API knows it.
#[test]
fn a_local_address_that_is_used_again_is_evaluated_anew() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let peer = cluster.labelled_pod(2, "shop/peer", "app=peer")?;
    let spec = "{podSelector: {matchLabels: {app: shut}}, policyTypes: [Ingress]}";
    cluster.apply("shut", policy("shop", "shut", spec))?;
    let mut before = None;
    for round in 0..6 {
        let (app, arrives) = match round % 2 {
            0 => ("shut", false),
            _ => ("open", true),
        };
        let path = format!("shop/pod{round}");
        let pod = cluster.labelled_pod_at(1, &path, &format!("app={app}"), before)?;
        before = Some(pod.address());
        let listener = Listener::open(&cluster, 1, &pod, 7001)?;
        listener.wait(peer.netns(), arrives)?;
        assert_eq!(listener.hears(peer.netns())?, arrives, "{path}");
        drop(listener);
        cluster.delete_pod(1, pod)?;
    }
    Ok(())
}

/// While no agent runs nobody tells the kernel that the pod is gone that could do everything.
#[test]
fn without_an_agent_an_address_that_is_used_again_is_isolated() -> Result<(), LabError> {
    is_isolated(Cluster::start(2)?)
}

#[test]
fn without_an_agent_an_address_of_ipv6_that_is_used_again_is_isolated() -> Result<(), LabError> {
    is_isolated(Cluster::start_ipv6(2)?)
}

fn is_isolated(mut cluster: Cluster) -> Result<(), LabError> {
    let far = cluster.labelled_pod(2, "open/far", "")?;
    let open = cluster.labelled_pod(1, "open/near", "")?;
    cluster.apply("deny", policy("closed", "deny", DENY_ALL))?;
    let witness = cluster.labelled_pod(1, "closed/witness", "")?;
    let sink = Listener::open(&cluster, 2, &far, 7001)?;
    sink.wait(witness.netns(), false)?;
    sink.wait(open.netns(), true)?;
    let address = open.address();
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let flow = far.netns().listen(|| UdpSocket::bind((any, 0)))?;
    let ear = Listener::open(&cluster, 1, &open, 7001)?;
    wait_until("a flow to the pod before", IN_FORCE_LIMIT, || {
        flow.send_to(b"open", ear.at()).unwrap();
        let heard = ear.drain().map_err(|error| error.chain())?;
        if heard.is_empty() {
            Err(String::new())
        } else {
            Ok(())
        }
    })?;
    drop(ear);

    cluster.kill_agent(1)?;
    cluster.delete_pod(1, open)?;
    let new = cluster.labelled_pod_at(1, "closed/new", "", Some(address))?;
    assert_eq!(new.address(), address);
    let ear = Listener::open(&cluster, 1, &new, 7001)?;
    assert!(!sink.hears(new.netns())?, "it sends as the pod before");
    assert!(!ear.hears(far.netns())?, "it receives as the pod before");
    flow.send_to(b"open", ear.at()).unwrap();
    assert!(
        ear.drain()?.is_empty(),
        "it has the flows of the pod before"
    );
    cluster.delete("deny")?;
    cluster.start_agent(1)?;
    sink.wait(new.netns(), true)?;
    ear.wait(far.netns(), true)
}
