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
mod rivals;
pub mod state;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ipnetwork::IpNetwork;

use crate::config::{Config, DEFAULT_RUN_DIR};
use crate::problem::{Effect, Problem};
use crate::serve::metrics::Metrics;
use crate::serve::status::{Reporter, StatusBoard};

use conflist::Conflist;
use file::{Write, WriteError};
use plugins::{Answer, Plugins};
use state::{AgentState, Ready};

/// File name of the CNI config.
pub const CONFLIST: &str = "10-tweed.conflist";
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
}

impl Publisher {
    /// A publisher for `config`'s folders. A `ready` file of an earlier boot
    /// than `boot_id` (`/proc/sys/kernel/random/boot_id`) is removed.
    #[must_use]
    pub fn new(config: &Config, boot_id: String) -> Self {
        let publisher = Self {
            node_name: config.node_name.clone(),
            conf_dir: config.cni_conf_dir.clone(),
            bin_dir: config.cni_bin_dir.clone(),
            run_dir: config.run_dir.clone(),
            boot_id,
            plugins: Plugins::default(),
            network: None,
        };
        publisher.remove_stale_ready();
        publisher
    }

    /// Brings the files up to date and reports on `board` what is wrong with
    /// them. `network` is there when the kernel carries this node's traffic;
    /// the config is written only then, and only if nothing else on the board
    /// keeps new pods from being served.
    pub async fn publish(
        &mut self,
        network: Option<&Network>,
        board: &StatusBoard,
        metrics: &Metrics,
    ) {
        let mut problems = self.look_around().await;
        if let Some(network) = network.filter(|_| board.ready_but_for(Reporter::Publish)) {
            match self.write_conflist(network).await {
                Ok(Write::Written) => {
                    metrics.conflist_written();
                    tracing::info!(path = %self.conflist_path().display(), "CNI config written");
                }
                Ok(Write::Unchanged) => {}
                Err(error) => problems.push(unwritable("conflist", "--cni-conf-dir", &error)),
            }
            if let Err(error) = self.write_ready() {
                problems.push(unwritable("ready-file", "--run-dir", &error));
            }
            self.network = Some(network.clone());
        }
        board.report(Reporter::Publish, problems.clone(), Instant::now());
        if let Err(error) = self.write_state(board) {
            problems.push(unwritable("agent-json", "--run-dir", &error));
            board.report(Reporter::Publish, problems, Instant::now());
        }
    }

    /// What a person should know of the plugins and of others' configs.
    async fn look_around(&mut self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if matches!(self.ask(TWEED).await, Answer::Missing) {
            problems.push(Problem::new(
                "plugin-missing",
                self.bin_dir.join(TWEED).display().to_string(),
                Effect::Warning,
                "the CNI plugin is not where the runtime looks for it",
                "copy the program tweed there, or give --cni-bin-dir the folder where it is",
            ));
        }
        for name in CHAINED {
            match self.ask(name).await {
                Answer::Versions(_) => {}
                Answer::Missing if name == "portmap" => problems.push(Problem::new(
                    "portmap-missing",
                    self.bin_dir.join(name).display().to_string(),
                    Effect::Warning,
                    "pods' hostPort does nothing, because the reference plugin portmap is not there",
                    "install the reference CNI plugins (containernetworking-plugins) into that folder",
                )),
                Answer::Missing => {}
                Answer::Silent(why) => problems.push(Problem::new(
                    "plugin-silent",
                    self.bin_dir.join(name).display().to_string(),
                    Effect::Warning,
                    format!("not chained, because it does not answer to VERSION: {why}"),
                    "replace it by one for this machine, or remove it",
                )),
            }
        }
        problems.extend(rivals::problems(&self.conf_dir, CONFLIST));
        problems
    }

    async fn ask(&mut self, name: &str) -> Answer {
        self.plugins.ask(&self.bin_dir.join(name)).await
    }

    async fn write_conflist(&mut self, network: &Network) -> Result<Write, WriteError> {
        let mut answers = Vec::new();
        for name in [TWEED].into_iter().chain(CHAINED) {
            if let Answer::Versions(versions) = self.ask(name).await {
                answers.push((name, versions));
            }
        }
        let conflist = Conflist {
            network,
            ready_file: &self.ready_path(),
            run_dir: (self.run_dir != Path::new(DEFAULT_RUN_DIR)).then_some(&self.run_dir),
            answers: &answers,
        };
        file::replace(&self.conflist_path(), &conflist.render())
    }

    fn write_ready(&self) -> Result<Write, WriteError> {
        let path = self.ready_path();
        if Ready::read(&path).is_some_and(|ready| ready.boot_id == self.boot_id) {
            return Ok(Write::Unchanged);
        }
        file::replace(&path, &Ready::new(&self.node_name, &self.boot_id).render())
    }

    fn remove_stale_ready(&self) {
        let path = self.ready_path();
        let stale =
            path.exists() && Ready::read(&path).is_none_or(|ready| ready.boot_id != self.boot_id);
        if !stale {
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
        file::replace(&self.run_dir.join("agent.json"), &state.render())
    }

    fn conflist_path(&self) -> PathBuf {
        self.conf_dir.join(CONFLIST)
    }

    fn ready_path(&self) -> PathBuf {
        self.run_dir.join("ready")
    }
}

fn unwritable(kind: &str, flag: &str, error: &WriteError) -> Problem {
    Problem::new(
        &format!("{kind}-unwritable"),
        error.path.display().to_string(),
        Effect::NewPods,
        error.to_string(),
        format!("let the agent write there, or give {flag} another folder; it is tried again"),
    )
}
