//! Rules of others that give packets from pod to pod another source.

use std::collections::BTreeSet;
use std::path::Path;

use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::{Flow, FlowLink, Packets, iptables_legacy, nf_tables::Drops};

use crate::lab::Host;

/// What pods of this node and another one send to each other, over the overlay or by a
/// direct route, and a pod here to another one.
fn packets(direct: bool) -> Packets {
    let link = if direct {
        FlowLink::other("eth0", 2)
    } else {
        FlowLink::other("tweed.1", 7)
    };
    let families = [
        ("10.244.1.0/24", "10.244.2.0/24"),
        ("fd00:0:0:1::/64", "fd00:0:0:2::/64"),
    ];
    let ranges: BTreeSet<_> = ["10.244.0.0/16", "fd00::/16"]
        .map(|all| all.parse().unwrap())
        .into();
    let flows = families.into_iter().flat_map(|(own, peer)| {
        let own = (own.parse().unwrap(), FlowLink::Pod);
        let peer = (peer.parse().unwrap(), link);
        [(own, own), (own, peer), (peer, own)].map(|(from, to)| Flow::between(from, to, &ranges))
    });
    Packets {
        pods: [Family::V4, Family::V6].into(),
        flows: flows.collect(),
        ..Packets::default()
    }
}

fn named(host: &Host, direct: bool) -> Vec<Problem> {
    host.run(move || {
        let packets = packets(direct);
        let mut found = iptables_legacy::drops(&packets).unwrap();
        found.extend_from_slice(Drops::open().unwrap().problems(&packets).unwrap());
        found
    })
}

/// The programs, and which family they are of.
const PROGRAMS: [(&str, Family); 4] = [
    ("iptables-nft", Family::V4),
    ("iptables-legacy", Family::V4),
    ("ip6tables-nft", Family::V6),
    ("ip6tables-legacy", Family::V6),
];

/// Rules of a chain, and whether they translate what pods send to each other, over the
/// overlay and by direct routes.
const RULES: &[(&[&str], bool, bool)] = &[
    (&["-j MASQUERADE"], true, true),
    (&["-j SNAT --to-source ADDRESS"], true, true),
    (&["-p tcp -j MASQUERADE"], true, true),
    (&["-s OWN -j MASQUERADE"], true, true),
    (&["-o tw+ -j MASQUERADE"], true, true),
    (&["-m conntrack --ctstate NEW -j MASQUERADE"], true, true),
    (
        &["-m addrtype ! --dst-type LOCAL -j MASQUERADE"],
        true,
        true,
    ),
    (&["-o eth0 -j MASQUERADE"], false, true),
    (&["! -o lo -j MASQUERADE"], true, true),
    (&["! -s 192.0.2.0/24 -j MASQUERADE"], true, true),
    // Of others.
    (&["-s DOCKER ! -o docker0 -j MASQUERADE"], false, false),
    (&["-o eth1 -j MASQUERADE"], false, false),
    (&["-p udp -j MASQUERADE"], false, false),
    (
        &["-m addrtype --dst-type LOCAL -j MASQUERADE"],
        false,
        false,
    ),
    // As the bridge plugin has it for one of its own pods.
    (&["-s POD -j MASQUERADE"], false, false),
    // What pods send to each other is let be, or may be meant to.
    (&["-d ALL -j ACCEPT", "-j MASQUERADE"], false, false),
    (&["-s ALL ! -d ALL -j MASQUERADE"], false, false),
    (
        &["-m mark --mark 0x4000/0x4000 -j MASQUERADE"],
        false,
        false,
    ),
    (
        &["-m mark ! --mark 0x4000/0x4000 -j RETURN", "-j MASQUERADE"],
        false,
        false,
    ),
    // As flannel has it.
    (
        &[
            "-m mark --mark 0x4000/0x4000 -j RETURN",
            "-s OWN -d ALL -j RETURN",
            "-s ALL -d OWN -j RETURN",
            "! -s ALL -d OWN -j RETURN",
            "-s ALL ! -d MULTICAST -j MASQUERADE",
            "! -s ALL -d ALL -j MASQUERADE",
        ],
        false,
        false,
    ),
];

/// The rule in the words of a family.
fn of(family: Family, rule: &str) -> String {
    let words = [
        ("ADDRESS", "192.0.2.1", "2001:db8::1"),
        ("OWN", "10.244.1.0/24", "fd00:0:0:1::/64"),
        ("POD", "10.244.1.7", "fd00:0:0:1::7"),
        ("ALL", "10.244.0.0/16", "fd00::/16"),
        ("DOCKER", "172.17.0.0/16", "fd17::/64"),
        ("MULTICAST", "224.0.0.0/4", "ff00::/8"),
        ("192.0.2.0/24", "192.0.2.0/24", "2001:db8::/64"),
    ];
    let word = |word: &str| {
        let found = words.iter().find(|(name, ..)| *name == word);
        match (found, family) {
            (None, _) => word.to_owned(),
            (Some((_, four, _)), Family::V4) => (*four).to_owned(),
            (Some((.., six)), Family::V6) => (*six).to_owned(),
        }
    };
    rule.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn rules_that_translate_flows_between_pods_are_named_until_the_cure_is_typed() {
    for (program, family) in PROGRAMS {
        for (rules, over, direct) in RULES {
            let host = Host::new();
            host.sh(format!(
                "{program} -t nat -N OTHERS; {program} -t nat -A POSTROUTING -j OTHERS"
            ));
            for rule in *rules {
                host.sh(format!("{program} -t nat -A OTHERS {}", of(family, rule)));
            }
            for (is_direct, is_named) in [(false, *over), (true, *direct)] {
                let found = named(&host, is_direct);
                let what = format!("{program} {rules:?} {is_direct}: {found:?}");
                assert_eq!(found.len(), usize::from(is_named), "{what}");
            }
            let Some(problem) = named(&host, true).pop() else {
                continue;
            };
            assert_eq!(problem.kind, ProblemKind::PodsMasqueraded);
            assert!(problem.object.ends_with("POSTROUTING"), "{problem}");
            host.sh(problem.cure.split('`').nth(1).unwrap());
            assert_eq!(named(&host, true), [], "{program} {rules:?}");
            assert_eq!(named(&host, false), [], "{program} {rules:?}");
        }
    }
}

/// The same in tables that are written by hand: rules, and whether they translate what goes
/// by a direct route.
const NFTABLES: &[(&str, bool)] = &[
    ("masquerade", true),
    ("oifname eth0 masquerade", true),
    ("oif 2 masquerade", true),
    ("oifname { eth0, eth1 } counter masquerade", true),
    ("oifname != lo masquerade", true),
    ("ip saddr 10.0.0.0/8 snat to 192.0.2.1", true),
    ("ip saddr { 10.244.1.0/24, 172.16.0.0/12 } masquerade", true),
    (
        "meta l4proto tcp oifname eth0 ip protocol tcp masquerade",
        true,
    ),
    ("fib daddr type != local masquerade", true),
    ("iifname tw* masquerade", true),
    ("snat to ip saddr map { 10.244.1.0/24 : 192.0.2.1 }", true),
    ("snat to ip saddr map { 10.244.1.7 : 192.0.2.1 }", false),
    ("oifname eth1 masquerade", false),
    (
        "ip saddr 10.0.0.0/8 ip daddr != 10.0.0.0/8 masquerade",
        false,
    ),
    (
        "meta mark != 7 ip daddr 10.0.0.0/8 accept; ip saddr 10.0.0.0/8 masquerade",
        false,
    ),
    (
        "oifname { eth0, lo } accept; oifname tw* accept; masquerade",
        false,
    ),
    ("ct mark 7 accept; masquerade", false),
    ("ct status dnat masquerade", false),
    ("meta mark 7 return; masquerade", false),
    ("drop", false),
];

#[test]
fn tables_that_are_written_by_hand_are_named_until_the_cure_is_typed() {
    for table in ["ip t", "inet t"] {
        for (rules, is_named) in NFTABLES {
            let host = Host::new();
            let nft = |line: &str| host.sh(format!("nft '{line}'"));
            nft(&format!("add table {table}"));
            nft(&format!(
                "add chain {table} leaving {{ type nat hook postrouting priority 90; }}"
            ));
            for rule in rules.split("; ") {
                let rule = match table {
                    "inet t" => rule.replace("snat to", "snat ip to"),
                    _ => rule.to_owned(),
                };
                nft(&format!("add rule {table} leaving {rule}"));
            }
            let found = named(&host, true);
            assert_eq!(
                found.len(),
                usize::from(*is_named),
                "{table} {rules}: {found:?}"
            );
            let Some(problem) = found.first() else {
                continue;
            };
            assert_eq!(problem.object, format!("{table} leaving"));
            host.sh(problem.cure.split('`').nth(1).unwrap());
            assert_eq!(named(&host, true), [], "{table} {rules}");
        }
    }
}

/// Only at the hook where packets leave are sources of forwarded packets translated.
#[test]
fn other_chains_translate_nothing_between_pods() {
    let host = Host::new();
    host.sh("nft add table ip t
         nft add chain ip t local '{ type nat hook input priority 0; }'
         nft add rule ip t local snat to 192.0.2.1
         nft add chain ip t free; nft add rule ip t free masquerade
         nft add table ip sleeping '{ flags dormant; }'
         nft add chain ip sleeping leaving '{ type nat hook postrouting priority 0; }'
         nft add rule ip sleeping leaving masquerade");
    assert_eq!(named(&host, true), []);
}

/// In each of its modes it masquerades what it has marked.
#[test]
fn kube_proxys_rules_are_not_named() {
    for (program, rules) in [
        ("iptables-nft-restore", "iptables.txt"),
        ("ip6tables-nft-restore", "ip6tables.txt"),
        ("iptables-legacy-restore", "iptables.txt"),
        ("ip6tables-legacy-restore", "ip6tables.txt"),
        ("nft -f -", "nftables.txt"),
    ] {
        let host = Host::new();
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/kube-proxy")
            .join(rules);
        host.sh(format!("{program} < {}", file.display()));
        for direct in [false, true] {
            assert_eq!(named(&host, direct), [], "{program}");
        }
    }
}

#[test]
fn firewalld_is_cured_by_its_own_program() {
    let host = Host::new();
    host.sh("nft add table inet firewalld
         nft add chain inet firewalld nat_POSTROUTING '{ type nat hook postrouting priority 110; }'
         nft add chain inet firewalld nat_POST_public
         nft add rule inet firewalld nat_POSTROUTING oifname eth0 goto nat_POST_public
         nft add rule inet firewalld nat_POST_public meta nfproto ipv4 oifname != lo masquerade");
    assert_eq!(named(&host, false), []);
    let problem = named(&host, true).remove(0);
    assert!(problem.cure.contains("--remove-masquerade"), "{problem}");
}
