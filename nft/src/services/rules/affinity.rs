//! The chains of Services with affinity: each timeout has its own, because a rule says for
//! how long a client is remembered, and not the element of a map.

use tweed_netlink::nf::verdict::Verdict;
use tweed_planner::services::desired::{AFFINITY_BLOCK, GROUP_DISTANCE, SCOPES, Scope};

use super::super::clients::client;
use super::WITH_PORTS;
use crate::table::Chain;
use crate::words::{WORDS, Words, regular};

/// The chain of groups of a scope whose clients are remembered for so many seconds.
pub(in crate::services) fn affinity_chain(scope: Scope, timeout: u32) -> String {
    format!("service_affinity_{}_{timeout}", word(scope))
}

/// The timeout in the name of a chain that a group with affinity leads to.
pub(in crate::services) fn timeout(verdict: &Verdict) -> Option<u32> {
    let Verdict::Goto(chain) = verdict else {
        return None;
    };
    chain.rsplit_once('_')?.1.parse().ok()
}

/// All chains of one timeout, in seconds.
pub(super) fn of_timeout(timeout: u32) -> Vec<Chain> {
    let mut chains = Vec::new();
    for scope in SCOPES {
        chains.push(affinity(scope, timeout));
        chains.extend(WORDS.iter().map(|words| remembered(words, scope, timeout)));
    }
    chains.extend(WORDS.iter().map(|words| remember(words, timeout)));
    chains
}

/// How a scope is called in names.
fn word(scope: Scope) -> &'static str {
    match scope {
        Scope::Cluster => "cluster",
        Scope::Local => "local",
    }
}

fn affinity(scope: Scope, timeout: u32) -> Chain {
    let word = word(scope);
    let rules = vec![
        format!("meta nfproto ipv6 goto service_{word}6_{timeout}"),
        format!("goto service_{word}4_{timeout}"),
    ];
    regular(affinity_chain(scope, timeout), rules)
}

/// The chain that finds a client's endpoint again, or draws one.
fn remembered(words: &Words, scope: Scope, timeout: u32) -> Chain {
    let (client, digit) = (client(words.digit), words.digit);
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
    rules.extend(
        is_local.then(|| {
            format!("meta priority set meta priority & {key:#010x} | {GROUP_DISTANCE:#x}")
        }),
    );
    rules.extend([
        "jump service_pick".to_owned(),
        format!("meta priority @{members} goto service_remember{digit}_{timeout}"),
    ]);
    regular(format!("service_{}{digit}_{timeout}", word(scope)), rules)
}

/// The chain that remembers a client's endpoint and sends the flow there.
fn remember(words: &Words, timeout: u32) -> Chain {
    let (client, Words { ip, digit, .. }) = (client(words.digit), words);
    let key = !(AFFINITY_BLOCK - 1);
    let mut rules = vec![format!(
        "update @service_clients{digit} {{ {client} . meta priority & {key:#010x} \
             timeout {timeout}s : meta priority }}"
    )];
    rules.extend(WITH_PORTS.map(|with_ports| {
        format!("{with_ports} dnat {ip} to meta priority map @service_endpoints{digit}")
    }));
    regular(format!("service_remember{digit}_{timeout}"), rules)
}
