//! Tables of others that drop forwarded packets are named, with a cure that
//! works; mended ones are no longer named.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_diagnosis::{iptables_legacy, nf_tables::Drops};
use tweed_nft::Table;
use tweed_planner::overlay::desired::Ruleset;

use crate::VXLAN;
use crate::lab::Host;

/// A host with an agent's table and what the agent asks about others'.
struct Watcher {
    host: Host,
    state: Arc<Mutex<(Table, Drops)>>,
    _run_dir: tempfile::TempDir,
}

impl Watcher {
    fn new() -> Self {
        let host = Host::new();
        let run_dir = tempfile::tempdir().unwrap();
        let path = run_dir.path().to_owned();
        let state = host.run(move || {
            let table = Table::open(&path, Path::new("nft")).unwrap();
            (table, Drops::open().unwrap())
        });
        Self {
            host,
            state: Arc::new(Mutex::new(state)),
            _run_dir: run_dir,
        }
    }

    /// Whether the agent would look now, without waiting for its timer.
    fn due(&self) -> bool {
        let state = Arc::clone(&self.state);
        self.host.run(move || {
            let (table, drops) = &mut *state.lock().unwrap();
            table.drain_notifications().unwrap() | drops.drain_notifications().unwrap()
        })
    }

    fn problems(&self) -> Vec<Problem> {
        let state = Arc::clone(&self.state);
        self.host.run(move || {
            let (table, drops) = &mut *state.lock().unwrap();
            table.reconcile(&Ruleset::default(), false).unwrap();
            drops.problems(Some(VXLAN)).unwrap().to_vec()
        })
    }

    /// The one chain that drops.
    fn problem(&self) -> Problem {
        let mut problems = self.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.remove(0)
    }

    /// Types what stands between backquotes in the cure.
    fn follow(&self, problem: &Problem) {
        let command = problem.cure.split('`').nth(1).unwrap();
        self.host.sh(command);
    }
}

#[test]
fn nobody_drops_anything() {
    let watcher = Watcher::new();
    assert_eq!(watcher.problems(), []);
    watcher.host.sh(
        "nft add table inet x; nft add chain inet x f '{ type filter hook forward priority 0; policy accept; }'
         nft add rule inet x f iifname eth0 drop
         nft add rule inet x f ct state invalid drop
         nft add chain inet x p '{ type filter hook postrouting priority 0; policy drop; }'",
    );
    assert_eq!(watcher.problems(), []);
    // As kube-proxy has it.
    watcher
        .host
        .sh("iptables -A FORWARD -m conntrack --ctstate INVALID -j DROP
         iptables -A FORWARD -m state --state INVALID -j DROP");
    assert_eq!(watcher.problems(), []);
}

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
            let rules = rules.replace('\n', &format!("\n {program}"));
            let clear = format!("{program} -P FORWARD ACCEPT; {program} -F FORWARD");
            watcher.host.sh(format!("{clear}\n{program} {rules}"));
            let mut problems = watcher.problems();
            let legacy = || iptables_legacy::drops(Some(VXLAN)).unwrap();
            problems.extend(watcher.host.run(legacy));
            let said = problems.iter().map(|problem| {
                let (_, what) = problem.message.split_once(" drops ").unwrap();
                what.split_once(": ").unwrap().0
            });
            assert_eq!(said.collect::<Vec<_>>(), *dropped, "{program} {rules}");
        }
    }
}

#[test]
fn the_direction_is_that_of_a_packet_from_a_pod_and_of_its_answer() {
    for (rule, dropped) in [
        ("ct direction original drop", Some("what pods send")),
        ("ct direction reply drop", Some("the answers to pods")),
        ("ct direction != original drop", Some("the answers to pods")),
        ("ct state established ct direction original drop", None),
        ("ct direction { original } drop", Some("what pods send")),
        (
            "ct direction vmap { original : accept, reply : drop }",
            Some("the answers to pods"),
        ),
    ] {
        let watcher = Watcher::new();
        watcher.host.sh(format!(
            "nft add table ip f
             nft add chain ip f passing '{{ type filter hook forward priority 0; }}'
             nft add rule ip f passing '{rule}'"
        ));
        let problems = watcher.problems();
        let said = problems.first().map(|problem| {
            let (_, what) = problem.message.split_once(" drops ").unwrap();
            what.split_once(": ").unwrap().0
        });
        assert_eq!((said, problems.len() < 2), (dropped, true), "{rule}");
    }
}

/// Objects with a name (`counter name x`), and sets that packets are put into: whether
/// each packet gets past them to the verdict.
#[test]
fn what_only_counts_or_marks_a_packet_is_no_condition() {
    for (statement, passes) in [
        ("counter name hits", true),
        ("ct helper set ftp-help", true),
        ("ct timeout set slow", true),
        ("ct expectation set later", true),
        ("add @seen { ip saddr }", true),
        ("update @seen { ip saddr timeout 1m }", true),
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

#[test]
fn a_pods_packet_opens_a_flow() {
    for (policy, rule, passes) in [
        ("drop", "ct state new,established accept", true),
        ("drop", "ct state { new, established } accept", true),
        (
            "drop",
            "ct state vmap { new : accept, established : accept }",
            true,
        ),
        ("drop", "ct state established accept", false),
        ("accept", "ct state invalid drop", true),
        ("accept", "ct state new drop", false),
    ] {
        let watcher = Watcher::new();
        watcher.host.sh(format!(
            "nft add table ip f
             nft add chain ip f passing '{{ type filter hook forward priority 0; policy {policy}; }}'
             nft add rule ip f passing '{rule}'"
        ));
        if passes {
            assert_eq!(watcher.problems(), [], "{rule}");
        } else {
            let message = watcher.problem().message;
            assert!(message.contains(" drops what pods send: "), "{message}");
        }
    }
}

#[test]
fn a_change_at_the_hook_input_is_heard_of() {
    let watcher = Watcher::new();
    watcher.host.sh("nft add table inet x
         nft add chain inet x i '{ type filter hook input priority 0; policy accept; }'
         nft add chain inet x more; nft add rule inet x i jump more");
    assert_eq!(watcher.problems(), []);
    assert!(!watcher.due());
    watcher
        .host
        .sh("nft add rule inet x more udp dport 8472 drop");
    assert!(watcher.due());
    let problem = watcher.problem();
    assert_eq!(problem.kind, ProblemKind::InboundDrop);
    assert_eq!(problem.effect, Effect::Warning);
    assert_eq!(problem.object, "inet x i");
    watcher.follow(&problem);
    assert_eq!(watcher.problems(), []);
}

#[test]
fn iptables_with_policy_drop() {
    for (program, object) in [
        ("iptables", "ip filter FORWARD"),
        ("ip6tables", "ip6 filter FORWARD"),
    ] {
        let watcher = Watcher::new();
        watcher.host.sh(format!("{program} -P FORWARD DROP"));
        let problem = watcher.problem();
        assert_eq!(problem.object, object);
        assert_eq!(problem.effect, Effect::Warning);
        assert_eq!(problem.kind, ProblemKind::ForwardDrop);
        watcher.follow(&problem);
        assert_eq!(watcher.problems(), []);
        assert!(!watcher.due());
        watcher
            .host
            .sh(format!("{program} -D FORWARD -o tw+ -j ACCEPT"));
        assert!(watcher.due(), "a changed rule is heard of");
        assert!(watcher.problem().message.contains("answers"));
        watcher.host.sh(format!("{program} -P FORWARD ACCEPT"));
        assert!(watcher.due(), "a changed policy is heard of");
        assert_eq!(watcher.problems(), []);
    }
}

#[test]
fn docker_is_cured_in_the_chain_that_it_keeps() {
    let watcher = Watcher::new();
    watcher
        .host
        .sh("iptables -N DOCKER-USER; iptables -A DOCKER-USER -j RETURN
         iptables -N DOCKER
         iptables -A FORWARD -j DOCKER-USER
         iptables -A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
         iptables -A FORWARD -o docker0 -j DOCKER
         iptables -A FORWARD -i docker0 ! -o docker0 -j ACCEPT
         iptables -P FORWARD DROP");
    let problem = watcher.problem();
    assert!(problem.cure.contains("-I DOCKER-USER -i tw+"), "{problem}");
    watcher.follow(&problem);
    assert_eq!(watcher.problems(), []);
}

#[test]
fn a_table_of_ones_own_is_cured_by_its_own_rules() {
    let watcher = Watcher::new();
    watcher.host.sh(
        "nft add table inet my-filter; nft add chain inet my-filter passing '{ type filter hook forward priority 0; policy drop; }'",
    );
    let problem = watcher.problem();
    assert_eq!(problem.object, "inet my-filter passing");
    watcher.follow(&problem);
    assert_eq!(watcher.problems(), []);
    watcher.host.sh("nft insert rule inet my-filter passing iifname 'tw*' tcp dport 22 accept; nft insert rule inet my-filter passing counter drop");
    assert!(watcher.problem().message.contains("what pods send"));
    watcher.host.sh("nft delete table inet my-filter");
    assert_eq!(watcher.problems(), []);
}

#[test]
fn open_flows_need_no_rule_of_their_own() {
    for established in [
        "ct state established,related accept",
        "ct state vmap '{ established : accept, related : accept, invalid : drop }'",
        "ct state '{ established, related }' accept",
    ] {
        let watcher = Watcher::new();
        watcher.host.sh(format!(
            "nft add table ip f; nft add chain ip f passing '{{ type filter hook forward priority 0; policy drop; }}'
             nft add rule ip f passing {established}"
        ));
        assert!(
            !watcher.problem().message.contains("answers"),
            "{established}"
        );
        watcher
            .host
            .sh("nft add rule ip f passing iifgroup 116 accept");
        assert_eq!(watcher.problems(), [], "{established}");
    }
}

/// The rules that firewalld 1.3 and 2.x make, shortened.
#[test]
fn firewalld_rejects_at_the_end_until_the_links_are_in_a_zone() {
    let watcher = Watcher::new();
    watcher.host.sh(r"nft -f - <<'E'
table inet firewalld {
    chain filter_FORWARD {
        type filter hook forward priority filter + 10; policy accept;
        ct state { established, related } accept
        ct status dnat accept
        iifname lo accept
        jump filter_FORWARD_ZONES
        ct state { invalid } drop
        reject with icmpx type admin-prohibited
    }
    chain filter_FORWARD_ZONES {
        iifname eth0 goto filter_FWD_internal
        goto filter_FWD_public
    }
    chain filter_FWD_internal {
        accept
    }
    chain filter_FWD_public {
        jump filter_FWD_public_allow
        reject with icmpx type admin-prohibited
    }
    chain filter_FWD_public_allow {
        oifname eth0 accept
    }
    chain filter_FWD_trusted {
        accept
    }
}
E");
    let problem = watcher.problem();
    assert!(
        problem.cure.contains("--zone=trusted --add-interface=tw+"),
        "{problem}"
    );
    assert!(!problem.message.contains("answers"), "{problem}");
    watcher.host.sh(
        "nft insert rule inet firewalld filter_FORWARD_ZONES iifname 'tw*' goto filter_FWD_trusted",
    );
    assert_eq!(watcher.problems(), []);
}

#[test]
fn ufw_is_cured_by_its_own_program() {
    let watcher = Watcher::new();
    watcher.host.sh("iptables -P FORWARD DROP
         for c in ufw-before-forward ufw-user-forward ufw-after-forward; do iptables -N $c; done
         iptables -A FORWARD -j ufw-before-forward
         iptables -A FORWARD -j ufw-after-forward
         iptables -A ufw-before-forward -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
         iptables -A ufw-before-forward -j ufw-user-forward");
    let problem = watcher.problem();
    assert!(
        problem.cure.contains("ufw route allow in on tw+"),
        "{problem}"
    );
    watcher.host.sh("iptables -A ufw-user-forward -i tw+ -j ACCEPT; iptables -A ufw-user-forward -o tw+ -j ACCEPT");
    assert_eq!(watcher.problems(), []);
}

#[test]
fn chains_that_forwarded_packets_do_not_come_by_are_not_looked_at_again() {
    let watcher = Watcher::new();
    watcher.host.sh(
        "nft add table ip x; nft add chain ip x f '{ type filter hook forward priority 0; }'
         nft add chain ip x services; nft add chain ip x extra; nft add rule ip x f jump extra",
    );
    assert_eq!(watcher.problems(), []);
    assert!(!watcher.due());
    watcher
        .host
        .sh("nft add rule ip x services drop; nft add chain ip x another");
    assert!(!watcher.due(), "nothing leads there");
    watcher.host.sh("nft add rule ip x extra drop");
    assert!(watcher.due());
    watcher.problem();
    watcher
        .host
        .sh("nft add rule ip x f goto services; nft flush chain ip x extra");
    assert!(watcher.due());
    watcher.problem();
    watcher.host.sh("nft flush chain ip x services");
    assert!(watcher.due(), "now something leads there");
    assert_eq!(watcher.problems(), []);
}
