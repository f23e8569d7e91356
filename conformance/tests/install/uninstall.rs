//! After `uninstall`, a node is exactly as it was before tweed was installed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tweed_lab::{Cluster, ClusterPod, Lab, LabError, Snapshot, run};

/// The folders of a node of the lab, below the node's folder.
const FOLDERS: [&str; 4] = ["--run-dir", "/run", "--cni-conf-dir", "/cni/net.d"];

/// A cluster with tweed, and the state of node 1 before its installation.
struct Installed {
    cluster: Cluster,
    kernel: Snapshot,
    files: BTreeSet<String>,
}

/// Two nodes with their agents. The first one is compared, and has the plugins, which
/// are installed as by the init container.
fn install() -> Result<Installed, LabError> {
    install_after(|_| Ok(()))
}

fn install_after(
    prepare: impl FnOnce(&Cluster) -> Result<(), LabError>,
) -> Result<Installed, LabError> {
    let mut cluster = Cluster::empty(&Lab::new()?, |options| options)?;
    cluster.plug(1)?;
    cluster.plug(2)?;
    // The folder exists on a node before anything is installed.
    fs::create_dir_all(cluster[1].node.folder().join("opt/cni/bin")).unwrap();
    prepare(&cluster)?;
    let netns = cluster[1].node.netns();
    let kernel = Snapshot::settled(netns)?;
    let files = files(&cluster);
    let program = cluster.lab().programs().own("tweed")?;
    let source = program.parent().unwrap_or(&program).display().to_string();
    tweed_install(&cluster, &["plugins", "--source", &source])?;
    cluster.publish()?;
    cluster.start_agent(1)?;
    cluster.start_agent(2)?;
    cluster.wait_ready()?;
    Ok(Installed {
        cluster,
        kernel,
        files,
    })
}

impl Installed {
    fn pod(&mut self) -> Result<ClusterPod, LabError> {
        let pod = self.cluster.pod(1, "cart")?;
        Cluster::wait_for_path(self.cluster[1].node.netns(), pod.address())?;
        Ok(pod)
    }

    fn uninstall(&self, more: &[&str]) -> Result<String, LabError> {
        tweed_install(&self.cluster, &[&["uninstall"], more].concat())
    }

    /// Runs `uninstall`, which must fail, and returns its error.
    fn is_refused(&self, more: &[&str]) -> String {
        let error = self.uninstall(more).unwrap_err();
        error.chain()
    }

    fn changes(&self) -> Result<Vec<String>, LabError> {
        let now = Snapshot::of(self.cluster[1].node.netns())?;
        Ok(self.kernel.changes(&now))
    }

    #[track_caller]
    fn is_as_before(&self) -> Result<(), LabError> {
        assert_eq!(self.changes()?, Vec::<String>::new());
        assert_eq!(files(&self.cluster), self.files);
        Ok(())
    }
}

/// Runs the program on node 1.
pub fn tweed_install(cluster: &Cluster, words: &[&str]) -> Result<String, LabError> {
    let node = &cluster[1].node;
    let program = cluster.lab().programs().own("tweed-install")?;
    let mut command = node.netns().command(program);
    command
        .args(words)
        .arg("--root")
        .arg(node.folder())
        .args(FOLDERS);
    run(&mut command)
}

/// All files and folders of node 1, except those of the lab itself.
fn files(cluster: &Cluster) -> BTreeSet<String> {
    fn collect(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            found.insert(path.strip_prefix(root).unwrap().display().to_string());
            if path.is_dir() {
                collect(root, &path, found);
            }
        }
    }
    let folder = cluster[1].node.folder();
    let mut found = BTreeSet::new();
    collect(folder, folder, &mut found);
    // The agent's log, cnitool's cache, and the folder that replaces /run/tweed. The lab
    // creates that folder, so the tests check themselves that it is removed.
    let lab = |path: &String| path == "agent.log" || path == "run" || path.contains("cache");
    found.retain(|path| !lab(path));
    found
}

#[test]
fn a_node_is_as_it_was_before() -> Result<(), LabError> {
    let mut node = install()?;
    let pod = node.pod()?;
    assert!(!node.changes()?.is_empty());
    node.cluster.delete_pod(1, pod)?;
    node.cluster.stop_agent(1)?;
    // As an agent with direct routes leaves it.
    let local = "route add local 10.244.9.0 dev lo table local proto 116";
    node.cluster[1].node.netns().ip([local])?;
    let printed = node.uninstall(&[])?;
    node.is_as_before()?;
    assert!(!node.cluster[1].node.run_dir().exists());
    for part in [
        "removed link tweed.1",
        "removed route 10.244.2.0/24 via 10.244.2.0",
        "removed route local 10.244.9.0/32",
        "removed nftables table inet tweed",
        "restored sysctl net/ipv4/ip_forward to 0",
        "10-tweed.conflist",
        "opt/cni/bin/tweed-ipam",
        "agent.lock",
    ] {
        assert!(printed.contains(part), "{part} is not in\n{printed}");
    }
    // It is no failure if there is nothing to do.
    for words in [&[][..], &["--dry-run"]] {
        let printed = node.uninstall(words)?;
        assert_eq!(printed.trim_end(), "nothing of tweed is on this machine");
    }
    Ok(())
}

#[test]
fn uninstall_is_refused_while_the_agent_runs() -> Result<(), LabError> {
    let mut node = install()?;
    let running = Snapshot::of(node.cluster[1].node.netns())?;
    let printed = node.is_refused(&[]);
    assert!(
        printed.contains("systemctl disable --now tweed-agent"),
        "{printed}"
    );
    let now = Snapshot::of(node.cluster[1].node.netns())?;
    assert_eq!(running.changes(&now), Vec::<String>::new());
    node.cluster.kill_agent(1)?;
    node.uninstall(&[])?;
    node.is_as_before()
}

#[test]
fn pods_keep_their_network_without_the_flag_pods() -> Result<(), LabError> {
    let mut node = install()?;
    let pod = node.pod()?;
    node.cluster.stop_agent(1)?;
    let printed = node.is_refused(&[]);
    assert!(
        printed.contains("default/cart") && printed.contains("drain"),
        "{printed}"
    );
    Cluster::wait_for_path(node.cluster[1].node.netns(), pod.address())?;
    let printed = node.uninstall(&["--pods"])?;
    assert!(printed.contains("default/cart"), "{printed}");
    node.is_as_before()
}

#[test]
fn a_dry_run_changes_nothing_and_lists_everything() -> Result<(), LabError> {
    let mut node = install()?;
    let _pod = node.pod()?;
    let running = Snapshot::of(node.cluster[1].node.netns())?;
    let before = files(&node.cluster);
    let printed = node.uninstall(&["--dry-run"])?;
    let now = Snapshot::of(node.cluster[1].node.netns())?;
    assert_eq!(running.changes(&now), Vec::<String>::new());
    assert_eq!(files(&node.cluster), before);
    for part in [
        "would refuse: tweed-agent (process ",
        "would refuse: pods of this node would lose their network (1): ",
        "would remove link tweed.1",
        "would remove nftables table inet tweed",
        "would restore sysctl net/ipv4/ip_forward to 0",
    ] {
        assert!(printed.contains(part), "{part} is not in\n{printed}");
    }
    let other_folders = "no file of tweed was in";
    assert!(!printed.contains(other_folders), "{printed}");
    let program = node.cluster.lab().programs().own("tweed-install")?;
    let mut elsewhere = node.cluster[1].node.netns().command(program);
    elsewhere.args(["uninstall", "--dry-run", "--pods", "--root", "/nowhere"]);
    let printed = run(&mut elsewhere)?;
    assert!(printed.contains(other_folders), "{printed}");
    Ok(())
}

/// Everything here resembles objects of tweed, but is not tweed's.
#[test]
fn foreign_objects_stay() -> Result<(), LabError> {
    let mut node = install_after(|cluster| {
        let netns = cluster[1].node.netns();
        netns.ip([
            "link add tweed.9 type veth peer name end9",
            "link add tw0123456789ab group 116 type veth peer name end116",
            "link add twx123456789ab group 117 type veth peer name end117",
            "link add other.1 type vxlan id 7 dstport 4789 nolearning local 192.0.2.11",
            // Nor a link-local address, whose routes the kernel adds some time later.
            "link set other.1 addrgenmode none",
            "link set other.1 up",
            "route add 198.51.100.128/25 via 192.0.2.1 proto static",
            "route add 198.51.100.128/25 via 192.0.2.1 table 99 proto 116",
        ])?;
        netns.nft("table inet tweeds { chain c { type filter hook forward priority 0; }; }")?;
        netns.nft("table ip tweed { chain c { type filter hook forward priority 0; }; }")?;
        let folder = cluster[1].node.folder();
        fs::write(folder.join("opt/cni/bin/bridge"), "").unwrap();
        fs::write(folder.join("cni/net.d/87-podman.conflist"), "{}").unwrap();
        Ok(())
    })?;
    node.cluster.stop_agent(1)?;
    let printed = node.uninstall(&[])?;
    // Links and networks of others may need forwarding.
    let kept = "ip_forward at 1: others may rely on it (other.1, 87-podman.conflist)";
    assert!(printed.contains(kept), "{printed}");
    let values = node.cluster[1].node.run_dir().join("sysctls.json");
    fs::remove_file(values).unwrap();
    let netns = node.cluster[1].node.netns();
    netns.set_sysctl("ipv4/ip_forward", "0")?;
    node.is_as_before()
}

/// The kernel changes other sysctls when forwarding is switched on or off.
#[test]
fn sysctls_that_the_kernel_changed_with_forwarding_are_restored() -> Result<(), LabError> {
    let mut node = install_after(|cluster| {
        let netns = cluster[1].node.netns();
        netns.set_sysctl("ipv4/conf/all/accept_redirects", "0")?;
        netns.set_sysctl("ipv4/conf/lo/forwarding", "1")
    })?;
    node.cluster.stop_agent(1)?;
    let printed = node.uninstall(&["--dry-run"])?;
    let redirects = "restore sysctl net/ipv4/conf/all/accept_redirects to 0";
    assert!(printed.contains(redirects), "{printed}");
    node.uninstall(&[])?;
    node.is_as_before()
}

/// On a node with tweed, its own device is not reported as a conflict.
#[test]
fn check_finds_nothing_wrong_where_tweed_runs() -> Result<(), LabError> {
    let node = install()?;
    let printed = tweed_install(&node.cluster, &["check"])?;
    assert!(printed.contains("tweed's own device tweed.1"), "{printed}");
    Ok(())
}

/// A sysctl with another value than tweed's was changed by somebody else.
#[test]
fn a_sysctl_that_was_changed_since_stays() -> Result<(), LabError> {
    let mut node = install()?;
    node.cluster.stop_agent(1)?;
    let found = node.cluster[1].node.run_dir().join("sysctls.json");
    fs::write(
        &found,
        r#"{"net/ipv4/ip_forward": "0", "net/ipv4/tcp_ecn": "7"}"#,
    )
    .unwrap();
    let netns = node.cluster[1].node.netns();
    netns.set_sysctl("ipv4/ip_forward", "0")?;
    let ecn = netns.sysctl("ipv4/tcp_ecn")?;
    let printed = node.uninstall(&[])?;
    assert!(printed.contains("tweed does not set it"), "{printed}");
    assert_eq!(node.cluster[1].node.netns().sysctl("ipv4/tcp_ecn")?, ecn);
    node.is_as_before()
}
