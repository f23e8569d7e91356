use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tweed_component::explain::text;
use tweed_core::object::Event;
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::service::{Service, ServicePort};
use tweed_core::object::service_cidr::ServiceCidr;

use super::*;
use crate::config;
use crate::index::services::Collection;

/// Only a thread that cannot go on takes as long.
const LONG: Duration = Duration::from_secs(20);

fn service(port: u16) -> Service {
    Service {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        kind: "ClusterIP".to_owned(),
        cluster_ips: vec!["10.96.0.1".to_owned()],
        ports: vec![ServicePort {
            name: String::new(),
            protocol: "TCP".to_owned(),
            port,
            node_port: 0,
        }],
        ..Service::default()
    }
}

/// A state in which a Service without endpoints is planned.
fn state() -> Arc<State> {
    let state = State::new(&config::of_line("--node-name a --services on"), Vec::new()).unwrap();
    let mut index = state.services().unwrap();
    index.apply::<Service>(&Collection::Services, Event::Init);
    index.apply(&Collection::Services, Event::InitApply(service(80)));
    index.apply::<Service>(&Collection::Services, Event::InitDone);
    for event in [Event::Init, Event::InitDone] {
        index.apply::<EndpointSlice>(&Collection::EndpointSlices, event);
    }
    for event in [Event::Init, Event::InitDone] {
        index.apply::<ServiceCidr>(&Collection::ServiceCidrs, event);
    }
    let node = Node {
        name: "a".to_owned(),
        ..Node::default()
    };
    index.planner.set_node(Some(&node));
    index.take_changed();
    index.planner.plan();
    drop(index);
    Arc::new(state)
}

fn explain(index: &ServiceIndex) -> Result<Explanation, ExplainError> {
    let web = Where {
        to: Destination::Service {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            port: None,
            protocol: None,
        },
        from: None,
        all: false,
    };
    let own = OwnAddresses::default();
    index.planner.explain(&web, own, &Places::default())
}

/// The kernel thread needs the index for each change, and netlink may be slow.
#[test]
fn the_kernel_thread_goes_on_while_the_kernel_is_read_and_what_it_changes_is_read_again() {
    let state = state();
    let reads = Cell::new(0);
    let read = |planned: &Desired, _: &[Tracked]| {
        reads.set(reads.get() + 1);
        let (done, is_done) = mpsc::channel();
        let kernel_thread = Arc::clone(&state);
        std::thread::spawn(move || {
            let mut index = kernel_thread.services().unwrap();
            index.apply(&Collection::Services, Event::Apply(service(8080)));
            index.take_changed();
            index.planner.plan();
            drop(index);
            done.send(()).unwrap();
        });
        is_done.recv_timeout(LONG).expect("it waits for the answer");
        let ports = planned.addresses.targets.keys().map(|at| at.port);
        Ok(Some(Held {
            read: ports.map(usize::from).sum(),
            ..Held::default()
        }))
    };
    let steps = explain_and_read(&state, explain, read).unwrap().unwrap();
    assert_eq!(reads.get(), 2);
    let kernel = Step::new("the kernel is as planned").because("8080 elements read");
    assert!(steps.contains(&kernel), "{steps:?}");
    assert!(!steps.contains(&Step::note(JUST_CHANGED)));
}

#[test]
fn what_changes_all_the_time_is_answered_with_a_hint() {
    let state = state();
    let port = Cell::new(80);
    let read = |_: &Desired, _: &[Tracked]| {
        port.set(port.get() + 1);
        let mut index = state.services().unwrap();
        index.apply(&Collection::Services, Event::Apply(service(port.get())));
        index.planner.plan();
        Ok(Some(Held::default()))
    };
    let steps = explain_and_read(&state, explain, read).unwrap().unwrap();
    let notes = steps
        .iter()
        .filter(|step| **step == Step::note(JUST_CHANGED));
    assert_eq!(notes.count(), 1);
    assert_eq!(port.get(), 83);
}

#[test]
fn what_the_kernel_has_otherwise_is_named() {
    let difference = |planned: Option<&str>, held: Option<&str>| Difference {
        set: "service_targets4".to_owned(),
        key: "203.0.113.1 . 6 . 80".to_owned(),
        planned: planned.map(str::to_owned),
        held: held.map(str::to_owned),
    };
    let mut differences = vec![
        difference(Some("0x40000000"), None),
        difference(None, Some("0x40000002")),
    ];
    let held = |differences: &[Difference]| Held {
        read: 7,
        unread: 1,
        differences: differences.to_vec(),
    };
    let expected = "\
the kernel is NOT as planned: 7 elements read, 1 more not read
  service_targets4 { 203.0.113.1 . 6 . 80 }: nothing, planned 0x40000000
  service_targets4 { 203.0.113.1 . 6 . 80 }: 0x40000002, planned nothing
";
    assert_eq!(text(&kernel(Ok(Some(held(&differences))))), expected);
    differences.resize(MAX_DIFFERENCES + 1, differences[0].clone());
    let said = text(&kernel(Ok(Some(held(&differences)))));
    assert_eq!(said.lines().count(), MAX_DIFFERENCES + 2);
    assert!(said.ends_with("\n  and 1 more differences\n"), "{said}");
    let none = text(&kernel(Ok(None)));
    assert!(none.starts_with("note: the kernel has no rules of Services"));
}
