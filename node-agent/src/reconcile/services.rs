//! Services: gives the planner what this machine knows, has it plan, and knows how far their
//! table is.
//!
//! How data goes through: sources fill the [`ServiceIndex`]; the own Node comes from its
//! store, and where pods are from the overlay. The planner says what the sets of the table
//! should hold, or that it holds because something is not listed yet. [`super::tables`] writes
//! it. What is no business of the kernel, the health checks, goes to those who answer them
//! after each write, and conntrack forgets the flows that lead to no endpoint any more.

use std::{collections::BTreeMap, fmt::Display, sync::Arc, time::Instant};

use tokio::sync::watch;
use tweed_component::Progress;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::version::Version;
use tweed_nft::services::ServicesTable;
use tweed_planner::overlay::{cluster::Cluster, planner::OverlayPlanner};
use tweed_planner::services::desired::{Desired, Endpoint, Tracked};
use tweed_planner::services::stale::{self, PastFrontends};
use tweed_planner::services::{Notice, Overlap, PodNetworks, Step};

use super::EarlierRun;
use super::component::{Component, Facts};
use super::conntrack::ConntrackReconciler;
use super::kernel::{Kernel, mirror::MirrorPart};
use super::outcome::Outcome;
use super::tables::Tables;
use crate::index::{ServiceIndex, services::Collection};
use crate::publish::Served;
use crate::serve::{metrics::Metrics, services::health_checks::HealthChecks};
use crate::state::State;

/// Has the planner of Services plan, and knows how far the table is.
pub struct ServiceReconciler {
    metrics: Metrics,
    health_checks: watch::Sender<Arc<HealthChecks>>,
    conntrack: ConntrackReconciler,
    /// What it does to the node that Services are not known.
    unknown: Effect,
    /// The version of the overlay of which the planner knows where pods are.
    overlay: Option<Version>,
    /// That of the Nodes whose addresses it knows.
    nodes: Option<Version>,
    progress: Progress,
    /// Whether the kernel serves Services, be it those of an earlier plan or run.
    served: bool,
    /// The frontends of UDP that the table has of an earlier run, with their endpoints, until a
    /// plan of this one is in force.
    earlier: BTreeMap<Tracked, Vec<Endpoint>>,
    /// What is to be written, while it is not.
    round: Option<Round>,
    /// Why the planner holds, while it does.
    held: Vec<String>,
}

/// One write of Services, from its plan on.
#[derive(Debug, Clone, Copy)]
struct Round {
    began: Instant,
    /// Whether it writes or compares everything.
    full: bool,
}

impl ServiceReconciler {
    /// `health_checks` gets those of the plan that is in force. A node that was ready in an
    /// `earlier` run stays ready until it is known what the Services are, and one that served
    /// them counts as one that does, unless [`Self::observe`] finds that it does not.
    pub fn new(
        metrics: Metrics,
        state: &Arc<State>,
        health_checks: watch::Sender<Arc<HealthChecks>>,
        earlier: &EarlierRun,
    ) -> Self {
        Self {
            conntrack: ConntrackReconciler::new(metrics.clone(), state),
            metrics,
            health_checks,
            unknown: if earlier.was_ready {
                Effect::Warning
            } else {
                Effect::NewPods
            },
            overlay: None,
            nodes: None,
            progress: Progress::Unknown,
            served: earlier.served_services,
            earlier: BTreeMap::new(),
            round: None,
            held: Vec::new(),
        }
    }

    /// Gives the planner the own Node, once it is known, and the others and where pods are, if
    /// that has changed. The last is what `overlay` has in force, and not what the Nodes say: a
    /// range that it refuses would make pods of clients from outside.
    fn update_nodes(
        &mut self,
        index: &mut ServiceIndex,
        cluster: &Cluster,
        overlay: &OverlayPlanner,
    ) {
        if let Some(own) = cluster.own() {
            index.planner.set_node(Some(own));
        }
        if self.nodes != Some(cluster.version()) {
            self.nodes = Some(cluster.version());
            index.planner.set_nodes(cluster.nodes());
        }
        let Some(network) = overlay.network() else {
            return;
        };
        if self.overlay != Some(overlay.version()) {
            self.overlay = Some(overlay.version());
            index.planner.set_pod_networks(PodNetworks {
                cluster: network.desired.ruleset.cluster_cidrs.clone(),
                own: network.pod_cidrs.clone(),
            });
        }
    }

    /// Has the planner plan, and tells conntrack of it. Before its first plan it gets the
    /// numbers that the table has from an earlier run, and what its groups hold. If they cannot
    /// be read, they become others: most elements are written again, clients with affinity may
    /// get other endpoints, and flows of deleted Services may stay.
    fn plan_with(&mut self, index: &mut ServiceIndex, tables: &mut Tables) -> Step {
        let began = Instant::now();
        if index.planner.is_about_to_begin() {
            match tables.ask_services(ServicesTable::known_numbers) {
                Ok(known) => {
                    self.earlier = known.frontends_of(stale::PROTOCOL);
                    index.planner.take_over(known);
                }
                Err(error) => tracing::warn!(
                    %error,
                    "the table's Services cannot be read, so clients may get other endpoints, \
                     and flows of deleted ones may stay"
                ),
            }
        }
        let step = index.planner.plan();
        self.metrics
            .services_queued
            .set(index.planner.queued() as u64);
        let desired = index.planner.desired();
        // If a write fails, the next plan may have no more of a frontend that this one has.
        let past = PastFrontends::of_last_run(&self.earlier, desired);
        self.conntrack.note(&step, desired, &past);
        self.held = match &step {
            Step::Hold(held) => held.clone(),
            Step::Unchanged | Step::Full | Step::Delta(_) => Vec::new(),
        };
        let sync = &self.metrics.service_sync;
        match step {
            Step::Hold(_) => sync.held(),
            _ if index.planner.queued() > 0 => sync.planned_but(|of| index.planner.waits(of)),
            Step::Unchanged | Step::Full | Step::Delta(_) => sync.planned(),
        }
        // What was not written yet is part of what is.
        let behind = self.round.is_some();
        match &step {
            Step::Full | Step::Delta(_) => {
                let full = behind || matches!(step, Step::Full);
                self.round = Some(Round { began, full });
            }
            Step::Unchanged if behind => self.round = Some(Round { began, full: true }),
            Step::Unchanged => sync.unchanged(),
            Step::Hold(_) => {}
        }
        step
    }

    /// Whether there is a plan, and the table holds all of it.
    pub fn is_in_force(&self) -> bool {
        self.progress == Progress::InForce
    }

    /// Which Services the kernel serves.
    pub fn served(&self) -> Served {
        match self.progress {
            Progress::InForce => Served::All,
            Progress::Unknown | Progress::Behind if self.served => Served::Earlier,
            Progress::Unknown | Progress::Behind => Served::Nothing,
        }
    }

    /// Asks the kernel whether it still has the Services that were in force, where they are
    /// not just written: something else may have deleted the table meanwhile.
    pub fn observe(&mut self, tables: &mut Tables) {
        if self.served && !self.is_in_force() {
            match tables.ask_services(|table, nft| table.is_there(nft)) {
                Ok(has) => self.served = has,
                // What the kernel has is then a problem of the reconcile.
                Err(error) => tracing::debug!(%error, "the table cannot be asked for Services"),
            }
        }
        self.metrics.service_sync.set_served(self.served);
    }

    /// The table holds what is planned.
    fn came_in_force(&mut self, index: &ServiceIndex) {
        if let Some(Round { began, full }) = self.round.take() {
            let without_local = index.planner.without_local();
            let took = began.elapsed();
            (self.metrics.service_sync).written(took, full, without_local);
        }
        if self.progress != Progress::Behind {
            return;
        }
        self.progress.written();
        self.served = true;
        self.earlier = BTreeMap::new();
        let desired = index.planner.desired();
        self.health_checks.send_if_modified(|known| {
            let changed = !known.are_of(desired);
            if changed {
                *known = Arc::new(HealthChecks::of(desired));
            }
            changed
        });
    }

    /// The table could not be made as planned.
    fn not_written(&mut self) {
        let now = Instant::now();
        self.metrics.service_sync.failed(now);
        self.round.get_or_insert(Round {
            began: now,
            full: true,
        });
    }

    /// When [`Self::delete_stale_flows`] has something to do, if it is not woken before.
    pub fn walk_at(&self, now: Instant) -> Option<Instant> {
        let at = self.conntrack.due_at(now);
        at.filter(|_| self.is_in_force())
    }

    /// How many walks through conntrack have ended.
    pub fn walks(&self) -> u64 {
        self.conntrack.walks()
    }

    /// Whether [`Self::delete_stale_flows`] has something to do.
    pub fn walk_is_due(&self, now: Instant) -> bool {
        self.conntrack.is_due(now)
    }

    /// Has conntrack forget what does not lead to endpoints, if the plan, `desired`, is in
    /// force. With `look` that does not depend on what has changed.
    pub fn delete_stale_flows(&mut self, desired: &Desired, kernel: &Kernel, look: bool) {
        if self.is_in_force() {
            // After a failure the mirror may be empty until the next reconcile: then flows to
            // node ports would not be known as such.
            let knows_addresses = kernel.is_known(MirrorPart::Addresses);
            let keys = kernel.mirror().addresses.keys();
            let addresses = knows_addresses.then(|| keys.map(|key| key.network.ip()));
            (self.conntrack).reconcile(desired, addresses, look, Instant::now());
        }
    }
}

impl Component for ServiceReconciler {
    type Objects = Collection;
    type Table = ServicesTable;

    fn progress(&self) -> Progress {
        self.progress
    }

    fn progress_mut(&mut self) -> &mut Progress {
        &mut self.progress
    }

    fn desired(index: &ServiceIndex) -> &Desired {
        index.planner.desired()
    }

    /// Meanwhile the runtime's thread can read the stores: a plan may take long.
    fn plan(&mut self, index: &mut ServiceIndex, facts: &mut Facts<'_>) -> Step {
        self.update_nodes(index, &facts.state.read().nodes, facts.overlay);
        self.plan_with(index, facts.tables)
    }

    fn has_more(index: &ServiceIndex) -> bool {
        index.planner.queued() > 0
    }

    /// What gives the node its pod CIDR or address may be a client of a Service. A table that
    /// knows this node's pods stays until these are known.
    fn may_write(&mut self, facts: &mut Facts<'_>) -> bool {
        // If the table is gone, the next one has no elements to begin with.
        self.observe(facts.tables);
        let has_network = facts.overlay.network().is_some();
        let stays = !has_network && facts.tables.serves_local_pods();
        let sync = &self.metrics.service_sync;
        sync.set_network(has_network || stays);
        if stays {
            sync.waits(Instant::now());
        }
        !stays
    }

    /// What is put back had let flows through that nobody translated.
    fn written(
        &mut self,
        index: &ServiceIndex,
        facts: &mut Facts<'_>,
        look: bool,
    ) -> Option<Problem> {
        self.came_in_force(index);
        self.delete_stale_flows(index.planner.desired(), facts.kernel, look);
        None
    }

    fn failed(&mut self, facts: &mut Facts<'_>) {
        self.not_written();
        self.observe(facts.tables);
    }

    fn report(&self, index: &ServiceIndex, _: Instant) -> Outcome {
        self.metrics.services.set(index.planner.services() as u64);
        let effect = match self.progress {
            Progress::InForce => Effect::Warning,
            Progress::Unknown | Progress::Behind => self.unknown,
        };
        let not_listed = || {
            let text = format!("not listed yet: {}", self.held.join(", "));
            Problem::new(ProblemKind::ServicesNotListed, "services", text)
        };
        let is_held = !self.held.is_empty() && !index.any_lost();
        let unreadable = index.unreadable().map(|(_, problem)| problem);
        let found = unreadable.chain(is_held.then(not_listed));
        let of_sources = found.map(|problem| problem.with_effect(effect));
        let of_services = index.planner.notices().into_iter().map(problem);
        let of_conntrack = self.conntrack.report();
        Outcome::of(of_sources.chain(of_services).chain(of_conntrack).collect())
    }

    fn has_reported(&self, index: &ServiceIndex) -> bool {
        self.is_in_force() && self.held.is_empty() || index.any_lost()
    }
}

/// What of the objects cannot be represented as it stands.
fn problem(notice: Notice) -> Problem {
    match notice {
        Notice::Conflict(conflict) => {
            let frontend = match conflict.frontend {
                Tracked::Address(at) => format!("{} port {}", at.address, at.port),
                Tracked::NodePort(at) => format!("node port {} ({})", at.port, at.family),
            };
            let claims =
                (conflict.services.iter()).map(|one| format!("{}/{}", one.namespace, one.name));
            let names: Vec<String> = claims.collect();
            let others = if conflict.more { " and others" } else { "" };
            let text = format!(
                "several Services claim it: {}{others}; the first has it",
                names.join(", ")
            );
            Problem::new(ProblemKind::ServiceConflict, frontend, text)
        }
        Notice::TooManyEndpoints(service, used) => {
            let name = format!("{}/{}", service.namespace, service.name);
            let text = match used {
                0 => "there are too many Service ports: none of its endpoints is used".to_owned(),
                _ => format!("it has more endpoints than the {used} of a port that are used"),
            };
            Problem::new(ProblemKind::ServiceTooManyEndpoints, name, text)
        }
        Notice::OtherTimeout(service, wanted, given) => {
            let name = format!("{}/{}", service.namespace, service.name);
            let text = format!("its session affinity ends after {given} s instead of {wanted} s");
            Problem::new(ProblemKind::ServiceTimeout, name, text)
        }
        Notice::Refused(service, first, more) => {
            let name = format!("{}/{}", service.namespace, service.name);
            let rest = match more {
                0 => String::new(),
                _ => format!(", and {more} more"),
            };
            let text = format!("it is not served at: {}{rest}", list(&first));
            Problem::new(ProblemKind::ServiceAddressRefused, name, text)
        }
        Notice::Overlap(overlap) => {
            let Overlap { name, cidrs, .. } = &overlap;
            let pods = named("ranges of pods", &overlap.pods, overlap.more_pods);
            let nodes = "addresses of Nodes or of the API server";
            let nodes = named(nodes, &overlap.nodes, overlap.more_nodes);
            let what: Vec<String> = pods.into_iter().chain(nodes).collect();
            let text = format!(
                "{} has {}: they are reached nevertheless, and a Service may be given such an address",
                list(cidrs),
                what.join(", and ")
            );
            let object = format!("ServiceCIDR {name}");
            Problem::new(ProblemKind::ServiceCidrOverlap, object, text)
        }
    }
}

/// The first of several things, and how many more there are; none if there are none.
fn named<T: Display>(what: &str, first: &[T], more: usize) -> Option<String> {
    let rest = match more {
        0 => String::new(),
        _ => format!(" and {more} more"),
    };
    (!first.is_empty()).then(|| format!("{what} ({}{rest})", list(first)))
}

fn list<T: Display>(all: &[T]) -> String {
    let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

#[cfg(test)]
mod tests;
