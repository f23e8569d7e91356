//! Row 1: the first packet of a container is isolated, whatever is late. Row 2: what is
//! allowed passes as soon as ADD has returned.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tweed_lab::{Cluster, LabError, Netns, PluginCall, Pod, PodManifest};

use super::traffic::Listener;
use super::{DENY_ALL, policy};
use crate::packets::failed;

/// Pods that are attached at the same time, again and again.
const PODS: usize = 8;

/// ADDs of each pod; with those of the others 24.
const ROUNDS: usize = 3;

/// ADDs of each pod; with those of the others 1,000.
const MANY_ROUNDS: usize = 125;

/// Sends datagrams from inside a namespace to all of these as fast as two processors
/// bear, also while it has no interface yet.
struct Sender {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Sender {
    fn start(from: &Netns, to: Vec<SocketAddr>) -> Result<Self, LabError> {
        let socket = from
            .enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?
            .map_err(|source| failed("send", from, source))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut sent = 0;
            while !stopped.load(Ordering::Acquire) {
                for to in &to {
                    // Without an interface there is no route.
                    sent += u64::from(socket.send_to(b"leak", to).is_ok());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }

    /// Ends it; the number of datagrams that the kernel took.
    fn stop(mut self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread
            .take()
            .map_or(0, |thread| thread.join().unwrap())
    }
}

/// The plugin's config on a node, as a runtime gives it to the plugin alone.
fn config(cluster: &Cluster, index: u8) -> Value {
    let path = cluster[index].node.cni_conf_dir().join("10-tweed.conflist");
    let list: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut config = list["plugins"][0].clone();
    config["name"] = list["name"].clone();
    config["cniVersion"] = "1.1.0".into();
    config
}

/// A call of the plugin for pod `number` of node 1.
fn call(cluster: &Cluster, verb: &str, number: usize, pod: &Pod, config: &Value) {
    let output = PluginCall::new(verb)
        .config(config)
        .container(&format!("container{number}"))
        .ifname("eth0")
        .netns(&pod.path())
        .env(
            "CNI_ARGS",
            &format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=closed;K8S_POD_NAME=pod{number}"),
        )
        .run(&cluster[1].node, "tweed")
        .unwrap();
    assert_eq!(output.code, Some(0), "{verb} {output:?}");
}

fn publish_pods(cluster: &mut Cluster) -> Result<(), LabError> {
    for number in 0..PODS {
        cluster.apply_pod(&PodManifest {
            namespace: "closed".to_owned(),
            name: format!("pod{number}"),
            node: "node1".to_owned(),
            ..PodManifest::default()
        })?;
    }
    Ok(())
}

#[test]
fn no_packet_of_a_new_pod_leaks() -> Result<(), LabError> {
    no_leak(ROUNDS)
}

#[test]
#[ignore = "takes minutes: two dozen ADDs of the same kind are tested above"]
fn no_packet_of_a_new_pod_leaks_in_a_thousand_adds() -> Result<(), LabError> {
    no_leak(MANY_ROUNDS)
}

fn no_leak(rounds: usize) -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let near = cluster.labelled_pod(1, "open/near", "")?;
    let far = cluster.labelled_pod(2, "open/far", "")?;
    let witness = cluster.labelled_pod(1, "closed/witness", "")?;
    publish_pods(&mut cluster)?;
    let sinks = [
        Listener::open(&cluster, 1, &near, 7001)?,
        Listener::open(&cluster, 2, &far, 7001)?,
    ];
    sinks[1].wait(witness.netns(), true)?;
    cluster.apply("deny", policy("closed", "deny", DENY_ALL))?;
    sinks[1].wait(witness.netns(), false)?;
    sinks[0].wait(witness.netns(), false)?;

    let pods: Vec<Pod> = (0..PODS)
        .map(|number| Pod::new(cluster.lab(), &format!("p{number}")))
        .collect::<Result<_, _>>()?;
    let mut ears = Vec::new();
    let mut senders = Vec::new();
    for pod in &pods {
        let open = || UdpSocket::bind(("0.0.0.0", 7001));
        let ear = pod
            .netns()
            .listen(|| open().and_then(|ear| ear.set_nonblocking(true).map(|()| ear)))?;
        ears.push(ear);
        let targets = sinks.iter().map(Listener::at).collect();
        senders.push(Sender::start(pod.netns(), targets)?);
    }
    // The addresses that the pods get are among these; open pods never send to others
    // of this port.
    let all = (2..=254).map(|last| SocketAddr::from(([10, 244, 1, last], 7001)));
    let others = all.filter(|to| to.ip() != near.address()).collect();
    let flood = Sender::start(far.netns(), others)?;
    let heard = |ears: &[UdpSocket]| {
        let one = |ear: &UdpSocket| ear.recv_from(&mut [0; 64]).ok();
        ears.iter().filter_map(one).collect::<Vec<_>>()
    };

    let config = config(&cluster, 1);
    for round in 0..rounds {
        for verb in ["ADD", "DEL"] {
            std::thread::scope(|scope| {
                for (number, pod) in pods.iter().enumerate() {
                    let (cluster, config) = (&cluster, &config);
                    scope.spawn(move || call(cluster, verb, number, pod, config));
                }
            });
        }
        // What arrives in a sink is from a closed pod: nobody else sends to it.
        for sink in &sinks {
            assert_eq!(sink.drain()?, Vec::<String>::new(), "round {round}");
        }
        assert_eq!(heard(&ears), [], "round {round}");
    }

    // Without the policy the same packets arrive, so they were sent and could be seen.
    cluster.delete("deny")?;
    sinks[1].wait(witness.netns(), true)?;
    sinks[0].wait(witness.netns(), true)?;
    for (number, pod) in pods.iter().enumerate() {
        call(&cluster, "ADD", number, pod, &config);
    }
    std::thread::sleep(Duration::from_millis(300));
    for sink in &sinks {
        assert_ne!(sink.drain()?, Vec::<String>::new());
    }
    assert_ne!(heard(&ears), []);
    assert!(flood.stop() > 0);
    let sent: u64 = senders.into_iter().map(Sender::stop).sum();
    println!("{} ADDs, {sent} datagrams of new pods", PODS * rounds);
    Ok(())
}

/// The agent is killed before the ADD: the pod is isolated by the kernel alone, and gets
/// what it may have when the agent is back.
#[test]
fn without_an_agent_a_new_pod_stays_isolated() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let far = cluster.labelled_pod(2, "open/far", "")?;
    let old = cluster.labelled_pod(1, "closed/old", "")?;
    let sink = Listener::open(&cluster, 2, &far, 7001)?;
    // It selects neither pod: it only makes policies exist.
    let other = "{podSelector: {matchLabels: {app: nobody}}, policyTypes: [Ingress]}";
    cluster.apply("other", policy("closed", "other", other))?;
    cluster.apply("deny", policy("closed", "deny", DENY_ALL))?;
    sink.wait(old.netns(), false)?;
    cluster.delete("deny")?;
    sink.wait(old.netns(), true)?;

    cluster.kill_agent(1)?;
    let new = cluster.labelled_pod(1, "closed/new", "")?;
    let ear = Listener::open(&cluster, 1, &new, 7001)?;
    assert!(
        !sink.hears(new.netns())?,
        "a pod that is not enforced yet sends"
    );
    assert!(
        !ear.hears(far.netns())?,
        "a pod that is not enforced yet receives"
    );
    assert!(sink.hears(old.netns())?, "an enforced pod is cut off");
    cluster.start_agent(1)?;
    sink.wait(new.netns(), true)?;
    ear.wait(far.netns(), true)
}

/// The first datagram after ADD has returned arrives.
#[test]
fn what_is_allowed_passes_when_add_has_returned() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let far = cluster.labelled_pod(2, "open/far", "app=sink")?;
    let witness = cluster.labelled_pod(1, "closed/witness", "")?;
    publish_pods(&mut cluster)?;
    let sinks = [7001, 7002].map(|port| Listener::open(&cluster, 2, &far, port).unwrap());
    cluster.apply("deny", policy("closed", "deny", DENY_ALL))?;
    let allow = "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}, \
                 podSelector: {matchLabels: {app: sink}}}], ports: [{protocol: UDP, port: 7001}]}]}";
    cluster.apply("allow", policy("closed", "allow", allow))?;
    sinks[1].wait(witness.netns(), false)?;
    sinks[0].wait(witness.netns(), true)?;
    let config = config(&cluster, 1);
    for number in 0..PODS {
        let pod = Pod::new(cluster.lab(), &format!("p{number}"))?;
        call(&cluster, "ADD", number, &pod, &config);
        assert!(sinks[0].hears(pod.netns())?, "ADD {number}");
        assert!(!sinks[1].hears(pod.netns())?, "ADD {number}");
    }
    Ok(())
}

/// A container that is no Kubernetes pod is no policy's business.
#[test]
fn a_container_without_a_pod_is_open() -> Result<(), LabError> {
    let mut cluster = Cluster::start(1)?;
    let server = cluster.labelled_pod(1, "closed/server", "")?;
    let client = cluster.labelled_pod(1, "closed/client", "")?;
    let listener = Listener::open(&cluster, 1, &server, 7001)?;
    cluster.apply(
        "deny",
        policy("closed", "deny", "{podSelector: {}, policyTypes: [Egress]}"),
    )?;
    listener.wait(client.netns(), false)?;
    let pod = Pod::new(cluster.lab(), "bare")?;
    let output = PluginCall::new("ADD")
        .config(&config(&cluster, 1))
        .container("bare")
        .ifname("eth0")
        .netns(&pod.path())
        .run(&cluster[1].node, "tweed")?;
    assert_eq!(output.code, Some(0), "{output:?}");
    listener.wait(pod.netns(), true)
}

/// IPv4 and IPv6 of one pod follow the same policies.
#[test]
fn both_families_are_isolated() -> Result<(), LabError> {
    let mut cluster = Cluster::start_dual_stack(2)?;
    let server = cluster.labelled_pod(1, "closed/server", "")?;
    let client = cluster.labelled_pod(2, "open/client", "app=friend")?;
    let v6 = server.addresses().find(IpAddr::is_ipv6).unwrap();
    let four = Listener::open(&cluster, 1, &server, 7001)?;
    let six = Listener::open(&cluster, 1, &server, 7002)?.by(v6);
    for listener in [&four, &six] {
        listener.wait(client.netns(), true)?;
    }
    cluster.apply("deny", policy("closed", "deny", DENY_ALL))?;
    for listener in [&four, &six] {
        listener.wait(client.netns(), false)?;
    }
    let allow = "{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{namespaceSelector: \
                 {}, podSelector: {matchLabels: {app: friend}}}]}]}";
    cluster.apply("allow", policy("closed", "allow", allow))?;
    for listener in [&four, &six] {
        listener.wait(client.netns(), true)?;
    }
    Ok(())
}
