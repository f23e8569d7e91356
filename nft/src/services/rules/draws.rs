//! The chains that send a flow on that has a target: to one of the endpoints of a group, or
//! to nobody.
//!
//! For each verdict that comes into a map, kernels before Linux 6.12 or so check all rules
//! again, as often as they can be reached (`nft_chain_validate`). So a part of a group is
//! drawn by a chain that comes back, and what comes after it stands once and not behind each
//! of those chains; and a group with affinity leads to a chain of its own only if its timeout
//! is not the default.

use tweed_component::drops::DropReason::{NoEndpoint, NoLocalEndpoint};
use tweed_core::object::service::DEFAULT_AFFINITY_SECONDS;
use tweed_planner::services::desired::{GROUP_DISTANCE, Number, Scope};

use super::WITH_PORTS;
use super::affinity::affinity_chain;
use crate::drops::refuse;
use crate::table::Chain;
use crate::words::{WORDS, Words, regular};

/// The lowest bits of a number that leads on, in which rules look up where to. Below the
/// number of a group without affinity or a part they have how many slots it has; below one
/// with affinity nothing.
pub(in crate::services) const LEADS: Number = GROUP_DISTANCE - 1;
/// The bit of [`LEADS`] by which the slots hold parts of the group.
pub(in crate::services) const OF_PARTS: Number = 0x80;
/// The numbers that refusals have in place of a group's: no group and no limit has them.
pub(in crate::services) const REJECT: Number = 0x6fff_fff0;
/// See [`REJECT`].
pub(in crate::services) const DROP: Number = 0x6fff_fff1;

/// The chain that draws one of so many endpoints.
pub(in crate::services) fn draw_chain(slots: u8) -> String {
    format!("service_draw_{slots}")
}

/// The chain that draws one of so many parts.
pub(in crate::services) fn split_chain(slots: u8) -> String {
    format!("service_split_{slots}")
}

/// The chain of targets with affinity.
pub(in crate::services) const AFFINITY: &str = "service_affinity";
/// The chain of targets without endpoints.
pub(in crate::services) const REJECTED: &str = "service_reject";
/// The chain of targets without endpoints on this node.
pub(in crate::services) const REFUSED: &str = "service_drop";

/// The map of targets.
pub(in crate::services) const OF_TARGETS: &str = "service_leads";
/// The map of parts of groups.
pub(in crate::services) const OF_PARTS_OF_GROUPS: &str = "service_part_leads";

/// What becomes of a flow that has a target.
pub(super) fn sent_on(log: bool) -> [Chain; 5] {
    let remembered = |scope| affinity_chain(scope, DEFAULT_AFFINITY_SECONDS);
    [
        regular(
            "service_send",
            vec![lead(OF_TARGETS), lead(OF_PARTS_OF_GROUPS)],
        ),
        regular(
            AFFINITY,
            vec![
                "meta priority vmap @service_timeouts".to_owned(),
                format!(
                    "meta priority & {GROUP_DISTANCE:#010x} != 0:0 goto {}",
                    remembered(Scope::Local)
                ),
                format!("goto {}", remembered(Scope::Cluster)),
            ],
        ),
        regular(
            "service_pick",
            vec![
                "meta priority vmap @service_affinity_groups".to_owned(),
                lead(OF_PARTS_OF_GROUPS),
            ],
        ),
        regular(REFUSED, vec![refuse("", NoLocalEndpoint, log)]),
        regular(
            REJECTED,
            vec![
                format!("counter name {NoEndpoint}"),
                "meta l4proto tcp reject with tcp reset".to_owned(),
                "reject with icmpx type port-unreachable".to_owned(),
            ],
        ),
    ]
}

/// The chain of groups of so many endpoints, or parts of one.
pub(super) fn draw(slots: u8) -> Chain {
    let slot = format!("meta priority . numgen random mod {slots}");
    let mut rules = vec![to_group()];
    for with_ports in WITH_PORTS {
        rules.extend(WORDS.iter().map(|Words { ip, digit, .. }| {
            format!("{with_ports} dnat {ip} to {slot} map @service_slots{digit}")
        }));
    }
    rules.push(format!(
        "meta priority set {slot} map @service_member_slots"
    ));
    regular(draw_chain(slots), rules)
}

/// The chain of groups of so many parts. It makes of the group one of its parts.
pub(super) fn split(slots: u8) -> Chain {
    let rules = vec![
        to_group(),
        format!("meta priority set meta priority . numgen random mod {slots} map @service_parts"),
    ];
    regular(split_chain(slots), rules)
}

/// The rule that goes to the chain of what a number has in its lowest bits.
fn lead(map: &str) -> String {
    format!("meta priority & {LEADS:#010x} vmap @{map}")
}

/// The rule that makes of a target the number of its group.
fn to_group() -> String {
    format!("meta priority set meta priority & {:#010x}", !LEADS)
}
