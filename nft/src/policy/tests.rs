use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use tweed_netlink::nf::conntrack::MarkFilter;
use tweed_planner::policy::desired::{Desired, FIRST_RANGE_PROFILE, PortRange, Ports};
use tweed_planner::policy::verdicts::{FIRST_PROFILE, PerDirection, PortSet, Verdicts};

use super::generation::Generation;
use super::skeleton;
use super::steps::Steps;
use crate::element::{self, Change, Elements, apply};
use crate::schema::{self, contents};

#[path = "../../tests/nft/policy/delta.rs"]
mod delta;

#[test]
fn the_table_with_policy() {
    let text = |log| skeleton(log).script(&Default::default(), None);
    // The chains of all generations but the first are alike.
    let mut plain = text(false);
    let second = plain.find("\n\tchain policy_2 ").unwrap();
    let judge = plain.find("\n\tchain policy_judge ").unwrap();
    plain.replace_range(second..judge, "");
    insta::assert_snapshot!(plain);
    let logged = text(true);
    assert_eq!(logged.matches(" log prefix ").count(), 16);
    let is_log = |line: &&str| !line.contains(" log prefix ") && !line.contains("comment");
    let without = |text: &str| text.lines().filter(is_log).collect::<String>();
    assert_eq!(without(&logged), without(&text(false)));
}

/// The agent's drop log takes the ends of a packet for those of its flow by this prefix.
#[test]
fn the_log_of_each_drop_says_which_packets_are_replies() {
    let text = skeleton(true).script(&Default::default(), None);
    let chain = |name: &str| {
        let (_, chain) = text.split_once(&format!("\n\tchain {name} {{")).unwrap();
        chain.split_once("\n\t}").unwrap().0
    };
    for digit in ["4", "6"] {
        let (original, reply) = (
            chain(&format!("policy_judge{digit}")),
            chain(&format!("policy_reply{digit}")),
        );
        let goto = original.find(&format!("goto policy_reply{digit}"));
        assert!(goto.unwrap() < original.find("not-enforced").unwrap());
        for (chain, prefix) in [
            (original, "\"tweed not-enforced: \""),
            (reply, "\"tweed not-enforced reply: \""),
        ] {
            assert_eq!(chain.matches(" log prefix ").count(), 2, "{chain}");
            assert_eq!(chain.matches(prefix).count(), 2, "{chain}");
        }
    }
}

#[test]
fn generations_go_round_by_their_windows_and_are_read_back() {
    let mut seen = Vec::new();
    let mut generation = Generation::FIRST;
    for _ in 0..31 {
        assert_eq!(Generation::read(&generation.elements()), Some(generation));
        seen.push(generation);
        generation = generation.next();
    }
    assert!(seen.iter().copied().eq(Generation::all()));
    assert_eq!(generation, seen[7]);
    assert_eq!(Generation::read(&Elements::new()), None);

    for generation in &seen {
        // What the listing of the window selects is the window.
        let MarkFilter { value, mask } = generation.window().filter();
        assert_eq!(mask & !0xf800_0000, 0);
        for other in &seen {
            assert_eq!(other.mark() & !0xf800_0000, 0);
            let is_listed = other.mark() & mask == value;
            assert_eq!(is_listed, generation.window().contains(*other));
        }
        assert_ne!(
            mask & value,
            0,
            "flows that were never evaluated are listed"
        );
    }
}

fn address() -> impl Strategy<Value = IpAddr> {
    let any = prop_oneof![Just("10.0.0."), Just("fd00::")];
    (any, 0..5_u8).prop_map(|(base, last)| format!("{base}{last}").parse().unwrap())
}

fn desired() -> impl Strategy<Value = Desired> {
    let addresses = || prop::collection::btree_set(address(), 0..6);
    let pairs = || prop::collection::btree_map((address(), 0..5_u32), 0..9_u32, 0..9);
    let profile = || FIRST_PROFILE..FIRST_PROFILE + 4;
    let range = (0..3_u32, 0..9_u16).prop_map(|(number, first)| PortRange {
        profile: FIRST_RANGE_PROFILE + number,
        first,
        last: 100,
    });
    (
        (addresses(), addresses(), addresses(), pairs(), pairs()),
        prop::collection::btree_map(address(), 0..9_u32, 0..9),
        prop::collection::btree_set((profile(), 6..8_u8, 0..9_u16), 0..9),
        prop::collection::btree_map((profile(), 6..8_u8), 0..9_u32, 0..4),
        prop::collection::btree_set(range, 0..4),
    )
        .prop_map(|(addresses, identities, exact, range_profiles, ranges)| {
            let (enforced, ingress, selves, pairs_in, pairs_out) = addresses;
            let verdicts = Verdicts {
                active: true,
                enforced,
                policed: PerDirection {
                    egress: selves.clone(),
                    ingress,
                },
                selves,
                identities,
                pairs: PerDirection {
                    ingress: pairs_in,
                    egress: pairs_out,
                },
                ..Verdicts::default()
            };
            let ports = Ports {
                open: exact.iter().map(|(profile, ..)| *profile).collect(),
                exact,
                range_profiles,
                ranges,
            };
            Desired { verdicts, ports }
        })
}

/// Only what a profile allows is split, so that the change of all others finds the new
/// profiles there and the old ones still there.
#[test]
fn a_large_change_is_written_in_parts_around_what_packets_see() {
    let wide = |number: u32, ports: u16| {
        let profile = FIRST_PROFILE + number;
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let mut desired = Desired::default();
        desired.verdicts.active = true;
        desired.ports.exact = (0..ports).map(|port| (profile, 6, port)).collect();
        desired.verdicts.pairs.ingress.insert((address, 1), profile);
        let allowed = Arc::new(PortSet::range(6, 0, ports - 1));
        desired.verdicts.profiles.insert(profile, allowed);
        desired
    };
    let small = Steps::of(&delta::delta(&wide(0, 10), &wide(1, 10), true));
    assert!(small.before.is_empty() && small.after.is_empty());
    assert_eq!(small.at_once.len(), 2);

    let (old, new) = (wide(0, 30_000), wide(1, 50_000));
    let large = Steps::of(&delta::delta(&old, &new, true));
    let mut after = contents(&old);
    let counts = |changes: &[Change]| -> Vec<usize> {
        let each = changes.chunks(1);
        each.map(element::count).collect()
    };
    assert_eq!(counts(&large.before), [20_000, 20_000, 10_000]);
    apply(&mut after, &large.before);
    let mut both = new.ports.exact.clone();
    both.extend(&old.ports.exact);
    let mut old = old;
    old.ports.exact = both;
    let both = contents(&old);
    assert_eq!(after, both);
    apply(&mut after, &large.at_once);
    let (exact, pairs) = ("policy_exact", "policy_pairs_in4");
    assert_eq!(
        (&after[exact], &after[pairs]),
        (&both[exact], &contents(&new)[pairs])
    );
    assert_eq!(counts(&large.after), [20_000, 10_000]);
    apply(&mut after, &large.after);
    assert_eq!(after, contents(&new));

    // A profile that keeps its number, beside others that come and go.
    let keep = |mut desired: Desired, port| {
        let profile = FIRST_PROFILE + 2;
        let allowed = PortSet::range(6, port, port);
        desired.verdicts.profiles.insert(profile, Arc::new(allowed));
        desired.ports.exact.insert((profile, 6, port));
        desired
    };
    let (old, new) = (keep(wide(0, 30_000), 80), keep(wide(1, 50_000), 81));
    let large = Steps::of(&delta::delta(&old, &new, true));
    assert_eq!(counts(&large.before), [20_000, 20_000, 10_000]);
    assert_eq!(counts(&large.after), [20_000, 10_000]);
    let at_once = large.at_once.iter();
    let sizes = at_once.map(|change| (change.set.as_str(), change.delta.len()));
    let sizes: BTreeMap<&str, usize> = sizes.collect();
    assert_eq!(sizes, [(exact, 2), (pairs, 2)].into());
}

proptest! {
    #[test]
    fn a_delta_makes_the_new_elements_of_the_old_ones(old in desired(), new in desired()) {
        let mut after = contents(&old);
        apply(&mut after, &schema::changes::<Desired>(&delta::delta(&old, &new, false)));
        prop_assert_eq!(after, contents(&new));
    }
}
