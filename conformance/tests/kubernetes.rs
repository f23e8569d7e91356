//! Tests of the real cluster itself without tweed, with the reference plugins, and of
//! the bench with its API server.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tweed_lab::{Programs, existing_labs, wait_until};
use tweed_lab_kubernetes::{Cluster, Component, Network, NodeSpec, ProxyMode, Spec};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(120);

/// A cluster with a unique name.
fn cluster(purpose: &str) -> Cluster {
    let spec = Spec {
        workers: 2,
        network: Network::Reference,
        proxy: ProxyMode::Nftables,
        images: Vec::new(),
    };
    let name = format!("t{}-{purpose}", std::process::id());
    Cluster::up(&name, spec, Box::new(|line| println!("{line}"))).unwrap()
}

/// Starts a pod on a node and returns its address.
fn pod(cluster: &Cluster, name: &str, node: &str) -> String {
    let manifest = format!(
        r#"{{ "apiVersion": "v1", "kind": "Pod", "metadata": {{ "name": "{name}" }}, "spec": {{
            "nodeName": "{node}", "terminationGracePeriodSeconds": 1,
            "containers": [{{ "name": "web", "image": "localhost/agnhost:lab", "args": ["netexec"] }}] }} }}"#
    );
    cluster.kubectl().apply(&manifest).unwrap();
    let pod = cluster.kubectl().wait_ready(name, LIMIT).unwrap();
    pod["status"]["podIP"].as_str().unwrap().to_owned()
}

/// Waits until `from` gets the host name of `to` by a request to its address.
fn wait_reached(cluster: &Cluster, from: &str, to: &str, address: &str) {
    let url = format!("http://{address}:8080/hostname");
    let reached = cluster
        .kubectl()
        .wait_for(&format!("{from} to reach {to}"), LIMIT, || {
            let answer = cluster
                .kubectl()
                .exec(from, ["curl", "-s", "-m", "3", &url]);
            match answer {
                Ok(host) if host == to => Ok(()),
                Ok(other) => Err(other),
                Err(error) => Err(error.chain()),
            }
        });
    reached.unwrap();
}

#[test]
#[ignore = "needs the Kubernetes that `conformance/setup.sh e2e` builds; `make e2e-full` runs it"]
fn nodes_reboot_are_added_and_removed_and_components_restart() {
    let mut cluster = cluster("nodes");
    let name = cluster.name().to_owned();
    let kubectl = cluster.kubectl().clone();
    pod(&cluster, "one", "worker1");
    let two = pod(&cluster, "two", "worker2");
    wait_reached(&cluster, "one", "two", &two);

    // A reboot: the node and its containers see another boot ID.
    let before = cluster.node("worker2").unwrap().boot_id().unwrap();
    assert!(Path::new("/run").exists());
    cluster
        .node("worker2")
        .unwrap()
        .sh("touch /run/mark")
        .unwrap();
    cluster.reboot("worker2").unwrap();
    let after = cluster.node("worker2").unwrap().boot_id().unwrap();
    assert_ne!(before, after);
    assert!(
        cluster
            .node("worker2")
            .unwrap()
            .sh("test -e /run/mark")
            .is_err()
    );
    cluster.wait_nodes_ready().unwrap();
    let seen = kubectl.wait_for("the container of two to run again", LIMIT, || {
        let file = "/proc/sys/kernel/random/boot_id";
        kubectl.exec("two", ["cat", file]).map_err(|e| e.chain())
    });
    assert_eq!(seen.unwrap().trim(), after);
    let machines = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(machines.trim(), before);
    let two = kubectl.wait_ready("two", LIMIT).unwrap();
    wait_reached(
        &cluster,
        "one",
        "two",
        two["status"]["podIP"].as_str().unwrap(),
    );

    // kube-proxy in the other mode, with nothing left of the first.
    cluster.set_proxy(ProxyMode::Iptables).unwrap();
    let rules = cluster.node("worker1").unwrap();
    kubectl
        .wait_for("the rules of iptables", LIMIT, || {
            let rules = rules.sh("iptables-save -t nat").map_err(|e| e.chain())?;
            rules.contains("10.96.0.1/32").then_some(()).ok_or(rules)
        })
        .unwrap();
    let tables = rules.sh("nft list tables").unwrap();
    assert!(!tables.contains("kube-proxy"), "{tables}");

    // Killed components do not affect pods. kubelet comes after containerd, without which
    // it does not start.
    for component in [
        Component::Containerd,
        Component::Kubelet,
        Component::KubeProxy,
    ] {
        let node = cluster.node("worker1").unwrap();
        node.restart(component, Signal::SIGKILL).unwrap();
    }
    cluster.stop_api_server().unwrap();
    assert!(kubectl.sh("get nodes").is_err());
    cluster.start_api_server().unwrap();
    kubectl.wait_ready("one", LIMIT).unwrap();

    // A node with the same name and another address, and one more.
    cluster.destroy_machine("worker2").unwrap();
    kubectl.sh("delete node worker2").unwrap();
    let address = "192.0.2.77".parse().unwrap();
    let again = NodeSpec {
        name: "worker2".to_owned(),
        address,
    };
    cluster.add_node(again).unwrap();
    cluster.add_node(NodeSpec::worker(3).unwrap()).unwrap();
    cluster.wait_nodes_ready().unwrap();
    let three = pod(&cluster, "three", "worker3");
    wait_reached(&cluster, "one", "three", &three);
    let node = kubectl.json("get node worker2").unwrap();
    assert_eq!(node["status"]["addresses"][0]["address"], "192.0.2.77");

    let refused = cluster.reboot("control").unwrap_err().to_string();
    assert!(refused.contains("control plane"), "{refused}");
    let unknown = cluster.node("worker9").unwrap_err().to_string();
    assert!(unknown.contains("worker1, worker2"), "{unknown}");

    let groups = || {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let group = format!("tweed-{name}-worker1");
        mounts
            .lines()
            .filter(|line| line.contains(" - cgroup"))
            .filter_map(|line| line.split(' ').nth(4))
            .any(|mount| Path::new(mount).join(&group).exists())
    };
    assert!(groups());
    let scripts = cluster.scripts();
    assert!(scripts.join("kubectl").is_file());
    drop(cluster);
    assert!(!groups());
    assert!(existing_labs().unwrap().iter().all(|lab| lab.name != name));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&name), "{mounts}");
    assert!(!scripts.exists(), "{}", scripts.display());
}

/// The bench over a real API server alone, at its smallest.
fn bench(out: &Path) -> Command {
    let program = Programs::find().unwrap().own("tweed-bench").unwrap();
    let mut command = Command::new(program);
    command.args(["--smoke", "converge", "--server", "kubernetes", "--out"]);
    command.arg(out);
    command
}

/// What is left of the labs of a process, which have its ID in their names.
fn left_of(pid: u32) -> Vec<String> {
    let start = format!("t{pid}-");
    let labs = existing_labs().unwrap().into_iter().map(|lab| lab.name);
    let namespaces = std::fs::read_dir("/run/netns").into_iter().flatten();
    let namespaces = namespaces.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    labs.chain(namespaces)
        .filter(|name| name.starts_with(&start))
        .chain(mounts.contains(&format!("/{start}")).then_some(mounts))
        .collect()
}

#[test]
#[ignore = "needs the Kubernetes that `conformance/setup.sh e2e` builds; `make e2e-full` runs it"]
fn the_bench_converges_over_the_same_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let child = bench(folder.path()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(left_of(pid), Vec::<String>::new());

    let text = std::fs::read_to_string(folder.path().join("converge.json")).unwrap();
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["starts"], Value::Array(Vec::new()), "{json:#}");
    let real = &json["kubernetes"];
    assert!(real["version"].as_str().unwrap().starts_with('v'), "{real}");
    let agents = 1 + usize::from(Programs::find().unwrap().tool("flanneld").is_ok());
    let counts = ["starts", "lists", "latencies", "heartbeats"]
        .map(|part| real[part].as_array().unwrap().len());
    assert_eq!(counts, [agents, 3, 5 * agents, agents], "{real:#}");
    for start in real["starts"].as_array().unwrap() {
        for number in ["to_last_route_ms", "peak_mib", "cpu_ms"] {
            assert!(start[number]["median"].as_f64().unwrap() > 0.0, "{start}");
        }
    }
    for list in real["lists"].as_array().unwrap() {
        // 40 Nodes and none of an agent; the smallest are 12 KB each.
        assert!(list["bytes"].as_u64().unwrap() > 480_000, "{list}");
    }
    for latency in real["latencies"].as_array().unwrap() {
        let count = if latency["way"].as_str().unwrap().starts_with("beside") {
            6
        } else {
            3
        };
        assert_eq!(latency["samples"], count, "{latency}");
    }
    for beats in real["heartbeats"].as_array().unwrap() {
        assert_eq!(beats["count"], 20);
        // Who hears of a heartbeat is woken.
        assert!(beats["wakes_each"].as_f64().unwrap() > 0.0, "{beats}");
    }
}

#[test]
#[ignore = "needs the Kubernetes that `conformance/setup.sh e2e` builds; `make e2e-full` runs it"]
fn a_bench_that_is_interrupted_leaves_no_api_server() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = bench(folder.path()).stdout(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    let record = format!("/run/tweed-lab/t{pid}-1/state/control-plane/kube-apiserver.process");
    let started = wait_until("the API server to be started", LIMIT, || {
        let text = std::fs::read_to_string(&record).map_err(|error| error.to_string())?;
        let server = text.split(' ').next().map(str::to_owned);
        server
            .filter(|server| !server.is_empty())
            .ok_or_else(|| "half a record".to_owned())
    });
    let server = started.unwrap();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(left_of(pid), Vec::<String>::new());
    let command = std::fs::read_to_string(format!("/proc/{server}/cmdline"));
    assert!(!command.is_ok_and(|line| line.contains("kube-apiserver")));
}
