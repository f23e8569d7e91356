//! One pass: what does the kernel hold, what should it hold, write what
//! differs.
//!
//! A pass is whole in itself: it takes nothing from the event that caused it
//! but what to read again. What goes wrong in one kind of object does not keep
//! the others from being mended. A pass in which something failed says so, and
//! a full one follows.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;
use tweed_netlink::Error;

use super::findings::{Findings, others_problem, table_problem, unreadable};
use super::inbox::Inbox;
use super::schedule::{Due, Share};
use super::{AgentError, Report};
use crate::config::Config;
use crate::kernel::Kernel;
use crate::kernel::change::Kind;
use crate::kernel::notice::Part;
use crate::kernel::sysctl::{self, Sysctls};
use crate::pods::{self, Pods};
use crate::publish;
use crate::serve::metrics::Metrics;
use crate::serve::status::{Reporter, StatusBoard};
use tweed_core::family::Family;
use tweed_core::problem::Problem;
use tweed_core::version::Version;
use tweed_nft::Table;
use tweed_planner::overlay::desired::{RouteKey, Ruleset};
use tweed_planner::overlay::vtep;
use tweed_planner::overlay::{Delta, Network, OverlayPlanner};

/// Everything that a pass needs, and what the passes before have learnt.
pub(super) struct Passes {
    config: Arc<Config>,
    inbox: Arc<Inbox>,
    board: Arc<StatusBoard>,
    /// Says that the agent is to end: no pass then waits for a program.
    stop: CancellationToken,
    metrics: Metrics,
    kernel: Kernel,
    table: Option<Table>,
    sysctls: Sysctls,
    pods: Pods,
    planned: OverlayPlanner,
    /// Whether the source has said anything that counts.
    spoken: bool,
    /// What the kernel refused in the last pass: not tried again in this one.
    refused: BTreeSet<String>,
    /// The plan that the kernel was last made to agree with.
    converged_on: Option<Version>,
    /// What was compared when last there was nothing left to do.
    agreed: Option<Agreed>,
    /// The plan that the table was last made to agree with.
    table_agreed_on: Option<Version>,
    changes_counted: u64,
    /// Ranges that were used up when they were last counted.
    full_ranges: Vec<Problem>,
    /// What the old iptables drops, as last seen.
    legacy_drops: Vec<Problem>,
}

/// What the plan is compared with. While all of it is the same, so is the
/// outcome: a quiet second costs nothing, however many Nodes there are.
#[derive(Debug, PartialEq, Eq)]
struct Agreed {
    plan: Version,
    kernel: u64,
    kept: BTreeSet<RouteKey>,
}

/// What a pass came to.
pub(super) struct Outcome {
    /// Whether a full pass has to follow soon.
    pub(super) failed: bool,
    /// When to look again at what has no notification, if that is soon.
    pub(super) look_at: Option<Instant>,
    pub(super) report: Report,
}

impl Passes {
    /// Opens what is needed, in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub(super) fn open(
        config: &Arc<Config>,
        inbox: &Arc<Inbox>,
        board: &Arc<StatusBoard>,
        metrics: Metrics,
        stop: CancellationToken,
    ) -> Result<Self, AgentError> {
        Ok(Self {
            config: Arc::clone(config),
            inbox: Arc::clone(inbox),
            board: Arc::clone(board),
            stop,
            metrics,
            kernel: Kernel::open(vtep::mac(&config.overlay.node_name))?,
            table: None,
            sysctls: Sysctls::new(&config.sysctl_dir, &config.run_dir),
            pods: Pods::new(&config.run_dir),
            planned: OverlayPlanner::new(config.overlay.clone()),
            spoken: false,
            refused: BTreeSet::new(),
            converged_on: None,
            agreed: None,
            table_agreed_on: None,
            changes_counted: 0,
            full_ranges: Vec::new(),
            legacy_drops: Vec::new(),
        })
    }

    /// What wakes the thread, besides the bell.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.kernel.as_fd()).chain(self.table.as_ref().map(AsFd::as_fd))
    }

    /// Takes in notifications, and says whether a pass has something to do.
    pub(super) fn news(&mut self) -> bool {
        // A socket that fails is in doubt as a whole, and the pass will say why.
        let kernel = self.kernel.listen().is_err() || self.kernel.is_doubtful();
        let table = self.table.as_mut().is_some_and(|table| {
            let heard = table.drain_notifications();
            heard.unwrap_or(true)
        });
        kernel || table || self.planned.is_behind(&self.inbox.told().nodes)
    }

    /// The thread is alive.
    pub(super) fn beat(&self, now: Instant) {
        self.board.beat(now);
    }

    /// Goes through once.
    pub(super) fn go(&mut self, due: Due) -> Outcome {
        let _timer = self.metrics.time_pass();
        let mut findings = Findings::default();
        let through = self.go_through(due, &mut findings);
        let whole = through.is_ok();
        if let Err(error) = through {
            findings.fail(unreadable(&error));
            self.reopen();
        }
        self.count(&findings);
        let network = self.planned.network().map(Arc::as_ref);
        let network = network.filter(|_| whole && self.planned.is_current());
        let report = Report {
            network: network.map(published),
            spoken: self.spoken,
            nodes_known: self.planned.nodes() > 0,
        };
        self.refused = findings.refused;
        let failed = findings.failed;
        self.board
            .report(Reporter::Pass, findings.problems, Instant::now());
        Outcome {
            failed,
            look_at: findings.look_at,
            report,
        }
    }

    /// Makes ready what the next single Node needs, while nobody waits.
    pub(super) fn prepare(&mut self) {
        let told = self.inbox.told();
        self.planned.prepare(&told.nodes);
    }

    fn go_through(&mut self, due: Due, findings: &mut Findings) -> Result<(), Error> {
        self.kernel
            .doubt(due.again.iter().filter_map(|share| match share {
                Share::Kernel(part) => Some(*part),
                _ => None,
            }));
        if due.look {
            self.kernel.doubt([Part::Links]);
        }
        self.kernel.observe()?;
        let all_stores = due.has(Share::Pods);
        let stores_changed = self.pods.read(all_stores).unwrap_or_else(|error| {
            findings.fail(pods::store_problem(&error));
            false
        });
        self.replan();
        findings.problems.extend(self.planned.problems().cloned());
        let network = self.planned.network().cloned();
        let new_plan = self.converged_on != Some(self.planned.version());
        if let Some(network) = network.as_ref().filter(|_| stores_changed || new_plan) {
            let usage = self.pods.usage(&network.pod_cidrs);
            self.metrics.set_addresses(&usage);
            self.full_ranges = pods::full_ranges(&usage);
        }
        findings.problems.extend(self.full_ranges.iter().cloned());
        if let Some(network) = &network {
            self.keep_sysctls(network, findings)?;
            self.keep_network(network, findings)?;
        }
        let pods = self.pods.keep(&mut self.kernel, network.as_deref())?;
        findings.failed |= !pods.complete;
        findings.look_at = pods.look_at;
        findings.problems.extend(pods.problems);
        findings.refuse(&pods.refusals);
        for change in &pods.written {
            findings.wrote(change.kind(), 1);
        }
        self.metrics.swept(pods.swept);
        self.keep_pod_sysctls(findings);
        if let Some(network) = &network {
            self.keep_table(network, due, findings);
        }
        // Nobody tells of its changes, and all of it has to be read.
        if due.has(Share::Legacy) {
            self.legacy_drops = tweed_diagnosis::iptables_legacy::forward_drops()
                .unwrap_or_else(|error| vec![others_problem("iptables-legacy", &error)]);
        }
        findings.problems.extend(self.legacy_drops.iter().cloned());
        Ok(())
    }

    /// Makes a new plan if the Nodes or this machine's own network have changed.
    fn replan(&mut self) {
        let host = self.kernel.mirror().host_facts();
        let mut told = self.inbox.told();
        self.spoken = told.spoken;
        self.planned.update(&mut told.nodes, host);
        let own_uid = told.nodes.own().map(|own| own.uid.clone());
        drop(told);
        self.board.own_node(&own_uid.unwrap_or_default());
        self.metrics.set_nodes(self.planned.nodes());
    }

    /// The VXLAN device and all that the plan puts into the kernel's tables.
    fn keep_network(&mut self, network: &Network, findings: &mut Findings) -> Result<(), Error> {
        let plan = self.planned.version();
        let now = |kernel: &Kernel, kept| Agreed {
            plan,
            kernel: kernel.generation(),
            kept,
        };
        let kept = self.pods.route_keys();
        let current = now(&self.kernel, kept);
        if !self.kernel.is_doubtful() && self.agreed.as_ref() == Some(&current) {
            return Ok(());
        }
        let kept = current.kept;
        if self.follow(network, &kept, findings)? {
            self.agreed = Some(now(&self.kernel, kept));
            return Ok(());
        }
        let outcome = self
            .kernel
            .converge(&network.desired, &kept, &self.refused)?;
        self.agreed = outcome.is_clean().then(|| now(&self.kernel, kept));
        findings.failed |= !outcome.device_kept;
        findings.problems.extend(outcome.problems);
        findings.refuse(&outcome.refusals);
        for (kind, count) in outcome.written {
            findings.wrote(kind, count);
        }
        for (kind, count) in outcome.objects {
            self.metrics.set_objects(kind.as_str(), count);
        }
        self.metrics.set_objects("pod", self.pods.count());
        Ok(())
    }

    /// Writes what single Nodes have changed, if all else is as it was agreed
    /// on; false if everything has to be looked at.
    fn follow(
        &mut self,
        network: &Network,
        kept: &BTreeSet<RouteKey>,
        findings: &mut Findings,
    ) -> Result<bool, Error> {
        let Some(agreed) = self.agreed.take_if(|_| !self.kernel.is_doubtful()) else {
            return Ok(false);
        };
        if agreed.kernel != self.kernel.generation() || agreed.kept != *kept {
            return Ok(false);
        }
        let Some(delta) = self.planned.delta_since(agreed.plan) else {
            return Ok(false);
        };
        let Some(followed) = self.kernel.follow(&network.desired, delta, kept)? else {
            return Ok(false);
        };
        for (kind, count) in followed.written {
            findings.wrote(kind, count);
        }
        for (kind, count) in followed.objects {
            self.metrics.set_objects(kind.as_str(), count);
        }
        Ok(true)
    }

    fn keep_sysctls(&mut self, network: &Network, findings: &mut Findings) -> Result<(), Error> {
        let families = &network.desired.forwarding;
        let on_advertisements = match families.contains(&Family::V6) {
            true => self.kernel.links_on_advertisements()?,
            false => BTreeSet::new(),
        };
        let wanted = sysctl::machine(self.kernel.mirror(), families, &on_advertisements);
        let (written, problems) = self.sysctls.keep(&wanted);
        findings.wrote(Kind::Sysctl, written);
        findings.failed |= !problems.is_empty();
        findings.problems.extend(problems);
        Ok(())
    }

    fn keep_pod_sysctls(&mut self, findings: &mut Findings) {
        let wanted = self.pods.sysctls(&self.kernel);
        if wanted.is_empty() {
            return;
        }
        let (written, problems) = self.sysctls.keep(&wanted);
        self.kernel.doubt([Part::Links]);
        findings.wrote(Kind::Sysctl, written);
        findings.failed |= !problems.is_empty();
        findings.problems.extend(problems);
    }

    /// The table `inet tweed`, and who else drops what is forwarded.
    fn keep_table(&mut self, network: &Network, due: Due, findings: &mut Findings) {
        let plan = self.planned.version();
        let again = due.has(Share::Table);
        let agreed = self.table_agreed_on.take().filter(|_| !again);
        let delta = agreed.and_then(|on| self.planned.delta_since(on)).cloned();
        let result = self.open_table().and_then(|table| {
            if agreed == Some(plan) && !table.drain_notifications()? {
                return Ok(0);
            }
            if let Some((removed, added)) = delta.as_ref().map(sets)
                && let Some(outcome) = table.follow(&removed, &added)?
            {
                return Ok(outcome.repaired);
            }
            let outcome = table.reconcile(&network.desired.ruleset, again)?;
            Ok(outcome.repaired)
        });
        match result {
            Ok(repaired) => {
                self.table_agreed_on = Some(plan);
                findings.wrote(Kind::Nftables, repaired as u64);
            }
            Err(error) => findings.fail(table_problem(&error)),
        }
        match self.table.as_mut().map(Table::foreign_drops) {
            Some(Ok(drops)) => findings.problems.extend(drops),
            Some(Err(error)) => findings.fail(others_problem("nf_tables", &error)),
            None => {}
        }
    }

    fn open_table(&mut self) -> Result<&mut Table, tweed_nft::Error> {
        match &mut self.table {
            Some(table) => Ok(table),
            empty => {
                let table = Table::open(&self.config.run_dir, &self.config.nft)?;
                Ok(empty.insert(table.stopped_by(self.stop.clone())))
            }
        }
    }

    /// New sockets in place of ones that failed. If there are none to be had,
    /// the next pass fails and says so again.
    fn reopen(&mut self) {
        if let Ok(kernel) = Kernel::open(vtep::mac(&self.config.overlay.node_name)) {
            self.kernel = kernel;
            self.agreed = None;
            self.changes_counted = 0;
        }
    }

    /// Counts what was written. What was written for a plan that had been
    /// carried out before was changed by somebody else: drift.
    fn count(&mut self, findings: &Findings) {
        let sent = self.kernel.changes_sent();
        self.metrics
            .kernel_changes(sent.saturating_sub(self.changes_counted));
        self.changes_counted = sent;
        if findings.failed {
            self.metrics.pass_failed();
        }
        if self.converged_on == Some(self.planned.version()) {
            for (kind, count) in &findings.written {
                tracing::info!(
                    kind = kind.as_str(),
                    count,
                    "put back what something else changed"
                );
                self.metrics.drift_repaired(kind.as_str(), *count);
            }
        }
        if !findings.failed {
            self.converged_on = Some(self.planned.version());
        }
    }
}

/// What `delta` removes from the sets of the table, and what it adds.
fn sets(delta: &Delta) -> (Ruleset, Ruleset) {
    let removed = Ruleset {
        cluster_cidrs: delta.cluster_cidrs.removed.keys().copied().collect(),
        node_addresses: delta.node_addresses.removed.keys().copied().collect(),
        vxlan_sources: delta.vxlan_sources.removed.keys().copied().collect(),
        ..Ruleset::default()
    };
    let added = Ruleset {
        cluster_cidrs: delta.cluster_cidrs.added.keys().copied().collect(),
        node_addresses: delta.node_addresses.added.keys().copied().collect(),
        vxlan_sources: delta.vxlan_sources.added.keys().copied().collect(),
        ..Ruleset::default()
    };
    (removed, added)
}

fn published(network: &Network) -> publish::Network {
    publish::Network {
        mtu: network.pod_mtu,
        host_sources: network.host_sources.values().copied().collect(),
        pod_cidrs: network.pod_cidrs.clone(),
    }
}
