//! The chains that send a flow on that has a target: to one of the endpoints of a group, or
//! to nobody.

use super::super::super::rules::{WORDS, Words, regular};
use super::super::sets::{DROP, REJECT};
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
pub(super) fn sent_on() -> [Chain; 3] {
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

/// The chain of groups of so many endpoints, or parts of one.
pub(super) fn draw(slots: u8) -> Chain {
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

/// The chain of groups of so many parts.
pub(super) fn split(slots: u8) -> Chain {
    let rules = vec![
        format!("meta priority set meta priority . numgen random mod {slots} map @service_parts"),
        "meta priority vmap @service_part_groups".to_owned(),
    ];
    regular(split_chain(slots), rules)
}
