use super::*;
use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::VxlanMatch;

fn script(ruleset: &Ruleset) -> String {
    skeleton(ruleset, false).script(&contents(&inner::prefixes(ruleset), ruleset), None)
}

fn vxlan() -> Option<VxlanMatch> {
    Some(VxlanMatch {
        device: "tweed.1".to_owned(),
        vni: 1,
        port: 8472,
    })
}

#[test]
fn overlay() {
    let ruleset = Ruleset {
        masquerade: Some(Masquerade::RandomFully),
        masquerade_ipv6: true,
        masquerade_nodes: true,
        vxlan: vxlan(),
        local_cidrs: ["10.244.1.0/24", "fd00:0:0:1::/64"]
            .map(|c| c.parse().unwrap())
            .into(),
        cluster_cidrs: ["10.244.1.0/24", "10.244.2.0/24", "fd00::/56"]
            .map(|c| c.parse().unwrap())
            .into(),
        node_addresses: ["192.0.2.1", "192.0.2.2", "2001:db8::1"]
            .map(|a| a.parse().unwrap())
            .into(),
        underlay_addresses: Default::default(),
        vxlan_sources: [
            ("192.0.2.2", "10.244.2.0/24"),
            ("192.0.2.2", "fd00:0:0:2::/64"),
            ("2001:db8::2", "10.244.2.0/24"),
            ("2001:db8::2", "fd00:0:0:2::/64"),
        ]
        .map(|(outer, inner)| (outer.parse().unwrap(), inner.parse().unwrap()))
        .into(),
        pod_links: ["10.244.1.5", "fd00:0:0:1::5"]
            .map(|a| (a.parse().unwrap(), 7))
            .into(),
    };
    insta::assert_snapshot!(script(&ruleset));
}

#[test]
fn direct_routes() {
    let ruleset = Ruleset {
        masquerade: Some(Masquerade::Random),
        masquerade_ipv6: true,
        node_addresses: ["192.0.2.1", "203.0.113.1"]
            .map(|a| a.parse().unwrap())
            .into(),
        underlay_addresses: ["192.0.2.1".parse().unwrap()].into(),
        ..Ruleset::default()
    };
    insta::assert_snapshot!(script(&ruleset));
}

#[test]
fn ipv6_pods_with_their_own_source_but_to_nodes() {
    let ruleset = Ruleset {
        masquerade: Some(Masquerade::Random),
        masquerade_nodes: true,
        vxlan: vxlan(),
        ..Ruleset::default()
    };
    insta::assert_snapshot!(script(&ruleset));
}

#[test]
fn overlay_without_masquerading() {
    let ruleset = Ruleset {
        masquerade: Some(Masquerade::Off),
        vxlan: vxlan(),
        ..Ruleset::default()
    };
    insta::assert_snapshot!(script(&ruleset));
}

#[test]
fn nothing_is_known_yet() {
    let ruleset = Ruleset::default();
    insta::assert_snapshot!(script(&ruleset));
}

#[test]
fn another_length_of_pod_cidrs_is_another_skeleton_and_another_node_is_not() {
    let known = Ruleset {
        vxlan: vxlan(),
        local_cidrs: ["10.244.1.0/24".parse().unwrap()].into(),
        ..Ruleset::default()
    };
    let version = |inner: &[&str]| {
        let pair = |inner: &&str| ("192.0.2.2".parse().unwrap(), inner.parse().unwrap());
        let vxlan_sources = inner.iter().map(pair).collect();
        let ruleset = Ruleset {
            vxlan_sources,
            ..known.clone()
        };
        skeleton(&ruleset, false).version
    };
    assert_eq!(version(&[]), version(&["10.244.2.0/24", "10.244.3.0/24"]));
    assert_ne!(version(&[]), version(&["10.244.2.0/25"]));
    assert_ne!(version(&[]), version(&["fd00::/64"]));
}

#[test]
fn the_version_follows_the_rules_and_not_the_elements() {
    let plain = Ruleset {
        vxlan: vxlan(),
        ..Ruleset::default()
    };
    let version = |ruleset: &Ruleset| skeleton(ruleset, false).version;
    let fuller = Ruleset {
        node_addresses: ["192.0.2.1".parse().unwrap()].into(),
        ..plain.clone()
    };
    assert_eq!(version(&plain), version(&fuller));
    let other = Ruleset {
        vxlan: vxlan().map(|vxlan| VxlanMatch { vni: 2, ..vxlan }),
        ..plain.clone()
    };
    assert_ne!(version(&plain), version(&other));
}

/// What passes is asked no more than without the log.
#[test]
fn with_the_log_only_dropped_packets_enter_another_chain() {
    let ruleset = Ruleset {
        vxlan: vxlan(),
        ..Ruleset::default()
    };
    let rules = |log| {
        let text = skeleton(&ruleset, log).script(&Contents::new(), None);
        let (_, rest) = text.split_once("chain from_pod {\n").unwrap();
        let from_pod = rest.split_once('}').unwrap().0.to_owned();
        (text, from_pod)
    };
    let ((_, without), (text, with)) = (rules(false), rules(true));
    assert_eq!(with.lines().count(), without.lines().count());
    assert!(
        with.contains("@nh,96,8 0 goto drop-spoofed-source\n"),
        "{with}"
    );
    let chain = "\tchain drop-spoofed-source {\n\t\tlimit rate 10/second burst 50 packets log \
                 prefix \"tweed spoofed-source: \" group 116\n\t\tcounter name spoofed-source drop\n";
    assert!(text.contains(chain), "{text}");
    assert!(!text.contains("drop-link-local-source"), "{text}");
}
