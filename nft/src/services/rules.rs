//! The chains of Services. They name sets and never addresses, so no rule changes with
//! the Services; only the timeouts of session affinity have chains of their own.
//!
//! All of them but `service_invalid` and `service_invalid_to_node` are entered from chains of type `nat`, which see
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
//!   its number of slots, which the target has in its lowest bits: a map of verdicts by
//!   group would be checked by the kernel as a whole for each of its elements that comes
//!   (`nft_lookup_validate`). The sets may change between two lookups of one packet. What
//!   is found then fits nothing, and the packet starts again: once, and is dropped if
//!   that happens twice, so that its sender repeats it.
//! - A client of a Service with affinity is remembered in `service_clients`, by the
//!   affinity key that the number of its endpoint lies above (`update` leaves what the
//!   map has for a key as it is and renews its timeout, so a stale endpoint is deleted
//!   first). A map that is full only means that a client is not remembered.
//! - Refusals stand here too, and not at the hooks of filters: a packet that comes so far
//!   has no flow yet, so there is nothing that every packet would have to be asked.
//! - The two bits of the conntrack mark by which flows are masqueraded are read once, in
//!   `postrouting_nat`, by the same packet that they were set for. They tell the flows that
//!   these rules have translated from those that others have.

mod affinity;
mod draws;
mod frontends;

use std::collections::BTreeSet;

use tweed_component::drops::DropReason::InvalidState;
use tweed_component::drops::Owner;
use tweed_core::object::service::DEFAULT_AFFINITY_SECONDS;
use tweed_core::ownership::{SERVICE_MASQUERADE_MARK, SERVICE_REMOTE_POD_MARK};
use tweed_planner::services::desired::MAX_SLOTS;

use crate::drops::{log_chains, refuse};
use crate::table::Chain;
use crate::tables::{SERVICES_DNAT, SERVICES_FILTER, SERVICES_SNAT};
use crate::words::{WORDS, Words, base, regular};
pub(super) use affinity::{affinity_chain, timeout};
pub(super) use draws::{
    AFFINITY, DROP, LEADS, OF_PARTS, OF_PARTS_OF_GROUPS, OF_TARGETS, REFUSED, REJECT, REJECTED,
    draw_chain, split_chain,
};

/// Holds where the priority is a number of these rules.
const FOUND: &str = "meta priority & 0xc0000000 != 0:0";
/// Leaves the answer as it is by which the kernel rejects a packet. It comes to the hook
/// `output` as part of the rejected flow, and would else be taken for a first packet to the
/// port of the client: a client on this node whose port is also a node port without
/// endpoints would never be told, because nothing answers a rejection.
const REJECTION: &str = "ct direction reply return";
/// Takes the number out of the packet.
const CLEAR: &str = "meta priority set 0:0";
/// The translation of ports wants to be told that the protocol has some; only flows of
/// TCP, UDP (17) and SCTP (132) come so far. Not by their names: of a map that is in the
/// kernel already, nft 1.0.6 takes the data for the expression that it was declared by,
/// the port of TCP, and refuses it beside any protocol but TCP. In a range it sees none.
///
/// TCP comes first and alone: a comparison is cheaper than a set of ranges, and such a set has
/// no elements for a moment after its rule was made (`crate::keeper::replace`).
const WITH_PORTS: [&str; 2] = ["meta l4proto tcp", "meta l4proto { tcp, 17-132 }"];

/// The rule of `forward`. Before conntrack has forgotten a flow that was
/// translated, a packet may come that does not fit it: untranslated it would end the
/// connection at whom it reaches. A connection without a Service is not looked at: of one whose
/// directions take two ways each packet is invalid.
const IN_FORWARD: &str = "ct state invalid meta l4proto tcp jump service_invalid";

/// The rule of `input`. The answers of a flow that was masqueraded come to
/// an address of the node. One that does not fit the flow is not translated back: the node
/// itself would get it, and end the connection of a pod that it knows nothing of.
const IN_INPUT: &str = "ct state invalid meta l4proto tcp jump service_invalid_to_node";

/// The rules of `postrouting_nat`.
fn in_postrouting() -> [String; 3] {
    [
        format!("{FOUND} {CLEAR}"),
        masqueraded(&has(SERVICE_MASQUERADE_MARK)),
        "ct status dnat jump service_translated".to_owned(),
    ]
}

fn has(mark: u32) -> String {
    format!("ct mark & {mark:#010x} == {mark:#010x}")
}

fn masqueraded(condition: &str) -> String {
    format!("{condition} masquerade fully-random")
}

/// The chain of flows that leave translated, by these rules or by those of others.
fn translated() -> Chain {
    let hairpin = WORDS.iter().map(|Words { ip, digit, .. }| {
        masqueraded(&format!("{ip} saddr . {ip} daddr @service_hairpin{digit}"))
    });
    // A pod of another node is sent to somebody who is not a pod of this node either, and
    // may be that pod itself: the answer has to come back here, and the way of a pod's
    // packets to another one is not through a third node.
    let remote = WORDS.iter().map(|Words { ip, digit, .. }| {
        let is_remote = has(SERVICE_REMOTE_POD_MARK);
        masqueraded(&format!("{is_remote} {ip} daddr != @local_cidrs{digit}"))
    });
    regular("service_translated", hairpin.chain(remote).collect())
}

/// All chains, with those for these timeouts of affinity in seconds beside the default. With
/// `log` packets are logged before they are dropped.
pub(super) fn chains(timeouts: &BTreeSet<u32>, log: bool) -> Vec<Chain> {
    let postrouting = ("nat", "postrouting", SERVICES_SNAT);
    let mut chains: Vec<Chain> = log_chains(Owner::Services, log).collect();
    chains.extend([
        base(
            "input",
            ("filter", "input", SERVICES_FILTER),
            vec![IN_INPUT.to_owned()],
        ),
        base(
            "forward",
            ("filter", "forward", SERVICES_FILTER),
            vec![IN_FORWARD.to_owned()],
        ),
        base("postrouting_nat", postrouting, in_postrouting().into()),
    ]);
    for (hook, origin) in [("prerouting", "in"), ("output", "out")] {
        let name = match hook {
            "prerouting" => "service_prerouting",
            _ => "service_output",
        };
        let mut rules = vec![
            format!("meta nfproto ipv6 goto service_{origin}6"),
            format!("goto service_{origin}4"),
        ];
        if hook == "output" {
            rules.insert(0, REJECTION.to_owned());
        }
        chains.push(base(name, ("nat", hook, SERVICES_DNAT), rules));
    }
    for words in &WORDS {
        chains.extend(frontends::of_flows_in(words, log));
        chains.extend(frontends::of_flows_out(words, log));
        chains.push(frontends::not_here(words));
        chains.push(frontends::unknown(words, log));
    }
    chains.extend(draws::sent_on(log));
    for slots in 1..=MAX_SLOTS {
        chains.push(draws::draw(slots));
        chains.push(draws::split(slots));
    }
    let mut timeouts = timeouts.clone();
    timeouts.insert(DEFAULT_AFFINITY_SECONDS);
    chains.extend(timeouts.into_iter().flat_map(affinity::of_timeout));
    chains.extend([translated(), invalid(log), invalid_to_node(log)]);
    chains
}

/// Holds of a packet that an endpoint sends.
fn from_endpoint(Words { ip, digit, .. }: &Words) -> String {
    format!("{ip} saddr . th sport @service_tcp_endpoints{digit}")
}

/// The TCP packets of no flow that conntrack knows and that would have been translated: those to
/// Services, and those of their endpoints from or to pods of this node. A flow with no end here
/// is masqueraded if it is translated at all, so its answers are not forwarded. Of any other one
/// the two directions may take two ways, of which this node is on one, and then each packet is
/// invalid.
fn invalid(log: bool) -> Chain {
    let mut rules = Vec::new();
    for words @ Words { ip, digit, .. } in &WORDS {
        let answers = from_endpoint(words);
        let conditions = [
            format!("{answers} {ip} saddr @local_cidrs{digit}"),
            format!("{answers} {ip} daddr @local_cidrs{digit}"),
            format!("{ip} daddr @service_networks{digit}"),
            format!("{ip} daddr @service_cluster_ips{digit}"),
        ];
        rules.extend(conditions.map(|condition| refuse(&condition, InvalidState, log)));
    }
    regular("service_invalid", rules)
}

/// The same to the node itself: of endpoints that are pods, of any node.
fn invalid_to_node(log: bool) -> Chain {
    let rules = WORDS.iter().map(|words @ Words { ip, digit, .. }| {
        let answers = from_endpoint(words);
        let condition = format!("{answers} {ip} saddr @service_pods{digit}");
        refuse(&condition, InvalidState, log)
    });
    regular("service_invalid_to_node", rules.collect())
}
