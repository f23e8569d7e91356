//! What is known of the imaginary packets, as the expressions of a rule load it into
//! registers. Pure.

use std::net::IpAddr;

use crate::probe::{FlowLink, Probe, State, is_no_uplink};
use tweed_core::family::{Family, octets};
use tweed_core::ownership::{LEAVING_LINK_GROUP, LINK_GROUP};
use tweed_netlink::nf::attributes::{find, number};

/// What a register holds.
#[derive(Clone)]
pub(super) enum Value {
    Known(Vec<u8>),
    /// Only these bytes of it.
    Partly(Vec<Option<u8>>),
    /// What it is not: the function says so.
    Not(fn(&[u8]) -> bool),
    /// Something of conntrack's.
    Flow,
    Unknown,
}

/// What the expression `name` loads; none where the rule ends there.
pub(super) fn load(name: &str, data: &[u8], probe: &Probe) -> Option<Value> {
    match name {
        "meta" => Some(meta(data, probe)),
        "ct" => flow(data, probe.state),
        "payload" => Some(payload(data, probe)),
        "fib" => Some(fib(data, probe)),
        _ => Some(Value::Unknown),
    }
}

/// `NFTA_META_KEY` and the keys of `enum nft_meta_keys` that are known.
fn meta(data: &[u8], probe: &Probe) -> Value {
    const KEY: u16 = 2;
    const PROTOCOL: u32 = 1;
    const IIF: u32 = 4;
    const OIF: u32 = 5;
    const IIFNAME: u32 = 6;
    const OIFNAME: u32 = 7;
    const NFPROTO: u32 = 15;
    const L4PROTO: u32 = 16;
    const IIFGROUP: u32 = 21;
    const OIFGROUP: u32 = 22;
    let is_no_pods: fn(&[u8]) -> bool = |group| {
        let pods = [LINK_GROUP, LEAVING_LINK_GROUP];
        pods.iter().any(|pods| group == pods.to_ne_bytes())
    };
    let key = find(data, KEY).and_then(number);
    let link = match key {
        Some(IIF | IIFNAME | IIFGROUP) => probe.incoming,
        _ => probe.outgoing,
    };
    let known = match (key, link) {
        (Some(IIFNAME | OIFNAME), FlowLink::Uplink) => return Value::Not(is_no_uplink),
        (Some(IIF | OIF), FlowLink::Uplink) => {
            return Value::Not(|index| index == 1_u32.to_ne_bytes());
        }
        (Some(IIFGROUP | OIFGROUP), FlowLink::Uplink | FlowLink::Other { .. }) => {
            return Value::Not(is_no_pods);
        }
        (Some(IIFNAME | OIFNAME), link) => link.name().map(|name| name.to_vec()),
        (Some(IIF | OIF), FlowLink::Other { index, .. }) => Some(index.to_ne_bytes().to_vec()),
        (Some(IIFGROUP | OIFGROUP), FlowLink::Pod) => Some(LINK_GROUP.to_ne_bytes().to_vec()),
        (Some(L4PROTO), _) => probe.protocol.map(|protocol| vec![protocol]),
        (Some(NFPROTO), _) => probe.family.map(|family| nfproto(family).to_vec()),
        (Some(PROTOCOL), _) => probe.family.map(|family| ethertype(family).to_vec()),
        _ => None,
    };
    known.map_or(Value::Unknown, Value::Known)
}

/// `NFPROTO_IPV4` and `NFPROTO_IPV6`.
fn nfproto(family: Family) -> &'static [u8] {
    match family {
        Family::V4 => &[2],
        Family::V6 => &[10],
    }
}

/// `ETH_P_IP` and `ETH_P_IPV6`.
fn ethertype(family: Family) -> &'static [u8] {
    match family {
        Family::V4 => &[0x08, 0x00],
        Family::V6 => &[0x86, 0xdd],
    }
}

/// `NFTA_CT_KEY`. An untracked packet has a state and nothing else, and a rule that
/// asks for more ends there.
fn flow(data: &[u8], state: State) -> Option<Value> {
    const KEY: u16 = 2;
    const STATE: u32 = 0;
    const DIRECTION: u32 = 1;
    /// `IP_CT_DIR_ORIGINAL`, of the packet that opens a flow, and `IP_CT_DIR_REPLY`.
    const ORIGINAL: u8 = 0;
    const REPLY: u8 = 1;
    Some(match (find(data, KEY).and_then(number), state) {
        (Some(STATE), state) => Value::Known((state as u32).to_ne_bytes().to_vec()),
        (_, State::Untracked) => return None,
        (Some(DIRECTION), State::New) => Value::Known(vec![ORIGINAL]),
        (Some(DIRECTION), State::Established) => Value::Known(vec![REPLY]),
        _ => Value::Flow,
    })
}

/// `NFTA_PAYLOAD_…`: of the headers the protocol, the addresses and the port that the packet
/// goes to, which rules may load together with what stands before it.
fn payload(data: &[u8], probe: &Probe) -> Value {
    const BASE: u16 = 2;
    const OFFSET: u16 = 3;
    const LENGTH: u16 = 4;
    /// Longer than what rules compare.
    const LONGEST: u32 = 64;
    let field = |kind| find(data, kind).and_then(number);
    let (Some(base), Some(offset), Some(length)) = (field(BASE), field(OFFSET), field(LENGTH))
    else {
        return Value::Unknown;
    };
    let places = offset..offset.saturating_add(length.min(LONGEST));
    let bytes: Vec<Option<u8>> = places.map(|place| byte(base, place, probe)).collect();
    match bytes.iter().copied().collect() {
        Some(known) => Value::Known(known),
        None if bytes.iter().all(Option::is_none) => Value::Unknown,
        None => Value::Partly(bytes),
    }
}

/// A byte of a header, if it is known.
fn byte(base: u32, place: u32, probe: &Probe) -> Option<u8> {
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    /// In the headers of UDP and TCP.
    const PORT: u32 = 2;
    let (protocol, source, destination) = match probe.family? {
        Family::V4 => (9, 12, 16),
        Family::V6 => (6, 8, 24),
    };
    let at = |first: u32| usize::try_from(place.checked_sub(first)?).ok();
    let of = |address: IpAddr, first| octets(address).get(at(first)?).copied();
    match base {
        TRANSPORT => probe.port?.to_be_bytes().get(at(PORT)?).copied(),
        NETWORK if place == protocol => probe.protocol,
        NETWORK if place < destination => of(probe.addresses?.0, source),
        NETWORK => of(probe.addresses?.1, destination),
        _ => None,
    }
}

/// `NFTA_FIB_…`: what is known of the addresses.
fn fib(data: &[u8], probe: &Probe) -> Value {
    const RESULT: u16 = 2;
    const FLAGS: u16 = 3;
    const ADDRESS_TYPE: u32 = 3;
    const SOURCE: u32 = 1;
    const DESTINATION: u32 = 2;
    let field = |kind| find(data, kind).and_then(number);
    let known = match (field(RESULT), field(FLAGS)) {
        (Some(ADDRESS_TYPE), Some(SOURCE)) => probe.types.0,
        (Some(ADDRESS_TYPE), Some(DESTINATION)) => probe.types.1,
        _ => None,
    };
    known.map_or(Value::Unknown, |kind| {
        Value::Known(kind.to_ne_bytes().to_vec())
    })
}
