//! Walks through the elements as the heads of `model/verdicts.rs` and `table/desired.rs` say that
//! the rules do.

use std::net::IpAddr;

use tweed_component::schema::Sets as _;

use crate::policy::desired::{Delta, Desired, Number};
use crate::policy::verdicts::{Direction, SELF, UNKNOWN};

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
    if !desired.verdicts.active {
        return true;
    }
    if !desired.verdicts.enforced.contains(&local) {
        return false;
    }
    if !desired.verdicts.policed.get(direction).contains(&local) {
        return true;
    }
    let identity = if local == other && desired.verdicts.selves.contains(&local) {
        SELF
    } else {
        let single = desired.verdicts.identities.get(&other).copied();
        single
            .or_else(|| network(desired, other))
            .unwrap_or(UNKNOWN)
    };
    let pairs = desired.verdicts.pairs.get(direction);
    let profile = pairs.get(&(local, identity)).copied().unwrap_or(identity);
    if desired.ports.open.contains(&profile)
        || desired
            .ports
            .exact
            .contains(&(profile, flow.protocol, flow.port))
    {
        return true;
    }
    let profile = desired
        .ports
        .range_profiles
        .get(&(profile, flow.protocol))
        .copied()
        .unwrap_or(profile);
    desired
        .ports
        .ranges
        .iter()
        .any(|range| range.profile == profile && (range.first..=range.last).contains(&flow.port))
}

fn network(desired: &Desired, address: IpAddr) -> Option<Number> {
    let inside = desired.verdicts.networks.iter().filter(|(span, _)| {
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
