//! The chains of the table and their rules: what DESIGN calls masquerading,
//! anti-spoofing and the VXLAN filter. Rules name sets and never addresses.
//!
//! The path of a packet, in the order of the hooks:
//! - `prerouting_raw` sees every packet and compares the input link's group and the
//!   port; only packets from a pod, or that look like VXLAN, enter another chain.
//!   Whether VXLAN comes from a known node is not checked for packets from a pod:
//!   the next two chains refuse all VXLAN from pods.
//! - `input` and `forward` compare the port after DNAT: a rule before DNAT alone
//!   could be bypassed through a Service.
//! - `postrouting_nat` sees the first packet of each tracked flow.
//! - `output_raw` sees what the node itself sends, including the VXLAN packets that
//!   carry packets of pods, and what IPVS sends on for others: that passes neither
//!   `forward` nor, with its new destination, `input`.
//!
//! The outer packets of the own overlay are kept out of conntrack on both ends:
//! the packet inside is tracked anyway, every flow in it would cost a second
//! entry, and a packet without an entry is rewritten by nobody's NAT.
//!
//! The order of conditions in a rule: the kernel compares bytes of the packet's
//! headers inline, and calls a function for all else (the protocol, a link's group, a
//! set), which is the main cost with the mitigations of most machines. So bytes that
//! few packets have are compared first, even before the protocol that gives them
//! their meaning: for most packets nothing else is evaluated (`docs/proof/benchmarks.md`
//! has the figures).
//!
//! Fragments: conntrack puts them together at priority −400, before all of
//! these, in every namespace with a NAT chain. The table has one whenever it
//! has a VXLAN rule, so a VXLAN header cannot hide in a second fragment.

use std::collections::BTreeSet;

use tweed_component::drops::DropReason::{
    LinkLocalSource, LoopbackDestination, Redirect, RouterAdvertisement, SpoofedSource,
    VxlanFromPod, VxlanFromStranger, VxlanInnerSource,
};
use tweed_component::drops::Owner;
use tweed_core::family::Family;

use super::inner::InnerPrefix;
use crate::drops::{log_chains, refuse};
use crate::table::Chain;
use crate::tables::{OVERLAY_FILTER, OVERLAY_SNAT, RAW};
use crate::words::{WORDS, Words, base, regular};
use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::{POD_LINK_GROUP, Ruleset, VxlanMatch};

/// The same rule for each family.
fn for_each_family(rule: impl Fn(Words) -> String) -> impl Iterator<Item = String> {
    WORDS.into_iter().map(rule)
}

/// An ICMP message of a type, by its number: `icmp type` would ask for the
/// protocol first.
fn icmp(protocol: &str, kind: u8) -> String {
    format!("@th,0,8 {kind} meta l4proto {protocol}")
}

/// Every chain of the table; `prefixes` are those of the sources inside of VXLAN. With `log`
/// packets are logged before they are dropped.
pub(super) fn chains(ruleset: &Ruleset, prefixes: &BTreeSet<InnerPrefix>, log: bool) -> Vec<Chain> {
    let vxlan = ruleset.vxlan.as_ref();
    let mut chains: Vec<Chain> = log_chains(Owner::Overlay, log).collect();
    chains.extend([
        prerouting_raw(vxlan),
        from_pod(log),
        not_routed_back(log),
        from_pod_ipv6(log),
    ]);
    if let Some(vxlan) = vxlan {
        chains.extend(vxlan_filter(prefixes, log));
        chains.extend(vxlan_out(vxlan, log));
        for (name, rules) in [
            ("input", vxlan_to_node(vxlan, log).into()),
            ("forward", vec![vxlan_forward(vxlan)]),
        ] {
            chains.push(base(name, ("filter", name, OVERLAY_FILTER), rules));
        }
    }
    chains.extend(masquerading(ruleset));
    chains
}

fn prerouting_raw(vxlan: Option<&VxlanMatch>) -> Chain {
    let mut rules = vec![format!("iifgroup {POD_LINK_GROUP} goto from_pod")];
    rules.extend(vxlan.map(|vxlan| format!("{} goto vxlan_in", own_vxlan(vxlan))));
    let place = ("filter", "prerouting", RAW);
    base("prerouting_raw", place, rules)
}

/// The condition that holds for VXLAN with our VNI: another VNI may share the
/// port. 96 bits into UDP: its header is 64 bits long, VXLAN's flags 32, then
/// the VNI, 24, and 8 that mean nothing (RFC 7348, section 5): 32 bits together
/// are compared on the spot, 24 are not.
fn own_vxlan(vxlan: &VxlanMatch) -> String {
    let VxlanMatch { port, vni, .. } = vxlan;
    let vni = vni << 8;
    format!("th dport {port} @th,96,32 & 0xffffff00 == {vni:#010x} meta l4proto udp")
}

/// What a pod may not send. Every pod has a host route on its link, so its
/// source is right if the route back to it leaves by the link that it came in
/// by: one rule for all pods, whatever `rp_filter` says, and from the moment on at
/// which the plugin has added the route.
///
/// Routing rules of others may hide that route (`ip rule`: before the main table, or
/// for some destinations, which are the sources of that lookup). So a packet that
/// fails is looked up in `pod_links`, which the agent writes from the store.
fn from_pod(log: bool) -> Chain {
    regular(
        "from_pod",
        vec![
            "fib saddr . iif oif missing jump not_routed_back".to_owned(),
            // The header's version, which is the family by then.
            "@nh,0,4 6 goto from_pod_ipv6".to_owned(),
            // `ip saddr 0.0.0.0/8`.
            // The lookup above lets 0.0.0.0 pass towards broadcast.
            refuse("@nh,96,8 0", SpoofedSource, log),
            // `ip daddr 127.0.0.0/8`. The kernel refuses these unless the link's
            // `route_localnet` is on, as the plugin portmap sets it on the links of
            // pods that have a hostPort. Nothing honest is refused: the answer to a
            // flow that DNAT brought from 127.0.0.1 to the pod goes to the address
            // that the flow was masqueraded with. For ::1 no rule is needed: the
            // kernel drops it on every link but `lo`, before any hook.
            refuse("@nh,128,8 127", LoopbackDestination, log),
            refuse(&icmp("icmp", 5), Redirect, log),
        ],
    )
}

fn not_routed_back(log: bool) -> Chain {
    let mut rules: Vec<String> = for_each_family(|Words { ip, digit, .. }| {
        format!("{ip} saddr . iif @pod_links{digit} return")
    })
    .collect();
    rules.push(refuse("", SpoofedSource, log));
    regular("not_routed_back", rules)
}

fn from_pod_ipv6(log: bool) -> Chain {
    regular(
        "from_pod_ipv6",
        vec![
            // `ip6 saddr fe80::/10`.
            refuse("@nh,64,16 & 0xffc0 == 0xfe80", LinkLocalSource, log),
            // The lookup above lets :: pass towards multicast.
            refuse("@nh,64,32 0 ip6 saddr ::", LinkLocalSource, log),
            refuse(&icmp("icmpv6", 134), RouterAdvertisement, log),
            refuse(&icmp("icmpv6", 137), Redirect, log),
        ],
    )
}

/// What is taken as VXLAN: only what has a pair of sources, outside and inside, that
/// the Nodes say, so that no node sends with the address of another's pod; and only
/// at the addresses that nodes are known by. Inside are IPv4 and IPv6 alone: no node
/// has to ask by ARP, its neighbours on the VXLAN device are permanent.
fn vxlan_in(prefixes: &BTreeSet<InnerPrefix>, log: bool) -> Chain {
    let taken = |(outer, Words { ip, digit, .. })| {
        prefixes.iter().map(move |prefix| {
            let pair = prefix.condition(outer);
            format!("{pair} {ip} daddr @node_addresses{digit} notrack return")
        })
    };
    let taken = Family::BOTH.into_iter().zip(WORDS).flat_map(taken);
    let mut rules: Vec<String> = taken.collect();
    // To this node in whatever way; what only passes through (an overlay
    // between pods) is not our business.
    let to_this_node = "fib daddr type != unicast";
    rules.extend(for_each_family(|Words { ip, digit, .. }| {
        let between_nodes =
            format!("{ip} saddr @node_addresses{digit} {ip} daddr @node_addresses{digit}");
        let condition = format!("{between_nodes} {to_this_node}");
        refuse(&condition, VxlanInnerSource, log)
    }));
    rules.push(refuse(to_this_node, VxlanFromStranger, log));
    regular("vxlan_in", rules)
}

/// VXLAN is taken only from known nodes; none comes from a pod.
fn vxlan_to_node(vxlan: &VxlanMatch, log: bool) -> [String; 2] {
    let port = vxlan.port;
    // A packet that came through DNAT may carry a known node's source, if
    // that node masqueraded it: the source says nothing here.
    let dnat = format!("th dport {port} ct status dnat meta l4proto udp");
    let from_pod = format!("th dport {port} iifgroup {POD_LINK_GROUP} meta l4proto udp");
    [dnat, from_pod].map(|condition| refuse(&condition, VxlanFromPod, log))
}

/// VXLAN is not forwarded to a node. What is to others goes on to policy.
fn vxlan_forward(vxlan: &VxlanMatch) -> String {
    format!("{} jump vxlan_forwarded", own_vxlan(vxlan))
}

/// The chains that only VXLAN enters.
fn vxlan_filter(prefixes: &BTreeSet<InnerPrefix>, log: bool) -> [Chain; 2] {
    // An answer to a flow that the node itself has begun or masqueraded, with this port as its
    // source. A packet without an entry of conntrack has no direction and goes on.
    let mut forwarded = vec!["ct direction reply return".to_owned()];
    forwarded.extend(for_each_family(|Words { ip, digit, .. }| {
        let to_node = format!("{ip} daddr @node_addresses{digit}");
        refuse(&to_node, VxlanFromPod, log)
    }));
    [
        vxlan_in(prefixes, log),
        regular("vxlan_forwarded", forwarded),
    ]
}

/// The other end of `notrack` in `vxlan_in`: what this node wraps.
///
/// Some forwarded packets pass the hook output too, and not `forward`: those that
/// IPVS has translated for a Service, and copies that a rule makes (`dup`, `TEE`).
/// They have been through conntrack, or been taken out of it, on their way in; what
/// the node itself wraps has not yet, which conntrack calls invalid. So one question
/// tells the two apart, and only packets of the overlay are asked.
///
/// Others' rules at the same priority may have taken the node's own packets out of
/// conntrack before, or given them a zone; and so may this chain itself, in the table
/// that is being replaced. These are told from what is passed on by their source, which
/// is the node's own: a pod's source was checked on its way in, and nothing masquerades
/// it before this hook. Nor does a stranger get here with such a source over IPv4, where
/// the kernel drops it as a martian; over IPv6 it has to be kept out of the underlay, as
/// any node's source.
fn vxlan_out(vxlan: &VxlanMatch, log: bool) -> [Chain; 3] {
    let entry = format!("{} goto vxlan_out", own_vxlan(vxlan));
    let out = ["ct state != invalid goto vxlan_passed_on", "notrack"];
    let mut passed_on = vec!["fib saddr type local return".to_owned()];
    passed_on.extend(for_each_family(|Words { ip, digit, .. }| {
        let to_node = format!("{ip} daddr @node_addresses{digit}");
        refuse(&to_node, VxlanFromPod, log)
    }));
    let place = ("filter", "output", RAW);
    [
        base("output_raw", place, vec![entry]),
        regular("vxlan_out", out.map(str::to_owned).into()),
        regular("vxlan_passed_on", passed_on),
    ]
}

/// Masquerading. Outer packets of VXLAN do not get here: they are not tracked.
fn masquerading(ruleset: &Ruleset) -> Vec<Chain> {
    let mut entry = Vec::new();
    let to_world = match ruleset.masquerade {
        Some(Masquerade::RandomFully) => Some("masquerade fully-random"),
        Some(Masquerade::Random) => Some("masquerade random"),
        Some(Masquerade::Off) | None => None,
    };
    let mut chains = Vec::new();
    if let Some(vxlan) = &ruleset.vxlan {
        entry.push(format!("oifname \"{}\" goto to_overlay", vxlan.device));
        // The answer to a source that is no pod's would take another way than
        // through this node. Not a matter of `--masquerade`: without it such
        // flows do not work at all.
        let mut rules: Vec<String> = for_each_family(|Words { ip, digit, .. }| {
            format!("{ip} saddr @cluster_cidrs{digit} return")
        })
        .collect();
        rules.push(to_world.unwrap_or("masquerade").to_owned());
        chains.push(regular("to_overlay", rules));
    }
    if let Some(masquerade) = to_world {
        let mut rules = Vec::new();
        for words in WORDS {
            let Words { ip, digit, .. } = words;
            let to_world = digit == '4' || ruleset.masquerade_ipv6;
            if to_world || ruleset.masquerade_nodes {
                entry.push(format!(
                    "{ip} saddr @local_cidrs{digit} goto from_local_pod"
                ));
                rules.extend(with_own_source(&words, to_world, ruleset.masquerade_nodes));
            }
        }
        rules.push(masquerade.to_owned());
        chains.push(regular("from_local_pod", rules));
    }
    if !entry.is_empty() {
        let place = ("nat", "postrouting", OVERLAY_SNAT);
        chains.insert(0, base("postrouting_nat", place, entry));
    }
    chains
}

/// The packets of a family from pods that keep their source: of the others some go
/// `to_world`, some `to_nodes`.
fn with_own_source(words: &Words, to_world: bool, to_nodes: bool) -> Vec<String> {
    let Words {
        ip,
        digit,
        multicast,
    } = words;
    if !to_world {
        return vec![format!("{ip} daddr != @underlay_addresses{digit} return")];
    }
    let mut rules = vec![
        format!("{ip} daddr @cluster_cidrs{digit} return"),
        format!("{ip} daddr {multicast} return"),
    ];
    if !to_nodes {
        rules.push(format!("{ip} daddr @underlay_addresses{digit} return"));
    }
    rules
}
