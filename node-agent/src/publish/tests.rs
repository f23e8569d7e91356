//! When each file is written, in temporary folders.

mod chain;

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
        let words = folders
            .into_iter()
            .flat_map(|(flag, dir)| [flag.to_owned(), dir]);
        let flags = Flags::try_parse_from(line.into_iter().chain(words)).unwrap();
        let config = flags.resolve(|| Ok("unused".to_owned())).unwrap();
        Publisher::new(&config.into(), boot_id.to_owned())
    }

    fn publish(&self, publisher: &mut Publisher, network: Option<&NodeNetwork>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        let publish = publisher.publish(network, true, &self.board, &self.metrics);
        runtime.block_on(publish);
    }

    /// Before the first list of Nodes.
    fn publish_without_nodes(&self, publisher: &mut Publisher) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
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
