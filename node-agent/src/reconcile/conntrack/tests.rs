use std::net::Ipv4Addr;
use std::sync::mpsc::{Sender, channel};

use tweed_planner::services::desired::{Delta, Frontend, Span, Tracked};

use super::*;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Times in milliseconds at which walks begin that take no time, until nothing is due.
fn walks(timing: &mut Timing, start: Instant) -> Vec<u128> {
    let mut times = Vec::new();
    let mut now = start;
    while let Some(at) = timing.next(now) {
        now = at.max(now);
        timing.begin(now);
        timing.ended(now, true);
        times.push((now - start).as_millis());
    }
    times
}

#[test]
fn a_change_is_followed_by_two_walks_the_second_after_packets_under_way_have_settled() {
    let start = Instant::now();
    let mut timing = Timing::default();
    assert_eq!(timing.next(start), None);
    timing.changed = Some(start);
    assert_eq!(walks(&mut timing, start), [0, 1000]);
    // One that began before the change does not count.
    timing.changed = Some(start + ms(5000));
    timing.begin(start + ms(4999));
    timing.ended(start + ms(5001), true);
    assert_eq!(walks(&mut timing, start), [5001, 6000]);
}

#[test]
fn changes_that_go_on_put_no_walk_off() {
    let start = Instant::now();
    let mut timing = Timing::default();
    let mut walks = 0;
    for step in 0..100 {
        let now = start + ms(step * 10);
        timing.changed = Some(now);
        if timing.next(now).is_some_and(|at| at <= now) {
            timing.begin(now);
            // It takes 20 ms, and then rests.
            timing.ended(now + ms(20) + ms(20) * REST_FACTOR, true);
            walks += 1;
        }
    }
    assert_eq!(walks, 10);
}

#[test]
fn what_has_failed_is_tried_again_after_a_rest() {
    let start = Instant::now();
    let mut timing = Timing {
        wanted: true,
        ..Timing::default()
    };
    timing.begin(start);
    timing.ended(start + RETRY, false);
    assert_eq!(timing.next(start + ms(10)), Some(start + RETRY));
    assert_eq!(walks(&mut timing, start), [1000]);
}

#[test]
fn a_flow_is_read_from_both_directions_of_an_entry_and_nothing_from_others() {
    let tuple = |source: &str, destination: &str, ports| Tuple {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol: 17,
        ports,
        zone: None,
    };
    let entry = Entry {
        original: tuple("10.0.0.5", "10.96.0.1", Ports::Pair(4000, 53)),
        reply: tuple("10.0.0.6", "10.0.0.5", Ports::Pair(5353, 4000)),
        zone: 0,
        mark: 0,
        status: 0,
        id: 1,
    };
    let endpoint = |address: &str, port| Endpoint {
        address: address.parse().unwrap(),
        port,
    };
    let expected = Flow {
        destination: endpoint("10.96.0.1", 53),
        answered_by: endpoint("10.0.0.6", 5353),
    };
    assert_eq!(flow(&entry), Some(expected));
    let in_zone = Entry { zone: 7, ..entry };
    let mut one_way = entry;
    one_way.original.zone = Some(7);
    let mut tcp = entry;
    tcp.original.protocol = 6;
    for other in [in_zone, one_way, tcp] {
        assert_eq!(flow(&other), None, "{other:?}");
    }
}

/// A plan under which a flow to [`STALE`] is stale.
fn desired() -> Desired {
    let network = Span {
        first: "10.96.0.0".parse().unwrap(),
        last: "10.96.0.255".parse().unwrap(),
    };
    Desired {
        service_networks: [network].into(),
        ..Desired::default()
    }
}

const STALE: Flow = Flow {
    destination: Endpoint {
        address: IpAddr::V4(Ipv4Addr::new(10, 96, 0, 9)),
        port: 53,
    },
    answered_by: Endpoint {
        address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 6)),
        port: 53,
    },
};

fn reconciler() -> ConntrackReconciler {
    ConntrackReconciler::new(Metrics::register().1)
}

/// An endpoint of one frontend: the one with this number.
fn removed(number: u32) -> (Tracked, Endpoint) {
    let frontend = Frontend {
        address: STALE.destination.address,
        protocol: PROTOCOL,
        port: 53,
    };
    let endpoint = Endpoint {
        address: Ipv4Addr::from_bits(0x0a00_0000 + number).into(),
        port: 53,
    };
    (Tracked::Address(frontend), endpoint)
}

/// A walk that began `now` in place of one through the kernel's table, which has ended.
fn ended_walk(now: Instant, deleted: Result<usize, tweed_netlink::Error>) -> Walk {
    let ended = Ended {
        deleted,
        took: ms(1),
    };
    let thread = std::thread::spawn(|| ended);
    while !thread.is_finished() {
        std::thread::yield_now();
    }
    Walk {
        began: now,
        preparing: Duration::ZERO,
        knows_addresses: true,
        thread,
    }
}

/// A reconciler that remembers one endpoint, and whose last walk for it begins at the moment
/// that is given too.
fn before_the_last_walk() -> (ConntrackReconciler, Instant) {
    let mut reconciler = reconciler();
    let start = Instant::now();
    let former = [removed(1)].into_iter().collect();
    reconciler.written.add(&former, start);
    reconciler.timing.changed = Some(start);
    let began = start + SETTLE;
    reconciler.timing.begin(began);
    (reconciler, began)
}

/// A walk that began `now` and ends when it is told how.
fn walk_under_way(now: Instant) -> (Walk, Sender<Ended>) {
    let (end, ended) = channel();
    let walk = Walk {
        began: now,
        preparing: Duration::ZERO,
        knows_addresses: true,
        thread: std::thread::spawn(move || ended.recv().unwrap()),
    };
    (walk, end)
}

/// The write fails, so the flows that are there are those of the former plan.
#[test]
fn nothing_is_stale_while_a_planned_change_is_not_written() {
    let mut reconciler = reconciler();
    let judge = Judge::new(&desired(), Some([]), Former::default());
    reconciler.judge.set(Some(judge));
    assert!(reconciler.judge.is_stale(&STALE));
    reconciler.note(&Step::Unchanged, &Former::default());
    assert!(reconciler.judge.is_stale(&STALE));
    reconciler.note(&Step::Full, &Former::default());
    assert!(!reconciler.judge.is_stale(&STALE));
}

/// What the walk passed over may be stale, and nothing else would find it again.
#[test]
fn a_walk_that_met_an_entry_while_nothing_could_be_deleted_is_repeated() {
    for passes_over in [false, true] {
        let (mut reconciler, began) = before_the_last_walk();
        reconciler.walk = Some(ended_walk(began, Ok(0)));
        reconciler.note(&Step::Full, &Former::default());
        if passes_over {
            reconciler.judge.is_stale(&STALE);
        }
        reconciler.end_walk(began);
        assert_eq!(reconciler.timing.next(began).is_some(), passes_over);
        assert_eq!(reconciler.written.len(), usize::from(passes_over));
    }
}

/// As after rtnetlink has failed: flows to node ports were passed over.
#[test]
fn a_walk_without_addresses_forgets_nothing_and_is_repeated_when_they_are_known() {
    let unknown = None::<[IpAddr; 0]>;
    for knows_addresses in [true, false] {
        let (mut reconciler, began) = before_the_last_walk();
        reconciler.walk = Some(Walk {
            knows_addresses,
            ..ended_walk(began, Ok(0))
        });
        // No other one begins at once.
        reconciler.reconcile(&Desired::default(), unknown, false, began);
        assert_eq!(reconciler.timing.next(began), None);
        assert_eq!(reconciler.written.len(), usize::from(!knows_addresses));
        reconciler.reconcile(&Desired::default(), Some([]), false, began);
        let is_due = reconciler.timing.next(began).is_some();
        assert_eq!(is_due, !knows_addresses);
    }
    // They are unknown when a change is written under a walk.
    let mut reconciler = reconciler();
    let now = Instant::now();
    let (walk, end) = walk_under_way(now);
    reconciler.walk = Some(walk);
    reconciler.note(&Step::Full, &Former::default());
    reconciler.reconcile(&Desired::default(), unknown, false, now);
    assert!(reconciler.walk.is_some_and(|walk| !walk.knows_addresses));
    let (deleted, took) = (Ok(0), ms(1));
    end.send(Ended { deleted, took }).unwrap();
}

/// When the table could not be written, [`ConntrackReconciler::reconcile`] is not called.
#[test]
fn a_walk_that_is_due_does_not_bring_the_next_try_to_write_the_table_forward() {
    let mut reconciler = reconciler();
    let now = Instant::now();
    reconciler.timing.begin(now);
    let (walk, end) = walk_under_way(now);
    reconciler.walk = Some(walk);
    reconciler.note(&Step::Full, &Former::default());
    assert_eq!(reconciler.report().retry.poll_by, None);
    let later = now + ms(1);
    reconciler.reconcile(&Desired::default(), Some([]), false, later);
    // One that goes on is no reason to look again at once.
    let look_again = Some(later + LOOK_AGAIN);
    assert_eq!(reconciler.report().retry.poll_by, look_again);
    assert_eq!(reconciler.report().retry.poll_by, None);
    let (deleted, took) = (Ok(0), ms(1));
    end.send(Ended { deleted, took }).unwrap();
}

#[test]
fn what_is_remembered_is_bounded_while_walks_or_writes_fail() {
    let start = Instant::now();
    let limit = u32::try_from(MAX_REMEMBERED).unwrap();
    let mut remembered = Remembered::default();
    remembered.add(&(0..limit).map(removed).collect(), start);
    // Each is remembered once, however often it was removed.
    remembered.add(&(0..10).map(removed).collect(), start + ms(1));
    assert_eq!(remembered.len(), MAX_REMEMBERED);
    remembered.add(&(limit..limit + 5).map(removed).collect(), start + ms(2));
    assert_eq!(remembered.len(), MAX_REMEMBERED);
    remembered.forget_settled(start + SETTLE);
    assert_eq!(remembered.len(), 15);

    let mut reconciler = reconciler();
    reconciler.planned.former = (0..=limit).map(removed).collect();
    let (frontend, endpoint) = removed(limit + 1);
    let mut delta = Delta::default();
    let gone = Arc::new([endpoint].into());
    delta.tracked.removed = [(frontend, gone)].into();
    reconciler.note(&Step::Delta(Box::new(delta)), &Former::default());
    assert_eq!(reconciler.planned.former.len(), 1);
}
