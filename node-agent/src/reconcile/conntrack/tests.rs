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
        timing.begin();
        timing.ended(now, now);
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
    timing.ended(start + ms(4999), start + ms(5001));
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
            timing.begin();
            // It takes 20 ms, and then rests.
            timing.ended(now, now + ms(20) + ms(20) * REST_FACTOR);
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
    timing.begin();
    timing.failed(start + RETRY);
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

/// The write fails, so the flows that are there are those of the former plan.
#[test]
fn nothing_is_stale_while_a_planned_change_is_not_written() {
    let mut reconciler = ConntrackReconciler::new(Metrics::register().1);
    let network = tweed_planner::services::desired::Span {
        first: "10.96.0.0".parse().unwrap(),
        last: "10.96.0.255".parse().unwrap(),
    };
    let desired = Desired {
        service_networks: [network].into(),
        ..Desired::default()
    };
    reconciler
        .judge
        .set(Some(Judge::new(&desired, [], Former::default())));
    let endpoint = |address: &str| Endpoint {
        address: address.parse().unwrap(),
        port: 53,
    };
    let stale = Flow {
        destination: endpoint("10.96.0.9"),
        answered_by: endpoint("10.0.0.6"),
    };
    assert!(reconciler.judge.is_stale(&stale));
    reconciler.note(&Step::Unchanged, &Former::default());
    assert!(reconciler.judge.is_stale(&stale));
    reconciler.note(&Step::Full, &Former::default());
    assert!(!reconciler.judge.is_stale(&stale));
}
