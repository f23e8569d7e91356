//! The maps by which rules go on with a number, from what it has in its lowest bits. No plan
//! changes them. They have names, as Debian 12's nft 1.0.6 crashes over a map without one that
//! nft 1.1 has made for a part of a number. Pure.

use tweed_netlink::nf::verdict::Verdict;
use tweed_planner::services::desired::{MAX_SLOTS, Number};

use super::rules::{
    AFFINITY, DROP, LEADS, OF_PARTS, OF_PARTS_OF_GROUPS, OF_TARGETS, REFUSED, REJECT, REJECTED,
    draw_chain, split_chain,
};
use crate::element::{Contents, Data, Elements};
use crate::schema::NUMBER;
use crate::table::{DataType, KeptBy, Set};
use crate::value::Type;

/// How the table declares them.
pub(super) fn declarations() -> impl Iterator<Item = Set> {
    [OF_TARGETS, OF_PARTS_OF_GROUPS]
        .into_iter()
        .map(|name| Set {
            name: name.to_owned(),
            key: vec![Type::Class],
            data: Some(DataType::Verdict),
            interval: false,
            kept_by: KeptBy::Keeper,
        })
}

/// What they hold.
pub(super) fn contents() -> Contents {
    let slots = || 1..=MAX_SLOTS;
    let draws = || slots().map(|slots| (slots.into(), Verdict::Goto(draw_chain(slots))));
    // They come back with the number of a part.
    let splits = slots().map(|slots| {
        let number = OF_PARTS | Number::from(slots);
        (number, Verdict::Jump(split_chain(slots)))
    });
    let others = [
        (0, AFFINITY),
        (REJECT & LEADS, REJECTED),
        (DROP & LEADS, REFUSED),
    ]
    .map(|(number, chain)| (number, Verdict::Goto(chain.to_owned())));
    let of_targets = elements(draws().chain(splits).chain(others));
    [
        (OF_TARGETS.to_owned(), of_targets),
        (OF_PARTS_OF_GROUPS.to_owned(), elements(draws())),
    ]
    .into()
}

fn elements(leads: impl Iterator<Item = (Number, Verdict)>) -> Elements {
    let data = |verdict| Some(Box::new(Data::Verdict(verdict)));
    leads
        .map(|(leads, verdict)| ((NUMBER.key)(&leads), data(verdict)))
        .collect()
}
