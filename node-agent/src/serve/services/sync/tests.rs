use super::*;
use crate::serve::exposition;

/// An agent that has started at some time.
struct Agent {
    sync: ServiceSync,
    now: Instant,
}

impl Agent {
    fn start() -> Self {
        Self {
            sync: ServiceSync::new(SystemTime::now()),
            now: Instant::now(),
        }
    }

    fn hear<T: CountedObject>(&self, event: &Event<T>, changed: bool) {
        if let Some(triggered) = self.sync.hear(event)
            && changed
        {
            self.sync.changed::<T>(triggered, self.now);
        }
    }

    fn write(&self) {
        let took = Duration::from_millis(3);
        self.sync.written(took, false, WithoutLocal::default());
    }

    fn is_in_time_after(&self, time: Duration) -> bool {
        self.sync.health(self.now + time).in_time
    }

    /// The value of a series.
    fn value(&self, series: &str) -> f64 {
        let text = exposition::text(&[self.sync.registry()]).unwrap();
        let found = text.lines().find_map(|line| line.strip_prefix(series));
        let value = found.unwrap_or_else(|| panic!("no {series} in:\n{text}"));
        value.trim().parse().unwrap()
    }
}

fn slice(triggered: Option<SystemTime>) -> EndpointSlice {
    EndpointSlice {
        triggered,
        ..EndpointSlice::default()
    }
}

/// After the start, and a while ago.
fn lately(agent: &Agent) -> Option<SystemTime> {
    Some(agent.sync.started() + Duration::from_nanos(1))
}

const MEASURED: &str = "kubeproxy_network_programming_duration_seconds_count";

#[test]
fn a_change_that_is_not_written_for_a_minute_is_late() {
    let agent = Agent::start();
    let minute = Duration::from_secs(60);
    assert!(agent.is_in_time_after(minute * 60), "nothing was heard");
    agent.hear(&Event::Apply(Service::default()), true);
    assert!(agent.is_in_time_after(minute - Duration::from_millis(1)));
    assert!(!agent.is_in_time_after(minute));
    agent.sync.planned();
    assert!(!agent.is_in_time_after(minute), "a plan is no write");
    agent.write();
    assert!(agent.is_in_time_after(minute));
    assert!(agent.sync.health(agent.now).written.is_some());
}

#[test]
fn what_is_heard_while_a_plan_is_written_waits_for_the_next_write() {
    let agent = Agent::start();
    agent.hear(&Event::Apply(Service::default()), true);
    agent.sync.planned();
    agent.hear(&Event::Apply(slice(lately(&agent))), true);
    agent.write();
    assert!(!agent.is_in_time_after(Duration::from_secs(60)));
    assert!(agent.value(MEASURED) < 1.0);
    agent.sync.planned();
    agent.write();
    assert!(agent.is_in_time_after(Duration::from_secs(60)));
    assert!(agent.value(MEASURED) > 0.0);
}

#[test]
fn a_write_that_fails_is_late_too_until_it_succeeds() {
    let agent = Agent::start();
    agent.sync.failed(agent.now);
    assert!(!agent.is_in_time_after(Duration::from_secs(60)));
    let failures = "kubeproxy_sync_proxy_rules_nftables_sync_failures_total";
    assert_eq!(agent.value(failures).to_string(), "1");
    agent.write();
    assert!(agent.is_in_time_after(Duration::from_secs(60)));
}

/// Each change brings a plan, and none of them is written.
#[test]
fn changes_that_go_on_do_not_hide_that_nothing_is_written() {
    let mut agent = Agent::start();
    let start = agent.now;
    for second in 0..60 {
        agent.now = start + Duration::from_secs(second);
        agent.hear(&Event::Apply(Service::default()), true);
        agent.sync.planned();
        agent.sync.failed(agent.now);
        assert!(agent.is_in_time_after(Duration::ZERO), "{second}");
    }
    agent.now = start + Duration::from_secs(60);
    assert!(!agent.is_in_time_after(Duration::ZERO));
}

#[test]
fn what_waits_for_the_nodes_network_is_late_a_minute_after_it_could_be_written() {
    let mut agent = Agent::start();
    let minute = Duration::from_secs(60);
    agent.hear(&Event::Apply(Service::default()), true);
    agent.sync.planned();
    agent.now += minute;
    agent.sync.waits(agent.now);
    assert!(agent.is_in_time_after(minute - Duration::from_millis(1)));
    assert!(!agent.is_in_time_after(minute));
    agent.write();
    agent.sync.waits(agent.now);
    assert!(agent.is_in_time_after(minute), "nothing waits");
}

#[test]
fn a_change_that_the_kernel_has_already_waits_for_no_write() {
    let agent = Agent::start();
    agent.hear(&Event::Apply(slice(lately(&agent))), true);
    agent.sync.planned();
    agent.sync.unchanged();
    assert!(agent.is_in_time_after(Duration::from_secs(60)));
    agent.write();
    assert!(agent.value(MEASURED) < 1.0);
}

/// Such as a slice of a headless Service, or an endpoint that was no longer used and is gone.
/// Whoever compares the two times would take it for a write that hangs.
#[test]
fn after_a_change_that_the_kernel_has_already_no_write_seems_to_hang() {
    let agent = Agent::start();
    agent.hear(&Event::Apply(slice(None)), true);
    agent.sync.planned();
    agent.sync.unchanged();
    let [written, queued] = ["last", "last_queued"].map(|name| {
        agent.value(&format!(
            "kubeproxy_sync_proxy_rules_{name}_timestamp_seconds"
        ))
    });
    assert!(written >= queued, "{written} and {queued}");
}

#[test]
fn only_what_took_place_in_this_run_is_measured_and_once() {
    let agent = Agent::start();
    let before = Some(agent.sync.started() - Duration::from_secs(1));
    agent.hear(&Event::Apply(slice(before)), true);
    agent.hear(&Event::Apply(slice(None)), true);
    agent.hear(&Event::Apply(slice(lately(&agent))), false);
    agent.hear(&Event::Apply(slice(lately(&agent))), true);
    agent.sync.planned();
    agent.write();
    agent.write();
    assert_eq!(agent.value(MEASURED).to_string(), "1");
}

#[test]
fn what_waits_for_its_turn_is_measured_when_it_had_it_and_others_when_they_are_written() {
    let agent = Agent::start();
    for service in ["huge", "small"] {
        let slice = EndpointSlice {
            service: service.to_owned(),
            triggered: lately(&agent),
            ..EndpointSlice::default()
        };
        agent.hear(&Event::Apply(slice), true);
    }
    agent.sync.planned_but(|service| service.name == "huge");
    assert!(
        !agent.is_in_time_after(LATE_AFTER),
        "the small one is unwritten"
    );
    agent.write();
    assert!(agent.is_in_time_after(LATE_AFTER));
    assert_eq!(agent.value(MEASURED).to_string(), "1");
    agent.sync.planned();
    agent.write();
    assert_eq!(agent.value(MEASURED).to_string(), "2");
}

#[test]
fn a_new_list_is_measured_by_what_it_has_that_was_not_heard_of() {
    let agent = Agent::start();
    let list = |ages: &[u64]| {
        agent.hear(&Event::<EndpointSlice>::Init, false);
        for age in ages {
            let at = agent.sync.started() + Duration::from_nanos(*age);
            agent.hear(&Event::InitApply(slice(Some(at))), false);
        }
        // A list of another kind does not get into the way.
        agent.hear(&Event::<Service>::Init, false);
        agent.hear(&Event::<Service>::InitDone, true);
    };
    let write = |changed| {
        agent.hear(&Event::<EndpointSlice>::InitDone, changed);
        agent.sync.planned();
        agent.write();
        agent.value(MEASURED).to_string()
    };
    list(&[0, 1, 2]);
    assert_eq!(write(true), "2");
    list(&[1, 3]);
    // One that is cut off is no list.
    list(&[1, 2, 4, 5, 6]);
    assert_eq!(write(true), "5");
    list(&[7]);
    assert_eq!(write(false), "5");
}

#[test]
fn kube_proxy_s_counters_have_what_was_heard_and_what_is_pending() {
    let agent = Agent::start();
    agent.hear(&Event::<Service>::Init, false);
    agent.hear(&Event::InitApply(Service::default()), false);
    agent.hear(&Event::<Service>::InitDone, true);
    agent.hear(&Event::Apply(slice(None)), true);
    agent.hear(&Event::Apply(slice(None)), false);
    agent.hear(&Event::<Service>::Lost("away".into()), true);
    let values = || {
        [
            "service_changes_total",
            "service_changes_pending",
            "endpoint_changes_total",
            "endpoint_changes_pending",
        ]
        .map(|name| agent.value(&format!("kubeproxy_sync_proxy_rules_{name}")))
        .map(|value| value.to_string())
    };
    assert_eq!(values(), ["1", "1", "2", "1"]);
    agent.sync.planned();
    assert_eq!(values(), ["1", "0", "2", "0"]);
    agent.write();
    agent.hear(&Event::<Service>::Restored, true);
    assert!(agent.is_in_time_after(Duration::from_secs(60)));
}

#[test]
fn a_write_is_counted_by_its_kind_and_says_which_ports_have_no_local_endpoints() {
    let agent = Agent::start();
    let without_local = WithoutLocal {
        internal: 2,
        external: 3,
    };
    let took = Duration::from_millis(1500);
    agent.sync.written(took, true, without_local);
    let series = |name: &str| agent.value(&format!("kubeproxy_sync_{name}")).to_string();
    for (name, expected) in [
        ("proxy_rules_duration_seconds_sum", "1.5"),
        ("proxy_rules_duration_seconds_bucket{le=\"1.024\"}", "0"),
        ("proxy_rules_duration_seconds_bucket{le=\"2.048\"}", "1"),
        ("full_proxy_rules_duration_seconds_count", "1"),
        ("partial_proxy_rules_duration_seconds_count", "0"),
        (
            "proxy_rules_no_local_endpoints_total{traffic_policy=\"internal\"}",
            "2",
        ),
        (
            "proxy_rules_no_local_endpoints_total{traffic_policy=\"external\"}",
            "3",
        ),
    ] {
        assert_eq!(series(name), expected, "{name}");
    }
    let started = seconds(agent.sync.started());
    for name in ["last", "last_queued"] {
        let at = agent.value(&format!(
            "kubeproxy_sync_proxy_rules_{name}_timestamp_seconds"
        ));
        assert!(at >= started, "{name}");
    }
}

/// It would lead connections to pods of other nodes nowhere.
#[test]
fn a_node_without_a_network_of_pods_is_nothing_for_load_balancers() {
    let sync = ServiceSync::new(SystemTime::now());
    sync.set_served(true);
    for has_network in [true, false, true] {
        sync.set_network(has_network);
        assert_eq!(sync.health(Instant::now()).served, has_network);
    }
}
