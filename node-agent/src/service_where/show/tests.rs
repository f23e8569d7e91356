use tweed_core::agent_socket::service::{Counts, Destination, NoService, SourceRanges};

use super::*;

fn asked(address: &str, port: u16) -> Where {
    Where {
        to: Destination::Address {
            address: address.parse().unwrap(),
            protocol: 6,
            port,
        },
        from: None,
        all: false,
    }
}

fn path(from: Client, fate: Fate) -> Path {
    Path {
        from,
        fate,
        group: None,
        endpoints: 0,
        local_only: false,
        masqueraded: false,
        hairpin: false,
        to_other_nodes: false,
    }
}

fn located() -> Located {
    let endpoint = |at: &str, here, local| Endpoint {
        at: at.parse().unwrap(),
        here,
        node: Some("n2".to_owned()),
        ready: true,
        serving: true,
        terminating: false,
        zones: vec!["z\n1".to_owned()],
        cluster: Some(Use::Used),
        local: Some(local),
    };
    let sent = Path {
        group: Some(0x4000_0000),
        endpoints: 2,
        masqueraded: true,
        ..path(Client::Node, Fate::Sent)
    };
    let frontend = Frontend {
        kind: FrontendKind::LoadBalancer,
        address: Some("203.0.113.1".parse().unwrap()),
        port: 80,
        taken_by: None,
        source_ranges: Some(SourceRanges {
            ranges: vec!["198.51.100.0-198.51.100.255".to_owned()],
            more: 2,
            node: false,
        }),
        paths: vec![sent, path(Client::Outside, Fate::NoLocalEndpoint)],
    };
    let port = Port {
        name: "http".to_owned(),
        protocol: 6,
        port: 80,
        ipv6: false,
        frontends: vec![frontend],
        more_frontends: 0,
        endpoints: vec![
            endpoint("10.0.1.6:8080", true, Use::Used),
            endpoint("10.0.2.7:8080", false, Use::NotLocal),
        ],
        more_endpoints: 3,
        counts: Counts {
            known: 5,
            cluster: Some(5),
            local: Some(1),
            other_family: 1,
        },
    };
    Located {
        node: "n1".to_owned(),
        service: Some(Service {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            kind: "LoadBalancer".to_owned(),
            internal_local: false,
            external_local: true,
            affinity_seconds: Some(60),
            health_check_node_port: Some(30100),
        }),
        ports: vec![port],
        kernel: Some(Kernel {
            read: 7,
            ..Kernel::default()
        }),
        ..Located::default()
    }
}

#[test]
fn an_answer_says_who_goes_where_and_why() {
    let expected = "\
203.0.113.1:80/TCP, as node n1 knows it
Service shop/web, LoadBalancer; internalTrafficPolicy Cluster, externalTrafficPolicy Local; affinity by client address for 60 s, health checks at port 30100
port \"http\" 80/TCP, IPv4
  load balancer's address 203.0.113.1:80
    only for the sources 198.51.100.0-198.51.100.255 and 2 more; this node is not among them
    from this node: one of 2 endpoints (group 0x40000000), masqueraded
    from outside: DROPPED, the traffic policy is Local and all endpoints are on other nodes
  endpoints: 5, 5 used by the policy Cluster, 1 by Local; 1 of the other family
    10.0.1.6:8080 on this node, ready, for zones z?1: used
    10.0.2.7:8080 on node n2, ready, for zones z?1: Cluster: used; Local: NOT used, it is on another node
    and 3 more endpoints; --all lists them
the kernel: as planned, 7 elements read
";
    assert_eq!(text(&asked("203.0.113.1", 80), &located()), expected);
}

#[test]
fn a_path_says_to_which_endpoints_alone_it_is_masqueraded() {
    for (hairpin, to_other_nodes, expected) in [
        (false, false, ""),
        (true, false, ", but for a connection to itself"),
        (
            false,
            true,
            ", but for connections to endpoints of other nodes",
        ),
    ] {
        let path = Path {
            hairpin,
            to_other_nodes,
            ..path(Client::Pod, Fate::Sent)
        };
        let expected = format!(", keeps its address{expected}");
        let shown = show_path(&path);
        assert!(shown.ends_with(&expected), "{shown}");
    }
}

#[test]
fn what_the_kernel_has_otherwise_is_shown() {
    let mut located = located();
    let difference = |planned: Option<&str>, held: Option<&str>| Difference {
        set: "service_targets4".to_owned(),
        key: "203.0.113.1 . 6 . 80".to_owned(),
        planned: planned.map(str::to_owned),
        held: held.map(str::to_owned),
    };
    located.kernel = Some(Kernel {
        read: 7,
        unread: 1,
        differences: vec![
            difference(Some("0x40000000"), None),
            difference(None, Some("0x40000002")),
        ],
        more_differences: 1,
    });
    let shown = text(&asked("203.0.113.1", 80), &located);
    let expected = "\
the kernel: NOT as planned, 7 elements read, 1 more not read
  service_targets4 { 203.0.113.1 . 6 . 80 }: nothing, planned 0x40000000
  service_targets4 { 203.0.113.1 . 6 . 80 }: 0x40000002, planned nothing
  and 1 more differences
";
    assert!(shown.ends_with(expected), "{shown}");
}

#[test]
fn a_destination_without_a_service_says_what_becomes_of_it() {
    let located = Located {
        none: Some(NoService {
            fate: NoServiceFate::Dropped,
            reason: "nobody has it".to_owned(),
        }),
        hints: vec!["so".to_owned()],
        ..Located::default()
    };
    let shown = text(&asked("10.96.0.9", 80), &located);
    assert!(shown.contains("\nDROPPED: nobody has it\n"), "{shown}");
    assert!(shown.ends_with("note: so\n"), "{shown}");
}
