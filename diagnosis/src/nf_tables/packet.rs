//! What is known of the imaginary packets, as the expressions of a rule load it into
//! registers. Pure.

use std::net::IpAddr;

use crate::probe::{Flow, FlowLink, POD_LINK, Probe, Vxlan, is_no_uplink};
use crate::ranges::octets;
use tweed_core::family::Family;
use tweed_core::ownership::{LEAVING_LINK_GROUP, LINK_GROUP};
use tweed_netlink::nf::attributes::{find, number};

/// `IPPROTO_UDP` and `IPPROTO_TCP`
const UDP: u8 = 17;
const TCP: u8 = 6;

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

/// What an expression loads; `Break` ends the rule.
pub(super) enum Loaded {
    Value(Value),
    Break,
}

/// What the expression `name` loads.
pub(super) fn load(name: &str, data: &[u8], probe: Probe) -> Loaded {
    match name {
        "meta" => Loaded::Value(meta(data, probe)),
        "ct" => flow(data, probe),
        "payload" => Loaded::Value(payload(data, probe)),
        "fib" => Loaded::Value(fib(data, probe)),
        _ => Loaded::Value(Value::Unknown),
    }
}

/// `NFTA_META_KEY` and the keys of `enum nft_meta_keys` that are known.
fn meta(data: &[u8], probe: Probe) -> Value {
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
    let Some(key) = find(data, KEY).and_then(number) else {
        return Value::Unknown;
    };
    let known = |bytes: &[u8]| Value::Known(bytes.to_vec());
    let is_no_pods: fn(&[u8]) -> bool = |group| {
        let pods = [LINK_GROUP, LEAVING_LINK_GROUP];
        pods.iter().any(|pods| group == pods.to_ne_bytes())
    };
    if let Probe::PodToPod(flow) = probe {
        let link = match key {
            IIF | IIFNAME | IIFGROUP => flow.incoming,
            _ => flow.outgoing,
        };
        return match (key, link) {
            (IIFNAME | OIFNAME, _) => known(link.name()),
            (IIF | OIF, FlowLink::Other { index, .. }) => known(&index.to_ne_bytes()),
            (IIFGROUP | OIFGROUP, FlowLink::Pod) => known(&LINK_GROUP.to_ne_bytes()),
            (IIFGROUP | OIFGROUP, FlowLink::Other { .. }) => Value::Not(is_no_pods),
            (L4PROTO, _) => known(&[TCP]),
            (NFPROTO, _) => known(nfproto(flow.family())),
            (PROTOCOL, _) => known(ethertype(flow.family())),
            _ => Value::Unknown,
        };
    }
    match (key, probe) {
        (IIFNAME, Probe::FromPod) | (OIFNAME, Probe::ToPod | Probe::FromPeer) => known(POD_LINK),
        (IIFGROUP, Probe::FromPod) | (OIFGROUP, Probe::ToPod | Probe::FromPeer) => {
            known(&LINK_GROUP.to_ne_bytes())
        }
        (IIFNAME, Probe::VxlanIn(_) | Probe::FromPeer) | (OIFNAME, Probe::VxlanOut(_)) => {
            Value::Not(is_no_uplink)
        }
        (IIF, Probe::VxlanIn(_) | Probe::FromPeer) | (OIF, Probe::VxlanOut(_)) => {
            Value::Not(|index| index == 1_u32.to_ne_bytes())
        }
        (IIFGROUP, Probe::VxlanIn(_) | Probe::FromPeer) | (OIFGROUP, Probe::VxlanOut(_)) => {
            Value::Not(is_no_pods)
        }
        _ => match (key, probe.vxlan().map(|vxlan| vxlan.family)) {
            (L4PROTO, Some(_)) => known(&[UDP]),
            (NFPROTO, Some(family)) => known(nfproto(family)),
            (PROTOCOL, Some(family)) => known(ethertype(family)),
            _ => Value::Unknown,
        },
    }
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
fn flow(data: &[u8], probe: Probe) -> Loaded {
    const KEY: u16 = 2;
    const STATE: u32 = 0;
    const DIRECTION: u32 = 1;
    /// `IP_CT_DIR_ORIGINAL`, of the packet that opens a flow.
    const ORIGINAL: u8 = 0;
    /// `IP_CT_DIR_REPLY`, of an answer.
    const REPLY: u8 = 1;
    /// `NF_CT_STATE_BIT(IP_CT_ESTABLISHED)`
    const ESTABLISHED: u32 = 1 << 1;
    /// `NF_CT_STATE_BIT(IP_CT_NEW)`
    const NEW: u32 = 1 << 3;
    /// `NF_CT_STATE_UNTRACKED_BIT`
    const UNTRACKED: u32 = 1 << 6;
    let state = |bit: u32| Loaded::Value(Value::Known(bit.to_ne_bytes().to_vec()));
    match (probe, find(data, KEY).and_then(number)) {
        (Probe::FromPod | Probe::FromPeer | Probe::PodToPod(_), Some(STATE)) => state(NEW),
        (Probe::FromPod | Probe::FromPeer | Probe::PodToPod(_), Some(DIRECTION)) => {
            Loaded::Value(Value::Known(vec![ORIGINAL]))
        }
        (Probe::ToPod, Some(STATE)) => state(ESTABLISHED),
        (Probe::ToPod, Some(DIRECTION)) => Loaded::Value(Value::Known(vec![REPLY])),
        (Probe::FromPod | Probe::ToPod | Probe::FromPeer | Probe::PodToPod(_), _) => {
            Loaded::Value(Value::Flow)
        }
        (Probe::VxlanIn(_) | Probe::VxlanOut(_), Some(STATE)) => state(UNTRACKED),
        (Probe::VxlanIn(_) | Probe::VxlanOut(_), _) => Loaded::Break,
    }
}

/// `NFTA_PAYLOAD_…`: of the headers of a VXLAN packet the protocol is known and the port that
/// it goes to, which rules may load together with what stands before it; of one from pod to
/// pod the protocol and the addresses.
fn payload(data: &[u8], probe: Probe) -> Value {
    const BASE: u16 = 2;
    const OFFSET: u16 = 3;
    const LENGTH: u16 = 4;
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    /// Longer than what rules compare.
    const LONGEST: u32 = 64;
    let field = |kind| find(data, kind).and_then(number);
    let (Some(base), Some(offset), Some(length)) = (field(BASE), field(OFFSET), field(LENGTH))
    else {
        return Value::Unknown;
    };
    let vxlan = |Vxlan { port, family }: Vxlan, place: u32| match (base, place, family) {
        (TRANSPORT, 2 | 3, _) => port.to_be_bytes().get(place as usize - 2).copied(),
        (NETWORK, 9, Family::V4) | (NETWORK, 6, Family::V6) => Some(UDP),
        _ => None,
    };
    let places = offset..offset.saturating_add(length.min(LONGEST));
    let bytes: Vec<Option<u8>> = match probe {
        Probe::PodToPod(flow) if base == NETWORK => {
            places.map(|place| address_byte(&flow, place)).collect()
        }
        Probe::VxlanIn(packet) | Probe::VxlanOut(packet) => {
            places.map(|place| vxlan(packet, place)).collect()
        }
        _ => return Value::Unknown,
    };
    match bytes.iter().copied().collect() {
        Some(known) => Value::Known(known),
        None => Value::Partly(bytes),
    }
}

/// A byte of a flow's network header, as far as it is known.
fn address_byte(flow: &Flow, place: u32) -> Option<u8> {
    let (protocol, source, destination, length) = match flow.family() {
        Family::V4 => (9, 12, 16, 4),
        Family::V6 => (6, 8, 24, 16),
    };
    let of = |address: IpAddr, first: u32| {
        let at = usize::try_from(place.checked_sub(first)?).ok()?;
        octets(address).get(at).copied()
    };
    if place == protocol {
        Some(TCP)
    } else if place < source + length {
        of(flow.source, source)
    } else {
        of(flow.destination, destination)
    }
}

/// `NFTA_FIB_…`: that the destination of what comes in is this node's, or that addresses are
/// those of pods.
fn fib(data: &[u8], probe: Probe) -> Value {
    const RESULT: u16 = 2;
    const FLAGS: u16 = 3;
    const ADDRESS_TYPE: u32 = 3;
    const SOURCE: u32 = 1;
    const DESTINATION: u32 = 2;
    /// `RTN_UNICAST` and `RTN_LOCAL`
    const UNICAST: u32 = 1;
    const LOCAL: u32 = 2;
    let field = |kind| find(data, kind).and_then(number);
    match (field(RESULT), field(FLAGS), probe) {
        (Some(ADDRESS_TYPE), Some(DESTINATION), Probe::VxlanIn(_)) => {
            Value::Known(LOCAL.to_ne_bytes().to_vec())
        }
        (Some(ADDRESS_TYPE), Some(SOURCE | DESTINATION), Probe::PodToPod(_)) => {
            Value::Known(UNICAST.to_ne_bytes().to_vec())
        }
        _ => Value::Unknown,
    }
}
