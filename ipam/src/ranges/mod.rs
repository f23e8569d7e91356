//! The addresses that may be given, and in which order.
//!
//! A config holds range *sets*: every attachment gets one address from each.
//! A set holds ranges of one family. The types here hold only what can be given
//! from: no empty set, no overlap, no network, broadcast or gateway address.
//! [`config`] makes them from the JSON that host-local understands.

pub mod config;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::{collections::BTreeSet, fmt, ops::Deref};

use ipnetwork::IpNetwork;

pub use config::IpamConfig;

const EMPTY_SET: &str = "a range set without ranges: give it one, or leave it out";

/// Consecutive addresses of one subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    subnet: IpNetwork,
    start: IpAddr,
    end: IpAddr,
    gateway: IpAddr,
}

impl Range {
    /// A range of `subnet`. Defaults are those of host-local: the first usable
    /// address, the last usable one, and the first of the subnet as the gateway. The
    /// network and the broadcast address (IPv6: the network address only) are left
    /// out even if they are start or end.
    ///
    /// # Errors
    /// The rule that is broken, as text. The caller says where in the config it is.
    pub fn new(
        subnet: IpNetwork,
        start: Option<IpAddr>,
        end: Option<IpAddr>,
        gateway: Option<IpAddr>,
    ) -> Result<Self, String> {
        let v4 = subnet.is_ipv4();
        let longest = if v4 { 30 } else { 126 };
        if subnet.prefix() > longest {
            return Err(format!(
                "{subnet} is too small to give addresses from: at most /30 for IPv4, /126 for IPv6"
            ));
        }
        let (net, len) = (subnet.network(), subnet.prefix());
        if subnet.ip() != net {
            return Err(format!(
                "{subnet} has host bits set: the network is {net}/{len}"
            ));
        }
        for address in [start, end].into_iter().flatten() {
            if !subnet.contains(address) {
                return Err(format!("{address} is not in the subnet {subnet}"));
            }
        }
        let first = bits(subnet.network()) + 1;
        let last = bits(subnet.broadcast()) - u128::from(v4);
        let low = start.map_or(first, bits);
        let high = end.map_or(last, bits);
        if start.is_some() && end.is_some() && low > high {
            let (start, end) = (address(v4, low), address(v4, high));
            return Err(format!(
                "the range ends at {end}, before it starts at {start}"
            ));
        }
        let gateway = gateway.unwrap_or(address(v4, first));
        if gateway.is_ipv4() != v4 {
            return Err(format!(
                "the gateway {gateway} is not of the family of the subnet {subnet}"
            ));
        }
        let (start, end) = (low.max(first), high.min(last));
        if start > end {
            return Err(nothing_to_give(address(v4, low)));
        }
        Ok(Self {
            subnet,
            start: address(v4, start),
            end: address(v4, end),
            gateway,
        })
    }

    /// The subnet, whose prefix length the addresses get.
    pub fn subnet(&self) -> IpNetwork {
        self.subnet
    }

    /// The gateway of pods in this range.
    pub fn gateway(&self) -> IpAddr {
        self.gateway
    }

    /// Whether `address` lies between the range's ends.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.subnet.is_ipv4() && (self.start..=self.end).contains(&address)
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.start.is_ipv4() == other.start.is_ipv4()
            && self.start <= other.end
            && other.start <= self.end
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.start, self.end)
    }
}

/// Ranges of one family, without overlap, with at least one address to give.
/// An attachment gets one address from each set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSet(Vec<Range>);

impl RangeSet {
    /// A set of `ranges`, from which addresses are given in this order.
    ///
    /// # Errors
    /// The rule that is broken, as text.
    pub fn new(ranges: Vec<Range>) -> Result<Self, String> {
        let Some(first) = ranges.first() else {
            return Err(EMPTY_SET.to_owned());
        };
        let v4 = first.start.is_ipv4();
        if ranges.iter().any(|range| range.start.is_ipv4() != v4) {
            return Err(
                "IPv4 and IPv6 in one range set: give each family a range set of its own"
                    .to_owned(),
            );
        }
        for (i, one) in ranges.iter().enumerate() {
            if let Some(other) = ranges[i + 1..].iter().find(|other| one.overlaps(other)) {
                return Err(format!("{one} and {other} overlap"));
            }
        }
        let set = Self(ranges);
        if set.capacity() == 0 {
            return Err(nothing_to_give(&set));
        }
        Ok(set)
    }

    /// The ranges, in the order in which addresses are given.
    pub fn ranges(&self) -> &[Range] {
        &self.0
    }

    /// How many addresses can be given.
    pub fn capacity(&self) -> u128 {
        let ranges = self.0.iter();
        let held: u128 = ranges
            .map(|range| bits(range.end) - bits(range.start) + 1)
            .sum();
        let gateways = self.0.iter().map(Range::gateway);
        let gateways: BTreeSet<IpAddr> =
            gateways.filter(|ip| self.range_of(*ip).is_some()).collect();
        held - gateways.len() as u128
    }

    /// The range that contains `address`, even if it is a gateway.
    pub fn range_of(&self, address: IpAddr) -> Option<&Range> {
        self.0.iter().find(|range| range.contains(address))
    }

    /// Whether `address` is the gateway of one of the ranges.
    pub fn is_gateway(&self, address: IpAddr) -> bool {
        self.0.iter().any(|range| range.gateway == address)
    }

    /// Whether `address` can be given.
    pub fn can_give(&self, address: IpAddr) -> bool {
        self.range_of(address).is_some() && !self.is_gateway(address)
    }

    /// Every address that can be given, once: those after `cursor`, then those from
    /// the first up to `cursor`. Without a cursor, or with one outside the set, it
    /// begins at the first.
    pub fn candidates(&self, cursor: Option<IpAddr>) -> impl Iterator<Item = IpAddr> + '_ {
        let v4 = self.0.first().is_some_and(|range| range.start.is_ipv4());
        let begin = cursor.and_then(|cursor| {
            let at = self.0.iter().position(|range| range.contains(cursor))?;
            Some((at, bits(cursor)))
        });
        let (at, cursor) = begin.unwrap_or_default();
        let count = self.0.len();
        // The range of the cursor comes first, from behind it, and last, up to it.
        let part = move |turn: usize| {
            let range = &self.0[(at + turn) % count];
            let (mut low, mut high) = (bits(range.start), bits(range.end));
            if turn == 0 {
                // The cursor may be the last address that there is.
                low = low.max(cursor.checked_add(1)?);
            }
            if turn == count {
                high = high.min(cursor);
            }
            Some(low..=high)
        };
        (0..=count)
            .filter_map(part)
            .flatten()
            .map(move |bits| address(v4, bits))
            .filter(|address| !self.is_gateway(*address))
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, &self.0, ",")
    }
}

/// All range sets of a config: at least one, without overlap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeSets(Vec<RangeSet>);

impl RangeSets {
    /// Checks the sets of a config, and keeps their order.
    ///
    /// # Errors
    /// A text when there is none, or two share addresses.
    pub fn new(sets: Vec<RangeSet>) -> Result<Self, String> {
        if sets.is_empty() {
            return Err(EMPTY_SET.to_owned());
        }
        for (i, one) in sets.iter().enumerate() {
            for other in &sets[i + 1..] {
                for a in one.ranges() {
                    if let Some(b) = other.ranges().iter().find(|b| a.overlaps(b)) {
                        return Err(format!("{a} and {b} overlap"));
                    }
                }
            }
        }
        Ok(Self(sets))
    }

    /// The range that contains `address`, in any of the sets.
    pub fn range_of(&self, address: IpAddr) -> Option<&Range> {
        self.0.iter().find_map(|set| set.range_of(address))
    }
}

/// The sets, in the config's order.
impl Deref for RangeSets {
    type Target = [RangeSet];
    fn deref(&self) -> &[RangeSet] {
        &self.0
    }
}

impl fmt::Display for RangeSets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        join(f, &self.0, " and ")
    }
}

fn join(f: &mut fmt::Formatter<'_>, items: &[impl fmt::Display], between: &str) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        write!(f, "{}{item}", if i > 0 { between } else { "" })?;
    }
    Ok(())
}

fn nothing_to_give(range: impl fmt::Display) -> String {
    format!("{range} holds no address that can be given")
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The address with these bits; for IPv4 only the lowest 32 count.
fn address(v4: bool, bits: u128) -> IpAddr {
    match u32::try_from(bits) {
        Ok(low) if v4 => Ipv4Addr::from_bits(low).into(),
        _ => Ipv6Addr::from_bits(bits).into(),
    }
}

#[cfg(test)]
mod tests;
