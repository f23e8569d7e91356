//! Which flows of UDP conntrack has to forget, because they do not lead to an endpoint
//! that serves their Service. Pure.
//!
//! Rules see the first packet of a flow alone: conntrack keeps where it was sent, and each
//! further packet renews that. A client that goes on sending from one socket would never
//! reach another endpoint. Therefore a flow is *stale*
//!
//! 1. if its first packet was sent to a frontend of UDP ([`Desired::tracked`]), or to a
//!    node port at an address that has node ports, and its answers come from none of the
//!    serving endpoints: the endpoint is gone or has another port, or the flow came
//!    before there was the frontend and so was not translated at all;
//! 2. if that frontend is gone ([`Former`]), and the answers come from an endpoint that
//!    it had. Of a Service that was deleted while no agent ran, the kernel's elements say
//!    both until the first plan is written: they are what translated its flows;
//! 3. if it was sent to an address that only Services have, and translated, though no
//!    Service has that address and port: whatever its frontend was.
//!
//! All others are somebody else's: among them, whatever they were before, those that were
//! sent to a frontend of a Service that another proxy serves ([`Desired::untracked`]), or
//! that has moved to it. What says that a flow is sound is only what serves now,
//! so a planner that has just started finds the same as one that has run for long. An
//! endpoint that serves is one to which flows are sent, or which ends and still serves;
//! which of them are chosen for new flows does not count, nor do traffic policies, so
//! that flows stay where they are while Services are edited. Here kube-proxy leaves out
//! endpoints that are only published because the Service wants those that are not ready
//! too, although it sends flows to them.
//!
//! TCP and SCTP have connections: one whose endpoint is gone ends by its own means, and one
//! whose endpoint is only not ready goes on. To forget such a flow would end it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::keyed::Delta as KeyedDelta;

use super::table::desired::{
    Delta, Desired, Endpoint, Frontend, NodePort, Number, Span, Tracked, both_scopes,
};
use crate::addresses::within;
use crate::protocols::UDP;

/// The protocol whose flows are judged: UDP.
pub const PROTOCOL: u8 = UDP;

/// What counts of a flow of UDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Where its first packet was sent.
    pub destination: Endpoint,
    /// Where its answers come from. Another one than the destination if that was
    /// translated.
    pub answered_by: Endpoint,
}

/// What a change of the plan does to flows that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum FlowEffect {
    /// Nothing: the [`Judge`] of the plan before it judges as that of the plan after it.
    #[default]
    None,
    /// It makes none stale, but some that come by it are stale by the plan before it: an
    /// endpoint has come.
    Spares,
    /// Some may be stale by it.
    Ends,
}

/// The endpoints of frontends that were changed or removed, as they were.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Former(BTreeMap<Tracked, BTreeSet<Endpoint>>);

impl Former {
    /// What `desired`, the first plan, has no more of the frontends of UDP that are in the
    /// kernel from an earlier run. `earlier` are these, with the groups that they lead to,
    /// and `endpoints` reads which endpoints a group of a family has in the kernel.
    ///
    /// # Errors
    /// Endpoints cannot be read.
    pub fn of_earlier_run<E>(
        earlier: &BTreeMap<Tracked, Number>,
        desired: &Desired,
        mut endpoints: impl FnMut(Family, Number) -> Result<BTreeSet<Endpoint>, E>,
    ) -> Result<Self, E> {
        let mut former = Self::default();
        let gone = |frontend: &Tracked| !desired.tracked.contains_key(frontend);
        for (frontend, group) in earlier.iter().filter(|(frontend, _)| gone(frontend)) {
            let had = former.0.entry(*frontend).or_default();
            for group in both_scopes(*group) {
                had.extend(endpoints(frontend.family(), group)?);
            }
        }
        Ok(former)
    }

    /// Adds what a change of the plan removes. Returns what the change does to flows.
    pub fn note(&mut self, delta: &Delta) -> FlowEffect {
        let KeyedDelta { removed, added } = &delta.tracked;
        let mut effect = match removed.is_empty() && added.is_empty() {
            true => FlowEffect::None,
            false => FlowEffect::Spares,
        };
        for (frontend, endpoints) in removed {
            let stay = added.get(frontend);
            if stay.is_none_or(|stay| !endpoints.is_subset(stay)) {
                self.0.entry(*frontend).or_default().extend(&**endpoints);
                effect = FlowEffect::Ends;
            }
        }
        // Who sent to a frontend that had no endpoint was rejected or dropped; who sent there
        // before it was one was not.
        let is_new = |frontend| !removed.contains_key(frontend);
        if added.keys().any(is_new)
            || !delta.node_port_networks.is_empty()
            || !delta.node_port_exceptions.is_empty()
            || !delta.service_networks.is_empty()
            || !delta.foreign.is_empty()
            || !delta.untracked.is_empty()
        {
            effect = FlowEffect::Ends;
        }
        effect
    }

    /// Adds all of another one.
    pub fn extend(&mut self, other: &Self) {
        for (frontend, endpoints) in &other.0 {
            self.0.entry(*frontend).or_default().extend(endpoints);
        }
    }

    /// How many endpoints there are, each counted for each of its frontends.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.values().map(BTreeSet::len).sum()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The endpoints, each with its frontend.
    pub fn endpoints(&self) -> impl Iterator<Item = (Tracked, Endpoint)> {
        self.0.iter().flat_map(|(frontend, endpoints)| {
            let endpoints = endpoints.iter();
            endpoints.map(|endpoint| (*frontend, *endpoint))
        })
    }
}

impl FromIterator<(Tracked, Endpoint)> for Former {
    fn from_iter<T: IntoIterator<Item = (Tracked, Endpoint)>>(endpoints: T) -> Self {
        let mut former = Self::default();
        for (frontend, endpoint) in endpoints {
            former.0.entry(frontend).or_default().insert(endpoint);
        }
        former
    }
}

/// Says which flows are stale: all that it needs of a plan, so that it can judge while the
/// planner goes on.
#[derive(Debug, Clone)]
pub struct Judge {
    tracked: BTreeMap<Tracked, Arc<BTreeSet<Endpoint>>>,
    former: Former,
    /// The addresses of this node, if they are known.
    local: Option<BTreeSet<IpAddr>>,
    /// Those at which node ports are.
    node_port_addresses: Option<BTreeSet<IpAddr>>,
    service_networks: BTreeSet<Span>,
    foreign: BTreeSet<IpAddr>,
    untracked: BTreeSet<Tracked>,
}

impl Judge {
    /// By a plan that is in force, on a machine with these addresses, after frontends were
    /// changed or removed. Without addresses no flow is stale that may be one to a node port.
    #[must_use]
    pub fn new(
        desired: &Desired,
        addresses: Option<impl IntoIterator<Item = IpAddr>>,
        former: Former,
    ) -> Self {
        let has_node_ports = |address: &IpAddr| {
            within(&desired.node_port_networks, *address)
                && !desired.node_port_exceptions.contains(address)
        };
        let local: Option<BTreeSet<IpAddr>> = addresses.map(|all| all.into_iter().collect());
        let at = |local: &BTreeSet<IpAddr>| {
            let at = local.iter().filter(|address| has_node_ports(address));
            at.copied().collect()
        };
        Self {
            tracked: desired.tracked.clone(),
            former,
            node_port_addresses: local.as_ref().map(at),
            local,
            service_networks: desired.service_networks.clone(),
            foreign: desired.foreign.clone(),
            untracked: desired.untracked.clone(),
        }
    }

    /// Whether flows of UDP over a family may be stale.
    #[must_use]
    pub fn concerns(&self, family: Family) -> bool {
        let mut frontends = self.tracked.keys().chain(self.former.0.keys());
        let mut networks = self.service_networks.iter();
        frontends.any(|frontend| frontend.family() == family)
            || networks.any(|span| Family::of(span.first) == family)
    }

    /// Whether a flow of UDP is stale.
    #[must_use]
    pub fn is_stale(&self, flow: &Flow) -> bool {
        let Endpoint { address, port } = flow.destination;
        let at_address = Tracked::Address(Frontend {
            address,
            protocol: PROTOCOL,
            port,
        });
        let node_port = Tracked::NodePort(NodePort {
            family: Family::of(address),
            protocol: PROTOCOL,
            port,
        });
        let own = self.node_port_addresses.as_ref();
        let has_node_ports = own.map(|own| own.contains(&address));
        let at_node_port = has_node_ports.unwrap_or(false).then_some(node_port);
        let frontends = || std::iter::once(at_address).chain(at_node_port);
        // The rules look addresses up before node ports.
        let serving = frontends().find_map(|frontend| self.tracked.get(&frontend));
        if let Some(serving) = serving {
            return !serving.contains(&flow.answered_by);
        }
        if flow.destination == flow.answered_by || self.foreign.contains(&address) {
            return false;
        }
        if frontends().any(|frontend| self.untracked.contains(&frontend)) {
            return false;
        }
        // It may be one to the node port, whatever else had its address.
        if has_node_ports.is_none() && self.tracked.contains_key(&node_port) {
            return false;
        }
        let had = |frontend| {
            let endpoints = self.former.0.get(&frontend);
            endpoints.is_some_and(|endpoints| endpoints.contains(&flow.answered_by))
        };
        let is_local = || {
            self.local
                .as_ref()
                .is_some_and(|all| all.contains(&address))
        };
        frontends().any(had) || (within(&self.service_networks, address) && !is_local())
    }
}
