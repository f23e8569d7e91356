//! When each file is written, in temporary folders.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use clap::Parser as _;
use serde_json::{Value, json};

use super::*;
use crate::config::Flags;
use tweed_core::problem::ProblemKind;

struct Node {
    dir: tempfile::TempDir,
    board: StatusBoard,
    metrics: Metrics,
}

impl Node {
    fn new() -> Self {
        let board = StatusBoard::new(Instant::now());
        board.report(Reporter::Pass, Vec::new(), Instant::now());
        Self {
            dir: tempfile::tempdir().unwrap(),
            board,
            metrics: Metrics::register().1,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn publisher(&self, boot_id: &str) -> Publisher {
        self.publisher_with("bin", boot_id)
    }

    /// One that looks for the plugins in this folder.
    fn publisher_with(&self, bin_dir: &str, boot_id: &str) -> Publisher {
        let folder = |name: &str| self.path(name).display().to_string();
        let line = ["tweed-agent", "--node-name", "alpha"].map(str::to_owned);
        let folders = [
            ("--cni-conf-dir", folder("net.d")),
            ("--cni-bin-dir", folder(bin_dir)),
            ("--run-dir", folder("run")),
        ];
        let folders = folders
            .into_iter()
            .flat_map(|(flag, dir)| [flag.to_owned(), dir]);
        let flags = Flags::try_parse_from(line.into_iter().chain(folders)).unwrap();
        let config = flags.resolve(|| Ok("unused".to_owned())).unwrap();
        Publisher::new(&config.into(), boot_id.to_owned())
    }

    fn publish(&self, publisher: &mut Publisher, network: Option<&NodeNetwork>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let publish = publisher.publish(network, true, &self.board, &self.metrics);
        runtime.block_on(publish);
    }

    /// Before the first list of Nodes.
    fn publish_without_nodes(&self, publisher: &mut Publisher) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(publisher.publish(None, false, &self.board, &self.metrics));
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.path(name)).unwrap()).unwrap()
    }

    fn kinds(&self) -> Vec<&'static str> {
        let status = self.board.status(Instant::now());
        status
            .problems
            .iter()
            .map(|problem| problem.kind.word())
            .collect()
    }
}

fn network(mtu: u32) -> NodeNetwork {
    NodeNetwork {
        mtu,
        host_sources: vec!["192.0.2.7".parse().unwrap()],
        pod_cidrs: vec!["10.244.1.0/24".parse().unwrap()],
    }
}

const CONFIG: &str = "net.d/10-tweed.conflist";

#[test]
fn config_and_ready_are_written_only_when_the_node_carries_traffic() {
    let node = Node::new();
    let mut publisher = node.publisher("boot-1");
    node.publish(&mut publisher, None);
    assert!(!node.path(CONFIG).exists());
    assert!(!node.path("run/ready").exists());
    assert_eq!(node.json("run/agent.json")["node"], "alpha");
    node.publish(&mut publisher, Some(&network(1450)));
    let tweed = &node.json(CONFIG)["plugins"][0];
    assert_eq!(tweed["mtu"], 1450);
    assert_eq!(tweed["runDir"], node.path("run").to_str().unwrap());
    assert_eq!(tweed["readyFile"], node.path("run/ready").to_str().unwrap());
    assert_eq!(node.json("run/ready")["bootId"], "boot-1");
    assert_eq!(node.json("run/agent.json")["ready"], true);
}

#[test]
fn a_reason_on_the_board_holds_the_config_back_and_stands_in_agent_json() {
    let node = Node::new();
    let problem = Problem::new(ProblemKind::NoPodCidr, "o", "broken").with_cure("mend");
    node.board
        .report(Reporter::Pass, vec![problem], Instant::now());
    node.publish(&mut node.publisher("boot-1"), Some(&network(1450)));
    assert!(!node.path(CONFIG).exists());
    assert!(!node.path("run/ready").exists());
    assert_eq!(node.json("run/agent.json")["ready"], false);
    assert_eq!(
        node.json("run/agent.json")["reasons"][0],
        "broken (o): mend"
    );
}

#[test]
fn pods_of_a_node_that_was_ready_get_the_current_ranges_whatever_else_is_wrong() {
    let node = Node::new();
    let mut publisher = node.publisher("boot-1");
    node.publish(&mut publisher, Some(&network(1450)));
    let problem = Problem::new(ProblemKind::SysctlUnwritable, "o", "broken");
    node.board
        .report(Reporter::Pass, vec![problem], Instant::now());
    let mut moved = network(1450);
    moved.pod_cidrs = vec!["10.244.7.0/24".parse().unwrap()];
    node.publish(&mut publisher, Some(&moved));
    let ipam = &node.json(CONFIG)["plugins"][0]["ipam"];
    assert_eq!(ipam["ranges"][0][0]["subnet"], "10.244.7.0/24");
    assert_eq!(node.json("run/agent.json")["ready"], false);
}

/// Writes a plugin that answers VERSION after this command.
fn plugin(path: &Path, command: &str) {
    plugin_of(path, "/bin/sh", command);
}

/// The same, run by this interpreter.
fn plugin_of(path: &Path, interpreter: &str, command: &str) {
    let answer = r#"{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}"#;
    let text = format!("#!{interpreter}\n{command}\ncat >/dev/null\necho '{answer}'\n");
    // By another process: a writer in this one could be inherited by another test's child, and
    // exec would say "text busy".
    let line = r#"printf %s "$2" >"$1.new" && chmod 755 "$1.new" && mv "$1.new" "$1""#;
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", line, "sh"]).arg(path).arg(text);
    assert!(shell.status().unwrap().success());
}

#[test]
fn a_chained_plugin_that_answers_late_stays_in_the_chain_until_it_is_gone() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let portmap = node.path("bin/portmap");
    let chained = || {
        let config = node.json(CONFIG);
        let is_chained = config["plugins"][1]["type"] == "portmap";
        (is_chained, config["cniVersions"].as_array().unwrap().len())
    };
    let with_limit = |milliseconds| {
        let mut publisher = node.publisher("boot-1");
        publisher.plugins.limit = Duration::from_millis(milliseconds);
        publisher
    };
    const PATIENT: u64 = 60_000;
    const HANGS: &str = "exec sleep 60";
    plugin(&portmap, HANGS);
    let mut first = with_limit(100);
    node.publish(&mut first, Some(&network(1450)));
    assert!(!node.path(CONFIG).exists() && !node.path("run/ready").exists());
    assert_eq!(node.kinds()[0], "starting", "{:?}", node.kinds());
    first.late_limit = Duration::ZERO;
    node.publish(&mut first, Some(&network(1450)));
    assert!(!chained().0, "it has never answered");
    assert!(node.board.status(Instant::now()).ready());
    plugin(&portmap, "");
    node.publish(&mut with_limit(PATIENT), Some(&network(1450)));
    let before = chained();
    assert!(before.0);

    // An agent that knows nothing of it, on a machine that is too busy for an answer.
    plugin(&portmap, HANGS);
    let mut second = with_limit(100);
    node.publish(&mut second, Some(&network(1400)));
    assert_eq!(chained(), before);
    assert!(node.kinds().contains(&"plugin-unusable"));
    std::fs::remove_file(&portmap).unwrap();
    node.publish(&mut second, Some(&network(1400)));
    assert!(!chained().0);

    plugin(&portmap, "");
    node.publish(&mut with_limit(PATIENT), Some(&network(1400)));
    assert!(chained().0);
    plugin(&portmap, "exit 1");
    node.publish(&mut with_limit(PATIENT), Some(&network(1400)));
    assert!(!chained().0, "it is broken");
}

/// Service meshes append their plugin to the config of the network, format it anew, and do it
/// again when it is gone.
#[test]
fn what_others_append_to_the_chain_stays_while_its_program_is_there() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let mesh = node.path("bin/istio-cni");
    plugin(&mesh, "");
    plugin(&node.path("bin/portmap"), "");
    let mut publisher = node.publisher("boot-1");
    node.publish(&mut publisher, Some(&network(1450)));
    let appended = json!({"type": "istio-cni", "log_level": "info", "kubernetes": {"a": [1]}});
    let mut config = node.json(CONFIG);
    let again = json!({"type": "istio-cni", "log_level": "debug"});
    let both = [appended.clone(), again.clone()];
    config["plugins"].as_array_mut().unwrap().extend(both);
    let text = config.to_string();
    std::fs::write(node.path(CONFIG), &text).unwrap();

    node.publish(&mut publisher, Some(&network(1450)));
    let read = || std::fs::read_to_string(node.path(CONFIG)).unwrap();
    assert_eq!(read(), text, "nothing was to be changed");
    // What is ours is put back, also by the next agent.
    config["plugins"][0]["mtu"] = 9000.into();
    std::fs::write(node.path(CONFIG), config.to_string()).unwrap();
    node.publish(&mut node.publisher("boot-1"), Some(&network(1400)));
    let plugins = || node.json(CONFIG)["plugins"].clone();
    assert_eq!(plugins()[0]["mtu"], 1400);
    assert_eq!(plugins()[1]["type"], "portmap");
    assert_eq!([&plugins()[2], &plugins()[3]], [&appended, &again]);

    std::fs::remove_file(&mesh).unwrap();
    node.publish(&mut publisher, Some(&network(1400)));
    assert_eq!(plugins().as_array().unwrap().len(), 2, "no pod could start");
}

#[test]
fn a_node_whose_plugin_has_been_removed_is_not_ready_until_it_is_back() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let tweed = node.path("bin/tweed");
    let mut publisher = node.publisher("boot-1");
    let mut is_ready = || {
        node.publish(&mut publisher, Some(&network(1450)));
        node.board.status(Instant::now()).ready()
    };
    assert!(is_ready(), "the runtime may look elsewhere");
    plugin(&tweed, "");
    assert!(is_ready());
    std::fs::remove_file(&tweed).unwrap();
    assert!(!is_ready());
    plugin(&tweed, "");
    assert!(is_ready());
}

/// Only the agent's process is another one.
#[test]
fn a_plugin_that_has_been_removed_is_missed_by_the_next_runs_of_this_boot() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let tweed = node.path("bin/tweed");
    let is_ready = |mut publisher: Publisher| {
        node.publish(&mut publisher, Some(&network(1450)));
        node.board.status(Instant::now()).ready()
    };
    plugin(&tweed, "");
    assert!(is_ready(node.publisher("boot-1")));
    std::fs::remove_file(&tweed).unwrap();
    for _ in 0..2 {
        assert!(!is_ready(node.publisher("boot-1")));
    }
    node.publish_without_nodes(&mut node.publisher("boot-1"));
    assert!(!node.board.status(Instant::now()).ready());
    plugin(&tweed, "");
    assert!(is_ready(node.publisher("boot-1")));
    // The runtime may look elsewhere than in a folder that has been without it.
    assert!(is_ready(node.publisher_with("other", "boot-1")));
    assert!(is_ready(node.publisher("boot-1")));
    std::fs::remove_file(&tweed).unwrap();
    assert!(is_ready(node.publisher("boot-2")), "nothing is known of it");
}

#[test]
fn a_missing_loopback_plugin_is_a_note() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let mut publisher = node.publisher("boot-1");
    let mut notes = || {
        node.publish(&mut publisher, Some(&network(1450)));
        let status = node.board.status(Instant::now());
        assert!(status.ready());
        status.notes
    };
    let missing = notes();
    let [note] = missing.as_slice() else {
        panic!("{missing:?}");
    };
    assert!(note.contains("bin/loopback does not exist"), "{note}");
    assert!(note.contains("containerd"), "{note}");
    // What it leads to may be seen by the runtime alone.
    std::os::unix::fs::symlink("/nowhere/loopback", node.path("bin/loopback")).unwrap();
    assert_eq!(notes(), [""; 0]);
}

/// A file system that is unmounted at the end.
struct Mounted(PathBuf);

impl Mounted {
    fn tmpfs(folder: PathBuf) -> Self {
        mount(&["-t", "tmpfs", "tmpfs"], &folder);
        Self(folder)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut umount = std::process::Command::new("umount");
        let _ = umount.arg("--lazy").arg(&self.0).status();
    }
}

fn mount(options: &[&str], folder: &Path) {
    let mut mount = std::process::Command::new("mount");
    assert!(mount.args(options).arg(folder).status().unwrap().success());
}

#[test]
fn a_node_whose_runtime_can_run_no_plugin_is_not_ready() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let mounted = Mounted::tmpfs(node.path("bin"));
    plugin(&node.path("bin/tweed"), "");
    let mut publisher = node.publisher("boot-1");
    publisher.plugins.limit = Duration::from_secs(60);
    for (mode, is_ready) in [("exec", true), ("noexec", false), ("exec", true)] {
        mount(&["-o", &format!("remount,{mode}")], &mounted.0);
        node.publish(&mut publisher, Some(&network(1450)));
        let status = node.board.status(Instant::now());
        assert_eq!(status.ready(), is_ready, "{mode}");
        let mut problems = status.problems.iter();
        let is_named = problems.any(|one| one.cure.contains("remount,exec"));
        assert_eq!(is_named, !is_ready, "{mode}");
    }
}

/// As one that was built for another machine, or was cut off when it was copied.
#[test]
fn a_node_whose_plugin_does_not_run_is_not_ready_until_it_does() {
    let node = Node::new();
    std::fs::create_dir(node.path("bin")).unwrap();
    let tweed = node.path("bin/tweed");
    let mut publisher = node.publisher("boot-1");
    publisher.plugins.limit = Duration::from_secs(60);
    let mut is_ready = || {
        node.publish(&mut publisher, Some(&network(1450)));
        node.board.status(Instant::now()).ready()
    };
    let mode = |mode| {
        let permissions = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&tweed, permissions).unwrap();
    };
    plugin(&tweed, "");
    assert!(is_ready());
    plugin(&tweed, "exit 1");
    assert!(!is_ready());
    assert!(node.kinds().contains(&"plugin-unusable"));
    plugin(&tweed, "");
    assert!(is_ready());
    mode(0o644);
    assert!(!is_ready(), "nobody can run it");
    mode(0o755);
    assert!(is_ready());
    // What a security module keeps the agent from, it may let the runtime do.
    plugin_of(&tweed, "/dev/null", "");
    assert!(is_ready());
    assert!(node.kinds().contains(&"plugin-unusable"));
    // The machine lacked memory.
    plugin(&tweed, "kill -KILL $$");
    assert!(is_ready());
    assert!(node.kinds().contains(&"plugin-unusable"));
    // Without portmap pods are served.
    plugin(&tweed, "");
    plugin(&node.path("bin/portmap"), "exit 1");
    assert!(is_ready());
}

#[test]
fn a_restart_with_nothing_new_writes_nothing_and_a_change_is_written() {
    let node = Node::new();
    let inodes = || {
        [CONFIG, "run/ready", "run/agent.json"]
            .map(|name| std::fs::metadata(node.path(name)).unwrap().ino())
    };
    node.publish(&mut node.publisher("boot-1"), Some(&network(1450)));
    let before = inodes();
    let mut restarted = node.publisher("boot-1");
    node.publish(&mut restarted, Some(&network(1450)));
    assert_eq!(inodes(), before);
    node.publish(&mut restarted, Some(&network(1400)));
    assert_eq!(node.json(CONFIG)["plugins"][0]["mtu"], 1400);
    assert_eq!(node.json("run/agent.json")["mtu"], 1400);
    std::fs::remove_file(node.path(CONFIG)).unwrap();
    node.publish(&mut restarted, Some(&network(1400)));
    assert_eq!(node.json(CONFIG)["plugins"][0]["mtu"], 1400);
}

#[test]
fn before_the_first_list_the_word_of_the_run_before_holds() {
    let node = Node::new();
    let away = || Problem::new(ProblemKind::NodesUnreadable, "o", "away").with_cure("wait");
    node.board
        .report(Reporter::Pass, vec![away()], Instant::now());
    node.publish_without_nodes(&mut node.publisher("boot-1"));
    assert_eq!(node.json("run/agent.json")["reasons"][0], "away (o): wait");
    node.board
        .report(Reporter::Pass, Vec::new(), Instant::now());
    node.publish(&mut node.publisher("boot-1"), Some(&network(1450)));
    node.board
        .report(Reporter::Pass, vec![away()], Instant::now());
    let mut restarted = node.publisher("boot-1");
    node.publish_without_nodes(&mut restarted);
    assert_eq!(node.json("run/agent.json")["ready"], true);
    node.publish(&mut restarted, None);
    assert_eq!(node.json("run/agent.json")["ready"], false);
}

/// `tweed-install` removes kube-proxy's rules because of it.
#[test]
fn what_a_file_that_stays_says_of_services_is_what_this_run_knows() {
    let node = Node::new();
    let mut first = node.publisher("boot-1");
    first.set_services(Served::All);
    node.publish(&mut first, Some(&network(1450)));
    let mut restarted = node.publisher("boot-1");
    assert!(restarted.has_served());
    for (served, expected) in [
        (Served::Earlier, [false, true]),
        (Served::Nothing, [false, false]),
    ] {
        restarted.set_services(served);
        node.publish_without_nodes(&mut restarted);
        let state = node.json("run/agent.json");
        assert_eq!(state["services"], expected[0]);
        assert_eq!(state["earlierServices"], expected[1]);
        assert_eq!(state["ready"], true);
        assert_eq!(state["mtu"], 1450);
        let is_served = served != Served::Nothing;
        assert_eq!(node.publisher("boot-1").has_served(), is_served);
    }
}

#[test]
fn ready_of_an_earlier_boot_is_void() {
    let node = Node::new();
    node.publish(&mut node.publisher("boot-1"), Some(&network(1450)));
    node.publisher("boot-1");
    assert!(node.path("run/ready").exists());
    let mut rebooted = node.publisher("boot-2");
    assert!(!node.path("run/ready").exists());
    node.publish(&mut rebooted, Some(&network(1450)));
    assert_eq!(node.json("run/ready")["bootId"], "boot-2");
}

#[test]
fn a_folder_that_cannot_be_written_is_named_and_tried_again() {
    let node = Node::new();
    std::fs::write(node.path("net.d"), "a file in the way").unwrap();
    let mut publisher = node.publisher("boot-1");
    node.publish(&mut publisher, Some(&network(1450)));
    let status = node.board.status(Instant::now());
    let worst = &status.problems[0];
    assert_eq!(worst.kind, ProblemKind::FileUnwritable);
    assert_eq!(worst.object, node.path(CONFIG).to_str().unwrap());
    assert!(worst.cure.contains("--cni-conf-dir"), "{}", worst.cure);
    assert!(!status.ready());
    assert!(!node.path("run/ready").exists());
    std::fs::remove_file(node.path("net.d")).unwrap();
    node.publish(&mut publisher, Some(&network(1450)));
    assert!(node.path(CONFIG).exists());
    assert!(node.board.status(Instant::now()).ready());
}

#[test]
fn agent_json_that_cannot_be_written_is_one_lasting_problem() {
    let node = Node::new();
    std::fs::create_dir_all(node.path("run/agent.json")).unwrap();
    let mut publisher = node.publisher("boot-1");
    for _ in 0..2 {
        node.publish(&mut publisher, Some(&network(1450)));
        let status = node.board.status(Instant::now());
        let objects: Vec<&str> = status.problems.iter().map(|p| p.object.as_str()).collect();
        assert!(objects.contains(&node.path("run/agent.json").to_str().unwrap()));
    }
    std::fs::remove_dir(node.path("run/agent.json")).unwrap();
    node.publish(&mut publisher, Some(&network(1450)));
    assert!(node.board.status(Instant::now()).ready());
}

#[test]
fn plugins_that_are_missing_and_configs_that_win_are_warned_of() {
    let node = Node::new();
    std::fs::create_dir(node.path("net.d")).unwrap();
    std::fs::write(node.path("net.d/05-other.conf"), "{}").unwrap();
    node.publish(&mut node.publisher("boot-1"), Some(&network(1450)));
    assert_eq!(
        node.kinds(),
        ["other-cni-config", "plugin-missing", "portmap-missing"]
    );
    assert!(node.board.status(Instant::now()).ready());
}

#[test]
fn the_mtu_of_pods_is_known_to_the_next_runs_of_this_boot() {
    let node = Node::new();
    let mut first = node.publisher("boot-1");
    assert_eq!(first.last().mtu, None);
    node.publish(&mut first, Some(&network(1350)));
    let mut second = node.publisher("boot-1");
    assert_eq!(second.last().mtu, Some(1350));
    // One that publishes no network keeps it for the one after.
    node.publish(&mut second, None);
    assert_eq!(node.publisher("boot-1").last().mtu, Some(1350));
    assert_eq!(node.publisher("boot-2").last().mtu, None);
}
