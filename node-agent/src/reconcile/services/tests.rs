use std::collections::BTreeMap;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tweed_core::object::endpoint_slice::{Endpoint, EndpointSlice, SlicePort};
use tweed_core::object::node::{Node, NodeAddress};
use tweed_core::object::service::{Service, ServicePort};
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Loss};
use tweed_planner::overlay::host::{
    AddressState, ConnectedRoute, HostAddress, HostFacts, Interface,
};
use tweed_planner::services::desired::Span;

use tweed_planner::services::Step;

use super::*;
use crate::config;
use crate::index::Input;
use crate::reconcile::flow_epoch::Epoch;
use crate::state::State;

fn reconciler() -> ServiceReconciler {
    let earlier = EarlierRun {
        boot_id: String::new(),
        pod_mtu: None,
        was_ready: true,
        served_services: false,
    };
    let health_checks = watch::channel(Arc::new(HealthChecks::default())).0;
    let config = config::of_line("--node-name me --services on");
    let state = Arc::new(State::new(&config, Vec::new()).unwrap());
    ServiceReconciler::new(Metrics::register().1, &state, health_checks, &earlier)
}

/// A machine with 192.0.2.1/24.
fn host() -> HostFacts {
    let eth0 = Interface {
        name: "eth0".into(),
        mtu: 1500,
        mtu_v6: 1500,
        up: true,
        loopback: false,
        dummy: false,
        port: false,
        addresses: vec![HostAddress {
            network: "192.0.2.1/24".parse().unwrap(),
            state: AddressState::Usable,
        }],
    };
    HostFacts {
        connected: [ConnectedRoute {
            destination: "192.0.2.0/24".parse().unwrap(),
            interface: 2,
            by_hand: false,
        }]
        .into(),
        interfaces: [(2, eth0)].into(),
        paths: BTreeMap::new(),
        last_pod_mtu: None,
    }
}

fn node(name: &str, created: i64, address: &str, cidr: &str) -> Node {
    Node {
        name: name.to_owned(),
        created: Some(created),
        pod_cidrs: vec![cidr.to_owned()],
        addresses: vec![NodeAddress {
            kind: "InternalIP".to_owned(),
            address: address.to_owned(),
        }],
        ..Node::default()
    }
}

/// An index in which it is known that there is nothing.
fn empty_index() -> ServiceIndex {
    let config = config::of_line("--node-name me --services on");
    let mut index = ServiceIndex::new(config.services.unwrap());
    list::<Service>(&mut index, Collection::Services);
    list::<EndpointSlice>(&mut index, Collection::EndpointSlices);
    list::<ServiceCidr>(&mut index, Collection::ServiceCidrs);
    index
}

fn list<T: Input<Collection>>(index: &mut ServiceIndex, of: Collection) {
    for event in [Event::<T>::Init, Event::InitDone] {
        index.apply(&of, event);
    }
}

/// Whose packets count as those of pods when these Nodes are known.
fn pod_networks(line: &str, nodes: &[Node]) -> Vec<(String, String)> {
    let config = config::of_line(&format!("--node-name me --services on {line}"));
    let mut cluster = Cluster::new("me");
    let mut overlay = OverlayPlanner::new(config.overlay, None);
    let mut index = empty_index();
    let mut services = reconciler();
    let own = node("me", 1, "192.0.2.1", "10.244.1.0/24");
    for event in [Event::Init, Event::InitApply(own), Event::InitDone] {
        let _ = cluster.apply(event);
    }
    // The others come one after the other, so that each is planned by itself.
    for node in nodes {
        let _ = cluster.apply(Event::Apply(node.clone()));
        overlay.update(&mut cluster, host());
        services.update_nodes(&mut index, &cluster, &overlay);
        index.planner.plan();
    }
    let networks = index.planner.desired().pod_networks.iter();
    let text = |span: &Span| (span.first.to_string(), span.last.to_string());
    networks.map(text).collect()
}

/// With it a client from outside would get endpoints of other nodes, masqueraded, of a
/// Service with `externalTrafficPolicy: Local`, because of one bad Node.
#[test]
fn a_pod_cidr_that_the_overlay_refuses_makes_pods_of_nobody() {
    let good = node("good", 2, "192.0.2.2", "10.244.2.0/24");
    let span = |first: &str, last: &str| (first.to_owned(), last.to_owned());
    let expected = [span("10.244.1.0", "10.244.2.255")];
    for refused in [
        "0.0.0.0/0",
        "192.0.2.0/24",
        "10.244.0.0/16",
        "10.244.1.7/24",
    ] {
        let bad = node("bad", 3, "192.0.2.3", refused);
        assert_eq!(
            pod_networks("", &[good.clone(), bad]),
            expected,
            "{refused}"
        );
    }
    let outside = node("bad", 3, "192.0.2.3", "198.51.100.0/24");
    let given = "--cluster-cidr 10.244.0.0/16";
    let expected = [span("10.244.0.0", "10.244.255.255")];
    assert_eq!(pod_networks(given, &[good, outside]), expected);
}

#[test]
fn pods_of_a_node_that_comes_alone_are_known() {
    let nodes = [
        node("second", 2, "192.0.2.2", "10.244.2.0/24"),
        node("third", 3, "192.0.2.3", "10.244.3.0/24"),
    ];
    let expected = [("10.244.1.0".to_owned(), "10.244.3.255".to_owned())];
    assert_eq!(pod_networks("", &nodes), expected);
}

/// What a reconciler plans with whose last plan is in force.
struct InForce {
    services: ServiceReconciler,
    index: ServiceIndex,
    tables: Tables,
}

impl InForce {
    fn new() -> Self {
        let config = config::of_line("--node-name me --services on");
        let mut index = empty_index();
        index
            .planner
            .set_node(Some(&node("me", 1, "192.0.2.1", "10.244.1.0/24")));
        index.planner.set_pod_networks(PodNetworks::default());
        assert_eq!(index.planner.plan(), Step::Full);
        let mut services = reconciler();
        services.progress = Progress::Behind;
        services.came_in_force(&index);
        assert_eq!(services.served(), Served::All);
        Self {
            services,
            index,
            tables: Tables::new(
                &Arc::new(config),
                Epoch::new(&Metrics::register().1),
                CancellationToken::new(),
            ),
        }
    }

    fn plan(&mut self) -> Step {
        let step = self.services.plan_with(&mut self.index, &mut self.tables);
        super::super::component::planned(&mut self.services, &mut self.index, step).step
    }

    /// Whether the node is healthy after a minute for which nothing more happens.
    fn is_healthy_later(&self) -> bool {
        let later = Instant::now() + Duration::from_secs(60);
        self.services.metrics.service_sync.health(later).in_time
    }
}

/// Nothing else would have the rest taken up.
#[test]
fn services_that_wait_for_their_turn_call_for_another_plan() {
    let mut node = InForce::new();
    let endpoint = |number: usize| Endpoint {
        address: format!("10.244.{}.{}", number / 200, number % 200),
        ready: true,
        serving: true,
        terminating: false,
        node: String::new(),
        zone_hints: Vec::new(),
        node_hints: Vec::new(),
    };
    let (port, name, protocol) = (80, String::new(), "TCP".to_owned());
    let of_slice = SlicePort {
        name: name.clone(),
        protocol: protocol.clone(),
        port,
    };
    let of_service = ServicePort {
        name,
        protocol,
        port,
        node_port: 0,
    };
    for name in ["first", "second", "third"] {
        let service = Service {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            cluster_ips: vec!["10.96.0.1".to_owned()],
            ports: vec![of_service.clone()],
            ..Service::default()
        };
        let slice = EndpointSlice {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            service: name.to_owned(),
            endpoints: (0..3_000).map(endpoint).collect(),
            ports: vec![of_slice.clone()],
            ..EndpointSlice::default()
        };
        (node.index).apply(&Collection::Services, Event::Apply(service));
        (node.index).apply(&Collection::EndpointSlices, Event::Apply(slice));
    }
    let sync = &node.services.metrics.service_sync;
    sync.changed::<Service>(Vec::new(), Instant::now());
    for (queued, has_turn) in [(2, true), (2, false), (1, true), (1, false), (0, true)] {
        assert!(node.index.take_changed());
        assert_eq!(matches!(node.plan(), Step::Delta(_)), has_turn);
        assert_eq!(node.index.planner.queued(), queued);
        // What had its turn is late if it is not written, whatever waits.
        assert_eq!(node.is_healthy_later(), queued < 2 || !has_turn);
        node.services.came_in_force(&node.index);
    }
    assert!(!node.index.take_changed());
}

/// Load balancers then ask for other nodes: `/healthz` says so after a minute.
#[test]
fn a_node_whose_table_cannot_be_written_is_unhealthy_until_it_is_written() {
    let mut node = InForce::new();
    node.services.progress.failed();
    node.services.not_written();
    assert_eq!(node.services.served(), Served::Earlier);
    assert!(!node.is_healthy_later());
    // Nothing new is planned, which is no reason to take the last plan for written.
    assert_eq!(node.plan(), Step::Unchanged);
    assert!(!node.is_healthy_later());
    node.services.came_in_force(&node.index);
    assert_eq!(node.services.served(), Served::All);
    assert!(node.is_healthy_later());
}

/// Those that are served stay so, and pods can come: a node in whose table Services are is not
/// taken out for a list that it waits for.
#[test]
fn what_is_not_listed_is_told_until_it_is_known_that_it_cannot_be_read() {
    let mut node = InForce::new();
    node.services.unknown = Effect::NewPods;
    node.services.held = vec!["the EndpointSlices".to_owned()];
    let problems = |node: &InForce| {
        let outcome = node.services.report(&node.index, Instant::now());
        let told = outcome.problems.iter().map(|one| (one.kind, one.effect));
        told.collect::<Vec<_>>()
    };
    let not_listed = (ProblemKind::ServicesNotListed, Effect::Warning);
    assert_eq!(problems(&node), [not_listed]);
    assert!(!node.services.has_reported(&node.index));
    let lost = Event::<EndpointSlice>::Lost(Loss {
        reason: "the server is away".to_owned(),
        forbidden: false,
    });
    node.index.apply(&Collection::EndpointSlices, lost);
    let unreadable = (ProblemKind::ServicesUnreadable, Effect::Warning);
    assert_eq!(problems(&node), [unreadable]);
    assert!(node.services.has_reported(&node.index));
}
