//! The rules that drop packets, each with a counter of its reason, and what these have counted.

use tweed_component::drops::{DropReason, Dropped, Owner};
use tweed_core::ownership::POLICY_LOG_GROUP;
use tweed_netlink::nf::Socket;
use tweed_netlink::nf::object::TableKey;

use crate::error::Error;
use crate::table::Chain;
use crate::tables::{POLICY_TABLE, SERVICES_TABLE, TABLE};
use crate::words::regular;

/// What is logged at most of each kind of drop, so that a flood does not fill the log.
const LOG_LIMIT: &str = "limit rate 10/second burst 50 packets";

/// The counters of a table.
pub(crate) fn counters(owner: Owner) -> Vec<&'static str> {
    DropReason::of(owner).map(DropReason::word).collect()
}

/// The rule that drops and counts the packets for which `condition` holds, or all. With `log`
/// it leads to the chain that logs them before ([`log_chains`]): only they pay for it.
pub(crate) fn refuse(condition: &str, reason: DropReason, log: bool) -> String {
    if log && is_logged(reason) {
        return format!("{condition} goto {}", chain(reason))
            .trim_start()
            .to_owned();
    }
    drop_rule(condition, reason)
}

/// The rule that drops and counts.
pub(crate) fn drop_rule(condition: &str, reason: DropReason) -> String {
    let rule = format!("{condition} counter name {reason} drop");
    rule.trim_start().to_owned()
}

/// The rule that logs before such a rule. The prefix names the reason; that of a reply says so,
/// as the agent's drop log names the ends of the flow and not those of the packet.
pub(crate) fn log_rule(condition: &str, reason: DropReason, is_reply: bool) -> String {
    let suffix = if is_reply { " reply" } else { "" };
    let prefix = format!("tweed {reason}{suffix}: ");
    let rule = format!("{condition} {LOG_LIMIT} log prefix \"{prefix}\" group {POLICY_LOG_GROUP}");
    rule.trim_start().to_owned()
}

/// The chains that log for each reason of a table and drop, if `log`.
pub(crate) fn log_chains(owner: Owner, log: bool) -> impl Iterator<Item = Chain> {
    let reasons = DropReason::of(owner).filter(move |reason| log && is_logged(*reason));
    reasons.map(|reason| {
        let rules = vec![log_rule("", reason, false), drop_rule("", reason)];
        regular(chain(reason), rules)
    })
}

/// Not what kernels of pods send all the time, nor what the sender is told.
fn is_logged(reason: DropReason) -> bool {
    !matches!(reason, DropReason::LinkLocalSource | DropReason::NoEndpoint)
}

fn chain(reason: DropReason) -> String {
    format!("drop-{reason}")
}

fn table(owner: Owner) -> TableKey<'static> {
    match owner {
        Owner::Overlay => TABLE,
        Owner::Policy => POLICY_TABLE,
        Owner::Services => SERVICES_TABLE,
    }
}

/// What the rules in the calling thread's network namespace have dropped, each table since it
/// was made. A table that is not there has no reasons. No other table is listed.
///
/// # Errors
/// The kernel cannot be asked.
pub fn dropped() -> Result<Vec<Dropped>, Error> {
    let mut socket = Socket::open()?;
    let mut all = Vec::new();
    for owner in [Owner::Overlay, Owner::Policy, Owner::Services] {
        let counters = table(owner).counted(&mut socket)?;
        all.extend(DropReason::of(owner).filter_map(|reason| {
            let counter = counters.iter().find(|one| one.name == reason.word())?;
            Some(Dropped {
                reason,
                packets: counter.packets,
                bytes: counter.bytes,
            })
        }));
    }
    Ok(all)
}
