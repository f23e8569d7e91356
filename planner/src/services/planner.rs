//! The planner of Services: takes the events of watches in, and says what the sets and
//! maps of the kernel should hold.
//!
//! What always holds:
//! - a delta applied to the desired state before it is the desired state after it;
//! - an endpoint that comes or goes costs the planning of its Service's ports, and a bounded
//!   number of elements for each frontend that leads to it;
//! - a plan takes up a bounded number of endpoints, or one port, but for the first one: nobody
//!   waits for a Service that has very many of both;
//! - a number that becomes free in a change is not given out again in it;
//! - nothing is planned before Services, EndpointSlices, ServiceCIDRs and the own Node are
//!   all known.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use ipnetwork::IpNetwork;
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::node::Node;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Object, ObjectKey};

use super::model::Model;
use super::model::claims::Conflict;
use super::model::options::Options;
use super::model::refusal::Refused;
use super::model::service::WithoutLocal;
use super::model::surroundings::{Overlap, PodNetworks};
use super::model::value::ServiceName;
use super::table::desired::{Delta, Desired};
use super::table::{KnownNumbers, Table};

/// How the plan of now differs from the last one, which is
/// [`ServicePlanner::desired`].
pub type Step = tweed_component::Step<Delta>;

/// What of the objects cannot be represented as it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Several Services claim a frontend; the first one has it.
    Conflict(Conflict),
    /// A Service has so many endpoints that some are never used: how many are.
    TooManyEndpoints(Arc<ServiceName>, usize),
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
    pub(super) model: Model,
    pub(super) table: Table,
    /// Whether a plan was made.
    pub(super) planned: bool,
}

impl ServicePlanner {
    /// A planner that knows nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            model: Model::new(options),
            table: Table::default(),
            planned: false,
        }
    }

    /// Takes an event of the watch of Services in. True if anything changed.
    pub fn apply_services(&mut self, event: Event<Service>) -> bool {
        self.model.registry.apply_services(event)
    }

    /// Takes an event of the watch of EndpointSlices in. True if anything changed.
    pub fn apply_endpoint_slices(&mut self, event: Event<EndpointSlice>) -> bool {
        self.model.registry.apply_slices(event)
    }

    /// Takes an event of the watch of ServiceCIDRs in. True if anything changed. Where
    /// the API server does not have them, a list without objects is to be given.
    pub fn apply_service_cidrs(&mut self, event: Event<ServiceCidr>) -> bool {
        let changed = self.model.cidrs.apply(event);
        self.model.cidrs_touched |= changed;
        changed
    }

    /// Where the API server takes cluster IPs from, as far as it says so in ServiceCIDRs.
    pub fn cluster_ips(&self) -> impl Iterator<Item = IpNetwork> {
        let cidrs = self.model.cidrs.objects().values();
        let texts = cidrs.flat_map(|cidr| cidr.cidrs.iter());
        texts.filter_map(|text| text.parse().ok())
    }

    /// Sets the Node that this machine is. True if anything changed.
    pub fn set_node(&mut self, node: Option<&Node>) -> bool {
        let zone = self.model.surroundings.own.zone.clone();
        let changed = self.model.surroundings.set_node(node);
        self.model.surroundings_touched |= changed;
        if self.model.surroundings.own.zone != zone {
            self.model.registry.touch_all();
        }
        changed
    }

    /// Sets all Nodes: their addresses are reached also where a ServiceCIDR has them. True if
    /// anything changed.
    pub fn set_nodes<'a>(&mut self, nodes: impl IntoIterator<Item = &'a Node>) -> bool {
        let changed = self.model.surroundings.set_nodes(nodes);
        self.model.cidrs_touched |= changed;
        changed
    }

    /// Sets where pods are: until then nobody counts as one. They are reached also where a
    /// ServiceCIDR has their ranges. True if anything changed.
    pub fn set_pod_networks(&mut self, pods: PodNetworks) -> bool {
        // Which endpoints are on this node depends on its own.
        if self.model.surroundings.pods.own != pods.own {
            self.model.registry.touch_all();
        }
        let changed = self.model.surroundings.set_pods(pods);
        self.model.surroundings_touched |= changed;
        self.model.cidrs_touched |= changed;
        changed
    }

    /// Sets where this agent connects to when it reaches the API server, or the proxy before
    /// it. Only a cluster IP is served there. True if anything changed.
    pub fn set_api_servers(&mut self, servers: &BTreeSet<SocketAddr>) -> bool {
        let canonical = |at: &SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let new = servers.iter().map(canonical).collect();
        let changed = self.model.surroundings.api_servers != new;
        self.model.surroundings.api_servers = new;
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
            self.table.take_over(known);
        }
    }

    /// Plans what has changed since the last plan.
    pub fn plan(&mut self) -> Step {
        let missing = self.missing();
        if !missing.is_empty() {
            return Step::Hold(missing);
        }
        let first = !std::mem::replace(&mut self.planned, true);
        self.table.begin(first);
        let Self { model, table, .. } = self;
        if model.begin() {
            table.set_surroundings(model);
        }
        model.queue.begin();
        for (name, touched) in model.registry.take_touched() {
            let units = model.units(&name, touched);
            if first {
                let mut all = usize::MAX;
                let change = model.update(name, units, &mut all);
                table.update(model, change);
            } else {
                model.put_back(name, units);
            }
        }
        let mut left = model.queue.limit;
        while left > 0
            && let Some((name, units)) = model.queue.pop()
        {
            let change = model.update(name, units, &mut left);
            table.update(model, change);
        }
        if model.find_networks() {
            table.set_networks(model);
        }
        table.end()
    }

    pub(super) fn missing(&self) -> Vec<String> {
        let cidrs = (!self.model.cidrs.is_complete()).then_some(ServiceCidr::KINDS);
        let nodes = (!self.model.surroundings.complete).then_some(Node::KINDS);
        let missing = self.model.registry.missing().chain(cidrs).chain(nodes);
        missing.map(str::to_owned).collect()
    }

    /// How many Services have changed and wait for their turn, in part or whole: the next plan
    /// goes on with them.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.model.queue.len()
    }

    /// Whether a Service is one of them.
    #[must_use]
    pub fn waits(&self, service: &ObjectKey) -> bool {
        self.model.queue.has(&ServiceName {
            namespace: service.namespace.as_str().into(),
            name: service.name.as_str().into(),
        })
    }

    /// The last plan.
    #[must_use]
    pub fn desired(&self) -> &Desired {
        self.table.desired()
    }

    /// How many Services have frontends.
    #[must_use]
    pub fn services(&self) -> usize {
        self.model.registry.len()
    }

    /// How many Service ports the last plan drops flows to, for want of local endpoints.
    #[must_use]
    pub fn without_local(&self) -> WithoutLocal {
        self.model.without_local
    }

    /// What of the objects the last plan cannot represent.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        let (model, table) = (&self.model, &self.table);
        let conflicts = model.claims.conflicts().map(Notice::Conflict);
        let all = table.too_many.iter();
        let too_many = all.map(|(service, used)| Notice::TooManyEndpoints(service.clone(), *used));
        let other_timeouts = table.other_timeouts.iter();
        let timeouts = other_timeouts.map(|(service, (wanted, given))| {
            Notice::OtherTimeout(service.clone(), *wanted, *given)
        });
        let overlaps = model.networks.overlaps.iter().cloned();
        let refused = model.refused.iter();
        let refusals = refused
            .map(|(name, (first, more))| Notice::Refused(name.clone(), first.clone(), *more));
        { conflicts.chain(too_many) }
            .chain(timeouts)
            .chain(overlaps.map(Notice::Overlap))
            .chain(refusals)
            .collect()
    }
}
