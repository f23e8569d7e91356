//! Claims that this machine cannot use, whatever the other nodes do with them: a
//! route or a neighbour made of one would be refused by the kernel, or would take
//! packets from where they have to go.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::family::Family;

use super::super::refusal::{Claim, Why};
use super::Decision;

impl<'a> Decision<'a, '_> {
    /// Refuses accepted claims that this machine cannot use.
    pub(super) fn refuse_locally(&mut self) {
        let rules = self.rules;
        for network in &rules.connected {
            self.compare_ranges(*network);
        }
        self.refuse_ranges_around_own_addresses();
        for ip in &rules.local {
            self.refuse_address(*ip, || Why::OfThisMachine);
        }
        for (ip, network) in &rules.edges {
            self.refuse_address(*ip, || Why::Edge(*network));
        }
    }

    /// Refuses ranges for which, or for a part of which, the kernel prefers the
    /// connected route of `network`. A range inside of a wider network works: its
    /// route is more specific, which is only reported.
    fn compare_ranges(&mut self, network: IpNetwork) {
        let inside = (self.ranges)
            .range(network.network()..=network.broadcast())
            .map(|(_, range)| *range);
        let overlapping: BTreeSet<(IpNetwork, &'a str)> =
            inside.chain(self.range_at(network.network())).collect();
        for (cidr, node) in overlapping {
            if cidr.prefix() > network.prefix() {
                self.verdict.around.insert(network);
            } else {
                self.refuse_range(node, cidr, Why::Connected(network));
            }
        }
    }

    fn refuse_ranges_around_own_addresses(&mut self) {
        let own = self.verdict.members.get(self.own).into_iter();
        let addresses: Vec<IpAddr> = own
            .flat_map(|member| member.addresses.values().copied())
            .collect();
        for ip in addresses {
            if let Some((cidr, node)) = self.range_at(ip) {
                let why = Why::CoversAddress(ip, self.own.to_owned());
                self.refuse_range(node, cidr, why);
            }
        }
    }

    fn refuse_range(&mut self, node: &str, cidr: IpNetwork, why: Why) {
        if let Some(member) = self.verdict.members.get_mut(node)
            && let Some(at) = member.pod_cidrs.iter().position(|c| *c == cidr)
        {
            member.pod_cidrs.remove(at);
            self.refuse(node, Claim::PodCidr(cidr.to_string()), why);
        }
    }

    /// Refuses the address of every Node but the own one.
    fn refuse_address(&mut self, ip: IpAddr, why: impl Fn() -> Why) {
        let shared = self.verdict.shared.get(&ip).cloned();
        let nodes =
            shared.unwrap_or_else(|| self.addresses.get(&ip).copied().into_iter().collect());
        let family = Family::of(ip);
        for node in nodes {
            if node != self.own
                && let Some(member) = self.verdict.members.get_mut(node)
                && member.addresses.get(&family) == Some(&ip)
            {
                member.addresses.remove(&family);
                self.refuse(node, Claim::Address(ip.to_string()), why());
            }
        }
    }
}
