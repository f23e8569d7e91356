//! Sets of protocols and destination ports, and what a rule says of them.

use std::borrow::Cow;
use std::hash::{Hash, Hasher};

use tweed_core::object::pod::NamedPort;

use crate::protocols::{PROTOCOLS, protocol_number};

/// Ports of one protocol: ranges in ascending order that neither overlap nor touch.
type Ranges = Vec<(u16, u16)>;

/// Whether a range has so few ports that each is an element of its own: the kernel finds a range
/// that goes by a look through all ranges, and a port at once.
pub fn is_narrow(first: u16, last: u16) -> bool {
    last - first < 8
}

/// A set of protocols and destination ports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct PortSet {
    /// Whether all protocols without ports are in it: ICMP and the others.
    others: bool,
    /// The ports of each of [`PROTOCOLS`].
    ports: [Ranges; 3],
}

/// As a derived one, with many ranges at once: it is what comparing profiles costs most.
impl Hash for PortSet {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.others.hash(state);
        for ranges in &self.ports {
            ranges.len().hash(state);
            for some in ranges.chunks(16) {
                let mut bytes = [0; 64];
                for (at, (first, last)) in bytes.chunks_exact_mut(4).zip(some) {
                    let both = u32::from(*first) << 16 | u32::from(*last);
                    at.copy_from_slice(&both.to_ne_bytes());
                }
                state.write(&bytes);
            }
        }
    }
}

impl PortSet {
    /// Every protocol and port.
    pub fn all() -> Self {
        Self {
            others: true,
            ports: [(); 3].map(|()| vec![(0, u16::MAX)]),
        }
    }

    /// Ports of one protocol, both ends included; empty for a protocol without ports.
    pub fn range(protocol: u8, first: u16, last: u16) -> Self {
        let mut set = Self::default();
        if let Some(at) = PROTOCOLS.iter().position(|one| *one == protocol) {
            set.ports[at].push((first, last));
        }
        set
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        !self.others && self.ports.iter().all(Vec::is_empty)
    }

    /// Whether everything is in it.
    pub fn is_all(&self) -> bool {
        self.others && self.ports.iter().all(|ports| ports == &[(0, u16::MAX)])
    }

    /// Whether the protocols without ports are in it.
    pub fn others(&self) -> bool {
        self.others
    }

    /// Whether a protocol and port are in it; the port of a protocol without ports does
    /// not count.
    pub fn contains(&self, protocol: u8, port: u16) -> bool {
        match PROTOCOLS.iter().position(|one| *one == protocol) {
            Some(at) => contains(&self.ports[at], port),
            None => self.others,
        }
    }

    /// Each range of ports with its protocol.
    pub fn ranges(&self) -> impl Iterator<Item = (u8, u16, u16)> {
        let each = PROTOCOLS.iter().zip(&self.ports);
        each.flat_map(|(protocol, ports)| ports.iter().map(|(a, b)| (*protocol, *a, *b)))
    }

    /// How many elements it takes; everything counts as one.
    pub fn elements(&self) -> usize {
        if self.is_all() {
            return 1;
        }
        let each = self.ranges().map(|(_, first, last)| {
            if is_narrow(first, last) {
                usize::from(last - first) + 1
            } else {
                1
            }
        });
        each.sum()
    }

    /// What is in either.
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        self.merge(other, |a, b| a || b)
    }

    /// What is in any of many.
    pub fn union_of<'a>(sets: impl IntoIterator<Item = Cow<'a, Self>>) -> Self {
        let mut all = Self::default();
        for set in sets {
            all.others |= set.others;
            for (into, more) in all.ports.iter_mut().zip(&set.ports) {
                into.extend(more);
            }
        }
        for ports in &mut all.ports {
            // Those of each set are in order already.
            ports.sort();
            ports.dedup_by(|next, before| {
                let touch = u32::from(next.0) <= u32::from(before.1) + 1;
                if touch {
                    before.1 = before.1.max(next.1);
                }
                touch
            });
        }
        all
    }

    /// What is in both.
    pub fn intersection(&self, other: &Self) -> Self {
        if other.is_all() {
            return self.clone();
        }
        self.merge(other, |a, b| a && b)
    }

    /// What is in this one and not in the other.
    pub fn difference(&self, other: &Self) -> Self {
        self.merge(other, |a, b| a && !b)
    }

    /// Whether the other has everything that this one has.
    pub fn is_subset(&self, other: &Self) -> bool {
        let others = !self.others || other.others;
        others && { self.ports.iter().zip(&other.ports) }.all(|(a, b)| is_within(a, b))
    }

    fn merge(&self, other: &Self, keep: impl Fn(bool, bool) -> bool) -> Self {
        let mut set = Self {
            others: keep(self.others, other.others),
            ports: Default::default(),
        };
        let pairs = self.ports.iter().zip(&other.ports);
        for (into, (a, b)) in set.ports.iter_mut().zip(pairs) {
            *into = combine(a, b, &keep);
        }
        set
    }
}

/// Walks the bounds of both lists and keeps the ports for which `keep` holds, which does not
/// hold for what is in neither.
fn combine(a: &Ranges, b: &Ranges, keep: &impl Fn(bool, bool) -> bool) -> Ranges {
    let bounds = |ranges: &Ranges| {
        let each = ranges.clone().into_iter();
        let bounds = each.flat_map(|(first, last)| [u32::from(first), u32::from(last) + 1]);
        bounds.peekable()
    };
    let (mut of_a, mut of_b) = (bounds(a), bounds(b));
    let (mut in_a, mut in_b) = (false, false);
    let mut ranges = Ranges::new();
    let mut open = None;
    while let Some(at) = [of_a.peek(), of_b.peek()].into_iter().flatten().min() {
        let at = *at;
        in_a ^= of_a.next_if_eq(&at).is_some();
        in_b ^= of_b.next_if_eq(&at).is_some();
        match (open, keep(in_a, in_b)) {
            (None, true) => open = u16::try_from(at).ok(),
            (Some(first), false) => {
                ranges.extend(u16::try_from(at - 1).map(|last| (first, last)));
                open = None;
            }
            _ => {}
        }
    }
    ranges
}

/// Whether the second list has all ports of the first one.
fn is_within(a: &Ranges, b: &Ranges) -> bool {
    let mut of_b = b.iter().peekable();
    a.iter().all(|(first, last)| {
        while of_b.next_if(|(_, end)| end < first).is_some() {}
        let at = of_b.peek();
        at.is_some_and(|(begin, end)| begin <= first && last <= end)
    })
}

fn contains(ranges: &Ranges, port: u16) -> bool {
    let after = ranges.partition_point(|(first, _)| *first <= port);
    after > 0 && port <= ranges[after - 1].1
}

/// The protocols and ports of a rule. Named ports are resolved for each destination.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RulePorts {
    /// Those that are the same for every destination.
    pub fixed: PortSet,
    /// Names, each with its protocol; none means the protocol that the pod gives.
    pub named: Vec<(Option<u8>, String)>,
}

impl RulePorts {
    /// Every protocol and port.
    pub fn all() -> Self {
        Self {
            fixed: PortSet::all(),
            named: Vec::new(),
        }
    }

    /// How many elements it takes; everything counts as one.
    pub fn count(&self) -> usize {
        self.fixed.elements() + self.named.len()
    }

    /// Whether it can match nothing, whatever the destination.
    pub fn is_empty(&self) -> bool {
        self.fixed.is_empty() && self.named.is_empty()
    }

    /// What may be meant for a destination of which the named ports are not known: a name
    /// may be any port of its protocol.
    pub fn widest(&self) -> Self {
        let mut fixed = self.fixed.clone();
        for (protocol, _) in &self.named {
            let all = PROTOCOLS.into_iter();
            for number in all.filter(|one| protocol.is_none_or(|wanted| wanted == *one)) {
                fixed = fixed.union(&PortSet::range(number, 0, u16::MAX));
            }
        }
        Self {
            fixed,
            named: Vec::new(),
        }
    }

    /// What is meant for a destination with these named ports.
    pub fn of(&self, ports: &[NamedPort]) -> Cow<'_, PortSet> {
        let mut set = Cow::Borrowed(&self.fixed);
        for (protocol, name) in &self.named {
            for port in ports.iter().filter(|port| port.name == *name) {
                let number = protocol_number(&port.protocol);
                if let Some(number) = number
                    && protocol.is_none_or(|wanted| wanted == number)
                {
                    set = Cow::Owned(set.union(&PortSet::range(number, port.port, port.port)));
                }
            }
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(first: u16, last: u16) -> PortSet {
        PortSet::range(6, first, last)
    }

    #[test]
    fn ranges_that_touch_become_one() {
        let set = tcp(1, 5).union(&tcp(6, 9));
        assert_eq!(set, tcp(1, 9));
    }

    #[test]
    fn the_union_of_many_is_that_of_each_with_the_next() {
        let of_tcp = [tcp(8, 9), tcp(1, 5), tcp(5, 6), tcp(7, 7), tcp(0, 0)];
        let all = of_tcp.into_iter().chain([
            PortSet::range(17, 65535, 65535),
            PortSet::range(17, 3, 65535),
            PortSet::default(),
        ]);
        let one_by_one = all.clone().fold(PortSet::default(), |a, b| a.union(&b));
        assert_eq!(PortSet::union_of(all.map(Cow::Owned)), one_by_one);
        let both = [PortSet::all(), tcp(1, 1)].map(Cow::Owned);
        assert!(PortSet::union_of(both).is_all());
    }

    #[test]
    fn a_subset_has_nothing_that_the_other_lacks() {
        let two = tcp(1, 5).union(&tcp(8, 9));
        let sets = [
            PortSet::default(),
            PortSet::all(),
            PortSet::all().difference(&tcp(3, 3)),
            PortSet::range(17, 1, 5),
            tcp(1, 9),
            tcp(5, 8),
            tcp(8, 9),
            tcp(9, 9).union(&PortSet::range(17, 5, 5)),
            two.union(&tcp(20, 30)),
            two,
        ];
        for (a, b) in sets.iter().flat_map(|a| sets.iter().map(move |b| (a, b))) {
            let is_subset = a.difference(b).is_empty();
            assert_eq!(a.is_subset(b), is_subset, "{a:?} {b:?}");
            assert_eq!(a.union(b) == *b, is_subset, "{a:?} {b:?}");
            assert_eq!(a.intersection(b) == *a, is_subset, "{a:?} {b:?}");
        }
    }

    #[test]
    fn the_last_port_can_be_taken_away_and_put_back() {
        let all = PortSet::all();
        let without = all.difference(&tcp(65535, 65535));
        assert!(!without.is_all());
        assert!(without.ranges().any(|range| range == (6, 0, 65534)));
        assert!(without.union(&tcp(65535, 65535)).is_all());
    }

    #[test]
    fn other_protocols_are_in_no_range_of_ports() {
        let tcp_and_udp = tcp(0, 65535).union(&PortSet::range(17, 0, 65535));
        let ports = tcp_and_udp.union(&PortSet::range(132, 0, 65535));
        assert!(!ports.is_all());
        assert!(ports.is_subset(&PortSet::all()));
        assert!(!PortSet::all().is_subset(&ports));
    }

    #[test]
    fn a_named_port_is_the_one_of_its_protocol() {
        let dns = [("dns", "UDP", 53), ("dns", "TCP", 54)];
        let ports = dns.map(|(name, protocol, port)| NamedPort {
            name: name.into(),
            protocol: protocol.into(),
            port,
        });
        let named = |protocol| RulePorts {
            fixed: PortSet::default(),
            named: vec![(protocol, "dns".to_owned())],
        };
        assert_eq!(named(Some(6)).of(&ports).into_owned(), tcp(54, 54));
        assert_eq!(named(Some(132)).of(&ports).into_owned(), PortSet::default());
        let both = tcp(54, 54).union(&PortSet::range(17, 53, 53));
        assert_eq!(named(None).of(&ports).into_owned(), both);
        // Of a destination whose names are not known it may be any.
        let any = |protocol| named(protocol).widest().of(&[]).into_owned();
        assert_eq!(any(Some(6)), tcp(0, u16::MAX));
        assert!(both.is_subset(&any(None)) && !any(None).others());
    }
}
