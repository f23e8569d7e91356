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
//!   carry packets of pods.
//!
//! The outer packets of the own overlay are kept out of conntrack on both ends:
//! the packet inside is tracked anyway, every flow in it would cost a second
//! entry, and a packet without an entry is rewritten by nobody's NAT.
//!
//! The order of conditions in a rule: the kernel compares bytes of the packet's
//! headers inline, and calls a function for all else (the protocol, a link's group, a
//! set), which is the main cost with the mitigations of most machines. So bytes that
//! few packets have are compared first, even before the protocol that gives them
//! their meaning: for most packets nothing else is evaluated (`docs/benchmarks.md`
//! has the figures).
//!
//! Fragments: conntrack puts them together at priority −400, before all of
//! these, in every namespace with a NAT chain. The table has one whenever it
//! has a VXLAN rule, so a VXLAN header cannot hide in a second fragment.

use super::Stage;
use super::sets::FAMILIES;
use crate::table::{Chain, Hook};
use tweed_core::family::Family;
use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::{POD_LINK_GROUP, Ruleset, VxlanMatch};

/// The place of a chain that packets enter by themselves.
fn at(kind: &'static str, hook: &'static str, stage: Stage) -> Option<Hook> {
    Some(Hook {
        kind,
        hook,
        priority: stage.priority(),
    })
}

/// What differs between the families in the text of a rule.
struct Words {
    /// The protocol: `ip`.
    ip: &'static str,
    /// The sets' digit.
    digit: char,
    /// The range of multicast.
    multicast: &'static str,
}

impl Words {
    const fn of(family: Family) -> Self {
        match family {
            Family::V4 => Self {
                ip: "ip",
                digit: '4',
                multicast: "224.0.0.0/4",
            },
            Family::V6 => Self {
                ip: "ip6",
                digit: '6',
                multicast: "ff00::/8",
            },
        }
    }
}

/// The same rule for each family.
fn for_each_family(rule: impl Fn(Words) -> String) -> impl Iterator<Item = String> {
    FAMILIES
        .into_iter()
        .map(move |family| rule(Words::of(family)))
}

/// An ICMP message of a type, by its number: `icmp type` would ask for the
/// protocol first.
fn icmp(protocol: &str, kind: u8) -> String {
    format!("@th,0,8 {kind} meta l4proto {protocol}")
}

fn refuse(condition: &str, why: &str) -> String {
    format!("{condition} counter drop comment \"{why}\"")
}

/// Every chain of the table.
pub(super) fn chains(ruleset: &Ruleset) -> Vec<Chain> {
    let vxlan = ruleset.vxlan.as_ref();
    let mut chains = vec![prerouting_raw(vxlan), from_pod(), from_pod_ipv6()];
    if let Some(vxlan) = vxlan {
        chains.extend(vxlan_filter(vxlan));
        chains.push(output_raw(vxlan));
    }
    chains.extend(masquerading(ruleset));
    chains
}

fn prerouting_raw(vxlan: Option<&VxlanMatch>) -> Chain {
    let mut rules = vec![format!("iifgroup {POD_LINK_GROUP} goto from_pod")];
    rules.extend(vxlan.map(|vxlan| format!("{} goto vxlan_in", own_vxlan(vxlan))));
    Chain {
        name: "prerouting_raw",
        hook: at("filter", "prerouting", Stage::Raw),
        rules,
    }
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
/// by: one rule for all pods, whatever `rp_filter` says.
fn from_pod() -> Chain {
    Chain {
        name: "from_pod",
        hook: None,
        rules: vec![
            refuse(
                "fib saddr . iif oif missing",
                "a source that is not the pod's",
            ),
            // The header's version, which is the family by then.
            "@nh,0,4 6 goto from_pod_ipv6".to_owned(),
            // `ip saddr 0.0.0.0/8`.
            // The lookup above lets 0.0.0.0 pass towards broadcast.
            refuse("@nh,96,8 0", "a source in 0.0.0.0/8"),
            refuse(&icmp("icmp", 5), "a redirect from a pod"),
        ],
    }
}

fn from_pod_ipv6() -> Chain {
    Chain {
        name: "from_pod_ipv6",
        hook: None,
        rules: vec![
            // `ip6 saddr fe80::/10`.
            refuse("@nh,64,16 & 0xffc0 == 0xfe80", "a link-local source"),
            // The lookup above lets :: pass towards multicast.
            refuse("@nh,64,32 0 ip6 saddr ::", "the source ::"),
            refuse(&icmp("icmpv6", 134), "a router advertisement from a pod"),
            refuse(&icmp("icmpv6", 137), "a redirect from a pod"),
        ],
    }
}

/// VXLAN is taken only from known nodes, at the addresses that nodes are known
/// by; none comes from a pod, and none is forwarded or rewritten to a node.
fn vxlan_filter(vxlan: &VxlanMatch) -> [Chain; 4] {
    let port = vxlan.port;
    let mut vxlan_in: Vec<String> = for_each_family(|Words { ip, digit, .. }| {
        format!("{ip} saddr @vxlan_sources{digit} {ip} daddr @node_addresses{digit} notrack return")
    })
    .collect();
    // To this node in whatever way; what only passes through (an overlay
    // between pods) is not our business.
    vxlan_in.push(refuse("fib daddr type != unicast", "VXLAN from a stranger"));
    [
        Chain {
            name: "vxlan_in",
            hook: None,
            rules: vxlan_in,
        },
        // A packet that came through DNAT may carry a known node's source, if
        // that node masqueraded it: the source says nothing here.
        Chain {
            name: "input",
            hook: at("filter", "input", Stage::Filter),
            rules: vec![
                refuse(
                    &format!("th dport {port} ct status dnat meta l4proto udp"),
                    "VXLAN through DNAT",
                ),
                refuse(
                    &format!("th dport {port} iifgroup {POD_LINK_GROUP} meta l4proto udp"),
                    "VXLAN from a pod",
                ),
            ],
        },
        Chain {
            name: "forward",
            hook: at("filter", "forward", Stage::Filter),
            rules: vec![format!(
                "th dport {port} meta l4proto udp goto vxlan_forwarded"
            )],
        },
        Chain {
            name: "vxlan_forwarded",
            hook: None,
            rules: for_each_family(|Words { ip, digit, .. }| {
                refuse(
                    &format!("{ip} daddr @node_addresses{digit}"),
                    "VXLAN forwarded to a node",
                )
            })
            .collect(),
        },
    ]
}

/// The other end of `notrack` in `vxlan_in`: what this node wraps.
fn output_raw(vxlan: &VxlanMatch) -> Chain {
    Chain {
        name: "output_raw",
        hook: at("filter", "output", Stage::Raw),
        rules: vec![format!("{} notrack", own_vxlan(vxlan))],
    }
}

/// Masquerading. Outer packets of VXLAN do not get here: they are not tracked.
fn masquerading(ruleset: &Ruleset) -> Vec<Chain> {
    let to_world = match ruleset.masquerade {
        Some(Masquerade::RandomFully) => Some("masquerade fully-random"),
        Some(Masquerade::Random) => Some("masquerade random"),
        Some(Masquerade::Off) | None => None,
    };
    let mut entry = Vec::new();
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
        chains.push(Chain {
            name: "to_overlay",
            hook: None,
            rules,
        });
    }
    if let Some(masquerade) = to_world {
        entry.extend(for_each_family(|Words { ip, digit, .. }| {
            format!("{ip} saddr @local_cidrs{digit} goto from_local_pod")
        }));
        let mut rules = Vec::new();
        for Words {
            ip,
            digit,
            multicast,
            ..
        } in FAMILIES.map(Words::of)
        {
            rules.push(format!("{ip} daddr @cluster_cidrs{digit} return"));
            rules.push(format!("{ip} daddr {multicast} return"));
            if !ruleset.masquerade_nodes {
                rules.push(format!("{ip} daddr @node_addresses{digit} return"));
            }
        }
        rules.push(masquerade.to_owned());
        chains.push(Chain {
            name: "from_local_pod",
            hook: None,
            rules,
        });
    }
    if !entry.is_empty() {
        chains.insert(
            0,
            Chain {
                name: "postrouting_nat",
                hook: at("nat", "postrouting", Stage::Snat),
                rules: entry,
            },
        );
    }
    chains
}
