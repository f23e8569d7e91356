//! The chains of policy. They name sets and never addresses, so no rule changes with the
//! pods or the policies.
//!
//! The way of a packet: `forward`, and `input` for packets from pods' links, look up
//! `policy_entry` by the packet's family and get to the chain of the generation in force
//! (`policy_1` to `policy_31`). There a flow that carries the generation's number in its
//! conntrack mark passes: this is all that established flows pay. Any other goes through
//! `policy_judge`, and gets the number if it comes back from there.
//!
//! - To evaluate a direction, numbers travel from lookup to lookup in `meta priority`: the
//!   other end's identity, then the profile, then the range profile. A lookup that finds
//!   nothing ends its rule, and the number stays as it is. A map's result is never put
//!   into a concatenation without that detour: nft 1.0.6 aborts on listing such a rule,
//!   and with it the listing of every other table of the host. Afterwards the priority
//!   is 0, since a queueing discipline such as HTB takes it for a class. What it was
//!   before, by the type of service, is lost for the first packet of a flow.
//! - Replies are evaluated with their ends swapped, as the flow that they belong to: the
//!   reply packets of a flow that may no longer be are dropped too. At this hook they
//!   carry the pods' own addresses: a source that DNAT had hidden is put back later, a
//!   destination that was masqueraded is put back earlier.
//! - Errors of ICMP that conntrack relates to a flow pass and mark nothing: the entry that
//!   they show is the flow's. So does the answer of TCP by which the kernel rejects a packet,
//!   as that to a Service without endpoints: it comes to `output` from an address that is
//!   nobody's.
//! - Packets that others took out of conntrack (`notrack`, as a node-local DNS cache does)
//!   are evaluated each, by the direction in which they go: both directions of such a flow
//!   have to be allowed.
//! - Fragments never come here: conntrack puts packets together at priority −400, because
//!   these rules use `ct`. So all packets have their ports.
//! - Node to pod passes by the hook `output`; what a pod answers passes in `policy_input`.
//!   Neighbour discovery and multicast listener reports to the node always pass there:
//!   IPv6 does not work without them, and they are not forwarded. Link-local sources of
//!   pods do not get here, `from_pod_ipv6` drops them.
//! - What IPVS sends on for a Service passes `output` too and not `forward`, with a source
//!   that is not the node's. Each of these packets is evaluated there: `input` has evaluated the
//!   flow by the Service's address, and the mark says no more than that.

use tweed_component::drops::DropReason;
use tweed_core::ownership::{LINK_GROUP, POLICY_MARK_MASK};
use tweed_planner::policy::verdicts::{DIRECTIONS, Direction, SELF};

use super::generation::{ENTRY, Generation};
use super::sets::word;
use crate::drops::{drop_rule, log_rule};
use crate::table::Chain;
use crate::tables::POLICY_FILTER;
use crate::words::{WORDS, Words, base, regular};

/// Leads a packet to the chain of the generation in force.
fn entry() -> String {
    format!("meta nfproto vmap @{ENTRY}")
}

/// The rules of `output`.
fn in_output() -> Vec<String> {
    let rules = WORDS.iter().flat_map(|Words { ip, digit, .. }| {
        ["saddr", "daddr"].map(|end| {
            // The node's link-local sources are no addresses of all its links.
            let own = match digit {
                '6' => "ip6 saddr != fe80::/10 ",
                _ => "",
            };
            format!("{ip} {end} @local_cidrs{digit} {own}fib saddr type != local goto policy_judge")
        })
    });
    rules.collect()
}

/// All chains. With `log` packets are logged before they are dropped.
pub(super) fn chains(log: bool) -> Vec<Chain> {
    let from_pods = format!("iifgroup {LINK_GROUP} goto policy_input");
    let mut chains = Vec::new();
    for (name, rules) in [
        ("input", vec![from_pods]),
        ("forward", vec![entry()]),
        ("output", in_output()),
    ] {
        chains.push(base(name, ("filter", name, POLICY_FILTER), rules));
    }
    chains.push(input());
    chains.extend(Generation::all().map(of_generation));
    chains.push(evaluate());
    for words in &WORDS {
        chains.push(original(words, log));
        chains.push(reply(words, log));
    }
    for words in &WORDS {
        for direction in DIRECTIONS {
            for is_reply in [false, true] {
                chains.push(one_direction(words, direction, is_reply, log));
            }
        }
    }
    chains
}

fn input() -> Chain {
    regular(
        "policy_input",
        vec![
            "ct direction reply return".to_owned(),
            // Multicast listener 130 to 132 and 143, neighbour discovery 133 to 137.
            "icmpv6 type { 130, 131, 132, 133, 134, 135, 136, 137, 143 } return".to_owned(),
            entry(),
        ],
    )
}

fn of_generation(generation: Generation) -> Chain {
    let mark = generation.mark();
    let rules = vec![
        format!("ct mark & {POLICY_MARK_MASK:#010x} == {mark:#010x} return"),
        "jump policy_judge".to_owned(),
        format!(
            "ct mark set ct mark & {:#010x} | {mark:#010x}",
            !POLICY_MARK_MASK
        ),
    ];
    regular(generation.chain(), rules)
}

fn evaluate() -> Chain {
    regular(
        "policy_judge",
        vec![
            "meta l4proto icmp ct state related accept".to_owned(),
            "meta l4proto icmpv6 ct state related accept".to_owned(),
            // No other packet of TCP is related to a flow and goes in the direction of its
            // replies (`nf_ct_attach`).
            "meta l4proto tcp ct direction reply ct state related accept".to_owned(),
            "meta nfproto ipv6 goto policy_judge6".to_owned(),
            "goto policy_judge4".to_owned(),
        ],
    )
}

/// The chain that evaluates one direction of a flow by its original or its reply packets.
fn direction_chain(words: &Words, direction: Direction, is_reply: bool) -> String {
    let way = match direction {
        Direction::In => "to",
        Direction::Out => "from",
    };
    let reply = if is_reply { "_reply" } else { "" };
    format!("policy_{way}{reply}{}", words.digit)
}

/// The rules that evaluate both directions of a flow, where `source` and `destination` are
/// the words for the ends of its original direction.
fn both_directions(words: &Words, is_reply: bool) -> Vec<String> {
    let Words { ip, digit, .. } = words;
    let (source, destination) = ends(is_reply);
    let rule = |direction, local| {
        let chain = direction_chain(words, direction, is_reply);
        let set = word(direction);
        format!("{ip} {local} @policy_{set}{digit} jump {chain}")
    };
    vec![
        rule(Direction::Out, source),
        rule(Direction::In, destination),
        "meta priority set 0:0".to_owned(),
    ]
}

/// Where a packet has the source and the destination of its flow.
fn ends(is_reply: bool) -> (&'static str, &'static str) {
    if is_reply {
        ("daddr", "saddr")
    } else {
        ("saddr", "daddr")
    }
}

/// The rules that drop packets from and to local addresses that are not enforced yet.
fn isolation(words: &Words, is_reply: bool, log: bool) -> Vec<String> {
    let Words { ip, digit, .. } = words;
    let rules = ["saddr", "daddr"].into_iter().flat_map(|end| {
        let isolated =
            format!("{ip} {end} @local_cidrs{digit} {ip} {end} != @policy_judged{digit}");
        drop(&isolated, DropReason::NotEnforced, is_reply, log)
    });
    rules.collect()
}

/// Replies have a chain of their own from the start, so that the log of each drop says
/// which way the flow goes.
fn original(words: &Words, log: bool) -> Chain {
    let digit = words.digit;
    let mut rules = vec![format!("ct direction reply goto policy_reply{digit}")];
    rules.extend(isolation(words, false, log));
    rules.extend(both_directions(words, false));
    regular(format!("policy_judge{digit}"), rules)
}

fn reply(words: &Words, log: bool) -> Chain {
    let mut rules = isolation(words, true, log);
    rules.extend(both_directions(words, true));
    regular(format!("policy_reply{}", words.digit), rules)
}

/// Judges one direction: comes back if the flow is allowed. The planner's `policy::verdicts`
/// and `policy::desired` number the steps.
fn one_direction(words: &Words, direction: Direction, is_reply: bool, log: bool) -> Chain {
    let Words { ip, digit, .. } = words;
    let (source, destination) = ends(is_reply);
    let (local, other, reason) = match direction {
        Direction::In => (destination, source, DropReason::PolicyIngress),
        Direction::Out => (source, destination, DropReason::PolicyEgress),
    };
    let port = if is_reply { "sport" } else { "dport" };
    let pairs = word(direction);
    let mut rules = vec![
        "meta priority set 0:0".to_owned(),
        format!("{ip} saddr . {ip} daddr @policy_self{digit} meta priority set 0:{SELF:x}"),
        format!("meta priority 0:0 meta priority set {ip} {other} map @policy_ids{digit}"),
        format!("meta priority 0:0 meta priority set {ip} {other} map @policy_nets{digit}"),
        format!("meta priority set {ip} {local} . meta priority map @policy_pairs_{pairs}{digit}"),
        "meta priority @policy_open return".to_owned(),
        format!("meta priority . meta l4proto . th {port} @policy_exact return"),
        "meta priority set meta priority . meta l4proto map @policy_range_profiles".to_owned(),
        format!("meta priority . th {port} @policy_ranges return"),
    ];
    rules.extend(drop("", reason, is_reply, log));
    regular(direction_chain(words, direction, is_reply), rules)
}

/// The rules that drop packets for which `condition` holds.
fn drop(condition: &str, reason: DropReason, is_reply: bool, log: bool) -> Vec<String> {
    log.then(|| log_rule(condition, reason, is_reply))
        .into_iter()
        .chain([drop_rule(condition, reason)])
        .collect()
}
