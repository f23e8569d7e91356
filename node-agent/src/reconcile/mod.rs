//! Keeps the kernel as planned: reads what it holds, plans, compares, writes what
//! differs.
//!
//! How data goes through: [`Kernel`] reads the kernel into its mirror; the
//! planner makes a plan of the Nodes in the shared state and of this machine's
//! own network; then each reconciler compares its part of the plan with what is
//! there, writes what differs and gives an [`Outcome`]. [`Reconcilers`] calls
//! them in a fixed order, merges the outcomes, puts the problems on the board
//! and counts. When to do so is decided in [`schedule`].
//!
//! Each reconciler has its own folder or file and its own state:
//!
//! | module | keeps |
//! |---|---|
//! | [`sysctl`] | sysctls of the machine, the VXLAN device and pods' links |
//! | [`kernel`] | VXLAN device, addresses, routes, neighbours, FDB entries |
//! | [`pods`] | links of local pods, their routes and neighbours; stores |
//! | [`tables`] | the tables `inet tweed`, `inet tweed-policy` and `inet tweed-services` |
//! | [`fast_path`] | the eBPF programs at links, and their maps |
//! | [`conntrack`] | no entries of conntrack by which UDP to Services leads to no endpoint |
//! | [`policy`], [`services`] | nothing: they say what [`tables`] hold, each as a [`component`] |
//! | [`firewalls`] | nothing: it looks for rules of others that drop or translate packets |
//! | [`service_proxies`] | nothing: it looks for others that serve Services |
//! | [`announce`] | nothing: it tells other machines where the own addresses are |
//! | [`routing`] | nothing: it looks for rules and routes of others that take packets of pods |
//!
//! What always holds: a reconcile takes nothing from the event that caused it
//! but what to read again; a failure of one reconciler does not keep the others
//! from writing, unless the kernel's socket fails; after a failure a full resync
//! follows.

mod announce;
mod component;
mod components;
pub mod conntrack;
mod drift;
mod fast_path;
pub mod firewalls;
mod flow_epoch;
pub mod kernel;
pub mod outcome;
pub mod pods;
pub mod policy;
pub mod routing;
pub mod schedule;
mod service_proxies;
pub mod services;
pub mod sysctl;
mod tables;

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use std::{mem, sync::Arc};

use ipnetwork::IpNetwork;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tweed_core::agent_state::FastPathState;
use tweed_core::mac::Mac;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::version::Version;
use tweed_netlink::Error;
use tweed_planner::overlay::{Network, OverlayPlanner, vtep};
use tweed_planner::policy::Wants;
use tweed_planner::probe::peers;

use crate::serve::services::health_checks::HealthChecks;
use crate::serve::services::proxy_health::KubeProxyRules;
use crate::serve::status::{Reporter, StatusBoard};
use crate::{config::Config, publish, serve::metrics::Metrics, state::State};
use announce::Announcer;
use fast_path::FastPathReconciler;
use firewalls::FirewallInspector;
use kernel::{Kernel, mirror::MirrorPart, reconciler::OverlayReconciler, way};
use outcome::{Outcome, Retry};
use pods::PodReconciler;
use policy::PolicyReconciler;
use routing::RoutingInspector;
use schedule::{Changes, Due, ResyncTarget};
use service_proxies::ServiceProxyInspector;
use services::ServiceReconciler;
use sysctl::Sysctls;
use tables::Tables;

/// Maximum number of plans in one reconcile: a plan may need to know the way to other
/// nodes than the one before.
const MAX_PLANS: usize = 3;
/// The least time from one list of the ways to other nodes to the next.
const TELL_PEERS: Duration = Duration::from_secs(1);

/// All reconcilers, and what they share.
pub struct Reconcilers {
    state: Arc<State>,
    board: Arc<StatusBoard>,
    metrics: Metrics,
    /// MAC of this node's VXLAN device.
    vtep_mac: Mac,
    kernel: Kernel,
    planner: OverlayPlanner,
    sysctls: Sysctls,
    overlay: OverlayReconciler,
    pods: PodReconciler,
    policy: PolicyReconciler,
    services: ServiceReconciler,
    tables: Tables,
    /// Whether limits and timeouts of conntrack are set.
    limits_conntrack: bool,
    firewalls: FirewallInspector,
    service_proxies: ServiceProxyInspector,
    announcer: Announcer,
    routing: RoutingInspector,
    fast_path: FastPathReconciler,
    /// Whether every source had reported when the last plan was made.
    sources_reported: bool,
    /// What is known to be written: the rest is drift.
    written: drift::Written,
    /// What was wrong when a reconcile last came to its end.
    known: Vec<Problem>,
    /// The addresses to which there were local routes when these were last looked at.
    local_addresses: Option<BTreeSet<IpNetwork>>,
    /// The plan and the Nodes out of which the ways to other nodes were last told, and when.
    peers_set: Option<(Version, Version, Instant)>,
}

/// What the files of an earlier run in this boot say.
#[derive(Debug, Clone)]
pub struct EarlierRun {
    /// The boot: files of another one say nothing.
    pub boot_id: String,
    /// The MTU that pods had, in bytes.
    pub pod_mtu: Option<u32>,
    /// Whether the node was ready.
    pub was_ready: bool,
    /// Whether the table served Services, be it those of a run before that one.
    pub served_services: bool,
}

/// What the published files need to know after a reconcile.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// What the plugin has to know, once the kernel carries this node's traffic.
    pub network: Option<publish::NodeNetwork>,
    /// Whether every source has described its objects, or cannot be read.
    pub sources_reported: bool,
    /// Whether there is a list of Nodes with the own one in it.
    pub nodes_known: bool,
    /// Which Services the kernel serves.
    pub services: publish::Served,
    /// How it is with the fast path, if that is not switched off.
    pub fast_path: Option<FastPathState>,
}

/// What the reconcilers tell others while they run.
pub struct Outlets {
    /// What has to be watched for policies.
    pub wants: watch::Sender<Wants>,
    /// The health checks of Services.
    pub health_checks: watch::Sender<Arc<HealthChecks>>,
    /// Whether kube-proxy's rules are on this node.
    pub kube_proxy: watch::Sender<KubeProxyRules>,
}

impl Reconcilers {
    /// Opens the sockets in the calling thread's network namespace. `stop` is cancelled
    /// when the agent is to end.
    ///
    /// # Errors
    /// When the kernel gives no netlink socket.
    pub fn open(
        config: &Arc<Config>,
        state: &Arc<State>,
        board: &Arc<StatusBoard>,
        metrics: Metrics,
        earlier: &EarlierRun,
        outlets: Outlets,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let vtep_mac = vtep::mac(&config.overlay.node_name);
        let Outlets {
            wants,
            health_checks,
            kube_proxy,
        } = outlets;
        let was_ready = earlier.was_ready;
        let policy = PolicyReconciler::new(config, metrics.clone(), wants, was_ready);
        if let Some(mut index) = state.policy() {
            policy.keep_earlier(&mut index);
        }
        let fast_path = FastPathReconciler::new(config, metrics.clone());
        let mut tables = Tables::new(config, fast_path.epoch(), stop);
        let mut services = ServiceReconciler::new(metrics.clone(), state, health_checks, earlier);
        // Load balancers need not wait for the first reconcile.
        services.observe(&mut tables);
        let serves = config.services.is_some();
        Ok(Self {
            state: Arc::clone(state),
            board: Arc::clone(board),
            vtep_mac,
            kernel: Kernel::open(vtep_mac)?,
            planner: OverlayPlanner::new(config.overlay.clone(), earlier.pod_mtu),
            sysctls: Sysctls::new(&config.sysctl_dir, &config.run_dir, &earlier.boot_id),
            overlay: OverlayReconciler::default(),
            pods: PodReconciler::new(config, metrics.clone()),
            policy,
            services,
            tables,
            limits_conntrack: config.conntrack_limits,
            firewalls: FirewallInspector::default(),
            service_proxies: ServiceProxyInspector::new(serves.then_some(kube_proxy)),
            announcer: Announcer::new(&config.run_dir),
            routing: RoutingInspector::default(),
            fast_path,
            sources_reported: false,
            written: drift::Written::default(),
            known: Vec::new(),
            local_addresses: None,
            peers_set: None,
            metrics,
        })
    }

    /// Readable when there are notifications.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.kernel.as_fd())
            .chain(self.tables.fd())
            .chain(self.firewalls.fd())
    }

    /// Reads notifications, and says what there is to reconcile.
    pub fn changes(&mut self) -> Changes {
        // If the socket fails, everything is stale, and the reconcile says why.
        let kernel = self.kernel.read_notifications().is_err() || self.kernel.is_stale();
        let nft = self.tables.has_changes();
        let firewalls = self.firewalls.has_changes();
        let waiting_pods = self.state.waiting_pods().has_new();
        let policy = self.state.policy().is_some_and(|index| index.has_changed());
        let index = self.state.services();
        let services = index.is_some_and(|index| index.has_changed());
        let nodes = self.planner.is_behind(&self.state.read().nodes);
        let pause = self.state.fast_path().pause(Instant::now());
        let switched = pause.is_some() != self.fast_path.is_paused();
        let objects = policy || services || nodes || (switched && self.fast_path.is_known());
        if nft || waiting_pods || self.policy.enforces_later || objects {
            Changes::Wanted
        } else if kernel || firewalls {
            Changes::Notified
        } else {
            Changes::None
        }
    }

    /// Prepares the plan for the next Node that changes alone, while nothing
    /// waits for it.
    pub fn prepare(&mut self) {
        self.planner.prepare(&self.state.read().nodes);
    }

    /// Says over which ways the other nodes are reached, for their probes. That takes
    /// milliseconds with thousands of Nodes, so it is done while nothing waits for it, and
    /// not more often than [`TELL_PEERS`].
    pub fn tell_peers(&mut self, now: Instant) {
        let Some(mut probes) = self.state.probes() else {
            return;
        };
        let nodes = &self.state.read().nodes;
        let (plan, nodes_of) = (self.planner.version(), nodes.version());
        let is_told = self.peers_set.is_some_and(|(of_plan, of_nodes, at)| {
            (of_plan, of_nodes) == (plan, nodes_of) || now.duration_since(at) < TELL_PEERS
        });
        if !is_told && let Some(network) = self.planner.network() {
            let (own, peers) = peers::of(network, nodes.nodes());
            probes.set_peers(own, peers, now);
            self.peers_set = Some((plan, nodes_of, now));
        }
    }

    /// Reconciles everything once. Says when to do so again, and what to publish.
    pub fn reconcile(&mut self, due: Due) -> (Retry, Progress) {
        let _timer = self.metrics.time_reconcile();
        self.follow();
        self.state.waiting_pods().take_up();
        let sent = self.kernel.changes_sent();
        let mut outcome = Outcome::default();
        let result = self.reconcile_each(due, &mut outcome);
        let complete = result.is_ok();
        let mut problems: Vec<Problem> = outcome.all_problems().cloned().collect();
        match result {
            Ok(()) => self.known.clone_from(&problems),
            Err(error) => {
                outcome.retry.resync = true;
                problems.push(kernel_unreadable(&error));
                // Nobody has looked at the rest, which is as it was as far as anybody knows.
                problems.extend(self.known.iter().cloned());
            }
        }
        let sent = self.kernel.changes_sent().saturating_sub(sent);
        self.metrics.kernel_changes.inc_by(sent);
        if !complete {
            self.reopen();
        }
        let planned = self.planner.network().map(Arc::as_ref);
        let network = planned.filter(|_| complete && self.planner.is_current());
        let progress = Progress {
            network: network.map(published),
            sources_reported: self.sources_reported,
            nodes_known: self.planner.nodes() > 0,
            services: self.services.served(),
            fast_path: self.fast_path.status(),
        };
        let retry = self.record(&outcome, problems);
        self.answer_waiting();
        (retry, progress)
    }

    /// The order matters. Records are read after the kernel: the route of a pod
    /// that was made between the two is in no mirror yet, and so is not taken
    /// for one of no pod. Forwarding is on before routes lead here. Pods come
    /// after the overlay, whose addresses are the sources of their routes. The
    /// table comes last: it may take the program `nft`, and what it protects is
    /// there already. Other firewalls and routing rules are nothing to wait for.
    fn reconcile_each(&mut self, due: Due, found: &mut Outcome) -> Result<(), Error> {
        self.kernel.invalidate(due.mirror_parts());
        if due.poll {
            self.kernel.invalidate([MirrorPart::Links]);
        }
        self.kernel.observe()?;
        self.enforce_added();
        found.merge(self.pods.read_stores(due.has(ResyncTarget::Pods)));
        self.policy.enforces_later = false;
        self.enforce_added();
        self.plan()?;
        found.problems.extend(self.planner.problems().cloned());
        let planned = self.planner.network().cloned();
        let network = planned.as_deref();

        if let Some(network) = network {
            let sysctls = &self.sysctls;
            found.merge(sysctls.reconcile_machine(&mut self.kernel, network)?);
            let kept = self.pods.route_keys();
            let (kernel, planner) = (&mut self.kernel, &self.planner);
            let mut overlay = self.overlay.reconcile(kernel, planner, network, kept)?;
            if !overlay.refused.is_empty() {
                way::name_nodes(&mut overlay.refused, self.state.read().nodes.nodes());
            }
            let local = network.local_addresses();
            let is_new = self.local_addresses.as_ref() != Some(&local);
            // Of nodes with a tunnel, which have none, others are only removed now and then.
            let is_polled = due.poll && !local.is_empty();
            if is_new || is_polled || due.has(ResyncTarget::ForeignRules) {
                let kept = kernel.keep_local_routes(&local)?;
                // What was refused is tried again, and is a problem until then.
                self.local_addresses = (!kept.failed()).then_some(local);
                found.merge(kept);
            }
            // What the kernel refuses of other Nodes does not hold this back.
            if self.planner.is_current() {
                let own = &network.own_addresses;
                self.announcer.announce(kernel.mirror(), own, due.poll);
            }
            found.merge(overlay);
        }
        if self.limits_conntrack {
            found.merge(self.sysctls.reconcile_conntrack());
        }
        self.enforce_added();
        found.merge(self.pods.reconcile(&mut self.kernel, &self.planner)?);
        let forwarding = network.map(|network| network.desired.forwarding.clone());
        let families = forwarding.unwrap_or_default();
        let of_pods = self.pods.sysctls(&self.kernel);
        let sysctls = &self.sysctls;
        found.merge(sysctls.reconcile_links(&mut self.kernel, &families, of_pods));
        found.merge(self.reconcile_tables(due));
        if let Some(network) = network {
            let links = self.pods.links(&self.kernel);
            let (mirror, due) = (self.kernel.mirror(), due.has(ResyncTarget::ForeignRules));
            found.merge(self.routing.inspect(network, mirror, &links, due));
        }
        let plan = network.map(|network| &network.desired);
        let (is_open, mirror) = (self.tables.is_open(), self.kernel.mirror());
        found.merge(self.firewalls.inspect(is_open, plan, mirror, due));
        self.tables.pause_with(self.firewalls.membership());
        let serves = self.services.is_in_force();
        found.merge(self.service_proxies.inspect(serves, due));
        found.merge(self.reconcile_fast_path(network, found));
        Ok(())
    }

    /// Makes a new plan if the Nodes or this machine's own network have changed.
    /// The first plan says to which nodes the way has to be known.
    fn plan(&mut self) -> Result<(), Error> {
        let mut targets = self.planner.path_targets();
        for _ in 0..MAX_PLANS {
            let host = self.kernel.host_facts(&targets)?;
            let mut stores = self.state.read();
            self.sources_reported = stores.nodes_reported;
            self.planner.update(&mut stores.nodes, host);
            let own_uid = stores.nodes.own().map(|own| own.uid.clone());
            drop(stores);
            self.board.own_node(&own_uid.unwrap_or_default());
            self.metrics.nodes.set(self.planner.nodes() as u64);
            let asked = mem::replace(&mut targets, self.planner.path_targets());
            if targets == asked {
                break;
            }
        }
        Ok(())
    }

    /// Opens new sockets in place of ones that failed. If the kernel gives none,
    /// the next reconcile fails and tries again.
    fn reopen(&mut self) {
        if let Ok(kernel) = Kernel::open(self.vtep_mac) {
            self.kernel = kernel;
            self.overlay = OverlayReconciler::default();
        }
    }

    /// Counts what was put back.
    fn record_drift(&mut self, outcome: &Outcome) {
        for (kind, count) in self.written.record(self.planner.version(), outcome) {
            let names = outcome.names.get(&kind).cloned().unwrap_or_default();
            let objects: Vec<&str> = names.keys().map(String::as_str).collect();
            let (kind, objects) = (kind.as_str(), objects.join(", "));
            tracing::info!(kind, count, objects, "put back what something else changed");
            self.metrics.drift_repaired(kind, &names, count);
        }
    }

    /// Counts what was written and puts the problems on the board.
    fn record(&mut self, outcome: &Outcome, problems: Vec<Problem>) -> Retry {
        for (kind, count) in &outcome.objects {
            self.metrics.set_objects(kind.as_str(), *count);
        }
        self.record_drift(outcome);
        let retry = Retry {
            resync: outcome.failed(),
            ..outcome.retry
        };
        if retry.resync {
            self.metrics.reconcile_errors.inc();
        }
        self.board.report(Reporter::Pass, problems, Instant::now());
        retry
    }
}

fn kernel_unreadable(error: &Error) -> Problem {
    Problem::new(
        ProblemKind::KernelUnreadable,
        "rtnetlink",
        error.to_string(),
    )
}

fn published(network: &Network) -> publish::NodeNetwork {
    publish::NodeNetwork {
        mtu: network.pod_mtu,
        host_sources: network.host_sources.values().copied().collect(),
        pod_cidrs: network.pod_cidrs.clone(),
    }
}
