//! Flows of protocols with connections that nobody has answered.

use super::*;

const PROTOCOLS: [u8; 2] = [6, 132];
/// Cluster IPs, the address of a load balancer and node ports.
const AT: [&str; 5] = [
    "10.96.0.1:80",
    "[fd00:96::1]:80",
    "203.0.113.1:80",
    "192.0.2.1:30080",
    "[2001:db8::1]:30080",
];

/// Both protocols at one port, over both families.
fn both_protocols() -> Cluster {
    let mut service = balancer(false);
    service.cluster_ips = texts(&["10.96.0.1", "fd00:96::1"]);
    service.ports = vec![
        port("tcp", "TCP", 80, 30080),
        port("sctp", "SCTP", 80, 30080),
    ];
    cluster(vec![service], vec![])
}

fn judge(planner: &ServicePlanner, past: &PastFrontends) -> Judge {
    let local = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap());
    Judge::new(planner.desired(), Some(local), past.clone())
}

/// Whether unanswered flows to all frontends are stale that were not translated, or none is.
#[track_caller]
fn are_stale(judge: &Judge) -> bool {
    let mut stale = Vec::new();
    for protocol in PROTOCOLS {
        for to in AT {
            stale.push(judge.is_stale(&flow(protocol, to, to)));
            // It was translated, by whomever.
            assert!(
                !judge.is_stale(&flow(protocol, to, "10.0.0.2:8080")),
                "{to}"
            );
        }
        for to in [
            "10.96.0.1:81",
            "198.51.100.1:80",
            "192.0.2.9:30080",
            "10.0.0.2:80",
        ] {
            assert!(!judge.is_stale(&flow(protocol, to, to)), "{to}");
        }
    }
    assert!(stale.iter().all(|one| *one == stale[0]), "{stale:?}");
    stale[0]
}

#[test]
fn what_was_sent_to_a_frontend_before_it_came_is_stale_until_somebody_answers() {
    let mut first = planner(&both_protocols());
    let mut planner = planner(&cluster(vec![], vec![]));
    planner.plan();
    let mut past = PastFrontends::default();
    assert!(!are_stale(&judge(&planner, &past)));
    for service in both_protocols().services {
        planner.apply_services(Event::Apply(service));
    }
    assert_eq!(plan(&mut planner, &mut past), FlowEffect::Ends);
    let came = judge(&planner, &past);
    assert!(are_stale(&came));
    for protocol in PROTOCOLS {
        assert_eq!(
            [Family::V4, Family::V6].map(|of| came.concerns(protocol, of)),
            [true; 2]
        );
    }
    // Once it is cleaned up nothing has to be looked for.
    let later = judge(&planner, &PastFrontends::default());
    assert!(!are_stale(&later) && !later.concerns(6, Family::V4));
    // One of which the agent hears when it starts may have come just before.
    assert_eq!(first.plan(), Step::Full);
    let mut past = PastFrontends::default();
    past.note_first(first.desired());
    assert!(are_stale(&judge(&first, &past)));
}

/// As when the Node gets another address.
#[test]
fn what_was_sent_to_an_address_before_it_had_node_ports_is_stale() {
    let mut planner = planner(&both_protocols());
    planner.plan();
    planner.set_node(Some(&node("me", &["192.0.2.9"], &["10.0.0.0/24"], "z1")));
    let mut past = PastFrontends::default();
    assert_eq!(plan(&mut planner, &mut past), FlowEffect::Ends);
    let local = ["192.0.2.9".parse().unwrap()];
    let judge = Judge::new(planner.desired(), Some(local), past);
    for protocol in PROTOCOLS {
        assert!(judge.is_stale(&flow(protocol, "192.0.2.9:30080", "192.0.2.9:30080")));
        assert!(!judge.is_stale(&flow(protocol, "10.96.0.1:80", "10.96.0.1:80")));
    }
}
