//! Tests of the real cluster itself without tweed, with the reference plugins.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use tweed_lab::existing_labs;
use tweed_lab_kubernetes::{Cluster, Component, Network, NodeSpec, ProxyMode, Spec};

/// Maximum time until each expected state is reached.
const LIMIT: Duration = Duration::from_secs(120);

/// A cluster with a unique name.
fn cluster(purpose: &str) -> Cluster {
    let spec = Spec {
        workers: 2,
        network: Network::Reference,
        ..Spec::default()
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
    pod(&cluster, "one", "worker1");
    let two = pod(&cluster, "two", "worker2");
    wait_reached(&cluster, "one", "two", &two);

    reboot(&mut cluster);
    change_proxy(&mut cluster);
    restart_components(&cluster);
    replace_and_add_nodes(&mut cluster);

    let refused = cluster.reboot("control").unwrap_err().to_string();
    assert!(refused.contains("control plane"), "{refused}");
    let unknown = cluster.node("worker9").unwrap_err().to_string();
    assert!(unknown.contains("worker1, worker2"), "{unknown}");

    drop_leaves_nothing(cluster);
}

/// The node and its containers see another boot ID, and its `/run` is empty.
fn reboot(cluster: &mut Cluster) {
    let kubectl = cluster.kubectl().clone();
    let node = cluster.node("worker2").unwrap();
    let before = node.boot_id().unwrap();
    assert!(Path::new("/run").exists());
    node.sh("touch /run/mark").unwrap();
    let node = cluster.reboot("worker2").unwrap();
    let after = node.boot_id().unwrap();
    assert_ne!(before, after);
    assert!(node.sh("test -e /run/mark").is_err());
    cluster.wait_nodes_ready().unwrap();
    let seen = kubectl.wait_for("the container of two to run again", LIMIT, || {
        let file = "/proc/sys/kernel/random/boot_id";
        kubectl.exec("two", ["cat", file]).map_err(|e| e.chain())
    });
    assert_eq!(seen.unwrap().trim(), after);
    let machines = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(machines.trim(), before);
    let two = kubectl.wait_ready("two", LIMIT).unwrap();
    let address = two["status"]["podIP"].as_str().unwrap();
    wait_reached(cluster, "one", "two", address);
}

/// kube-proxy runs in the other mode, with nothing left of the first.
fn change_proxy(cluster: &mut Cluster) {
    cluster.set_proxy(ProxyMode::Iptables).unwrap();
    let node = cluster.node("worker1").unwrap();
    let rules = || {
        let rules = node.sh("iptables-save -t nat").map_err(|e| e.chain())?;
        rules.contains("10.96.0.1/32").then_some(()).ok_or(rules)
    };
    let kubectl = cluster.kubectl();
    let written = kubectl.wait_for("the rules of iptables", LIMIT, rules);
    written.unwrap();
    let tables = node.sh("nft list tables").unwrap();
    assert!(!tables.contains("kube-proxy"), "{tables}");
}

/// Killed components do not affect pods. kubelet comes after containerd, without which it
/// does not start.
fn restart_components(cluster: &Cluster) {
    for component in [
        Component::Containerd,
        Component::Kubelet,
        Component::KubeProxy,
    ] {
        let node = cluster.node("worker1").unwrap();
        node.restart(component, Signal::SIGKILL).unwrap();
    }
    cluster.stop_api_server().unwrap();
    assert!(cluster.kubectl().sh("get nodes").is_err());
    cluster.start_api_server().unwrap();
    cluster.kubectl().wait_ready("one", LIMIT).unwrap();
}

/// Adds a node with the same name and another address, and one more.
fn replace_and_add_nodes(cluster: &mut Cluster) {
    cluster.destroy_machine("worker2").unwrap();
    cluster.kubectl().sh("delete node worker2").unwrap();
    let address = "192.0.2.77".parse().unwrap();
    let again = NodeSpec {
        name: "worker2".to_owned(),
        address,
    };
    cluster.add_node(again).unwrap();
    cluster.add_node(NodeSpec::worker(3).unwrap()).unwrap();
    cluster.wait_nodes_ready().unwrap();
    let three = pod(cluster, "three", "worker3");
    wait_reached(cluster, "one", "three", &three);
    let node = cluster.kubectl().json("get node worker2").unwrap();
    assert_eq!(node["status"]["addresses"][0]["address"], "192.0.2.77");
}

/// Dropping the cluster removes its cgroups, mounts, scripts and its lab.
fn drop_leaves_nothing(cluster: Cluster) {
    let name = cluster.name().to_owned();
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
