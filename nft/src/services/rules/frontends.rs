//! The chains that find the target of a flow's frontend: one set of them for the flows of
//! pods and from outside, another for those of this node.

use tweed_component::drops::DropReason::{SourceNotAllowed, UnknownAddress, Unsettled};
use tweed_core::ownership::{SERVICE_MASQUERADE_MARK, SERVICE_REMOTE_POD_MARK};

use super::{CLEAR, FOUND};
use crate::drops::refuse;
use crate::table::Chain;
use crate::words::{Words, regular};

/// The ports of a frontend.
const PORT: &str = "meta l4proto . th dport";

/// What a chain for the flows of one origin begins with: the packet goes twice through
/// `to`, where it is translated or refused. Also if it finds nothing: before Linux 6.17 a
/// lookup at the moment of a change could miss an element that is there before and after it
/// with other data (kernel commit b2f742c846ca).
fn twice(to: &str, digit: char, log: bool) -> Vec<String> {
    let marks = SERVICE_MASQUERADE_MARK | SERVICE_REMOTE_POD_MARK;
    let unmark = format!("ct mark set ct mark & {:#010x}", !marks);
    vec![
        // A number that others have given the packet, which could be taken for ours.
        format!("{FOUND} {CLEAR}"),
        format!("jump {to}"),
        format!("{FOUND} {CLEAR}"),
        unmark,
        format!("jump {to}"),
        refuse(FOUND, Unsettled, log),
        format!("goto service_unknown{digit}"),
    ]
}

/// The chain that looks up the frontend of a flow of an origin, `in` or `out`.
fn to_target(Words { ip, digit, .. }: &Words, origin: &str) -> Chain {
    let rules = vec![
        format!(
            "meta priority set {ip} daddr . {PORT} map @service_targets{digit} \
             goto service_address_{origin}{digit}"
        ),
        format!(
            "meta priority set {PORT} map @service_node_port_targets{digit} \
             goto service_node_port_{origin}{digit}"
        ),
    ];
    regular(format!("service_to_target_{origin}{digit}"), rules)
}

/// The rules for frontends that only some sources may reach. It is the same one twice, for
/// the reason that [`twice`] has: a limit that is missed would let everybody pass.
fn limit(Words { ip, digit, .. }: &Words, origin: &str) -> [String; 2] {
    let rule = format!(
        "meta priority set {ip} daddr . {PORT} map @service_limits{digit} \
         jump service_limit_{origin}{digit}"
    );
    [rule.clone(), rule]
}

/// The chain that lets a flow pass whose source may reach the frontend: the priority is
/// the limit's number, and afterwards the target's again.
fn limited(digit: char, origin: &str, passes: &str, log: bool) -> Chain {
    let rules = vec![
        format!("{passes} goto service_limit_passed{digit}"),
        refuse("", SourceNotAllowed, log),
    ];
    regular(format!("service_limit_{origin}{digit}"), rules)
}

/// The rule that says that a flow is masqueraded.
fn masquerade(condition: &str) -> String {
    mark(condition, SERVICE_MASQUERADE_MARK)
}

fn mark(condition: &str, mark: u32) -> String {
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
pub(super) fn of_flows_in(words: &Words, log: bool) -> Vec<Chain> {
    let Words { ip, digit, .. } = words;
    let mut chains = vec![
        regular(
            format!("service_in{digit}"),
            twice(&format!("service_to_target_in{digit}"), *digit, log),
        ),
        to_target(words, "in"),
    ];
    let address = format!("{ip} daddr . {PORT}");
    for (what, key, first) in [
        ("address", &*address, limit(words, "in").to_vec()),
        ("node_port", PORT, only_node(words).to_vec()),
    ] {
        let (sets, outside) = match what {
            "address" => ("addresses", "targets_outside"),
            _ => ("node_ports", "node_port_targets_outside"),
        };
        let mut rules = first;
        // Most of them are of this node, and networks are dearer to look up than addresses.
        rules.push(format!(
            "{ip} saddr @local_cidrs{digit} goto service_{what}_own_pod{digit}"
        ));
        rules.push(format!(
            "{ip} saddr @service_pods{digit} goto service_{what}_pod{digit}"
        ));
        // A client from outside for whom this is missed would get endpoints of other nodes
        // and keep its address, so that no answer came back: twice, as a limit.
        let outside = format!("meta priority set {key} map @service_{outside}{digit}");
        rules.extend([outside.clone(), outside]);
        rules.push(masquerade(&format!(
            "{key} != @service_{sets}_kept{digit} "
        )));
        rules.push("goto service_send".to_owned());
        chains.push(regular(format!("service_{what}_in{digit}"), rules));
        let own_pod = vec![
            masquerade(&format!("{key} @service_{sets}_masqueraded{digit} ")),
            "goto service_send".to_owned(),
        ];
        let pod = vec![
            mark("", SERVICE_REMOTE_POD_MARK),
            format!("goto service_{what}_own_pod{digit}"),
        ];
        chains.push(regular(format!("service_{what}_own_pod{digit}"), own_pod));
        chains.push(regular(format!("service_{what}_pod{digit}"), pod));
    }
    let passes = format!("meta priority . {ip} saddr @service_allowed{digit}");
    chains.push(limited(*digit, "in", &passes, log));
    // A limit's number leads nowhere: the packet starts again if its frontend is not there.
    let passed = format!("meta priority set {ip} daddr . {PORT} map @service_targets{digit}");
    chains.push(regular(
        format!("service_limit_passed{digit}"),
        vec![CLEAR.to_owned(), passed],
    ));
    chains
}

/// The flows of this node, which are all masqueraded: the source that it chose fits the
/// frontend's address and not the endpoint's.
pub(super) fn of_flows_out(words: &Words, log: bool) -> Vec<Chain> {
    let digit = words.digit;
    let send = [masquerade(""), "goto service_send".to_owned()];
    vec![
        regular(
            format!("service_out{digit}"),
            twice(&format!("service_to_target_out{digit}"), digit, log),
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
        limited(digit, "out", "meta priority @service_open_to_node", log),
    ]
}

/// Where the port is a node port and the address is none that has them.
pub(super) fn not_here(words: &Words) -> Chain {
    let name = format!("service_not_here{}", words.digit);
    regular(name, vec![CLEAR.to_owned()])
}

/// The flows that have no target. Where a network of cluster IPs has addresses of this node
/// by mistake it is reached at them nevertheless; those of other nodes, and of pods, are not in
/// these sets.
pub(super) fn unknown(Words { ip, digit, .. }: &Words, log: bool) -> Chain {
    let unknown = format!(
        "{ip} daddr @service_networks{digit} {ip} daddr != @service_foreign{digit} \
         fib daddr type != local"
    );
    let rules = vec![
        format!("{ip} daddr @service_cluster_ips{digit} goto service_reject"),
        refuse(&unknown, UnknownAddress, log),
    ];
    regular(format!("service_unknown{digit}"), rules)
}
