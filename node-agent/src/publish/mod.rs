//! The files that others read: the CNI config (for the runtime), `ready` and
//! `agent.json` (for the plugin and for people).
//!
//! [`Publisher::publish`] is the one entry point, called after each run of the
//! reconciler. The content of a file is computed by pure functions ([`conflist`],
//! [`state`]). A file is replaced by rename, and only if its content changes, so a
//! restart that changes nothing writes nothing. A file that cannot be written is a
//! problem on the board, and the next call tries again.

pub mod conflist;
mod plugins;
pub mod policy_marker;
mod problems;
mod state;

pub use state::Served;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{collections::BTreeSet, fs, net::IpAddr, sync::Arc};

use ipnetwork::IpNetwork;
use serde::Serialize;
use serde_json::Value;
use tweed_cni::CniVersion;
use tweed_core::agent_state::{AGENT_STATE_FILE, FastPathState, LastState, READY_FILE, Ready};
use tweed_core::atomic_file::{self, ReplaceError, Update};
use tweed_core::mtu;
use tweed_core::paths::{CONFLIST, DEFAULT_RUN_DIR};
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{limits, regular_file};
use tweed_diagnosis::cni_configs;

use crate::config::Config;
use crate::serve::metrics::Metrics;
use crate::serve::status::{Reporter, StatusBoard};

use conflist::{Conflist, Earlier};
use plugins::{Plugin, Plugins};

/// The program of the CNI plugin.
const TWEED: &str = "tweed";
/// Reference plugins that are chained if they are present.
const CHAINED: [&str; 2] = ["portmap", "bandwidth"];

/// Maximum time for which the first config waits for a plugin that is late with its answer.
const LATE_LIMIT: Duration = Duration::from_secs(30);

/// What the plugin has to know of this node once it carries traffic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNetwork {
    /// MTU of pods, in bytes.
    pub mtu: u32,
    /// This node's underlay addresses, at most one for each family: the sources
    /// of packets from the node to its pods.
    pub host_sources: Vec<IpAddr>,
    /// Pod CIDRs of this node.
    pub pod_cidrs: Vec<IpNetwork>,
}

/// Writes the files, and keeps what they were made from.
#[derive(Debug)]
pub struct Publisher {
    config: Arc<Config>,
    /// How long an ADD waits until its pod is enforced, if policies are enforced.
    policy_wait: Option<Duration>,
    boot_id: String,
    plugins: Plugins,
    /// When the first config began to wait for a plugin that is late.
    late_since: Option<Instant>,
    /// For how long it waits at most.
    late_limit: Duration,
    /// The network as it was last published: `agent.json` shows it while
    /// reconciling fails.
    network: Option<NodeNetwork>,
    /// What `agent.json` of the previous run in this boot says.
    last: LastState,
    /// Which Services the kernel serves by tweed's rules.
    services: Served,
    /// How it is with the fast path, if that is not switched off.
    fast_path: Option<FastPathState>,
    /// Why `agent.json` could not be written last time.
    state_problem: Option<Problem>,
    /// Whether the program `tweed` has been there in this boot: then the folder is the right one.
    had_plugin: bool,
}

impl Publisher {
    /// A publisher for the folders of `config`. Removes a `ready` file of another
    /// boot than `boot_id` (`/proc/sys/kernel/random/boot_id`).
    pub fn new(config: &Arc<Config>, boot_id: String) -> Self {
        let mut publisher = Self {
            config: Arc::clone(config),
            policy_wait: Some(config.policy_wait).filter(|wait| config.policy && !wait.is_zero()),
            boot_id,
            plugins: Plugins::default(),
            late_since: None,
            // A single run does not come back to it.
            late_limit: if config.once {
                Duration::ZERO
            } else {
                LATE_LIMIT
            },
            network: None,
            last: LastState::default(),
            services: Served::default(),
            fast_path: None,
            state_problem: None,
            had_plugin: false,
        };
        publisher.remove_stale_ready();
        publisher.last = publisher.read_last();
        // Whether an earlier run of this boot has seen the plugin in the same folder.
        publisher.had_plugin = publisher.last.plugin == Some(publisher.plugin_path());
        publisher
    }

    /// The node is not ready before [`Self::publish`] has come to its end once: until then the
    /// runtime may have no config.
    pub fn begin(board: &StatusBoard) {
        let starting = Problem::new(
            ProblemKind::Starting,
            "tweed-agent",
            "the agent has started and has not written its files yet",
        );
        board.report(Reporter::Publish, vec![starting], Instant::now());
    }

    /// From now on `agent.json` says that the kernel serves these Services.
    pub fn set_services(&mut self, services: Served) {
        self.services = services;
    }

    /// From now on `agent.json` says this of the fast path.
    pub fn set_fast_path(&mut self, fast_path: Option<FastPathState>) {
        self.fast_path = fast_path;
    }

    /// Brings the files up to date and reports on `board` what is wrong with
    /// them. `network` is there when the kernel carries this node's traffic;
    /// the config is written only then, and before `ready` is there only if nothing
    /// else on the board keeps new pods from being served. Afterwards pods are added
    /// whatever the board says, so they have to get addresses of the current ranges.
    ///
    /// `nodes_known` says whether this run has had a list of Nodes. Before that,
    /// in a boot in which the node was ready, the files of the previous run stay
    /// as they are: a restart, with or without an API server, makes no node
    /// unready. Only what `agent.json` says of Services is that of this run, as others
    /// remove kube-proxy's rules because of it.
    pub async fn publish(
        &mut self,
        network: Option<&NodeNetwork>,
        nodes_known: bool,
        board: &StatusBoard,
        metrics: &Metrics,
    ) {
        let plugins = self.ask_plugins().await;
        let has_plugin = plugins
            .iter()
            .any(|(name, plugin)| *name == TWEED && *plugin != Plugin::Missing);
        self.had_plugin |= has_plugin;
        let of_plugins = plugins.iter().filter_map(|(name, plugin)| match plugin {
            Plugin::Usable(_) => None,
            Plugin::Unusable { problem, .. } => Some(problem.clone()),
            Plugin::Missing => {
                problems::missing(&self.config.cni_bin_dir.join(name), self.had_plugin)
            }
        });
        let mut problems: Vec<Problem> = of_plugins.collect();
        problems.extend(self.plugins.warnings().cloned());
        problems.extend(cni_configs::problems(&self.config.cni_conf_dir, CONFLIST));
        let notes = problems::of_loopback(&self.config.cni_bin_dir);
        board.set_notes(Reporter::Publish, notes.into_iter().collect());
        let late = self.waits_for_late(&plugins, Instant::now());
        let is_ready = || board.ready_but_for(Reporter::Publish) && late.is_none();
        let may_write = self.was_ready() || is_ready();
        problems.extend(late);
        if let Some(network) = network.filter(|_| may_write) {
            problems.extend(self.let_pods_in(network, &plugins, metrics).err());
        }
        let report = |state_problem: &Option<Problem>| {
            let all = problems.iter().chain(state_problem).cloned().collect();
            board.report(Reporter::Publish, all, Instant::now());
        };
        // With the problem of last time: a lasting one would otherwise disappear
        // and come back each time.
        report(&self.state_problem);
        let written = if !nodes_known && self.was_ready() {
            self.correct_services()
        } else {
            self.write_state(board)
        };
        let failure = written.err();
        let state_problem = failure.map(|error| problems::unwritable("--run-dir", &error));
        if state_problem != self.state_problem {
            report(&state_problem);
            self.state_problem = state_problem;
        }
    }

    /// Writes the config, then `ready`: an ADD that finds `ready` then also finds
    /// the current config.
    fn let_pods_in(
        &mut self,
        network: &NodeNetwork,
        plugins: &[(&'static str, Plugin)],
        metrics: &Metrics,
    ) -> Result<(), Problem> {
        let in_folder = |flag| move |error| problems::unwritable(flag, &error);
        let written = self.write_conflist(network, plugins);
        if written.map_err(in_folder("--cni-conf-dir"))? == Update::Written {
            metrics.conflist_writes.inc();
            tracing::info!(path = %self.conflist_path().display(), "CNI config written");
        }
        self.write_ready().map_err(in_folder("--run-dir"))?;
        self.network = Some(network.clone());
        Ok(())
    }

    /// Asks `tweed` and the plugins that may be chained after it.
    async fn ask_plugins(&mut self) -> Vec<(&'static str, Plugin)> {
        let names: Vec<_> = [TWEED].into_iter().chain(CHAINED).collect();
        let paths = names.iter().map(|name| self.config.cni_bin_dir.join(name));
        let plugins = self.plugins.ask(&paths.collect::<Vec<_>>()).await;
        names.into_iter().zip(plugins).collect()
    }

    fn write_conflist(
        &self,
        network: &NodeNetwork,
        plugins: &[(&'static str, Plugin)],
    ) -> Result<Update, ReplaceError> {
        let earlier = self.earlier_conflist();
        let (present, gone): (Vec<_>, Vec<_>) = { earlier.appended() }
            // Whether it runs is between the runtime and those who have appended it.
            .partition(|(name, _)| {
                self.config
                    .cni_bin_dir
                    .join(name)
                    .symlink_metadata()
                    .is_ok()
            });
        let appended: Vec<&Value> = present.into_iter().map(|(_, plugin)| plugin).collect();
        let conflist = Conflist {
            network,
            policy_wait: self.policy_wait,
            ready_file: &self.ready_path(),
            run_dir: (self.config.run_dir != Path::new(DEFAULT_RUN_DIR))
                .then_some(&self.config.run_dir),
            answers: &self.versions_of(plugins),
            appended: &appended,
        };
        let file = conflist.file();
        // How others have formatted it is no reason to write it again.
        let text = regular_file::read(&self.conflist_path(), limits::CNI_CONFIG);
        let there = text
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        if there.is_some() && there == serde_json::to_value(&file).ok() {
            return Ok(Update::Unchanged);
        }
        for (name, _) in gone {
            tracing::warn!(
                plugin = name,
                "removed from the CNI config, to which somebody has appended it: its program is \
                 not in {}, so no pod could start",
                self.config.cni_bin_dir.display()
            );
        }
        update(&self.conflist_path(), &file)
    }

    /// The CNI versions of the plugins that are there. One that is late with its answer stays
    /// in the chain that has it: pods that start meanwhile would be without what it does for
    /// as long as they live.
    fn versions_of(
        &self,
        plugins: &[(&'static str, Plugin)],
    ) -> Vec<(&'static str, BTreeSet<CniVersion>)> {
        let answered = |(name, plugin): &(&'static str, Plugin)| {
            let versions = match plugin {
                Plugin::Usable(versions) => Some(versions.clone()),
                Plugin::Unusable { may_pass: true, .. } => {
                    self.earlier_conflist().versions_of(name)
                }
                Plugin::Unusable { .. } | Plugin::Missing => None,
            };
            Some((*name, versions?))
        };
        plugins.iter().filter_map(answered).collect()
    }

    /// The first config of a boot waits for a plugin that would be chained and is late with its
    /// answer, for the same reason: on a machine that has just started everything is late.
    fn waits_for_late(
        &mut self,
        plugins: &[(&'static str, Plugin)],
        now: Instant,
    ) -> Option<Problem> {
        if self.was_ready() {
            return None;
        }
        let earlier = self.earlier_conflist();
        let is_late = |plugin: &Plugin| matches!(plugin, Plugin::Unusable { may_pass: true, .. });
        let (name, _) = plugins.iter().find(|(name, plugin)| {
            CHAINED.contains(name) && is_late(plugin) && earlier.versions_of(name).is_none()
        })?;
        let since = *self.late_since.get_or_insert(now);
        let waits = now.saturating_duration_since(since) < self.late_limit;
        waits.then(|| problems::waits_for(&self.config.cni_bin_dir.join(name), self.late_limit))
    }

    /// What the config says that is there; nothing if there is none, or another kind of file.
    fn earlier_conflist(&self) -> Earlier {
        let text = regular_file::read(&self.conflist_path(), limits::CNI_CONFIG)
            .ok()
            .unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn write_ready(&self) -> Result<Update, ReplaceError> {
        if self.was_ready() {
            return Ok(Update::Unchanged);
        }
        let ready = Ready::new(&self.config.overlay.node_name, &self.boot_id);
        update(&self.ready_path(), &ready)
    }

    /// Whether the node's network has come up in this boot.
    pub fn was_ready(&self) -> bool {
        let found = regular_file::read(&self.ready_path(), limits::STATE).ok();
        let ready: Option<Ready> = found.and_then(|text| serde_json::from_slice(&text).ok());
        ready.is_some_and(|ready| ready.boot_id == self.boot_id)
    }

    /// The MTU that pods have had in this boot, in bytes, and which Services the kernel has
    /// served by tweed's rules, if the node has been ready in it before this run.
    pub fn last(&self) -> &LastState {
        &self.last
    }

    /// Whether the kernel has served Services by tweed's rules in this boot, as far as
    /// [`Self::last`] goes.
    pub fn has_served(&self) -> bool {
        state::served(&self.last) != Served::Nothing
    }

    /// What `agent.json` of an earlier run in this boot says.
    fn read_last(&self) -> LastState {
        let found = regular_file::read(&self.state_path(), limits::STATE).ok();
        let text = found.filter(|_| self.was_ready()).unwrap_or_default();
        // Whatever else stands there says nothing of an earlier run.
        let mut last: LastState = serde_json::from_slice(&text).unwrap_or_default();
        let limits = mtu::KERNEL_MIN..=mtu::KERNEL_MAX;
        last.mtu = last.mtu.filter(|mtu| limits.contains(mtu));
        last
    }

    fn remove_stale_ready(&self) {
        let path = self.ready_path();
        if !path.exists() || self.was_ready() {
            return;
        }
        let removed = fs::remove_file(&path);
        let path = path.display();
        match removed {
            Ok(()) => tracing::info!(%path, "ready file of an earlier boot removed"),
            Err(error) => tracing::warn!(
                %path,
                %error,
                "cannot remove the ready file of an earlier boot: pods may be added before the network is up"
            ),
        }
    }

    fn write_state(&self, board: &StatusBoard) -> Result<Update, ReplaceError> {
        let status = board.status(Instant::now());
        let mut state = state::of_status(
            &self.config.overlay.node_name,
            self.services,
            self.network.as_ref(),
            &status,
        );
        // For the next run, if this one publishes no network.
        state.mtu = state.mtu.or(self.last.mtu);
        state.plugin = self.had_plugin.then(|| self.plugin_path());
        state.fast_path.clone_from(&self.fast_path);
        update(&self.state_path(), &state)
    }

    /// Changes in `agent.json` of an earlier run only what it says of Services.
    fn correct_services(&self) -> Result<Update, ReplaceError> {
        let path = self.state_path();
        let text = regular_file::read(&path, limits::STATE)
            .ok()
            .unwrap_or_default();
        let is_so = |last: &LastState| state::served(last) == self.services;
        match (serde_json::from_slice(&text), serde_json::from_slice(&text)) {
            (Ok(mut state), Ok(last)) if !is_so(&last) => {
                state::set_served(&mut state, self.services);
                update(&path, &state)
            }
            // What is no state of an agent says nothing of Services either.
            _ => Ok(Update::Unchanged),
        }
    }

    /// As `agent.json` has it: a path need not be UTF-8.
    fn plugin_path(&self) -> String {
        self.config.cni_bin_dir.join(TWEED).display().to_string()
    }

    fn state_path(&self) -> PathBuf {
        self.config.run_dir.join(AGENT_STATE_FILE)
    }

    fn conflist_path(&self) -> PathBuf {
        self.config.cni_conf_dir.join(CONFLIST)
    }

    fn ready_path(&self) -> PathBuf {
        self.config.run_dir.join(READY_FILE)
    }
}

/// Makes the file at `path` hold `content` as JSON, readable by everybody.
fn update(path: &Path, content: &impl Serialize) -> Result<Update, ReplaceError> {
    let mut text = serde_json::to_vec_pretty(content).map_err(|error| ReplaceError {
        operation: "write",
        path: path.to_owned(),
        source: error.into(),
    })?;
    text.push(b'\n');
    atomic_file::update(path, &text, atomic_file::SHARED)
}

#[cfg(test)]
mod tests;
