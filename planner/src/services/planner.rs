//! The planner of Services: takes the events of watches in, and says what the sets and
//! maps of the kernel should hold.
//!
//! What always holds:
//! - a delta applied to the desired state before it is the desired state after it;
//! - an endpoint that comes or goes costs the planning of its Service, and a bounded
//!   number of elements for each frontend that leads to it;
//! - a number that becomes free in a change is not given out again in it;
//! - nothing is planned before Services, EndpointSlices, ServiceCIDRs and the own Node are
//!   all known.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use tweed_component::store::Store;
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::node::Node;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Object};

use super::model::frontends::WithoutLocal;
use super::model::options::Options;
use super::model::refusal::Refused;
use super::model::registry::Registry;
use super::model::reserved::Reserved;
use super::model::spec::Spec;
use super::model::surroundings::{Overlap, PodNetworks, Surroundings};
use super::table::KnownNumbers;
use super::table::claims::Contest;
use super::table::compiled::Compiled;
use super::table::desired::{Delta, Desired, ServiceName};

/// How the plan of now differs from the last one, which is
/// [`ServicePlanner::desired`].
pub type Step = tweed_component::Step<Delta>;

/// What of the objects cannot be represented as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Several Services claim a frontend; the first one has it.
    Contested(Contest),
    /// A Service has so many endpoints that some are never used: how many are.
    Crowded(Arc<ServiceName>, usize),
    /// A Service has affinity with another timeout than it says, since there are too many
    /// different ones: the two, in seconds.
    OtherTimeout(Arc<ServiceName>, u32, u32),
    /// A ServiceCIDR has addresses of Nodes, or ranges of pods.
    Overlap(Overlap),
    /// A Service is not served at some of its addresses: the first of these, and how many
    /// more there are.
    Refused(Arc<ServiceName>, Vec<Refused>, usize),
}

/// The planner of Services of one node.
#[derive(Debug)]
pub struct ServicePlanner {
    pub(super) options: Options,
    pub(super) registry: Registry,
    pub(super) cidrs: Store<ServiceCidr>,
    pub(super) surroundings: Surroundings,
    pub(super) compiled: Compiled,
    /// Whether the surroundings have changed since the last plan.
    surroundings_touched: bool,
    /// Whether the ServiceCIDRs, the addresses of Nodes or the ranges of pods have.
    cidrs_touched: bool,
    /// Whether a plan was made.
    pub(super) planned: bool,
}

impl ServicePlanner {
    /// A planner that knows nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            registry: Registry::new(options.clone()),
            options,
            cidrs: Store::default(),
            surroundings: Surroundings::default(),
            compiled: Compiled::default(),
            surroundings_touched: true,
            cidrs_touched: true,
            planned: false,
        }
    }

    /// Takes an event of the watch of Services in. True if anything changed.
    pub fn apply_services(&mut self, event: Event<Service>) -> bool {
        self.registry.apply_services(event)
    }

    /// Takes an event of the watch of EndpointSlices in. True if anything changed.
    pub fn apply_endpoint_slices(&mut self, event: Event<EndpointSlice>) -> bool {
        self.registry.apply_slices(event)
    }

    /// Takes an event of the watch of ServiceCIDRs in. True if anything changed. Where
    /// the API server does not have them, a list without objects is to be given.
    pub fn apply_service_cidrs(&mut self, event: Event<ServiceCidr>) -> bool {
        let changed = self.cidrs.apply(event);
        self.cidrs_touched |= changed;
        changed
    }

    /// Sets the Node that this machine is. True if anything changed.
    pub fn set_node(&mut self, node: Option<&Node>) -> bool {
        let zone = self.surroundings.own.zone.clone();
        let changed = self.surroundings.set_node(node);
        self.surroundings_touched |= changed;
        if self.surroundings.own.zone != zone {
            self.registry.touch_all();
        }
        changed
    }

    /// Sets all Nodes: their addresses are reached also where a ServiceCIDR has them. True if
    /// anything changed.
    pub fn set_nodes<'a>(&mut self, nodes: impl IntoIterator<Item = &'a Node>) -> bool {
        let changed = self.surroundings.set_nodes(nodes);
        self.cidrs_touched |= changed;
        changed
    }

    /// Sets where pods are: until then nobody counts as one. They are reached also where a
    /// ServiceCIDR has their ranges. True if anything changed.
    pub fn set_pod_networks(&mut self, pods: PodNetworks) -> bool {
        // Which endpoints are on this node depends on its own.
        if self.surroundings.pods.own != pods.own {
            self.registry.touch_all();
        }
        let changed = self.surroundings.set_pods(pods);
        self.surroundings_touched |= changed;
        self.cidrs_touched |= changed;
        changed
    }

    /// Sets where this agent connects to when it reaches the API server, or the proxy before
    /// it. Only a cluster IP is served there. True if anything changed.
    pub fn set_api_servers(&mut self, servers: &BTreeSet<SocketAddr>) -> bool {
        let canonical = |at: &SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let servers = servers.iter().map(canonical).collect();
        let changed = self.surroundings.api_servers != servers;
        self.surroundings.api_servers = servers;
        changed
    }

    /// Whether the next plan is the first one, and everything is known that it needs: the
    /// moment for [`Self::take_over`].
    #[must_use]
    pub fn is_about_to_begin(&self) -> bool {
        !self.planned && self.missing().is_empty()
    }

    /// The first plan takes over what the numbers of an earlier run's plan mean, which is
    /// still in the kernel. After the first plan it is too late, and nothing happens.
    pub fn take_over(&mut self, known: KnownNumbers) {
        if !self.planned {
            self.compiled.take_over(known);
        }
    }

    /// Plans what has changed since the last plan.
    pub fn plan(&mut self) -> Step {
        let missing = self.missing();
        if !missing.is_empty() {
            return Step::Hold(missing);
        }
        let first = !std::mem::replace(&mut self.planned, true);
        self.compiled.settle();
        self.compiled.tables.delta = (!first).then(Delta::default);
        if std::mem::take(&mut self.surroundings_touched) {
            self.compiled
                .set_surroundings(&self.surroundings, &self.options);
        }
        self.reserve();
        for name in self.registry.take_touched() {
            let known = self.registry.get(&name);
            self.compiled.update(&name, known, &self.surroundings);
        }
        self.cidrs_touched |= self.compiled.find_api_servers();
        if std::mem::take(&mut self.cidrs_touched) {
            let cidrs = self.cidrs.objects().iter();
            let networks = self.compiled.service_networks(cidrs, &self.surroundings);
            self.compiled
                .set_service_networks(networks, &self.surroundings);
        }
        if first {
            self.compiled.settle_known();
        }
        match self.compiled.tables.delta.take() {
            None => Step::Full,
            Some(delta) if delta.is_empty() => Step::Unchanged,
            Some(delta) => Step::Delta(Box::new(delta)),
        }
    }

    /// Finds out what leads to the API server. The Services that are concerned are planned
    /// anew if it is something else than before.
    fn reserve(&mut self) {
        let networks = &self.compiled.tables.desired.node_port_networks;
        let now = Reserved::of(&self.surroundings, networks);
        if now == self.compiled.reserved {
            return;
        }
        let before = std::mem::replace(&mut self.compiled.reserved, now);
        let now = &self.compiled.reserved;
        let concerns = |spec: &Spec| before.concerns(spec) || now.concerns(spec);
        self.registry.touch_where(concerns);
    }

    pub(super) fn missing(&self) -> Vec<String> {
        let cidrs = (!self.cidrs.is_complete()).then_some(ServiceCidr::KINDS);
        let nodes = (!self.surroundings.complete).then_some(Node::KINDS);
        let missing = self.registry.missing().chain(cidrs).chain(nodes);
        missing.map(str::to_owned).collect()
    }

    /// The last plan.
    #[must_use]
    pub fn desired(&self) -> &Desired {
        &self.compiled.tables.desired
    }

    /// How many Services have frontends.
    #[must_use]
    pub fn services(&self) -> usize {
        self.registry.len()
    }

    /// How many Service ports the last plan drops flows to, for want of local endpoints.
    #[must_use]
    pub fn without_local(&self) -> WithoutLocal {
        self.compiled.without_local
    }

    /// What of the objects the last plan cannot represent.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        let contested = self.compiled.claims.contested();
        let contested = contested.map(Notice::Contested);
        let crowded = self.compiled.crowded.iter();
        let crowded = crowded.map(|(service, used)| Notice::Crowded(service.clone(), *used));
        let timeouts = self.compiled.other_timeouts.iter();
        let timeouts = timeouts.map(|(service, (wanted, given))| {
            Notice::OtherTimeout(service.clone(), *wanted, *given)
        });
        let overlaps = self.compiled.overlaps.iter().cloned();
        let refused = self.compiled.refused.iter();
        let refused = refused
            .map(|(name, (first, more))| Notice::Refused(name.clone(), first.clone(), *more));
        { contested.chain(crowded) }
            .chain(timeouts)
            .chain(overlaps.map(Notice::Overlap))
            .chain(refused)
            .collect()
    }
}
