//! Looks for other firewalls that drop what pods send or get, or the VXLAN packets of
//! the overlay, or that translate flows between pods.
//!
//! It writes nothing and runs after everything was written, so that no Node and
//! no pod waits for it. [`tweed_diagnosis`] reads and interprets the rules.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd};

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::{Flow, FlowLink, Packets, Vxlan, iptables_legacy, nf_tables::Drops};
use tweed_netlink::{Error, nf::Membership};
use tweed_planner::overlay::desired::{Desired, Route};

use super::kernel::mirror::Mirror;
use super::outcome::Outcome;
use super::schedule::{Due, ResyncTarget};

/// Names other firewalls' rules that drop forwarded packets or the overlay's, or translate
/// those between pods.
#[derive(Default)]
pub struct FirewallInspector {
    /// The rules of other nftables tables; none until they could be opened.
    nftables: Option<Drops>,
    /// What iptables-legacy drops, as last read. Its changes have no
    /// notification, and all its rules have to be read, so that is rare.
    legacy: Vec<Problem>,
    /// The packets that it was asked about.
    packets: Packets,
}

impl FirewallInspector {
    /// Readable when there are notifications; none before the first inspection.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.nftables.as_ref().map(AsFd::as_fd)
    }

    /// The membership of what listens to nf_tables; none before the first inspection.
    pub fn membership(&self) -> Option<Membership> {
        self.nftables.as_ref().map(Drops::membership)
    }

    /// Reads the notifications that have come, and says whether there is
    /// anything to inspect.
    pub fn has_changes(&mut self) -> bool {
        let changed = |drops: &mut Drops| drops.drain_notifications().unwrap_or(true);
        self.nftables.as_mut().is_some_and(changed)
    }

    /// Reads the rules of other nftables tables where they have changed, if
    /// `nftables` says so, and those of iptables-legacy when they are due, or the packets
    /// are others. Which these are, the plan says; until there is one, there are none.
    pub fn inspect(
        &mut self,
        nftables: bool,
        plan: Option<&Desired>,
        mirror: &Mirror,
        due: Due,
    ) -> Outcome {
        let packets = plan.map(|plan| packets(plan, mirror)).unwrap_or_default();
        let mut outcome = Outcome::default();
        if nftables {
            match self.nftables(&packets) {
                Ok(drops) => outcome.problems.extend_from_slice(drops),
                Err(error) => outcome.fail(unreadable("nf_tables", &error)),
            }
        }
        if due.has(ResyncTarget::ForeignRules) || self.packets != packets {
            self.legacy = iptables_legacy::drops(&packets)
                .unwrap_or_else(|error| vec![unreadable("iptables-legacy", &error)]);
            self.packets = packets;
        }
        outcome.problems.extend_from_slice(&self.legacy);
        outcome
    }

    fn nftables(&mut self, packets: &Packets) -> Result<&[Problem], Error> {
        match &mut self.nftables {
            Some(drops) => drops.problems(packets),
            empty => empty.insert(Drops::open()?).problems(packets),
        }
    }
}

/// The packets of a node with this plan and these links.
fn packets(plan: &Desired, mirror: &Mirror) -> Packets {
    let vxlan = plan.vxlan.as_ref().map(|device| Vxlan {
        port: device.port,
        family: Family::of(device.local),
    });
    let device = plan.vxlan.as_ref().map(|device| {
        let index = mirror.link(&device.name).map(|link| link.index);
        FlowLink::other(&device.name, index.unwrap_or_default())
    });
    let (mut direct, mut flows) = (BTreeSet::new(), Vec::new());
    for family in &plan.forwarding {
        let is_of = |range: &IpNetwork| Family::of(range.ip()) == *family;
        // The first of each kind is found at once where all are of it, however many Nodes
        // there are.
        let first = |link: &dyn Fn(&Route) -> Option<FlowLink>| {
            let routes = plan
                .routes
                .iter()
                .filter(|(key, _)| is_of(&key.destination));
            let mut peers = routes.filter_map(|(key, route)| Some((key.destination, link(route)?)));
            peers.next()
        };
        let over = first(&|route| device.filter(|_| matches!(route, Route::Overlay { .. })));
        let near = first(&|route| match route {
            Route::Direct { link, .. } => Some(FlowLink::other(mirror.link_name(*link), *link)),
            Route::Overlay { .. } | Route::Unreachable => None,
        });
        direct.extend(near.map(|_| *family));
        let ranges = &plan.ruleset.cluster_cidrs;
        for own in plan.ruleset.local_cidrs.iter().filter(|own| is_of(own)) {
            let own = (*own, FlowLink::Pod);
            flows.push(Flow::between(own, own, ranges));
            for peer in [over, near].into_iter().flatten() {
                flows.push(Flow::between(own, peer, ranges));
                flows.push(Flow::between(peer, own, ranges));
            }
        }
    }
    Packets {
        pods: plan.forwarding.clone(),
        direct,
        vxlan,
        flows,
    }
}

/// Rules of others cannot be read. What they drop is not known, but tweed's own
/// table is as planned.
fn unreadable(whose: &str, error: &dyn Display) -> Problem {
    Problem::new(
        ProblemKind::OtherTablesUnreadable,
        whose,
        format!(
            "whether other tables drop packets of pods or of the overlay, or translate those \
             between pods, is not known: {error}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_netlink::link::Link;
    use tweed_planner::overlay::desired::RouteKey;

    #[test]
    fn packets_are_those_of_the_plan() {
        let cidr = |text: &str| text.parse::<ipnetwork::IpNetwork>().unwrap();
        let mut plan = Desired {
            forwarding: [Family::V4].into(),
            ..Desired::default()
        };
        let own = cidr("10.244.1.0/24");
        plan.ruleset.local_cidrs = [own, cidr("fd00:0:0:1::/64")].into();
        let other = RouteKey::unreachable(cidr("fd00::/64"));
        plan.routes.insert(other, Route::Unreachable);
        let mut mirror = Mirror::default();
        let name = "eth0".to_owned();
        let uplink = Link {
            index: 2,
            name,
            ..Link::default()
        };
        mirror.set_links([(2, uplink)].into());
        let asked = packets(&plan, &mirror);
        let (own, ranges) = ((own, FlowLink::Pod), BTreeSet::new());
        assert_eq!(asked.pods, [Family::V4].into());
        assert_eq!(asked.direct, [].into());
        assert_eq!(asked.flows, [Flow::between(own, own, &ranges)]);
        for node in [2, 3] {
            let direct = Route::Direct {
                gateway: [192, 0, 2, node].into(),
                link: 2,
            };
            let range = cidr(&format!("10.244.{node}.0/24"));
            plan.routes.insert(RouteKey::to(range), direct);
        }
        let peer = (cidr("10.244.2.0/24"), FlowLink::other("eth0", 2));
        let flows = [(own, own), (own, peer), (peer, own)]
            .map(|(from, to)| Flow::between(from, to, &ranges));
        let asked = packets(&plan, &mirror);
        assert_eq!(asked.direct, [Family::V4].into());
        assert_eq!(asked.flows, flows);
        plan.forwarding = [Family::V6].into();
        let asked = packets(&plan, &mirror);
        assert_eq!(asked.direct, [].into(), "no pod here has IPv4");
        assert_eq!(asked.flows.len(), 1, "from its pod CIDR to itself");
    }
}
