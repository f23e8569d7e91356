//! Clusters of nodes on a network that loses packets by rule, in made-up time.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tweed_component::peers::{PeerState, Way};
use tweed_core::family::Family;

use super::*;

const MTU: u32 = 1450;

/// A node that asks `count` others, number 0 to `count` - 1.
struct World {
    now: Instant,
    prober: Prober,
    sent: u32,
}

fn pods(node: u16) -> IpAddr {
    let [high, low] = node.to_be_bytes();
    [10, high, low, 0].into()
}

fn underlay(node: u16) -> IpAddr {
    let [high, low] = node.to_be_bytes();
    [192, 168, high, low].into()
}

fn peer(node: u16) -> Peer {
    Peer {
        node: format!("n{node}"),
        address: pods(node),
        underlay: underlay(node),
        way: Way::Vxlan,
        is_main: true,
        is_ready: true,
    }
}

fn own() -> Own {
    Own {
        addresses: [(Family::V4, [10, 255, 0, 0].into())].into(),
        underlay: [(Family::V4, [192, 168, 255, 1].into())].into(),
        mtu: MTU,
        vxlan_port: 8472,
    }
}

impl World {
    fn new(peers: Vec<Peer>) -> Self {
        let start = Instant::now();
        let mut prober = Prober::default();
        prober.set_peers(own(), peers, start);
        Self {
            now: start,
            prober,
            sent: 0,
        }
    }

    fn of(count: u16) -> Self {
        Self::new((0..count).map(peer).collect())
    }

    /// Goes on until `until` holds, at most this long. `answers` says which packets are.
    fn run_until(
        &mut self,
        limit: Duration,
        mut answers: impl FnMut(&Probe) -> bool,
        until: impl Fn(&Self) -> bool,
    ) -> Duration {
        let begun = self.now;
        while self.now - begun < limit && !until(self) {
            let probes = self.prober.turn(self.now);
            for probe in &probes {
                self.sent += 1;
                if answers(probe) {
                    let came = self.now + Duration::from_micros(300);
                    let _ = self.prober.answered(probe.id, None, came);
                }
            }
            let packets = u32::try_from(probes.len()).unwrap();
            self.now += SPACING * packets.max(1);
        }
        self.now - begun
    }

    fn run(&mut self, seconds: u64, answers: impl FnMut(&Probe) -> bool) {
        self.run_until(Duration::from_secs(seconds), answers, |_| false);
    }

    fn states(&self) -> BTreeMap<&'static str, usize> {
        let counts = self.prober.counts().into_iter();
        let seen = counts.filter(|(_, count)| *count > 0);
        seen.map(|(state, count)| (state.word(), count)).collect()
    }

    fn problems(&self) -> Vec<String> {
        let problems = self.prober.problems().into_iter();
        problems
            .map(|p| format!("{}: {}", p.kind, p.message))
            .collect()
    }
}

fn to(probe: &Probe, node: u16) -> bool {
    probe.to == pods(node) || probe.to == underlay(node)
}

#[test]
fn a_silent_peer_is_found_and_forgotten_and_both_addresses_and_the_port_are_named() {
    let mut world = World::of(30);
    world.run(10, |_| true);
    assert_eq!(world.states(), [("answers", 30)].into());
    assert_eq!(world.problems(), Vec::<String>::new());
    let limit = Duration::from_secs(60);
    let found = |world: &World| !world.problems().is_empty();
    let silent = |probe: &Probe| probe.to != pods(7);
    let took = world.run_until(limit, silent, found);
    assert!(took <= Duration::from_secs(15), "{took:?}");
    assert_eq!(
        world.problems(),
        ["peer-silent: n7 answers at 192.168.0.7, and not at 10.0.7.0 over VXLAN, UDP port 8472"]
    );
    world.run(60, silent);
    assert_eq!(world.states(), [("answers", 29), ("silent", 1)].into());
    let took = world.run_until(limit, |_| true, |world| !found(world));
    assert!(took <= Duration::from_secs(15), "{took:?}");
}

#[test]
fn a_switch_that_dies_is_one_problem_and_nodes_that_are_not_ready_are_none() {
    let mut world = World::of(30);
    world.run(10, |_| true);
    world.run(60, |_| false);
    assert_eq!(world.states(), [("unreachable", 30)].into());
    let problems = world.problems();
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with(
        "peer-unreachable: n0 answers neither at 192.168.0.0 nor at 10.0.0.0 over VXLAN"
    ));
    assert!(
        problems[0].ends_with("; and 27 more like these"),
        "{problems:?}"
    );
    let away = (0..30).map(|node| Peer {
        is_ready: false,
        ..peer(node)
    });
    world.prober.set_peers(own(), away.collect(), world.now);
    assert_eq!(world.states(), [("not-ready", 30)].into());
    assert_eq!(world.problems(), Vec::<String>::new());
}

#[test]
fn what_was_lost_by_chance_is_no_problem() {
    let mut world = World::of(10);
    let mut count = 0;
    world.run(600, |_| {
        count += 1;
        count % 5 != 0
    });
    assert_eq!(world.states(), [("answers", 10)].into());
}

#[test]
fn no_node_is_asked_more_than_ten_times_a_second_and_a_lone_one_once() {
    for (count, most, answers) in [
        (500, 10, true),
        (500, 10, false),
        (1, 1, true),
        (1, 4, false),
    ] {
        let mut world = World::of(count);
        world.run(600, |_| answers);
        assert!(world.sent <= 600 * most, "{count}: {}", world.sent);
        assert!(world.sent > 500, "{count}: {}", world.sent);
    }
}

#[test]
fn the_largest_size_that_passes_is_named_until_all_pass() {
    let mut world = World::of(30);
    world.run(10, |_| true);
    let fits = |probe: &Probe| !to(probe, 3) || probe.size <= 1350;
    world.run(60, fits);
    assert_eq!(
        world.problems(),
        [
            "peer-mtu: packets of 1450 bytes, the MTU of pods, do not reach n3 (192.168.0.3); \
          those of up to 1350 do"
        ]
    );
    let row = |world: &World| world.prober.status(world.now).remove(23);
    assert_eq!(
        (row(&world).node.as_str(), row(&world).mtu),
        ("n3", Some(1350))
    );
    world.run(30, |_| true);
    assert_eq!(world.problems(), Vec::<String>::new());
    assert_eq!(
        (row(&world).mtu, row(&world).state),
        (Some(MTU), PeerState::Answers)
    );
}

#[test]
fn where_echoes_are_filtered_datagrams_and_connections_do() {
    let mut world = World::of(2);
    world.run(10, |probe| probe.means == Means::Udp);
    assert_eq!(world.states(), [("answers", 2)].into());
    let before = world.sent;
    world.run(60, |probe| probe.means == Means::Udp);
    assert!(
        world.sent - before <= 2 * 61,
        "one packet a turn: {}",
        world.sent - before
    );
    let reached = |probe: &Probe| probe.to == underlay(0) && probe.means == Means::Tcp;
    world.run(20, reached);
    assert_eq!(world.states(), [("silent", 1), ("unreachable", 1)].into());
}

/// As one that gets no processor, or whose machine was suspended.
#[test]
fn an_agent_that_slept_blames_nobody() {
    let mut world = World::of(3);
    world.run(20, |_| true);
    for _ in 0..10 {
        world.run_until(SPACING, |_| false, |_| false);
        world.now += 5 * TIMEOUT;
    }
    assert_eq!(world.states(), [("answers", 3)].into());
    world.run(20, |probe| !to(probe, 1));
    assert_eq!(world.problems().len(), 1);
}

/// Two nodes between which packets of the tunnel pass in one direction only.
#[test]
fn both_ends_find_that_one_direction_is_lost() {
    let start = Instant::now();
    let addresses = [(pods(0), underlay(0)), (pods(1), underlay(1))];
    let mut probers: Vec<Prober> = (0..2)
        .map(|me: u16| {
            let mut prober = Prober::default();
            let own = Own {
                addresses: [(Family::V4, pods(me))].into(),
                underlay: [(Family::V4, underlay(me))].into(),
                ..own()
            };
            prober.set_peers(own, vec![peer(1 - me)], start);
            prober
        })
        .collect();
    let mut now = start;
    let mut go_on = |passes: &dyn Fn(usize, IpAddr) -> bool, seconds: u32| {
        let end = now + Duration::from_secs(1) * seconds;
        while now < end {
            for me in 0..2 {
                let other = 1 - me;
                for probe in probers[me].turn(now) {
                    let from = probe.from.unwrap();
                    let back = if from == addresses[me].0 {
                        addresses[other].0
                    } else {
                        addresses[other].1
                    };
                    if !passes(me, probe.to) {
                        continue;
                    }
                    let mut heard = None;
                    if probe.means == Means::Udp {
                        let (id, address) = (probe.id, probe.asks_about);
                        let asked = Message {
                            is_answer: false,
                            nonce: 0,
                            id,
                            address,
                            heard: None,
                        };
                        let answer = probers[other].answer_to(from, &asked, now).unwrap();
                        heard = answer.heard;
                    }
                    if passes(other, back) && passes(other, from) {
                        let _ = probers[me].answered(probe.id, heard, now);
                    }
                }
            }
            now += SPACING;
        }
        let texts = probers.iter().map(|prober| {
            let problems = prober.problems().into_iter();
            problems
                .map(|p| format!("{}: {}", p.kind, p.message))
                .collect::<String>()
        });
        texts.collect::<Vec<_>>()
    };
    let all = |_: usize, _: IpAddr| true;
    assert_eq!(go_on(&all, 5), ["", ""]);
    // What node 0 sends through the tunnel is lost.
    let outbound = |sender: usize, to: IpAddr| sender != 0 || to != pods(1);
    assert_eq!(
        go_on(&outbound, 15),
        [
            "peer-one-way: n1 is heard from 10.0.1.0 over VXLAN, UDP port 8472, and packets from here \
         to 192.168.0.1 are lost",
            "peer-one-way: n0 hears this node over VXLAN, UDP port 8472, and packets from 192.168.0.0 \
         to here are lost",
        ]
    );
    // While the way comes back, nothing else is said of it.
    for _ in 0..10 {
        for text in go_on(&all, 1) {
            assert!(
                text.is_empty() || text.starts_with("peer-one-way: "),
                "{text}"
            );
        }
    }
    let nothing = |_: usize, to: IpAddr| to != pods(0) && to != pods(1);
    for text in go_on(&nothing, 60) {
        assert!(text.starts_with("peer-silent: "), "{text}");
    }
    assert_eq!(go_on(&all, 10), ["", ""]);
}

#[test]
fn only_nodes_are_answered() {
    let mut world = World::of(2);
    let asked = Message {
        is_answer: false,
        nonce: 1,
        id: 2,
        address: pods(0),
        heard: None,
    };
    let now = world.now;
    let stranger = [10, 0, 1, 7].into();
    assert_eq!(world.prober.answer_to(stranger, &asked, now), None);
    let answer = Message {
        is_answer: true,
        ..asked
    };
    assert_eq!(
        world.prober.answer_to(underlay(0), &asked, now),
        Some(answer)
    );
    assert_eq!(world.prober.answer_to(underlay(0), &answer, now), None);
    assert_eq!(world.prober.answer_to(pods(0), &asked, now), Some(answer));
    let later = now + Duration::from_secs(3);
    let heard = world
        .prober
        .answer_to(underlay(0), &asked, later)
        .unwrap()
        .heard;
    assert_eq!(heard, Some(Duration::from_secs(3)));
}

#[test]
fn what_cannot_be_sent_says_nothing_of_the_peer() {
    let mut world = World::of(1);
    for _ in 0..100 {
        for probe in world.prober.turn(world.now) {
            world.prober.not_sent(probe.id);
        }
        world.now += SPACING;
    }
    assert_eq!(world.states(), [("unknown", 1)].into());
}

#[test]
fn the_other_family_of_a_node_is_asked_less_and_counts_as_well() {
    let six = |node: u16| Peer {
        address: format!("fd00:{node:x}::").parse().unwrap(),
        is_main: false,
        ..peer(node)
    };
    let mut world = World::new((0..30).flat_map(|node| [peer(node), six(node)]).collect());
    let mut asked = (0, 0);
    world.run(200, |probe| {
        if probe.to.is_ipv4() {
            asked.0 += 1
        } else {
            asked.1 += 1
        };
        true
    });
    assert!(asked.1 > 30 && asked.1 * 5 < asked.0, "{asked:?}");
    world.run(120, |probe| probe.to != six(4).address);
    assert_eq!(world.states(), [("answers", 29), ("silent", 1)].into());
}

#[test]
fn with_five_thousand_nodes_one_is_found_after_a_round() {
    let mut world = World::of(5000);
    world.run(600, |_| true);
    assert_eq!(world.states(), [("answers", 5000)].into());
    let limit = Duration::from_secs(700);
    let silent = |probe: &Probe| probe.to != pods(4321);
    let begun = world.now;
    while world.now - begun < limit && world.problems().is_empty() {
        world.run(1, silent);
    }
    let took = world.now - begun;
    assert!(took <= Duration::from_secs(510), "{took:?}");
}

#[test]
fn a_size_that_passes_nowhere_does_not_hide_a_silent_node() {
    let mut world = World::of(300);
    world.run(40, |_| true);
    let small = |probe: &Probe| probe.size <= 1350;
    world.run(60, small);
    world.run(90, |probe| small(probe) && probe.to != pods(123));
    let silent = world.states().remove("silent");
    assert_eq!(silent, Some(1), "{:?}", world.states());
}

/// They do not wait until all others were asked for the first time.
#[test]
fn nodes_that_are_away_from_the_start_are_found_one_by_one() {
    let mut world = World::of(5000);
    world.run(15, |_| false);
    let found = world.states().remove("unreachable");
    assert!(found >= Some(10), "{found:?}");
}

proptest! {
    /// Peers come, go and change while packets are lost: what is known is of those that are there.
    #[test]
    fn whoever_comes_and_goes_there_is_a_row_for_each_and_every_one_is_asked(
        steps in prop::collection::vec(
            (prop::collection::btree_map(0..20u16, any::<bool>(), 0..12), any::<u8>()), 1..8
        ),
    ) {
        let mut world = World::of(3);
        for (nodes, seed) in steps {
            let on_node = |(node, is_ready)| Peer { is_ready, ..peer(node) };
            let peers: Vec<Peer> = nodes.into_iter().map(on_node).collect();
            world.prober.set_peers(own(), peers.clone(), world.now);
            let mut count = u32::from(seed);
            world.run(9, |_| {
                count = count.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                count >> 30 != 0
            });
            let rows = world.prober.status(world.now);
            prop_assert_eq!(rows.len(), peers.len());
            let all: usize = world.prober.counts().values().sum();
            prop_assert_eq!(all, peers.len());
            world.run(30, |_| true);
            prop_assert_eq!(world.problems(), Vec::<String>::new());
            let known = |row: &tweed_component::peers::PeerStatus| row.state != PeerState::Unknown;
            prop_assert!(world.prober.status(world.now).iter().all(known));
        }
    }
}
