//! The chains of Services. They name sets and never addresses, so no rule changes with
//! the Services; only the timeouts of session affinity have chains of their own.
//!
//! All of them but `service_invalid` are entered from chains of type `nat`, which see
//! the first packet of a flow alone: established flows pay nothing. `planner::services::
//! desired` numbers the steps that they take for it.
//!
//! - A number travels from lookup to lookup in `meta priority`: the target of the
//!   frontend, then a part of a group or the number of an endpoint. All of them have one
//!   of the two highest bits; what others had in the priority has not, or it is 0. A
//!   map's result is never put into a concatenation without that detour (see
//!   `policy/rules.rs`). `dnat` ends the way through the chains, so the number is taken
//!   out of the packet in `postrouting_nat`, before a queueing discipline could see it.
//! - A group's slots are looked up by an index that is drawn at random, in the chain for
//!   its number of slots. The sets may change between two lookups of one packet. What is
//!   found then fits nothing, and the packet starts again: once, and is dropped if
//!   that happens twice, so that its sender repeats it. It is never sent on untranslated.
//! - A client of a Service with affinity is remembered in `service_clients`, by the
//!   affinity key that the number of its endpoint lies above (`update` leaves what the
//!   map has for a key as it is and renews its timeout, so a stale endpoint is deleted
//!   first). A map that is full only means that a client is not remembered.
//! - Refusals stand here too, and not at the hooks of filters: a packet that comes so far
//!   has no flow yet, so there is nothing that every packet would have to be asked.
//! - The bit of the conntrack mark that orders masquerading is read once, in
//!   `postrouting_nat`, by the same packet that it was set for.

use std::collections::BTreeSet;

use tweed_core::family::Family;
use tweed_core::ownership::SERVICE_MASQUERADE_MARK;
use tweed_netlink::nf::verdict::Verdict;
use tweed_planner::services::desired::{AFFINITY_BLOCK, MAX_SLOTS, SCOPES, Scope};

use super::super::Stage;
use super::super::rules::{WORDS, Words, base, regular};
use super::sets::{self, DROP, REJECT};
use crate::table::Chain;

/// The counters of dropped packets, in the order of [`super::Refused`].
pub(super) const COUNTERS: [&str; 5] = [NO_LOCAL, UNKNOWN, LIMITED, UNSETTLED, INVALID];
const NO_LOCAL: &str = "service_no_local_endpoint";
const UNKNOWN: &str = "service_unknown_address";
const LIMITED: &str = "service_source_not_allowed";
const UNSETTLED: &str = "service_unsettled";
const INVALID: &str = "service_invalid_packet";

/// Holds where the priority is a number of these rules.
const FOUND: &str = "meta priority & 0xc0000000 != 0:0";
/// Holds where it is none.
const NOT_FOUND: &str = "meta priority & 0xc0000000 == 0:0";
/// Takes the number out of the packet.
const CLEAR: &str = "meta priority set 0:0";
/// The translation of ports wants to be told that the protocol has some.
const WITH_PORTS: &str = "meta l4proto { tcp, udp, sctp }";
/// The ports of a frontend.
const PORT: &str = "meta l4proto . th dport";

/// The chain that draws one of so many endpoints.
pub(super) fn draw_chain(slots: u8) -> String {
    format!("service_draw_{slots}")
}

/// The chain that draws one of so many parts.
pub(super) fn split_chain(slots: u8) -> String {
    format!("service_split_{slots}")
}

/// The chain of groups of a scope whose clients are remembered for so many seconds.
pub(super) fn affinity_chain(scope: Scope, timeout: u32) -> String {
    format!("service_affinity_{}_{timeout}", word(scope))
}

/// The timeout in the name of a chain that a group with affinity leads to.
pub(super) fn timeout(verdict: &Verdict) -> Option<u32> {
    let Verdict::Goto(chain) = verdict else {
        return None;
    };
    chain.rsplit_once('_')?.1.parse().ok()
}

/// How a scope is called in names.
fn word(scope: Scope) -> &'static str {
    match scope {
        Scope::Cluster => "cluster",
        Scope::Local => "local",
    }
}

/// The rule at the beginning of `forward`. Before conntrack has forgotten a flow that was
/// translated, a packet may come that does not fit it: untranslated it would end the
/// connection at whom it reaches.
pub(in super::super) fn in_forward() -> String {
    "ct state invalid meta l4proto tcp jump service_invalid".to_owned()
}

/// The rules at the beginning of `postrouting_nat`.
pub(in super::super) fn in_postrouting() -> Vec<String> {
    let mark = SERVICE_MASQUERADE_MARK;
    let mut rules = vec![
        format!("{FOUND} {CLEAR}"),
        format!("ct mark & {mark:#010x} == {mark:#010x} masquerade fully-random"),
    ];
    rules.extend(WORDS.iter().map(|Words { ip, digit, .. }| {
        let hairpin = format!("{ip} saddr . {ip} daddr @service_hairpin{digit}");
        format!("ct status dnat {hairpin} masquerade fully-random")
    }));
    rules
}

/// All chains, with those for these timeouts of affinity in seconds.
pub(in super::super) fn chains(timeouts: &BTreeSet<u32>) -> Vec<Chain> {
    let mut chains = Vec::new();
    for (hook, origin) in [("prerouting", "in"), ("output", "out")] {
        let name = match hook {
            "prerouting" => "service_prerouting",
            _ => "service_output",
        };
        let rules = vec![
            format!("meta nfproto ipv6 goto service_{origin}6"),
            format!("goto service_{origin}4"),
        ];
        chains.push(base(name, ("nat", hook, Stage::Dnat), rules));
    }
    for words in &WORDS {
        chains.extend(of_flows_in(words));
        chains.extend(of_flows_out(words));
        chains.push(not_here(words));
        chains.push(unknown(words));
    }
    chains.extend(sent_on());
    for slots in 1..=MAX_SLOTS {
        chains.push(draw(slots));
        chains.push(split(slots));
    }
    for timeout in timeouts {
        for scope in SCOPES {
            chains.push(affinity(scope, *timeout));
            chains.extend(WORDS.iter().map(|words| remembered(words, scope, *timeout)));
        }
        chains.extend(WORDS.iter().map(|words| remember(words, *timeout)));
    }
    chains.push(invalid());
    chains
}

/// What a chain for the flows of one origin begins with: the packet goes twice through
/// `to`, where it is translated or refused.
fn twice(to: &str, digit: char) -> Vec<String> {
    let unmark = format!("ct mark set ct mark & {:#010x}", !SERVICE_MASQUERADE_MARK);
    vec![
        // A number that others have given the packet, which could be taken for ours.
        format!("{FOUND} {CLEAR}"),
        format!("jump {to}"),
        format!("{NOT_FOUND} goto service_unknown{digit}"),
        CLEAR.to_owned(),
        unmark,
        format!("jump {to}"),
        format!("{FOUND} counter name {UNSETTLED} drop"),
        format!("goto service_unknown{digit}"),
    ]
}

/// The chain that looks up the frontend of a flow of an origin, `in` or `out`.
fn to_target(Words { ip, digit, .. }: &Words, origin: &str) -> Chain {
    let rules = vec![
        format!("meta priority set {ip} daddr . {PORT} map @service_addresses{digit}"),
        format!("{FOUND} goto service_address_{origin}{digit}"),
        format!("meta priority set {PORT} map @service_node_ports{digit}"),
        format!("{FOUND} goto service_node_port_{origin}{digit}"),
    ];
    regular(format!("service_to_target_{origin}{digit}"), rules)
}

/// The rule for frontends that only some sources may reach.
fn limit(Words { ip, digit, .. }: &Words, origin: &str) -> [String; 2] {
    [
        format!("meta priority set {ip} daddr . {PORT} map @service_limits{digit}"),
        format!("meta priority & 0xf0000000 == 0x70000000 jump service_limit_{origin}{digit}"),
    ]
}

/// The chain that lets a flow pass whose source may reach the frontend: the priority is
/// the limit's number, and afterwards the target's again.
fn limited(digit: char, origin: &str, passes: &str) -> Chain {
    let rules = vec![
        format!("{passes} goto service_limit_passed{digit}"),
        format!("counter name {LIMITED} drop"),
    ];
    regular(format!("service_limit_{origin}{digit}"), rules)
}

/// The rules that say that a flow is masqueraded.
fn masquerade(condition: &str) -> String {
    let mark = SERVICE_MASQUERADE_MARK;
    format!("{condition}ct mark set ct mark | {mark:#010x}")
}

/// The rules that turn away from a node port what is not to a node port's address.
fn only_node(Words { ip, digit, .. }: &Words) -> [String; 3] {
    [
        format!("fib daddr type != local goto service_not_here{digit}"),
        format!("{ip} daddr != @service_node_port_networks{digit} goto service_not_here{digit}"),
        format!("{ip} daddr @service_node_port_exceptions{digit} goto service_not_here{digit}"),
    ]
}

/// The flows of pods and from outside.
fn of_flows_in(words: &Words) -> Vec<Chain> {
    let Words { ip, digit, .. } = words;
    let mut chains = vec![
        regular(
            format!("service_in{digit}"),
            twice(&format!("service_to_target_in{digit}"), *digit),
        ),
        to_target(words, "in"),
    ];
    let address = format!("{ip} daddr . {PORT}");
    for (what, key, first) in [
        ("address", &*address, limit(words, "in").to_vec()),
        ("node_port", PORT, only_node(words).to_vec()),
    ] {
        let sets = match what {
            "address" => "addresses",
            _ => "node_ports",
        };
        let mut rules = first;
        rules.push(format!(
            "{ip} saddr @service_pods{digit} goto service_{what}_pod{digit}"
        ));
        rules.push(format!(
            "meta priority set {key} map @service_{sets}_outside{digit}"
        ));
        rules.push(masquerade(&format!(
            "{key} != @service_{sets}_kept{digit} "
        )));
        rules.push("goto service_send".to_owned());
        chains.push(regular(format!("service_{what}_in{digit}"), rules));
        let rules = vec![
            masquerade(&format!("{key} @service_{sets}_masqueraded{digit} ")),
            "goto service_send".to_owned(),
        ];
        chains.push(regular(format!("service_{what}_pod{digit}"), rules));
    }
    let passes = format!("meta priority . {ip} saddr @service_allowed{digit}");
    chains.push(limited(*digit, "in", &passes));
    let passed = format!("meta priority set {ip} daddr . {PORT} map @service_addresses{digit}");
    chains.push(regular(
        format!("service_limit_passed{digit}"),
        vec![passed],
    ));
    chains
}

/// The flows of this node, which are all masqueraded: the source that it chose fits the
/// frontend's address and not the endpoint's.
fn of_flows_out(words: &Words) -> Vec<Chain> {
    let digit = words.digit;
    let send = [masquerade(""), "goto service_send".to_owned()];
    vec![
        regular(
            format!("service_out{digit}"),
            twice(&format!("service_to_target_out{digit}"), digit),
        ),
        to_target(words, "out"),
        regular(
            format!("service_address_out{digit}"),
            [&limit(words, "out")[..], &send].concat(),
        ),
        regular(
            format!("service_node_port_out{digit}"),
            [&only_node(words)[..], &send].concat(),
        ),
        limited(digit, "out", "meta priority @service_open_to_node"),
    ]
}

/// Where the port is a node port and the address is none that has them.
fn not_here(words: &Words) -> Chain {
    let name = format!("service_not_here{}", words.digit);
    regular(name, vec![CLEAR.to_owned()])
}

/// The flows that have no target.
fn unknown(Words { ip, digit, .. }: &Words) -> Chain {
    let rules = vec![
        format!("{ip} daddr @service_cluster_ips{digit} goto service_reject"),
        format!(
            "{ip} daddr @service_networks{digit} {ip} daddr != @service_foreign{digit} \
             counter name {UNKNOWN} drop"
        ),
    ];
    regular(format!("service_unknown{digit}"), rules)
}

/// What becomes of a flow that has a target.
fn sent_on() -> [Chain; 3] {
    [
        regular(
            "service_send",
            vec![
                "meta priority & 0x80000000 != 0:0 meta priority vmap @service_affinities"
                    .to_owned(),
                "meta priority vmap @service_groups".to_owned(),
                format!("meta priority {REJECT:#010x} goto service_reject"),
                format!("meta priority {DROP:#010x} counter name {NO_LOCAL} drop"),
            ],
        ),
        regular(
            "service_pick",
            vec!["meta priority vmap @service_groups".to_owned()],
        ),
        regular(
            "service_reject",
            vec![
                "meta l4proto tcp reject with tcp reset".to_owned(),
                "reject with icmpx type port-unreachable".to_owned(),
            ],
        ),
    ]
}

fn draw(slots: u8) -> Chain {
    let slot = format!("meta priority . numgen random mod {slots}");
    let mut rules: Vec<String> = WORDS
        .iter()
        .map(|Words { ip, digit, .. }| {
            format!("{WITH_PORTS} dnat {ip} to {slot} map @service_slots{digit}")
        })
        .collect();
    rules.push(format!(
        "meta priority set {slot} map @service_member_slots"
    ));
    regular(draw_chain(slots), rules)
}

fn split(slots: u8) -> Chain {
    let rules = vec![
        format!("meta priority set meta priority . numgen random mod {slots} map @service_parts"),
        "meta priority vmap @service_part_groups".to_owned(),
    ];
    regular(split_chain(slots), rules)
}

fn affinity(scope: Scope, timeout: u32) -> Chain {
    let word = word(scope);
    let rules = vec![
        format!("meta nfproto ipv6 goto service_{word}6_{timeout}"),
        format!("goto service_{word}4_{timeout}"),
    ];
    regular(affinity_chain(scope, timeout), rules)
}

/// The expression for what the client is known by.
fn client(words: &Words) -> &'static str {
    let family = match words.digit {
        '4' => Family::V4,
        _ => Family::V6,
    };
    sets::client(family).expression()
}

/// The chain that finds a client's endpoint again, or draws one.
fn remembered(words: &Words, scope: Scope, timeout: u32) -> Chain {
    let (client, digit) = (client(words), words.digit);
    let key = !(AFFINITY_BLOCK - 1);
    let to_key = format!("meta priority set meta priority & {key:#010x}");
    let is_local = scope == Scope::Local;
    let members = format!("service_members_{}", word(scope));
    let mut rules = Vec::new();
    rules.extend(is_local.then(|| to_key.clone()));
    rules.extend([
        format!("meta priority set {client} . meta priority map @service_clients{digit}"),
        format!("meta priority @{members} goto service_remember{digit}_{timeout}"),
        to_key,
        format!("delete @service_clients{digit} {{ {client} . meta priority : meta priority }}"),
    ]);
    // The group's own number again: it stands behind the one for the cluster.
    rules.extend(is_local.then(|| format!("meta priority set meta priority & {key:#010x} | 0x1")));
    rules.extend([
        "jump service_pick".to_owned(),
        format!("meta priority @{members} goto service_remember{digit}_{timeout}"),
    ]);
    regular(format!("service_{}{digit}_{timeout}", word(scope)), rules)
}

/// The chain that remembers a client's endpoint and sends the flow there.
fn remember(words: &Words, timeout: u32) -> Chain {
    let (client, Words { ip, digit, .. }) = (client(words), words);
    let key = !(AFFINITY_BLOCK - 1);
    let rules = vec![
        format!(
            "update @service_clients{digit} {{ {client} . meta priority & {key:#010x} \
             timeout {timeout}s : meta priority }}"
        ),
        format!("{WITH_PORTS} dnat {ip} to meta priority map @service_endpoints{digit}"),
    ];
    regular(format!("service_remember{digit}_{timeout}"), rules)
}

/// The TCP packets of no flow that conntrack knows: those from or to pods, and those to
/// Services, would have been translated.
fn invalid() -> Chain {
    let mut rules = Vec::new();
    for Words { ip, digit, .. } in &WORDS {
        rules.extend([
            format!("{ip} saddr @service_pods{digit} counter name {INVALID} drop"),
            format!("{ip} daddr @service_pods{digit} counter name {INVALID} drop"),
            format!("{ip} daddr @service_networks{digit} counter name {INVALID} drop"),
            format!("{ip} daddr @service_cluster_ips{digit} counter name {INVALID} drop"),
        ]);
    }
    regular("service_invalid", rules)
}
