//! Which flows conntrack has to forget, because they do not lead to an endpoint that serves
//! their Service. Pure.
//!
//! Rules see the first packet of a flow alone: conntrack keeps where it was sent, and each
//! further packet renews that. A client that goes on sending from one socket would never
//! reach another endpoint. Therefore a flow of UDP is *stale*
//!
//! 1. if its first packet was sent to a frontend of UDP ([`Desired::tracked`]), or to a
//!    node port at an address that has node ports, and its answers come from none of the
//!    serving endpoints: the endpoint is gone or has another port, or the flow came
//!    before there was the frontend and so was not translated at all;
//! 2. if that frontend is gone ([`PastFrontends`]), and the answers come from an endpoint that
//!    it had. Of a Service that was deleted while no agent ran, the kernel's elements say
//!    both before the first plan: they are what translated its flows;
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
//! whose endpoint is only not ready goes on. To forget such a flow would end it. But one that
//! nobody has answered yet is no connection, and a client that tries again from the same port
//! goes on with it. It is stale if it was not translated, and was sent to where a frontend has
//! come since ([`PastFrontends`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;
use tweed_core::keyed::Delta as KeyedDelta;

use super::table::desired::{Delta, Desired, Endpoint, Frontend, NodePort, Span, Target, Tracked};
use crate::addresses::within;
use crate::protocols::UDP;

pub use crate::protocols::PROTOCOLS;

/// The protocol without connections: UDP.
pub const PROTOCOL: u8 = UDP;

/// What counts of a flow. Of other protocols than UDP it is one that nobody has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The number of its protocol.
    pub protocol: u8,
    /// Where its first packet was sent.
    pub destination: Endpoint,
    /// Where its answers come from, or would. Another one than the destination if that was
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

/// Where flows to frontends may have been sent before these were changed: to an endpoint that a
/// frontend of UDP had or, for none, to nobody else than its own address, where a frontend of
/// another protocol has come.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PastFrontends(BTreeSet<(Tracked, Option<Endpoint>)>);

impl PastFrontends {
    /// What `desired`, the first plan, has no more of the frontends of UDP that the kernel had
    /// from an earlier run. `earlier` are these, with their endpoints.
    pub fn of_last_run(earlier: &BTreeMap<Tracked, Vec<Endpoint>>, desired: &Desired) -> Self {
        let mut past = Self::default();
        for (frontend, endpoints) in earlier {
            if !desired.tracked.contains_key(frontend) {
                past.add(*frontend, endpoints.iter().copied());
            }
        }
        past
    }

    /// Adds that endpoints were those of a frontend.
    fn add(&mut self, frontend: Tracked, endpoints: impl IntoIterator<Item = Endpoint>) {
        let of_frontend = |endpoint| (frontend, Some(endpoint));
        self.0.extend(endpoints.into_iter().map(of_frontend));
    }

    /// Adds frontends that have come, as far as their protocol has connections. Whether there
    /// are any.
    fn add_new(&mut self, frontends: impl Iterator<Item = Tracked>) -> bool {
        let mut connected = frontends.filter(|at| at.protocol() != UDP).peekable();
        let any = connected.peek().is_some();
        self.0.extend(connected.map(|at| (at, None)));
        any
    }

    /// Adds all frontends of a first plan: any of them may have come with it.
    pub fn note_first(&mut self, desired: &Desired) {
        let addresses = desired.addresses.targets.keys().copied();
        let node_ports = desired.node_ports.targets.keys().copied();
        let all = { addresses.map(Tracked::Address) }.chain(node_ports.map(Tracked::NodePort));
        self.add_new(all);
    }

    /// Adds what a change of the plan, which is `desired` now, removes, and the frontends that
    /// come. Returns what the change does to flows.
    pub fn note(&mut self, delta: &Delta, desired: &Desired) -> FlowEffect {
        let KeyedDelta { removed, added } = &delta.tracked;
        let mut effect = if removed.is_empty() && added.is_empty() {
            FlowEffect::None
        } else {
            FlowEffect::Spares
        };
        for (frontend, endpoints) in removed {
            let stay = added.get(frontend);
            if stay.is_none_or(|stay| !endpoints.is_subset(stay)) {
                self.add(*frontend, endpoints.iter().copied());
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
        // Node ports come with the addresses that have them, too.
        let get_node_ports = !delta.node_port_networks.added.is_empty()
            || !delta.node_port_exceptions.removed.is_empty();
        let keys = desired.node_ports.targets.keys().copied();
        let all = keys.filter(|_| get_node_ports).map(Tracked::NodePort);
        let addresses = new_in(&delta.addresses.targets).map(Tracked::Address);
        let node_ports = new_in(&delta.node_ports.targets).map(Tracked::NodePort);
        if self.add_new(addresses.chain(node_ports).chain(all)) {
            effect = FlowEffect::Ends;
        }
        effect
    }

    /// Adds all of another one.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }

    /// How many frontends and endpoints there are, each endpoint counted for each of its
    /// frontends.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The frontends, each with an endpoint or none.
    pub fn iter(&self) -> impl Iterator<Item = (Tracked, Option<Endpoint>)> {
        self.0.iter().copied()
    }
}

/// The frontends that a change adds.
fn new_in<K: Ord + Copy>(targets: &KeyedDelta<K, Target>) -> impl Iterator<Item = K> {
    let KeyedDelta { removed, added } = targets;
    let keys = added.keys().copied();
    keys.filter(move |key| !removed.contains_key(key))
}

impl FromIterator<(Tracked, Option<Endpoint>)> for PastFrontends {
    fn from_iter<T: IntoIterator<Item = (Tracked, Option<Endpoint>)>>(all: T) -> Self {
        Self(all.into_iter().collect())
    }
}

/// Says which flows are stale: all that it needs of a plan, so that it can judge while the
/// planner goes on.
#[derive(Debug, Clone)]
pub struct Judge {
    tracked: BTreeMap<Tracked, Arc<BTreeSet<Endpoint>>>,
    past: PastFrontends,
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
        past: PastFrontends,
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
            past,
            node_port_addresses: local.as_ref().map(at),
            local,
            service_networks: desired.service_networks.clone(),
            foreign: desired.foreign.clone(),
            untracked: desired.untracked.clone(),
        }
    }

    /// Whether flows of a protocol over a family may be stale.
    #[must_use]
    pub fn concerns(&self, protocol: u8, family: Family) -> bool {
        let past = self.past.0.iter().map(|(frontend, _)| frontend);
        let mut frontends = self.tracked.keys().chain(past);
        let mut networks = self.service_networks.iter().filter(|_| protocol == UDP);
        frontends.any(|at| at.protocol() == protocol && at.family() == family)
            || networks.any(|span| Family::of(span.first) == family)
    }

    /// Whether a flow is stale.
    #[must_use]
    pub fn is_stale(&self, flow: &Flow) -> bool {
        let Flow {
            protocol,
            destination: Endpoint { address, port },
            ..
        } = *flow;
        let at_address = Tracked::Address(Frontend {
            address,
            protocol,
            port,
        });
        let node_port = Tracked::NodePort(NodePort {
            family: Family::of(address),
            protocol,
            port,
        });
        let own = self.node_port_addresses.as_ref();
        let has_node_ports = own.map(|own| own.contains(&address));
        let at_node_port = has_node_ports.unwrap_or(false).then_some(node_port);
        let frontends = || std::iter::once(at_address).chain(at_node_port);
        let translated = flow.answered_by != flow.destination;
        let sent_to = translated.then_some(flow.answered_by);
        let had = |frontend| self.past.0.contains(&(frontend, sent_to));
        if protocol != UDP {
            return frontends().any(had);
        }
        // The rules look addresses up before node ports.
        let serving = frontends().find_map(|frontend| self.tracked.get(&frontend));
        if let Some(serving) = serving {
            return !serving.contains(&flow.answered_by);
        }
        if !translated || self.foreign.contains(&address) {
            return false;
        }
        if frontends().any(|frontend| self.untracked.contains(&frontend)) {
            return false;
        }
        // It may be one to the node port, whatever else had its address.
        if has_node_ports.is_none() && self.tracked.contains_key(&node_port) {
            return false;
        }
        let is_local = || {
            self.local
                .as_ref()
                .is_some_and(|all| all.contains(&address))
        };
        frontends().any(had) || (within(&self.service_networks, address) && !is_local())
    }
}
