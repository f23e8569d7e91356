//! The chains that send a flow on that has a target: to one of the endpoints of a group, or
//! to nobody.

use std::collections::BTreeMap;

use tweed_planner::services::desired::{MAX_SLOTS, Number};

use super::super::super::rules::{WORDS, Words, regular};
use super::super::sets::{DROP, LEADS, OF_PARTS, REJECT};
use super::{NO_LOCAL, WITH_PORTS};
use crate::table::Chain;

/// The chain that draws one of so many endpoints.
pub(in super::super) fn draw_chain(slots: u8) -> String {
    format!("service_draw_{slots}")
}

/// The chain that draws one of so many parts.
pub(in super::super) fn split_chain(slots: u8) -> String {
    format!("service_split_{slots}")
}

/// What becomes of a flow that has a target.
pub(super) fn sent_on() -> [Chain; 6] {
    let slots = || 1..=MAX_SLOTS;
    let draws = slots().map(|slots| (slots.into(), draw_chain(slots)));
    let splits = slots().map(|slots| (OF_PARTS | Number::from(slots), split_chain(slots)));
    let others = [
        (0, "service_affinity".to_owned()),
        (REJECT & LEADS, "service_reject".to_owned()),
        (DROP & LEADS, "service_drop".to_owned()),
    ];
    let of_part = lead(draws.clone());
    [
        regular(
            "service_send",
            vec![lead(draws.chain(splits).chain(others))],
        ),
        regular("service_send_part", vec![of_part]),
        regular(
            "service_affinity",
            vec!["meta priority vmap @service_affinities".to_owned()],
        ),
        regular(
            "service_pick",
            vec!["meta priority vmap @service_affinity_groups".to_owned()],
        ),
        regular(
            "service_drop",
            vec![format!("counter name {NO_LOCAL} drop")],
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

/// The chain of groups of so many endpoints, or parts of one.
pub(super) fn draw(slots: u8) -> Chain {
    let slot = format!("meta priority . numgen random mod {slots}");
    let mut rules = vec![to_group()];
    rules.extend(WORDS.iter().map(|Words { ip, digit, .. }| {
        format!("{WITH_PORTS} dnat {ip} to {slot} map @service_slots{digit}")
    }));
    rules.push(format!(
        "meta priority set {slot} map @service_member_slots"
    ));
    regular(draw_chain(slots), rules)
}

/// The chain of groups of so many parts.
pub(super) fn split(slots: u8) -> Chain {
    let rules = vec![
        to_group(),
        format!(
            "meta priority set meta priority . numgen random mod {slots} map @service_parts \
             goto service_send_part"
        ),
    ];
    regular(split_chain(slots), rules)
}

/// The rule that goes to the chain of what a number has in its lowest bits. The map is a part
/// of the rule: the kernel checks one that changes as a whole for each element that comes.
fn lead(leads: impl Iterator<Item = (Number, String)>) -> String {
    let leads: BTreeMap<Number, String> = leads.collect();
    let element = |(leads, chain)| format!("0:{leads:x} : goto {chain}");
    let leads: Vec<String> = leads.iter().map(element).collect();
    format!(
        "meta priority & {LEADS:#010x} vmap {{ {} }}",
        leads.join(", ")
    )
}

/// The rule that makes of a target the number of its group.
fn to_group() -> String {
    format!("meta priority set meta priority & {:#010x}", !LEADS)
}
