//! Looks for other firewalls that drop what pods send or get, or the VXLAN packets of
//! the overlay.
//!
//! It writes nothing and runs after everything was written, so that no Node and
//! no pod waits for it. [`tweed_diagnosis`] reads and interprets the rules.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd};

use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::{Packets, Vxlan, iptables_legacy, nf_tables::Drops};
use tweed_netlink::{Error, nf::Membership};
use tweed_planner::overlay::desired::{Desired, Route};

use super::outcome::Outcome;
use super::schedule::{Due, ResyncTarget};

/// Names other firewalls' rules that drop forwarded packets, or the overlay's.
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
    pub fn inspect(&mut self, nftables: bool, plan: Option<&Desired>, due: Due) -> Outcome {
        let packets = plan.map(packets).unwrap_or_default();
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

/// The packets of a node with this plan.
fn packets(plan: &Desired) -> Packets {
    let vxlan = plan.vxlan.as_ref().map(|device| Vxlan {
        port: device.port,
        family: Family::of(device.local),
    });
    // With direct routes the first one is found at once, however many Nodes there are.
    let is_direct = |family: &Family| {
        plan.routes.iter().any(|(key, route)| {
            matches!(route, Route::Direct { .. }) && Family::of(key.destination.ip()) == *family
        })
    };
    Packets {
        pods: plan.forwarding.clone(),
        direct: plan.forwarding.iter().copied().filter(is_direct).collect(),
        vxlan,
    }
}

/// Rules of others cannot be read. What they drop is not known, but tweed's own
/// table is as planned.
fn unreadable(whose: &str, error: &dyn Display) -> Problem {
    Problem::new(
        ProblemKind::OtherTablesUnreadable,
        whose,
        format!(
            "whether other tables drop packets of pods or of the overlay is not known: {error}"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_planner::overlay::desired::RouteKey;

    #[test]
    fn packets_are_those_of_the_plan() {
        let cidr = |text: &str| text.parse::<ipnetwork::IpNetwork>().unwrap();
        let mut plan = Desired {
            forwarding: [Family::V4].into(),
            ..Desired::default()
        };
        let other = RouteKey::unreachable(cidr("fd00::/64"));
        plan.routes.insert(other, Route::Unreachable);
        assert_eq!(packets(&plan).pods, [Family::V4].into());
        assert_eq!(packets(&plan).direct, [].into());
        let direct = Route::Direct {
            gateway: [192, 0, 2, 2].into(),
            link: 2,
        };
        plan.routes
            .insert(RouteKey::to(cidr("10.244.2.0/24")), direct);
        assert_eq!(packets(&plan).direct, [Family::V4].into());
        plan.forwarding = [Family::V6].into();
        assert_eq!(packets(&plan).direct, [].into(), "no pod here has IPv4");
    }
}
