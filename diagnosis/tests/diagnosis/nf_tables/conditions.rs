//! Which packets meet the conditions of a rule.

use tweed_core::family::Family;
use tweed_diagnosis::{Packets, iptables_legacy};

use super::Watcher;
use crate::packets;

/// Rules of iptables by conntrack's view of the flow, and which packets they drop: a
/// pod's opens a flow, and the answers belong to one that is open.
const BY_STATE: &[(&str, &[&str])] = &[
    ("-A FORWARD -m conntrack --ctstate INVALID -j DROP", &[]),
    ("-A FORWARD -m state --state INVALID -j DROP", &[]),
    (
        "-A FORWARD -m conntrack --ctstate NEW -j DROP",
        &["what pods send"],
    ),
    (
        "-A FORWARD -m state --state NEW -j DROP",
        &["what pods send"],
    ),
    (
        "-A FORWARD -m conntrack ! --ctstate NEW -j DROP",
        &["the answers to pods"],
    ),
    (
        "-A FORWARD -m state --state RELATED,ESTABLISHED -j DROP",
        &["the answers to pods"],
    ),
    (
        "-P FORWARD DROP\n -A FORWARD -m conntrack --ctstate NEW -j ACCEPT",
        &["the answers to pods"],
    ),
    (
        "-P FORWARD DROP\n -A FORWARD -m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT",
        &[],
    ),
    (
        "-P FORWARD DROP\n -A FORWARD -m conntrack --ctstate NEW --ctdir ORIGINAL -j ACCEPT",
        &["the answers to pods"],
    ),
    (
        "-P FORWARD DROP\n -A FORWARD -m conntrack --ctdir ORIGINAL -j ACCEPT",
        &["the answers to pods"],
    ),
    (
        "-P FORWARD DROP\n -A FORWARD -m conntrack --ctdir REPLY -j ACCEPT",
        &["what pods send"],
    ),
    (
        "-A FORWARD -m conntrack --ctdir ORIGINAL -j DROP",
        &["what pods send"],
    ),
    (
        "-A FORWARD -m conntrack --ctdir REPLY -j DROP",
        &["the answers to pods"],
    ),
    (
        "-A FORWARD -m conntrack --ctstate NEW --ctdir REPLY -j DROP",
        &[],
    ),
    (
        "-A FORWARD -m conntrack ! --ctstate NEW --ctdir REPLY -j DROP",
        &["the answers to pods"],
    ),
    (
        "-A FORWARD -m conntrack --ctdir ORIGINAL --ctorigdstport 25 -j DROP",
        &[],
    ),
];

#[test]
fn a_rule_of_iptables_by_state_is_for_packets_with_that_state() {
    for program in ["iptables-nft", "iptables-legacy"] {
        let watcher = Watcher::new();
        for (rules, dropped) in BY_STATE {
            let commands = rules.replace('\n', &format!("\n {program}"));
            let clear = format!("{program} -P FORWARD ACCEPT; {program} -F FORWARD");
            watcher.host.sh(format!("{clear}\n{program} {commands}"));
            let mut problems = watcher.problems();
            let legacy = || iptables_legacy::drops(&packets()).unwrap();
            problems.extend(watcher.host.run(legacy));
            let said = problems.iter().map(|problem| {
                let (_, what) = problem.message.split_once(" drops ").unwrap();
                what.split_once(": ").unwrap().0
            });
            assert_eq!(said.collect::<Vec<_>>(), *dropped, "{program} {commands}");
        }
    }
}

/// As in rulesets that log what they drop in a chain of its own.
#[test]
fn a_chain_for_packets_of_another_state_or_mark_drops_no_answers() {
    for rule in [
        "ct state invalid jump refuse",
        "ct state invalid goto refuse",
        "ct state new jump refuse",
        "ct mark 7 jump refuse",
        "ct status snat goto refuse",
    ] {
        let watcher = Watcher::new();
        watcher.host.sh(format!(
            "nft add table ip f
             nft add chain ip f refuse; nft add rule ip f refuse log drop
             nft add chain ip f passing '{{ type filter hook forward priority 0; policy drop; }}'
             nft add rule ip f passing {rule}
             nft add rule ip f passing ct state established,related accept
             nft add rule ip f passing iifname 'tw*' accept"
        ));
        let problems = watcher.problems();
        let answers = problems
            .iter()
            .filter(|one| one.message.contains("answers"));
        assert_eq!(answers.count(), 0, "{rule}: {problems:?}");
    }
    let watcher = Watcher::new();
    watcher.host.sh("nft add table ip f
         nft add chain ip f passing '{ type filter hook forward priority 0; policy drop; }'
         nft add rule ip f passing ct state new accept");
    let message = watcher.problem().message;
    assert!(
        message.contains(" drops the answers to pods: "),
        "{message}"
    );
}

/// What comes after a condition of which nothing is known, and is met for certain, does not
/// make the whole rule one that drops all packets.
#[test]
fn a_rule_that_may_not_be_met_for_one_condition_drops_nothing_for_certain() {
    for (first, is_named) in [("", true), ("meta cpu 0", false)] {
        for (hook, rest) in [
            ("forward", "iifname \"tw*\" drop"),
            ("input", "meta l4proto { tcp, udp } drop"),
            ("input", "meta l4proto vmap { tcp : accept, udp : drop }"),
        ] {
            let watcher = Watcher::new();
            watcher.host.sh(format!(
                "nft add table inet f
                 nft add chain inet f passing '{{ type filter hook {hook} priority 0; }}'
                 nft add rule inet f passing '{first} {rest}'"
            ));
            let problems = watcher.problems();
            assert_eq!(
                !problems.is_empty(),
                is_named,
                "{first} {rest}: {problems:?}"
            );
        }
    }
}

/// Objects with a name (`counter name x`), and sets that packets are put into, whose own
/// definition may have a limit: whether each packet gets past them to the verdict.
#[test]
fn what_only_counts_or_marks_a_packet_is_no_condition() {
    for (statement, passes) in [
        ("counter name hits", true),
        ("ct helper set ftp-help", true),
        ("ct timeout set slow", true),
        ("ct expectation set later", false),
        ("add @seen { ip saddr }", false),
        ("update @seen { ip saddr timeout 1m }", false),
        ("counter name ip saddr map { 192.0.2.1 : hits }", false),
        ("quota name much", false),
        ("limit name few", false),
        ("synproxy name proxy", false),
        ("quota over 1 mbytes", false),
        ("add @each { ip saddr limit rate 1/second }", false),
    ] {
        for (policy, verdict) in [("drop", "accept"), ("accept", "drop")] {
            let watcher = Watcher::new();
            watcher.host.sh(format!(
                "nft -f - <<'END'
table ip f {{
    counter hits {{ }}
    quota much {{ over 1 mbytes }}
    limit few {{ rate 1/second }}
    synproxy proxy {{ mss 1460 wscale 7 }}
    ct helper ftp-help {{ type \"ftp\" protocol tcp; }}
    ct timeout slow {{
        protocol udp;
        policy = {{ unreplied : 10, replied : 20 }}
    }}
    ct expectation later {{
        protocol udp
        dport 9876
        timeout 2m
        size 12
        l3proto ip
    }}
    set seen {{ type ipv4_addr; size 1000; flags dynamic, timeout; timeout 5m; }}
    set each {{ type ipv4_addr; size 1000; flags dynamic, timeout; timeout 5m; }}
    chain passing {{
        type filter hook forward priority 0; policy {policy};
        {statement} {verdict}
    }}
}}
END"
            ));
            let drops = !watcher.problems().is_empty();
            assert_eq!(
                drops,
                (verdict == "drop") == passes,
                "{statement} {verdict}"
            );
        }
    }
}

/// Rules behind those that accept what pods send and get answers to, and whether they let
/// pods of other nodes open flows to pods here by direct routes, or may do so.
const FROM_PEERS: &[(&str, bool)] = &[
    ("-o tw+ -j ACCEPT", true),
    ("-j ACCEPT", true),
    // These may be meant for them.
    ("-i eth0 -o tw+ -j ACCEPT", true),
    ("-s 10.244.0.0/16 -j ACCEPT", true),
    ("-d 10.244.1.0/24 -p tcp -j ACCEPT", true),
    ("-m conntrack --ctstate NEW -o tw+ -j ACCEPT", true),
    ("-o docker0 -j ACCEPT", false),
    ("-i lo -j ACCEPT", false),
    ("-m conntrack --ctstate DNAT -j ACCEPT", false),
    ("-m conntrack --ctstate NEW --ctdir REPLY -j ACCEPT", false),
];

#[test]
fn packets_of_other_nodes_pods_come_by_an_uplink_and_leave_by_a_pods_link() {
    let direct = || Packets {
        direct: [Family::V4].into(),
        ..packets()
    };
    for program in ["iptables-nft", "iptables-legacy"] {
        let watcher = Watcher::new();
        for (rule, passes) in FROM_PEERS {
            watcher.host.sh(format!(
                "{program} -F FORWARD; {program} -P FORWARD DROP
                 {program} -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
                 {program} -A FORWARD -i tw+ -j ACCEPT
                 {program} -A FORWARD {rule}"
            ));
            let mut problems = watcher.dropped_of(direct());
            let legacy = move || iptables_legacy::drops(&direct()).unwrap();
            problems.extend(watcher.host.run(legacy));
            assert_eq!(
                problems.is_empty(),
                *passes,
                "{program} {rule}: {problems:?}"
            );
        }
    }
}

/// The policy and the one rule of a chain at the hook forward, and what they drop.
const FORWARD: &[(&str, &str, Option<&str>)] = &[
    (
        "accept",
        "ct direction original drop",
        Some("what pods send"),
    ),
    (
        "accept",
        "ct direction reply drop",
        Some("the answers to pods"),
    ),
    (
        "accept",
        "ct direction != original drop",
        Some("the answers to pods"),
    ),
    (
        "accept",
        "ct state established ct direction original drop",
        None,
    ),
    (
        "accept",
        "ct direction { original } drop",
        Some("what pods send"),
    ),
    (
        "accept",
        "ct direction vmap { original : accept, reply : drop }",
        Some("the answers to pods"),
    ),
    // Which verdict such a map has for a pod's packet depends on where it goes.
    (
        "accept",
        "iifname . oifname vmap { twa . eth0 : drop, twb . eth0 : accept }",
        None,
    ),
    (
        "drop",
        "iifname . oifname vmap { twa . eth0 : accept, twb . eth0 : drop }",
        Some("what pods send and the answers to pods"),
    ),
    // A pod's packet opens a flow.
    ("drop", "ct state new,established accept", None),
    ("drop", "ct state { new, established } accept", None),
    (
        "drop",
        "ct state vmap { new : accept, established : accept }",
        None,
    ),
    (
        "drop",
        "ct state established accept",
        Some("what pods send"),
    ),
    ("accept", "ct state invalid drop", None),
    ("accept", "ct state new drop", Some("what pods send")),
];

#[test]
fn a_rule_of_nftables_is_for_the_packets_that_meet_it() {
    let watcher = Watcher::new();
    for (policy, rule, dropped) in FORWARD {
        watcher.host.sh(format!(
            "nft 'add table ip f; delete table ip f; add table ip f'
             nft add chain ip f passing '{{ type filter hook forward priority 0; policy {policy}; }}'
             nft add rule ip f passing '{rule}'"
        ));
        let problems = watcher.problems();
        let said = problems.iter().map(|problem| {
            let (_, what) = problem.message.split_once(" drops ").unwrap();
            what.split_once(": ").unwrap().0
        });
        assert_eq!(said.collect::<Vec<_>>(), Vec::from_iter(*dropped), "{rule}");
    }
}
