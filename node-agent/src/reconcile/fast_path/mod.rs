//! The fast path: by what this node knows, which programs of [`tweed_fastpath`] are attached
//! where, and when the flows that skip the kernel's path have to pass it again.
//!
//! How data goes through: [`plan`] makes a plan from the overlay's network, the links of local
//! pods and the ranges of Services; [`Programs`] are made as it says. Whoever has changed what
//! is in force for flows says so to the [`Epoch`], after the kernel has committed it: the table
//! of policies by itself, the rest here, by comparing what a run has found with the one before.
//!
//! What cannot be had is never a problem of the node: all packets take the kernel's path then.

mod plan;
mod within;

use std::collections::BTreeSet;
use std::mem;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ipnetwork::IpNetwork;
use tweed_core::agent_state::FastPathState;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::version::Version;
use tweed_fastpath::{Place, Programs};
use tweed_netlink::Socket;
use tweed_netlink::qdisc::{self, Qdisc};
use tweed_planner::overlay::Network;

use plan::{Facts, Planned};

use super::flow_epoch::{Cause, Epoch};
use super::kernel::Kernel;
use super::outcome::{ObjectKind, Outcome};
use super::sysctl::Sysctls;
use super::tables::PodLinks;
use crate::config::{Config, FastPath as Mode};
use crate::fast_path::Pause;
use crate::serve::metrics::Metrics;

/// The time from one look at the programs to the next: the kernel does not say when somebody
/// detaches one, and they let flows in only while the agent is there.
const LOOK: Duration = Duration::from_secs(1);
/// The time from one attempt to load programs to the next: what the kernel refuses once it will
/// refuse again, and to ask takes some tenths of a second.
const RETRY: Duration = Duration::from_secs(60);
/// The same where something else failed, which may be over at once.
const SOON: Duration = Duration::from_secs(5);

/// Keeps the programs attached, and their maps as planned.
pub struct FastPathReconciler {
    mode: Mode,
    is_single_run: bool,
    dir: PathBuf,
    flows: u32,
    metrics: Metrics,
    epoch: Epoch,
    state: State,
    planned: Planned,
    /// The queueing disciplines that the plan was made with.
    qdiscs: Vec<Qdisc>,
    /// What the flows that are let in depend on, as it was in the last run.
    seen: Seen,
    look_at: Option<Instant>,
}

enum State {
    /// It has not been tried yet.
    New,
    /// They are not to be loaded, and what an earlier run has left was removed.
    Off,
    /// Somebody has switched them off.
    Paused,
    /// They cannot be loaded.
    Failed {
        word: &'static str,
        why: String,
        /// When it is tried again.
        retry: Instant,
    },
    On(Box<Programs>),
}

/// What changes flows without a word of the programs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The addresses of local pods, each with its link.
    pub pods: PodLinks,
    /// What the kernel was found to hold of the overlay.
    pub mirror: Version,
    /// How many changes rtnetlink was sent.
    pub changes: u64,
    /// How many walks through conntrack have ended.
    pub walks: u64,
}

/// What the reconciler is given.
pub struct Given<'a> {
    /// The node's network, if there is one.
    pub network: Option<&'a Network>,
    /// What the kernel holds.
    pub kernel: &'a Kernel,
    /// See [`Seen`].
    pub seen: Seen,
    /// The ranges of Services.
    pub services: &'a [IpNetwork],
    /// Whether tables had to be put back.
    pub tables_written: bool,
    /// Whether somebody has switched it off for now.
    pub pause: Option<Pause>,
}

fn qdiscs() -> Result<Vec<Qdisc>, tweed_netlink::Error> {
    Socket::open().and_then(|mut socket| qdisc::list(&mut socket))
}

impl FastPathReconciler {
    /// Nothing is loaded yet. A single run has no part in it: it may run beside the node's
    /// agent, and nobody would tell the programs what changes afterwards.
    pub fn new(config: &Config, metrics: Metrics) -> Self {
        let (dir, flows) = (config.bpf_dir.clone(), config.fast_path_flows);
        let epoch = Epoch::new(&metrics);
        if !config.once {
            // What an earlier run has left attached goes on until this one has loaded its own.
            epoch.set_settings(tweed_fastpath::pinned_settings(&dir, flows));
        }
        Self {
            mode: config.fast_path,
            is_single_run: config.once,
            dir,
            flows,
            epoch,
            metrics,
            state: State::New,
            planned: Planned::default(),
            qdiscs: Vec::new(),
            seen: Seen::default(),
            look_at: None,
        }
    }

    /// The epoch, for those who change what is in force.
    pub fn epoch(&self) -> Epoch {
        self.epoch.clone()
    }

    /// Makes the programs and their maps as they should be. It comes after all else is
    /// written: then what is new in the kernel is in force for all flows.
    pub fn reconcile(&mut self, given: Given<'_>, sysctls: &Sysctls) -> Outcome {
        let mut outcome = Outcome::default();
        if self.is_single_run {
            return outcome;
        }
        self.note(&given);
        let now = Instant::now();
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_at = Some(now + LOOK);
        }
        if self.mode == Mode::Off {
            self.switch_off();
        } else if let Some(pause) = given.pause {
            if !self.is_paused() {
                tracing::info!("the fast path is switched off for now");
                self.unload();
                self.state = State::Paused;
            }
            self.look_at = pause.until;
        } else if let Some(network) = given.network {
            self.keep(network, &given, sysctls, &mut outcome);
        }
        self.report(&mut outcome);
        outcome
    }

    /// Conntrack has been walked through so often: flows of Services may be gone.
    pub fn walked(&mut self, walks: u64) {
        if mem::replace(&mut self.seen.walks, walks) != walks {
            self.epoch.invalidate(Cause::Services);
        }
    }

    /// Tells the epoch what has changed since the last run.
    fn note(&mut self, given: &Given<'_>) {
        self.walked(given.seen.walks);
        if given.tables_written {
            self.epoch.invalidate(Cause::Tables);
        }
        let (before, now) = (&self.seen, &given.seen);
        if before.pods != now.pods {
            self.epoch.invalidate(Cause::Pods);
        } else if (before.mirror, before.changes) != (now.mirror, now.changes) {
            self.epoch.invalidate(Cause::Network);
        }
        self.seen = given.seen.clone();
    }

    /// Loads the programs if they are not loaded, and makes all as planned.
    fn keep(
        &mut self,
        network: &Network,
        given: &Given<'_>,
        sysctls: &Sysctls,
        outcome: &mut Outcome,
    ) {
        // Until then flows could be let in that no policy has seen.
        if !self.epoch.knows_policies() {
            return;
        }
        // Connections whose packets conntrack does not see would hang without these.
        match sysctls.let_conntrack_miss_packets() {
            Ok(written) => outcome.merge(written),
            Err(why) => return self.fail("sysctl", why, SOON),
        }
        if !self.is_loaded() && !self.load() {
            return;
        }
        match qdiscs() {
            Ok(qdiscs) => self.qdiscs = qdiscs,
            Err(error) => return self.fail("kernel", error.to_string(), SOON),
        }
        let pods: BTreeSet<u32> = self.seen.pods.iter().map(|(_, link)| *link).collect();
        let before = self.planned.plan.places();
        self.planned = plan::plan(&Facts {
            network,
            links: &given.kernel.mirror().links,
            pods: &pods,
            services: given.services,
            qdiscs: &self.qdiscs,
            ports: sysctls.local_ports(),
        });
        self.apply(&before, outcome);
    }

    fn is_loaded(&self) -> bool {
        matches!(self.state, State::On(_))
    }

    /// Loads the programs, if it is time to try. Whether they are loaded.
    fn load(&mut self) -> bool {
        if matches!(self.state, State::Failed { retry, .. } if retry > Instant::now()) {
            return false;
        }
        match Programs::load(&self.dir, self.flows) {
            Ok(programs) => {
                self.epoch.set_settings(Some(programs.settings()));
                self.metrics
                    .fast_path
                    .set_counters(Some(programs.counters()));
                self.state = State::On(Box::new(programs));
                tracing::info!("the programs of the fast path are loaded");
                true
            }
            Err(error) => {
                self.fail(error.word(), error.to_string(), RETRY);
                false
            }
        }
    }

    /// Programs that are attached again where they were `before` are put back.
    fn apply(&mut self, before: &BTreeSet<Place>, outcome: &mut Outcome) {
        let State::On(programs) = &mut self.state else {
            return;
        };
        match programs.apply(&self.planned.plan) {
            Ok(changed) => {
                if !changed.attached.is_empty() || changed.ways {
                    self.epoch.invalidate(Cause::Programs);
                }
                for place in changed.attached.intersection(before) {
                    outcome.wrote(ObjectKind::Program, 1, &place.name());
                }
                self.look_at = Some(Instant::now() + LOOK);
            }
            Err(error) => self.fail(error.word(), error.to_string(), SOON),
        }
    }

    /// When [`Self::look`] is due, or a pause is over.
    pub fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Whether it can be switched.
    pub fn is_known(&self) -> bool {
        self.mode != Mode::Off && !matches!(self.state, State::New)
    }

    /// Whether it is switched off for now.
    pub fn is_paused(&self) -> bool {
        matches!(self.state, State::Paused)
    }

    /// Whether it is time to try again what has failed, or to look, and somebody has queued or
    /// filtered at a link, or does so no more: the kernel's notifications that the agent reads do
    /// not say so.
    pub fn is_outdated(&self, now: Instant) -> bool {
        self.look_at().is_some_and(|at| at <= now)
            && (matches!(self.state, State::Failed { .. })
                || qdiscs().is_ok_and(|qdiscs| qdiscs != self.qdiscs))
    }

    /// Puts back programs that somebody has detached, if it is time to look. What was put
    /// back is in the outcome.
    pub fn look(&mut self, now: Instant) -> Outcome {
        let mut outcome = Outcome::default();
        if self.look_at.is_none_or(|at| at > now) {
            return outcome;
        }
        // The end of a pause is seen by the next reconcile.
        self.look_at = None;
        if let State::On(programs) = &self.state {
            self.look_at = Some(now + LOOK);
            programs.renew();
            if programs.is_damaged(&self.planned.plan) {
                let before = self.planned.plan.places();
                self.apply(&before, &mut outcome);
            }
        }
        outcome
    }

    /// There is no fast path for now. Programs that are attached go.
    fn fail(&mut self, word: &'static str, why: String, after: Duration) {
        let is_new = !matches!(&self.state, State::Failed { why: known, .. } if *known == why);
        if is_new {
            tracing::warn!(
                why,
                "the fast path is off: all packets take the kernel's path"
            );
        }
        self.unload();
        let retry = Instant::now() + after;
        self.look_at = Some(retry);
        self.state = State::Failed { word, why, retry };
    }

    fn unload(&mut self) {
        self.epoch.set_settings(None);
        self.metrics.fast_path.set_counters(None);
        self.look_at = None;
        self.state = State::Off;
        match tweed_fastpath::remove(&self.dir) {
            Ok(0) => {}
            Ok(_) => tracing::info!("the programs of the fast path are removed"),
            Err(error) => tracing::warn!(%error, "programs of the fast path are left"),
        }
    }

    /// Removes what an earlier run has left, once.
    fn switch_off(&mut self) {
        if matches!(self.state, State::New) {
            self.unload();
        }
    }

    /// What the node's status says; nothing if it is switched off.
    pub fn status(&self) -> Option<FastPathState> {
        let off = |why: &str| FastPathState {
            why: Some(why.to_owned()),
            ..FastPathState::default()
        };
        match &self.state {
            State::Off => None,
            State::New if self.mode == Mode::Off => None,
            State::New => Some(off("it is not known yet what it depends on")),
            State::Paused => Some(FastPathState {
                paused: true,
                ..off("it is switched off for now (tweedctl fast-path off)")
            }),
            State::Failed { why, .. } => Some(off(why)),
            State::On(_) => Some(FastPathState {
                active: true,
                hooks: self.planned.plan.places().len(),
                left: self.planned.left.clone(),
                ..FastPathState::default()
            }),
        }
    }

    fn report(&self, outcome: &mut Outcome) {
        let (word, hooks) = match &self.state {
            State::Off => ("off", 0),
            State::New => ("starting", 0),
            State::Paused => ("switched-off", 0),
            State::Failed { word, .. } => (*word, 0),
            State::On(_) => ("", self.planned.plan.places().len()),
        };
        self.metrics.set_fast_path(word, hooks);
        if let (Mode::On, State::Failed { why, .. }) = (self.mode, &self.state) {
            let problem = Problem::new(ProblemKind::FastPathOff, "fast path", why.clone());
            outcome.problems.push(problem);
        }
    }
}
