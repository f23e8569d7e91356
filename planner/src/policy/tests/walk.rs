//! Walks through the elements as the head of `desired.rs` says that the rules do.

use std::net::IpAddr;

use tweed_component::schema::Sets as _;

use crate::policy::desired::{Delta, Desired, Direction, Number, SELF, UNKNOWN};

/// A packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: u8,
    pub port: u16,
}

/// Whether a packet passes in the direction of a local address.
pub fn passes(desired: &Desired, direction: Direction, flow: Flow) -> bool {
    let (local, other) = match direction {
        Direction::In => (flow.to, flow.from),
        Direction::Out => (flow.from, flow.to),
    };
    if !desired.active {
        return true;
    }
    if !desired.judged.contains(&local) {
        return false;
    }
    if !desired.policed.get(direction).contains(&local) {
        return true;
    }
    let identity = if local == other && desired.selves.contains(&local) {
        SELF
    } else {
        let single = desired.identities.get(&other).copied();
        single
            .or_else(|| network(desired, other))
            .unwrap_or(UNKNOWN)
    };
    let pairs = desired.pairs.get(direction);
    let profile = pairs.get(&(local, identity)).copied().unwrap_or(identity);
    if desired.open.contains(&profile)
        || desired.exact.contains(&(profile, flow.protocol, flow.port))
    {
        return true;
    }
    let profile = desired
        .range_profiles
        .get(&(profile, flow.protocol))
        .copied()
        .unwrap_or(profile);
    desired
        .ranges
        .iter()
        .any(|range| range.profile == profile && (range.first..=range.last).contains(&flow.port))
}

fn network(desired: &Desired, address: IpAddr) -> Option<Number> {
    let inside = desired.networks.iter().filter(|(span, _)| {
        span.first.is_ipv4() == address.is_ipv4() && (span.first..=span.last).contains(&address)
    });
    let all: Vec<Number> = inside.map(|(_, number)| *number).collect();
    assert!(all.len() < 2, "{address} is in several networks");
    all.first().copied()
}

/// The desired state after a delta.
pub fn applied(delta: &Delta, old: &Desired) -> Desired {
    let mut new = old.clone();
    assert!(new.is_start_of(delta), "{delta:#?}");
    new.apply(delta);
    new
}
