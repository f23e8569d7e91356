//! The frontends of one Service, and where each leads to.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use tweed_core::family::Family;

use super::super::table::claims::{Claim, Class};
use super::super::table::desired::{
    Endpoint, Frontend, Masquerade, NodePort, Number, PerScope, Target, Tracked,
};
use super::spec::{Port, Spec};

/// Where the frontends of a Service port lead to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Its cluster IPs.
    pub internal: Target,
    /// Its other frontends, from pods and from this node.
    pub external: Target,
    /// Its other frontends, from outside.
    pub outside: Target,
    /// The serving endpoints, if its flows are tracked.
    pub tracked: Option<Arc<BTreeSet<Endpoint>>>,
    /// How many endpoints one of its groups has, if there are more.
    pub crowded: Option<usize>,
}

/// How many Service ports have a traffic policy `Local` and endpoints on other nodes
/// only, counted once for each family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WithoutLocal {
    /// By `internalTrafficPolicy`.
    pub internal: u32,
    /// By `externalTrafficPolicy`.
    pub external: u32,
}

impl WithoutLocal {
    /// Those of one Service.
    pub fn of<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Self {
        let mut all = Self::default();
        for outcome in outcomes {
            all.internal += u32::from(outcome.internal == Target::Drop);
            all.external += u32::from(outcome.outside == Target::Drop);
        }
        all
    }

    /// One Service has `new` where it had `old`.
    pub fn exchange(&mut self, old: Self, new: Self) {
        self.internal = self.internal - old.internal + new.internal;
        self.external = self.external - old.external + new.external;
    }
}

/// The groups that a Service port can lead to.
#[derive(Debug, Clone, Copy)]
pub struct Available {
    /// Whether there is a usable endpoint anywhere.
    pub anywhere: bool,
    /// Whether there is one on this node.
    pub local: bool,
}

impl Outcome {
    /// Decides by the traffic policies, in a family: where the Service is not reached from
    /// outside in it, there is no policy for that. `groups` are those of the port that its
    /// frontends need: where one is missing, no frontend leads to it, and the flows of nobody
    /// are dropped.
    pub fn new(
        spec: &Spec,
        family: Family,
        groups: &PerScope<Option<Target>>,
        available: Available,
    ) -> Self {
        let by_policy = |is_local: bool| match available {
            Available {
                anywhere: false, ..
            } => Target::Reject,
            _ if !is_local => groups.cluster.unwrap_or(Target::Reject),
            Available { local: true, .. } => groups.local.unwrap_or(Target::Reject),
            Available { local: false, .. } => Target::Drop,
        };
        Self {
            internal: by_policy(spec.internal_local),
            external: by_policy(false),
            outside: by_policy(spec.external_local && spec.is_external(family)),
            tracked: None,
            crowded: None,
        }
    }

    /// That of a port for whose groups there was no number left: none of its endpoints is
    /// used.
    pub fn without_numbers(tracked: Option<Arc<BTreeSet<Endpoint>>>) -> Self {
        Self {
            internal: Target::Reject,
            external: Target::Reject,
            outside: Target::Reject,
            tracked,
            crowded: Some(0),
        }
    }

    /// What a frontend of this class is.
    pub fn claim(&self, spec: &Spec, class: Class, limit: Option<Number>) -> Claim {
        let tracked = self.tracked.clone();
        if class == Class::ClusterIp {
            return Claim {
                target: self.internal,
                outside: None,
                masquerade: None,
                limit: None,
                tracked,
            };
        }
        Claim {
            target: self.external,
            outside: (self.outside != self.external).then_some(self.outside),
            masquerade: Some(match spec.external_local {
                true => Masquerade::OwnNode,
                false => Masquerade::All,
            }),
            limit: limit.filter(|_| class != Class::NodePort),
            tracked,
        }
    }
}

/// The frontends of a port in a family.
pub fn frontends(
    spec: &Spec,
    family: Family,
    port: &Port,
) -> impl Iterator<Item = (Tracked, Class)> {
    let (protocol, number) = (port.protocol, port.port);
    let at = move |address: IpAddr| {
        Tracked::Address(Frontend {
            address,
            protocol,
            port: number,
        })
    };
    let all = [
        (&spec.cluster_ips, Class::ClusterIp),
        (&spec.load_balancer_ips, Class::LoadBalancer),
        (&spec.external_ips, Class::ExternalIp),
    ];
    let addresses = all.into_iter().flat_map(move |(addresses, class)| {
        let of_family = move |ip: &&IpAddr| Family::of(**ip) == family;
        let addresses = addresses.iter().filter(of_family);
        addresses.map(move |address| (at(*address), class))
    });
    let node_port = (port.node_port != 0).then_some(Tracked::NodePort(NodePort {
        family,
        protocol,
        port: port.node_port,
    }));
    addresses.chain(node_port.map(|key| (key, Class::NodePort)))
}
