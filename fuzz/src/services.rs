//! Services, EndpointSlices, ServiceCIDRs and Nodes, and a change of them, in the index of
//! Services.
//!
//! Input: two node files with a zero byte between.

mod lookup;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use ipnetwork::IpNetwork;
use tweed_agent::index::services::Collection;
use tweed_agent::index::{Input, ServiceIndex};
use tweed_component::explain::{Destination, Where};
use tweed_core::object::endpoint_slice::EndpointSlice;
use tweed_core::object::node::Node;
use tweed_core::object::service::Service;
use tweed_core::object::service_cidr::ServiceCidr;
use tweed_core::object::{Event, Object};
use tweed_planner::services::desired::{Desired, Endpoint, Frontend, Tracked};
use tweed_planner::services::stale::{Flow as Answered, Judge, PROTOCOL, PastFrontends};
use tweed_planner::services::{
    NodePortAddresses, Options, OwnAddresses, Places, PodNetworks, Step,
};
use tweed_watch::manifests::parse;

use lookup::{Origin, Way, WithoutService};

/// Which Node this is.
const NODE: &str = "n1";

/// Maximum number of destinations that are looked at, so that an input needs little time.
const MAX_DESTINATIONS: usize = 12;

/// Whose flows are looked at: a pod, this node and somebody outside, of both families.
const SOURCES: [(&str, bool); 6] = [
    ("10.0.1.6", false),
    ("192.0.2.1", true),
    ("198.51.100.7", false),
    ("fd00:0:0:1::6", false),
    ("2001:db8::1", true),
    ("2001:db8:ffff::7", false),
];

/// The objects of a file.
struct Objects {
    services: Vec<Service>,
    slices: Vec<EndpointSlice>,
    cidrs: Vec<ServiceCidr>,
    nodes: Vec<Node>,
}

impl Objects {
    fn read(file: &[u8]) -> Option<Self> {
        Some(Self {
            services: parse(file).ok()?,
            slices: parse(file).ok()?,
            cidrs: parse(file).ok()?,
            nodes: parse(file).ok()?,
        })
    }

    /// Lists them, as a source does.
    fn list(&self, index: &mut ServiceIndex) {
        list(index, Collection::Services, &self.services);
        list(index, Collection::EndpointSlices, &self.slices);
        list(index, Collection::ServiceCidrs, &self.cidrs);
        self.set_nodes(index);
    }

    /// Tells of what differs from others, as a watch does.
    fn follow(&self, before: &Self, index: &mut ServiceIndex) {
        follow(
            index,
            Collection::Services,
            &before.services,
            &self.services,
        );
        follow(
            index,
            Collection::EndpointSlices,
            &before.slices,
            &self.slices,
        );
        follow(index, Collection::ServiceCidrs, &before.cidrs, &self.cidrs);
        self.set_nodes(index);
    }

    /// Every CIDR counts as one that the overlay accepts: the planner has to bear any.
    fn set_nodes(&self, index: &mut ServiceIndex) {
        let own = self.nodes.iter().find(|node| node.name == NODE);
        let cidrs = |node: &Node| -> Vec<IpNetwork> {
            let texts = node.pod_cidrs.iter();
            texts.filter_map(|text| text.parse().ok()).collect()
        };
        index.planner.set_node(own);
        index.planner.set_nodes(&self.nodes);
        index.planner.set_pod_networks(PodNetworks {
            cluster: self.nodes.iter().flat_map(cidrs).collect(),
            own: own.map(cidrs).unwrap_or_default(),
        });
    }
}

fn list<K: Object + Input<Collection>>(index: &mut ServiceIndex, of: Collection, objects: &[K]) {
    index.apply(&of, Event::<K>::Init);
    for object in objects {
        index.apply(&of, Event::InitApply(object.clone()));
    }
    index.apply(&of, Event::<K>::InitDone);
}

fn follow<K: Object + Input<Collection>>(
    index: &mut ServiceIndex,
    of: Collection,
    before: &[K],
    after: &[K],
) {
    for object in before {
        if !after.iter().any(|one| one.key() == object.key()) {
            index.apply(&of, Event::<K>::Delete(object.key()));
        }
    }
    for object in after {
        index.apply(&of, Event::Apply(object.clone()));
    }
}

/// What becomes of a flow, and the endpoints that it may get. Two plans number their groups
/// as they came.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Sent(BTreeSet<Endpoint>, bool),
    Stopped(Way),
    Without(WithoutService),
}

fn verdict(desired: &Desired, source: IpAddr, is_own: bool, key: Frontend) -> Verdict {
    // Node ports are looked at too: every destination counts as this machine's, but where no
    // Service has it.
    let Some(at) = lookup::frontend(desired, key, true) else {
        return Verdict::Without(lookup::without(desired, key.address, false));
    };
    let origin = if is_own {
        Origin::Node
    } else if lookup::within(&desired.pod_networks, source) {
        Origin::Pod
    } else {
        Origin::Outside
    };
    let way = lookup::way(desired, at, origin, Some(source));
    match way.expect("a frontend that is found leads somewhere") {
        Way::Sent { group, masquerade } => {
            let endpoints = lookup::endpoints(desired, group);
            assert!(!endpoints.is_empty(), "{key:?}");
            Verdict::Sent(endpoints, masquerade)
        }
        stopped => Verdict::Stopped(stopped),
    }
}

/// The destinations that one of the plans knows, and one that none does.
fn destinations(plans: [&Desired; 2]) -> BTreeSet<Frontend> {
    let mut found = BTreeSet::new();
    for desired in plans {
        found.extend(desired.addresses.targets.keys().copied());
        let places = desired.node_port_networks.iter().map(|span| span.first);
        for address in places {
            let ports = desired.node_ports.targets.keys();
            found.extend(ports.map(|one| Frontend {
                address,
                protocol: one.protocol,
                port: one.port,
            }));
        }
        let known = desired.cluster_ips.iter().chain(&desired.foreign);
        let last = desired.service_networks.iter().map(|span| span.last);
        let addresses = known.copied().chain(last);
        found.extend(addresses.map(|address| Frontend {
            address,
            protocol: PROTOCOL,
            port: 9,
        }));
    }
    found.into_iter().take(MAX_DESTINATIONS).collect()
}

/// A flow that is sent to an endpoint is not stale as long as that serves.
fn nothing_sound_is_stale(desired: &Desired) {
    let judge = Judge::new(desired, Some([]), PastFrontends::default());
    for (at, serving) in desired.tracked.iter().take(MAX_DESTINATIONS) {
        let Tracked::Address(key) = at else { continue };
        for endpoint in serving.iter() {
            let flow = Answered {
                protocol: key.protocol,
                destination: Endpoint {
                    address: key.address,
                    port: key.port,
                },
                answered_by: *endpoint,
            };
            assert!(
                key.protocol == PROTOCOL && !judge.is_stale(&flow),
                "{flow:?}"
            );
        }
    }
}

fn new_index() -> ServiceIndex {
    ServiceIndex::new(Options {
        node_name: NODE.to_owned(),
        node_port_addresses: NodePortAddresses {
            primary: true,
            networks: Vec::new(),
        },
        external_ips: true,
        load_balancer_cidrs: ["0.0.0.0/0", "::/0"]
            .map(|all| all.parse().expect("it is a CIDR"))
            .into(),
    })
}

/// An index that has followed a change says the same of each flow as one that has only
/// heard of what is there now, and both can explain it.
pub fn check(input: &[u8]) {
    let mut files = input.splitn(2, |byte| *byte == 0);
    let mut objects = || Objects::read(files.next().unwrap_or_default());
    let (Some(before), Some(after)) = (objects(), objects()) else {
        return;
    };
    let mut index = new_index();
    before.list(&mut index);
    assert_eq!(index.planner.plan(), Step::Full);
    let old = index.planner.desired().clone();
    after.follow(&before, &mut index);
    let step = index.planner.plan();
    assert!(matches!(step, Step::Delta(_) | Step::Unchanged));
    assert_eq!(step == Step::Unchanged, old == *index.planner.desired());
    // A list of the same is nothing new.
    after.list(&mut index);
    assert_eq!(index.planner.plan(), Step::Unchanged);

    let mut fresh = new_index();
    after.list(&mut fresh);
    assert_eq!(fresh.planner.plan(), Step::Full);
    let (followed, expected) = (index.planner.desired(), fresh.planner.desired());
    nothing_sound_is_stale(followed);
    for key in destinations([followed, expected]) {
        for (text, is_own) in SOURCES {
            let source: IpAddr = text.parse().expect("it is an address");
            if source.is_ipv4() == key.address.is_ipv4() {
                let expected = verdict(expected, source, is_own, key);
                assert_eq!(verdict(followed, source, is_own, key), expected, "{key:?}");
            }
        }
        let question = Where {
            to: Destination::Address(SocketAddr::new(key.address, key.port), key.protocol),
            from: None,
            all: true,
        };
        let own = OwnAddresses {
            destination: true,
            client: false,
        };
        let answer = index.planner.explain(&question, own, &Places::default());
        let explained = answer.expect("an address can always be asked for");
        let found = lookup::frontend(followed, key, true);
        let says_port = explained
            .steps
            .iter()
            .any(|one| one.what.starts_with("port "));
        assert_eq!(says_port, found.is_some(), "{key:?}");
    }
}
