//! The files that others read: the CNI config (for the runtime), `ready` and
//! `agent.json` (for the plugin and for people).
//!
//! [`Publisher::publish`] is the one entry point, called after each pass. What
//! a file says is decided purely ([`conflist`], [`state`]); a file is replaced
//! by rename, and only if it says something else, so a restart with nothing
//! new to do writes nothing. What cannot be written is a problem on the board,
//! and the next pass tries again.

pub mod conflist;
mod file;
mod plugins;
mod problems;
pub mod state;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ipnetwork::IpNetwork;
use tweed_cni::CniVersion;
use tweed_core::paths::{CONFLIST, DEFAULT_RUN_DIR};
use tweed_diagnosis::cni_configs;

use crate::config::Config;
use crate::serve::metrics::Metrics;
use crate::serve::status::{Reporter, StatusBoard};
use tweed_core::problem::Problem;

use conflist::Conflist;
use file::{Write, WriteError};
use plugins::{Answer, Plugins};
use state::{AgentState, Ready};

/// The plugin's own program.
const TWEED: &str = "tweed";
/// Reference plugins that are chained where they are present.
const CHAINED: [&str; 2] = ["portmap", "bandwidth"];

/// What the plugin has to know of this node, once it can carry traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// MTU of pods, in bytes.
    pub mtu: u32,
    /// This node's underlay addresses, at most one per family: sources of
    /// packets from the node to its pods.
    pub host_sources: Vec<IpAddr>,
    /// Pod CIDRs of this node.
    pub pod_cidrs: Vec<IpNetwork>,
}

/// Writes the files and remembers what it need not find out twice.
#[derive(Debug)]
pub struct Publisher {
    node_name: String,
    conf_dir: PathBuf,
    bin_dir: PathBuf,
    run_dir: PathBuf,
    boot_id: String,
    plugins: Plugins,
    /// The network as it was last published: `agent.json` keeps it while a
    /// pass fails.
    network: Option<Network>,
    /// Why `agent.json` could not be written last time.
    unwritten: Option<Problem>,
}

impl Publisher {
    /// A publisher for `config`'s folders. A `ready` file of an earlier boot
    /// than `boot_id` (`/proc/sys/kernel/random/boot_id`) is removed.
    #[must_use]
    pub fn new(config: &Config, boot_id: String) -> Self {
        let publisher = Self {
            node_name: config.overlay.node_name.clone(),
            conf_dir: config.cni_conf_dir.clone(),
            bin_dir: config.cni_bin_dir.clone(),
            run_dir: config.run_dir.clone(),
            boot_id,
            plugins: Plugins::default(),
            network: None,
            unwritten: None,
        };
        publisher.remove_stale_ready();
        publisher
    }

    /// Brings the files up to date and reports on `board` what is wrong with
    /// them. `network` is there when the kernel carries this node's traffic;
    /// the config is written only then, and only if nothing else on the board
    /// keeps new pods from being served.
    ///
    /// `nodes_known` says whether this run has had a list of Nodes. Before, in
    /// a boot in which the node was ready, the word of the run before this one
    /// holds: a restart, with or without an API server, makes no node unready.
    pub async fn publish(
        &mut self,
        network: Option<&Network>,
        nodes_known: bool,
        board: &StatusBoard,
        metrics: &Metrics,
    ) {
        let answers = self.ask_plugins().await;
        let mut problems = problems::of_plugins(&self.bin_dir, &answers);
        problems.extend(cni_configs::problems(&self.conf_dir, CONFLIST));
        if let Some(network) = network.filter(|_| board.ready_but_for(Reporter::Publish)) {
            problems.extend(self.let_pods_in(network, &answers, metrics).err());
        }
        let report = |unwritten: &Option<Problem>| {
            let all = problems.iter().chain(unwritten).cloned().collect();
            board.report(Reporter::Publish, all, Instant::now());
        };
        // As it was last time, or a lasting failure would come and go.
        report(&self.unwritten);
        if !nodes_known && self.was_ready() {
            return;
        }
        let unwritten = self.write_state(board).err();
        let unwritten = unwritten.map(|error| problems::unwritable("--run-dir", &error));
        if unwritten != self.unwritten {
            report(&unwritten);
            self.unwritten = unwritten;
        }
    }

    /// The config, then `ready`: an ADD that finds it finds the config of now.
    fn let_pods_in(
        &mut self,
        network: &Network,
        answers: &[(&'static str, Answer)],
        metrics: &Metrics,
    ) -> Result<(), Problem> {
        let in_folder = |flag| move |error| problems::unwritable(flag, &error);
        let written = self.write_conflist(network, answers);
        if written.map_err(in_folder("--cni-conf-dir"))? == Write::Written {
            metrics.conflist_written();
            tracing::info!(path = %self.conflist_path().display(), "CNI config written");
        }
        self.write_ready().map_err(in_folder("--run-dir"))?;
        self.network = Some(network.clone());
        Ok(())
    }

    /// Asks `tweed` and those that may be chained after it.
    async fn ask_plugins(&mut self) -> Vec<(&'static str, Answer)> {
        let mut answers = Vec::new();
        for name in [TWEED].into_iter().chain(CHAINED) {
            let answer = self.plugins.ask(&self.bin_dir.join(name)).await;
            answers.push((name, answer));
        }
        answers
    }

    fn write_conflist(
        &self,
        network: &Network,
        answers: &[(&'static str, Answer)],
    ) -> Result<Write, WriteError> {
        let conflist = Conflist {
            network,
            ready_file: &self.ready_path(),
            run_dir: (self.run_dir != Path::new(DEFAULT_RUN_DIR)).then_some(&self.run_dir),
            answers: &versions_of(answers),
        };
        file::replace(&self.conflist_path(), &conflist.file())
    }

    fn write_ready(&self) -> Result<Write, WriteError> {
        if self.was_ready() {
            return Ok(Write::Unchanged);
        }
        file::replace(
            &self.ready_path(),
            &Ready::new(&self.node_name, &self.boot_id),
        )
    }

    /// Whether the node's network has come up in this boot.
    /// Whether the node has been ready in this boot.
    #[must_use]
    pub fn was_ready(&self) -> bool {
        Ready::read(&self.ready_path()).is_some_and(|ready| ready.boot_id == self.boot_id)
    }

    fn remove_stale_ready(&self) {
        let path = self.ready_path();
        if !path.exists() || self.was_ready() {
            return;
        }
        match std::fs::remove_file(&path) {
            Ok(()) => tracing::info!(path = %path.display(), "removed: it is of an earlier boot"),
            Err(error) => tracing::warn!(
                path = %path.display(),
                %error,
                "cannot remove it, though it is of an earlier boot: pods may be added before the network is up"
            ),
        }
    }

    fn write_state(&self, board: &StatusBoard) -> Result<Write, WriteError> {
        let status = board.status(Instant::now());
        let state = AgentState::new(&self.node_name, self.network.as_ref(), &status);
        file::replace(&self.run_dir.join("agent.json"), &state)
    }

    fn conflist_path(&self) -> PathBuf {
        self.conf_dir.join(CONFLIST)
    }

    fn ready_path(&self) -> PathBuf {
        self.run_dir.join("ready")
    }
}

fn versions_of(answers: &[(&'static str, Answer)]) -> Vec<(&'static str, BTreeSet<CniVersion>)> {
    let answered = |(name, answer): &(&'static str, Answer)| match answer {
        Answer::Versions(versions) => Some((*name, versions.clone())),
        Answer::Missing | Answer::Silent(_) => None,
    };
    answers.iter().filter_map(answered).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use clap::Parser as _;
    use serde_json::Value;

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
            let folder = |name: &str| self.path(name).display().to_string();
            let line = ["tweed-agent", "--node-name", "alpha"].map(str::to_owned);
            let folders = [
                ("--cni-conf-dir", folder("net.d")),
                ("--cni-bin-dir", folder("bin")),
                ("--run-dir", folder("run")),
            ];
            let folders = folders
                .into_iter()
                .flat_map(|(flag, dir)| [flag.to_owned(), dir]);
            let flags = Flags::try_parse_from(line.into_iter().chain(folders)).unwrap();
            let config = flags.resolve(|| Ok("unused".to_owned())).unwrap();
            Publisher::new(&config, boot_id.to_owned())
        }

        fn publish(&self, publisher: &mut Publisher, network: Option<&Network>) {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_all().build().unwrap();
            let publish = publisher.publish(network, true, &self.board, &self.metrics);
            runtime.block_on(publish);
        }

        /// Before the first list of Nodes.
        fn publish_in_the_dark(&self, publisher: &mut Publisher) {
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

    fn network(mtu: u32) -> Network {
        Network {
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
        node.publish_in_the_dark(&mut node.publisher("boot-1"));
        assert_eq!(node.json("run/agent.json")["reasons"][0], "away (o): wait");
        node.board
            .report(Reporter::Pass, Vec::new(), Instant::now());
        node.publish(&mut node.publisher("boot-1"), Some(&network(1450)));
        node.board
            .report(Reporter::Pass, vec![away()], Instant::now());
        let mut restarted = node.publisher("boot-1");
        node.publish_in_the_dark(&mut restarted);
        assert_eq!(node.json("run/agent.json")["ready"], true);
        node.publish(&mut restarted, None);
        assert_eq!(node.json("run/agent.json")["ready"], false);
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
}
