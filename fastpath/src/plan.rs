//! What the fast path should be like. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnetwork::{IpNetwork, Ipv4Network, Ipv6Network};

use crate::hooks::{Hook, Place};
use crate::layout::{LINK_POD, LINK_UNDERLAY, LINK_VXLAN, MAX_RANGES};

/// What there is that flows can skip.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The indices of the node's ends of pods' links.
    pub pods: BTreeSet<u32>,
    /// The VXLAN device, where the underlay is IPv4.
    pub vxlan: Option<Vxlan>,
    /// The indices of the links by which packets of other nodes come.
    pub underlay: BTreeSet<u32>,
    /// Of these, the links of plain routes to other nodes.
    pub direct: BTreeSet<u32>,
    /// Pod CIDRs of other nodes, and how they are reached.
    pub nodes: BTreeMap<IpNetwork, Node>,
    /// Where flows that may be let in go to: pods, and Services. All else is left to the
    /// kernel at the first look.
    pub ranges: BTreeSet<IpNetwork>,
}

/// The VXLAN device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vxlan {
    /// Its index.
    pub link: u32,
    /// Network identifier.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// This node's address in the outer header.
    pub node: Ipv4Addr,
    /// The index of the link by which all other nodes are reached, if there is only one. It
    /// is needed where IPv4 is not forwarded.
    pub underlay: Option<u32>,
    /// Source ports of outer packets: the first, and the one after the last.
    pub source_ports: (u16, u16),
}

/// How another node is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// By VXLAN: its address, and the MAC of its device.
    Vxlan(Ipv4Addr, [u8; 6]),
    /// By a plain route over the link with this index.
    Direct(u32),
}

impl Plan {
    /// Where programs should be attached.
    #[must_use]
    pub fn places(&self) -> BTreeSet<Place> {
        let at = |hook: Hook| move |link: &u32| Place { hook, link: *link };
        let vxlan = self.vxlan.iter().map(|vxlan| &vxlan.link);
        (self.pods.iter().map(at(Hook::PodIn)))
            .chain(self.pods.iter().map(at(Hook::PodOut)))
            .chain(vxlan.map(at(Hook::VxlanOut)))
            .chain(self.underlay.iter().map(at(Hook::NicIn)))
            .chain(self.direct.iter().map(at(Hook::NicOut)))
            .collect()
    }

    /// The map `links`.
    pub(crate) fn kinds(&self) -> BTreeMap<u32, u32> {
        let vxlan = self.vxlan.iter().map(|vxlan| (vxlan.link, LINK_VXLAN));
        let direct = self.direct.iter().map(|link| (*link, LINK_UNDERLAY));
        let pods = self.pods.iter().map(|link| (*link, LINK_POD));
        direct.chain(vxlan).chain(pods).collect()
    }

    /// The ranges, as many as there is room for: if there are more, one for each family that
    /// has them all.
    pub(crate) fn few_ranges(&self) -> Vec<IpNetwork> {
        if self.ranges.len() <= MAX_RANGES {
            return self.ranges.iter().copied().collect();
        }
        let of = |is_ipv4: bool| {
            let mut all = self
                .ranges
                .iter()
                .filter(move |range| range.is_ipv4() == is_ipv4);
            let first = *all.next()?;
            Some(all.fold(first, |whole, one| covering(whole, *one)))
        };
        [of(true), of(false)].into_iter().flatten().collect()
    }
}

/// The smallest network that has two of one family.
fn covering(one: IpNetwork, other: IpNetwork) -> IpNetwork {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()) << 96,
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let differ = bits(one.network()) ^ bits(other.network());
    let common = u8::try_from(differ.leading_zeros()).unwrap_or(0);
    let prefix = common.min(one.prefix()).min(other.prefix());
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    let start = bits(one.network()) & mask;
    // The prefix is none that a network of this family could not have.
    match one {
        IpNetwork::V4(same) => {
            let start = Ipv4Addr::from_bits(u32::try_from(start >> 96).unwrap_or(0));
            Ipv4Network::new(start, prefix).unwrap_or(same).into()
        }
        IpNetwork::V6(same) => {
            let network = Ipv6Network::new(Ipv6Addr::from_bits(start), prefix);
            network.unwrap_or(same).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn networks(texts: &[&str]) -> BTreeSet<IpNetwork> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn many_ranges_become_one_for_each_family() {
        let mut plan = Plan {
            ranges: networks(&["10.244.0.0/16", "10.96.0.0/12", "fd00:1::/64"]),
            ..Plan::default()
        };
        assert_eq!(plan.few_ranges().len(), 3);
        let nodes = (0..200).map(|n| format!("10.244.{n}.0/24"));
        plan.ranges
            .extend(nodes.map(|text| text.parse::<IpNetwork>().unwrap()));
        let few: BTreeSet<IpNetwork> = plan.few_ranges().into_iter().collect();
        assert_eq!(few, networks(&["10.0.0.0/8", "fd00:1::/64"]));
        let mut far = networks(&["fd00::/64", "2001:db8::/32"]).into_iter();
        let all = covering(far.next().unwrap(), far.next().unwrap());
        assert_eq!(all.to_string(), "::/0");
    }

    #[test]
    fn each_link_has_the_programs_of_its_kind() {
        let plan = Plan {
            pods: [7, 8].into(),
            underlay: [2, 3].into(),
            direct: [3].into(),
            ..Plan::default()
        };
        let places: Vec<String> = plan.places().iter().map(Place::name).collect();
        let expected = ["pod_in-7", "pod_in-8", "pod_out-7", "pod_out-8"];
        let of_underlay = ["nic_in-2", "nic_in-3", "nic_out-3"];
        let mut expected: Vec<_> = expected.iter().chain(&of_underlay).collect();
        let mut names: Vec<_> = places.iter().map(String::as_str).collect();
        expected.sort();
        names.sort_unstable();
        assert!(names.iter().eq(expected.into_iter()), "{names:?}");
    }
}
