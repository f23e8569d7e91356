//! What a planner would desire, made by hand.

use std::net::{IpAddr, SocketAddr};

use tweed_core::family::Family;
use tweed_planner::services::desired::{
    Desired, Endpoint, FIRST_GROUP, FIRST_PART, Frontend, Frontends, GROUP_DISTANCE, Group, Holds,
    MAX_SLOTS, Masquerade, NodePort, Number, PORT_DISTANCE, Part, Scope, Span, Target,
};

pub const TCP: u8 = 6;
pub const UDP: u8 = 17;
pub const SCTP: u8 = 132;
pub const PROTOCOLS: [u8; 2] = [TCP, UDP];

/// The group number `n` of those without affinity: an even one is of [`Scope::Cluster`]. What
/// it holds is said by [`Plan::endpoints`].
pub const fn group(n: Number) -> Target {
    let (slots, holds) = (1, Holds::Endpoints);
    Target::Group(FIRST_GROUP + n * GROUP_DISTANCE, Group { slots, holds })
}

pub fn endpoint(address: IpAddr, port: u16) -> Endpoint {
    Endpoint { address, port }
}

pub fn span(first: &str, last: &str) -> Span {
    let [first, last] = [first, last].map(|address| address.parse().unwrap());
    Span { first, last }
}

/// A desired state that is built step by step.
#[derive(Debug, Clone, Default)]
pub struct Plan(pub Desired);

impl Plan {
    /// No Service yet, in a cluster with these networks of pods and Services.
    pub fn new() -> Self {
        Self(Desired {
            pod_networks: [
                span("10.244.0.0", "10.244.255.255"),
                span("fd00::", "fd00:0:0:ff:ffff:ffff:ffff:ffff"),
            ]
            .into(),
            local_cidrs: [
                span("10.244.1.0", "10.244.1.255"),
                span("fd00:0:0:1::", "fd00:0:0:1:ffff:ffff:ffff:ffff"),
            ]
            .into(),
            service_networks: [
                span("10.96.0.0", "10.96.255.255"),
                span("fd00:96::", "fd00:96::ffff"),
            ]
            .into(),
            ..Desired::default()
        })
    }

    /// A frontend at an address.
    pub fn at(mut self, protocol: u8, at: SocketAddr, target: Target) -> Self {
        let target = self.known(target);
        self.0
            .addresses
            .targets
            .insert(frontend(protocol, at), target);
        self
    }

    /// A frontend at a cluster IP.
    pub fn cluster_ip(mut self, protocol: u8, at: SocketAddr, target: Target) -> Self {
        self.0.cluster_ips.insert(at.ip());
        self.at(protocol, at, target)
    }

    /// Where a frontend leads to from outside.
    pub fn outside(mut self, protocol: u8, at: SocketAddr, target: Target) -> Self {
        let target = self.known(target);
        self.0
            .addresses
            .outside
            .insert(frontend(protocol, at), target);
        self
    }

    pub fn masquerade(mut self, protocol: u8, at: SocketAddr, of: Masquerade) -> Self {
        self.0
            .addresses
            .masquerade
            .insert(frontend(protocol, at), of);
        self
    }

    /// A node port, at all addresses of the node.
    pub fn node_port(mut self, family: Family, protocol: u8, port: u16, target: Target) -> Self {
        let networks = match family {
            Family::V4 => span("128.0.0.0", "223.255.255.255"),
            Family::V6 => span("2001::", "2001:ffff::"),
        };
        self.0.node_port_networks.insert(networks);
        let key = node_port(family, protocol, port);
        let target = self.known(target);
        self.0.node_ports.targets.insert(key, target);
        self
    }

    /// What differs for a node port from outside, and which of its flows are masqueraded.
    pub fn node_port_policy(
        mut self,
        key: NodePort,
        outside: Option<Target>,
        masquerade: Masquerade,
    ) -> Self {
        let targets = outside.map(|target| (key, self.known(target)));
        self.0.node_ports.outside.extend(targets);
        self.0.node_ports.masquerade.insert(key, masquerade);
        self
    }

    /// The endpoints of a group, of which there may be more than slots.
    pub fn endpoints(mut self, target: Target, endpoints: &[Endpoint]) -> Self {
        let group = number(target);
        let first_part = FIRST_PART + 100 * (group - FIRST_GROUP);
        self.spread(group, first_part, endpoints, Self::slots);
        self
    }

    /// Puts `all` into a group, or into parts of it, with numbers from `first_part` on, if they
    /// are more than slots.
    fn spread<T: Copy>(
        &mut self,
        group: Number,
        first_part: Number,
        all: &[T],
        put: impl Fn(&mut Self, Number, &[T]),
    ) {
        let most = usize::from(MAX_SLOTS);
        if all.len() <= most {
            put(self, group, all);
            return;
        }
        let parts = all.len().div_ceil(most);
        for part in 0..parts {
            let own: Vec<_> = all.iter().skip(part).step_by(parts).copied().collect();
            let number = first_part + GROUP_DISTANCE * u32::try_from(part).unwrap();
            put(self, number, &own);
            let index = u8::try_from(part).unwrap();
            let slots = u8::try_from(own.len()).unwrap();
            let part = Part {
                group: number,
                slots,
            };
            self.0.parts.insert((group, index), part);
        }
        self.group(group, parts, Holds::Parts);
    }

    fn group(&mut self, group: Number, slots: usize, holds: Holds) {
        let slots = u8::try_from(slots).unwrap();
        let shape = Group { slots, holds };
        self.0.groups.insert(group, shape);
        let Frontends {
            targets, outside, ..
        } = &mut self.0.addresses;
        let addresses = targets.values_mut().chain(outside.values_mut());
        let Frontends {
            targets, outside, ..
        } = &mut self.0.node_ports;
        let node_ports = targets.values_mut().chain(outside.values_mut());
        for target in addresses.chain(node_ports) {
            match target {
                Target::Group(of, known) if *of == group => *known = shape,
                _ => {}
            }
        }
    }

    /// A target, with what its group holds if that was said before.
    fn known(&self, target: Target) -> Target {
        let shape = |group| self.0.groups.get(&group).copied();
        match target {
            Target::Group(group, unknown) => Target::Group(group, shape(group).unwrap_or(unknown)),
            other => other,
        }
    }

    fn slots(&mut self, group: Number, endpoints: &[Endpoint]) {
        for (index, endpoint) in (0..).zip(endpoints) {
            self.0.slots.insert((group, index), *endpoint);
            self.0.hairpin.insert(endpoint.address);
            self.0.tcp_endpoints.insert(*endpoint);
        }
        self.group(group, endpoints.len(), Holds::Endpoints);
    }

    /// The endpoints of a group with affinity, of which there may be more than slots, each with
    /// its place among the numbers of the Service port.
    pub fn members(mut self, group: Number, timeout: u32, members: &[(Number, Endpoint)]) -> Self {
        let key = tweed_planner::services::desired::affinity_key(group);
        let mut numbers = Vec::new();
        for (place, endpoint) in members {
            let number = key + PORT_DISTANCE + place;
            self.0.endpoints.insert(number, *endpoint);
            self.0.members.get_mut(Scope::of(group)).insert(number);
            self.0.hairpin.insert(endpoint.address);
            self.0.tcp_endpoints.insert(*endpoint);
            numbers.push(number);
        }
        self.0.affinities.insert(group, timeout);
        self.spread(group, FIRST_PART, &numbers, |plan, group, own| {
            let slots = (0..)
                .zip(own)
                .map(|(index, number)| ((group, index), *number));
            plan.0.member_slots.extend(slots);
            plan.group(group, own.len(), Holds::Members);
        });
        self
    }
}

/// The number of the group that a target leads to.
pub fn number(target: Target) -> Number {
    target.group().unwrap()
}

pub fn frontend(protocol: u8, at: SocketAddr) -> Frontend {
    Frontend {
        address: at.ip(),
        protocol,
        port: at.port(),
    }
}

pub fn node_port(family: Family, protocol: u8, port: u16) -> NodePort {
    NodePort {
        family,
        protocol,
        port,
    }
}
