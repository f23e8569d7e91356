use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc::{Sender, channel};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tweed_netlink::nf::conntrack::{Entry, Ports, Tuple};
use tweed_planner::services::desired::{Delta, Endpoint, Frontend, Span, Target, Tracked};
use tweed_planner::services::stale::{Flow, PROTOCOL};

use super::walk::flow;
use super::*;
use crate::config;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
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
        protocol: 17,
        destination: endpoint("10.96.0.1", 53),
        answered_by: endpoint("10.0.0.6", 5353),
    };
    assert_eq!(flow(&entry), Some(expected));
    let in_zone = Entry { zone: 7, ..entry };
    let mut one_way = entry;
    one_way.original.zone = Some(7);
    for other in [in_zone, one_way] {
        assert_eq!(flow(&other), None, "{other:?}");
    }
    // A connection counts until somebody answers (IPS_SEEN_REPLY).
    for protocol in [6, 132] {
        let mut connection = entry;
        connection.original.protocol = protocol;
        let unanswered = Flow {
            protocol,
            ..expected
        };
        assert_eq!(flow(&connection), Some(unanswered));
        connection.status = 2;
        assert_eq!(flow(&connection), None);
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
    protocol: PROTOCOL,
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
    let state = State::new(&config::of_line("--node-name a --services on"), Vec::new());
    ConntrackReconciler::new(Metrics::register().1, &Arc::new(state.unwrap()))
}

/// An endpoint of one frontend: the one with this number.
fn removed(number: u32) -> (Tracked, Option<Endpoint>) {
    let frontend = Frontend {
        address: STALE.destination.address,
        protocol: PROTOCOL,
        port: 53,
    };
    let endpoint = Endpoint {
        address: Ipv4Addr::from_bits(0x0a00_0000 + number).into(),
        port: 53,
    };
    (Tracked::Address(frontend), Some(endpoint))
}

/// A plan without it.
fn note_removed(reconciler: &mut ConntrackReconciler, number: u32) -> (Tracked, Option<Endpoint>) {
    let (frontend, endpoint) = removed(number);
    let mut delta = Delta::default();
    let gone = Arc::new(endpoint.into_iter().collect());
    delta.tracked.removed = [(frontend, gone)].into();
    reconciler.note(
        &Step::Delta(Box::new(delta)),
        &Desired::default(),
        &PastFrontends::default(),
    );
    (frontend, endpoint)
}

/// A walk that began `now` in place of one through the kernel's table, which has ended.
fn ended_walk(now: Instant, deleted: Result<usize, tweed_netlink::Error>) -> Walk {
    let ended = Ended {
        deleted,
        took: ms(1),
    };
    let walk = Walk::spawn(Duration::ZERO, now, || ended, || {}).unwrap();
    while !walk.is_over() {
        std::thread::yield_now();
    }
    walk
}

/// A reconciler that remembers one endpoint, and whose last walk for it begins at the moment
/// that is given too.
fn before_the_last_walk() -> (ConntrackReconciler, Instant) {
    let mut reconciler = reconciler();
    let start = Instant::now();
    let past = [removed(1)].into_iter().collect();
    reconciler.written.add(&past, start);
    reconciler.timing.changed = Some(start);
    let began = start + SETTLE;
    reconciler.timing.begin(began);
    (reconciler, began)
}

/// A walk that began `now` and ends when it is told how.
fn walk_under_way(now: Instant) -> (Walk, Sender<Ended>) {
    let (end, ended) = channel();
    let walk = move || ended.recv().unwrap();
    (Walk::spawn(Duration::ZERO, now, walk, || {}).unwrap(), end)
}

/// The write fails, so the flows that are there are those of the former plan.
#[test]
fn nothing_is_stale_while_a_planned_change_is_not_written() {
    let mut reconciler = reconciler();
    let judge = Judge::new(&desired(), Some([]), PastFrontends::default());
    reconciler.judge.set(Some(judge));
    assert!(reconciler.judge.is_stale(&STALE));
    reconciler.note(
        &Step::Unchanged,
        &Desired::default(),
        &PastFrontends::default(),
    );
    assert!(reconciler.judge.is_stale(&STALE));
    reconciler.note(&Step::Full, &Desired::default(), &PastFrontends::default());
    assert!(!reconciler.judge.is_stale(&STALE));
}

/// What the walk passed over may be stale, and nothing else would find it again.
#[test]
fn a_walk_that_met_an_entry_while_nothing_could_be_deleted_is_repeated() {
    for passes_over in [false, true] {
        let (mut reconciler, began) = before_the_last_walk();
        reconciler.walk = Some(ended_walk(began, Ok(0)));
        reconciler.note(&Step::Full, &Desired::default(), &PastFrontends::default());
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
        let mut walk = ended_walk(began, Ok(0));
        walk.knows_addresses = knows_addresses;
        reconciler.walk = Some(walk);
        reconciler.reconcile(&Desired::default(), unknown, false, began);
        assert!(reconciler.walk.is_none());
        assert_eq!(reconciler.written.len(), usize::from(!knows_addresses));
        reconciler.reconcile(&Desired::default(), Some([]), false, began);
        assert_eq!(reconciler.walk.is_some(), !knows_addresses);
    }
    // They are unknown when a change is written under a walk.
    let mut reconciler = reconciler();
    let now = Instant::now();
    let (walk, end) = walk_under_way(now);
    reconciler.walk = Some(walk);
    reconciler.note(&Step::Full, &Desired::default(), &PastFrontends::default());
    reconciler.reconcile(&Desired::default(), unknown, false, now);
    assert!(reconciler.walk.is_some_and(|walk| !walk.knows_addresses));
    let (deleted, took) = (Ok(0), ms(1));
    end.send(Ended { deleted, took }).unwrap();
}

/// A step by which a frontend with one endpoint gets another one, or loses it again.
fn step(comes: bool) -> Step {
    let (frontend, first) = removed(1);
    let (_, second) = removed(2);
    let [one, both] = [vec![first], vec![first, second]];
    let (before, after) = if comes { (one, both) } else { (both, one) };
    let of = |endpoints: Vec<_>| Arc::new(endpoints.into_iter().flatten().collect());
    let mut delta = Delta::default();
    delta.tracked.removed = [(frontend, of(before))].into();
    delta.tracked.added = [(frontend, of(after))].into();
    Step::Delta(Box::new(delta))
}

#[test]
fn an_endpoint_that_comes_needs_no_walk_and_one_that_goes_two() {
    for comes in [true, false] {
        let mut reconciler = reconciler();
        let now = Instant::now();
        reconciler.note(&step(comes), &Desired::default(), &PastFrontends::default());
        // A walk that began just before cannot have seen what it does.
        reconciler.timing.begin(now);
        let (walk, end) = walk_under_way(now);
        reconciler.walk = Some(walk);
        let written = now + ms(1);
        reconciler.reconcile(&Desired::default(), Some([]), false, written);
        assert_eq!(reconciler.due_at(written), None);
        let (deleted, took) = (Ok(0), ms(1));
        end.send(Ended { deleted, took }).unwrap();
        while !reconciler.is_due(written) {
            std::thread::yield_now();
        }
        reconciler.end_walk(written);
        let [first, last] = [Some(written), Some(written + SETTLE)];
        assert_eq!(reconciler.due_at(written), first.filter(|_| !comes));
        reconciler.timing.begin(written + ms(1));
        reconciler.timing.ended(written + ms(1), ms(1), true);
        assert_eq!(reconciler.due_at(written), last.filter(|_| !comes));
    }
}

/// A Service is deleted, at an address that others than Services have too: nothing but what
/// is remembered says that flows were led to its endpoint.
#[test]
fn a_flow_to_an_endpoint_of_a_frontend_that_is_gone_is_stale() {
    let mut reconciler = reconciler();
    let now = Instant::now();
    let (walk, end) = walk_under_way(now);
    reconciler.walk = Some(walk);
    let (_, endpoint) = note_removed(&mut reconciler, 1);
    reconciler.reconcile(&Desired::default(), Some([]), false, now);
    let flow = Flow {
        answered_by: endpoint.unwrap(),
        ..STALE
    };
    assert!(reconciler.judge.is_stale(&flow));
    assert!(!reconciler.judge.is_stale(&STALE));
    let (deleted, took) = (Ok(0), ms(1));
    end.send(Ended { deleted, took }).unwrap();
}

#[test]
fn a_failure_is_reported_until_a_walk_succeeds() {
    let mut reconciler = reconciler();
    let now = Instant::now();
    let refused = tweed_netlink::Error {
        operation: "list",
        object: "conntrack entries".to_owned(),
        cause: nix::errno::Errno::EPERM.into(),
    };
    for (deleted, is_reported) in [(Err(refused), true), (Ok(0), false)] {
        reconciler.walk = Some(ended_walk(now, deleted));
        reconciler.end_walk(now);
        assert_eq!(reconciler.report().is_some(), is_reported);
    }
}

/// What was sent there before was not translated.
#[test]
fn a_frontend_of_tcp_that_comes_needs_two_walks() {
    let mut reconciler = reconciler();
    let now = Instant::now();
    let at = Frontend {
        address: STALE.destination.address,
        protocol: 6,
        port: 53,
    };
    let mut delta = Delta::default();
    delta.addresses.targets.added = [(at, Target::Reject)].into();
    let step = Step::Delta(Box::new(delta));
    reconciler.note(&step, &Desired::default(), &PastFrontends::default());
    let (walk, end) = walk_under_way(now);
    reconciler.walk = Some(walk);
    reconciler.reconcile(&Desired::default(), Some([]), false, now);
    let unanswered = Flow {
        protocol: 6,
        answered_by: STALE.destination,
        ..STALE
    };
    assert!(reconciler.judge.is_stale(&unanswered));
    assert_eq!(reconciler.timing.next(now), Some(now));
    let (deleted, took) = (Ok(0), ms(1));
    end.send(Ended { deleted, took }).unwrap();
}

/// Closing one makes all transactions of nf_tables wait.
#[test]
fn walks_share_their_sockets() {
    let idle = Idle::default();
    let mut sockets = Vec::new();
    for _ in 0..3 {
        let judge = SharedJudge::default();
        // Nothing can be stale, so nothing is asked.
        judge.set(Some(Judge::new(
            &Desired::default(),
            Some([]),
            PastFrontends::default(),
        )));
        let walk = Walk::begin(judge, &idle, Duration::ZERO, Instant::now(), || {}).unwrap();
        walk.end().deleted.unwrap();
        let conntrack = idle.take().unwrap();
        let link = format!("/proc/self/fd/{}", conntrack.as_raw_fd());
        sockets.push(std::fs::read_link(link).unwrap());
        idle.give_back(conntrack);
    }
    sockets.dedup();
    assert_eq!(sockets.len(), 1, "{sockets:?}");
}

/// Else a walk under way would delete the first flows to it.
#[test]
fn a_walk_under_way_judges_by_the_plan_with_the_endpoint_that_has_come() {
    let mut reconciler = reconciler();
    let now = Instant::now();
    let (walk, end) = walk_under_way(now);
    reconciler.walk = Some(walk);
    let judge = Judge::new(&desired(), Some([]), PastFrontends::default());
    reconciler.judge.set(Some(judge));
    assert!(reconciler.judge.is_stale(&STALE));
    reconciler.note(&step(true), &Desired::default(), &PastFrontends::default());
    assert!(!reconciler.judge.is_stale(&STALE));
    let mut after = desired();
    let (frontend, _) = removed(1);
    let endpoint = Arc::new([STALE.answered_by].into());
    after.tracked = [(frontend, endpoint)].into();
    reconciler.reconcile(&after, Some([]), false, now);
    assert!(!reconciler.judge.is_stale(&STALE));
    let other = Flow {
        answered_by: STALE.destination,
        ..STALE
    };
    assert!(reconciler.judge.is_stale(&other));
    let (deleted, took) = (Ok(0), ms(1));
    end.send(Ended { deleted, took }).unwrap();
}

/// A change waits for the end of a walk that began before it.
#[test]
fn the_end_of_a_walk_wakes_the_kernel_thread() {
    let mut reconciler = reconciler();
    let state = Arc::clone(&reconciler.state);
    let is_awake = || {
        let mut fds = [PollFd::new(state.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(10_000_u16)).unwrap() > 0
    };
    reconciler.note(&Step::Full, &Desired::default(), &PastFrontends::default());
    reconciler.reconcile(&Desired::default(), Some([]), false, Instant::now());
    assert!(is_awake());
    assert!(reconciler.is_due(Instant::now()));
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
    remembered.forget_before(start + SETTLE);
    assert_eq!(remembered.len(), 15);

    let mut reconciler = reconciler();
    reconciler.planned.past = (0..=limit).map(removed).collect();
    note_removed(&mut reconciler, limit + 1);
    assert_eq!(reconciler.planned.past.len(), 1);
}
