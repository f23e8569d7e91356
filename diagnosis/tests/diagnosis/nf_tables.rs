//! Tables of others that drop forwarded packets are named, with a cure that
//! works; mended ones are no longer named.

use std::path::Path;
use std::sync::{Arc, Mutex};

use tweed_core::family::Family;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_diagnosis::{Packets, nf_tables::Drops};
use tweed_planner::overlay::desired::Ruleset;

use crate::lab::Host;
use crate::packets;
use crate::tables::Tables;

mod conditions;

/// A host with an agent's table and what the agent asks about others'.
struct Watcher {
    host: Host,
    state: Arc<Mutex<(Tables, Drops)>>,
    _run_dir: tempfile::TempDir,
}

impl Watcher {
    fn new() -> Self {
        let host = Host::new();
        let run_dir = tempfile::tempdir().unwrap();
        let path = run_dir.path().to_owned();
        let state = host.run(move || {
            let table = Tables::open(&path, Path::new("nft"), false).unwrap();
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
            table.due() | drops.drain_notifications().unwrap()
        })
    }

    fn problems(&self) -> Vec<Problem> {
        self.dropped_of(packets())
    }

    /// What is dropped of these packets.
    fn dropped_of(&self, packets: Packets) -> Vec<Problem> {
        let state = Arc::clone(&self.state);
        self.host.run(move || {
            let (table, drops) = &mut *state.lock().unwrap();
            table.reconcile(&Ruleset::default(), false).unwrap();
            drops.problems(&packets).unwrap().to_vec()
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
fn a_table_that_is_dormant_drops_nothing() {
    let watcher = Watcher::new();
    watcher.host.sh("nft add table inet x
         nft add chain inet x f '{ type filter hook forward priority 0; policy drop; }'
         nft add chain inet x i '{ type filter hook input priority 0; policy drop; }'
         nft add chain inet x o '{ type filter hook output priority 0; policy drop; }'");
    assert_eq!(watcher.problems().len(), 3);
    for _ in 0..2 {
        watcher.host.sh("nft add table inet x '{ flags dormant; }'");
        assert!(watcher.due(), "a table that becomes dormant is heard of");
        assert_eq!(watcher.problems(), []);
        watcher.host.sh("nft add rule inet x f drop");
        assert!(!watcher.due(), "it is still dormant");
        watcher.host.sh("nft add table inet x");
        assert!(watcher.due(), "a table that wakes up is heard of");
        assert_eq!(watcher.problems().len(), 3);
    }
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

/// Makes the rules for forwarded packets that firewalld 1.3 and 2.x make, shortened, with these
/// chains of zones.
fn firewalld(host: &Host, zones: &str) {
    host.sh(format!(
        "nft -f - <<'E'
table inet firewalld {{
    chain filter_FORWARD {{
        type filter hook forward priority filter + 10; policy accept;
        ct state {{ established, related }} accept
        ct status dnat accept
        iifname lo accept
        jump filter_FORWARD_ZONES
        ct state {{ invalid }} drop
        reject with icmpx type admin-prohibited
    }}
{zones}
}}
E"
    ));
}

#[test]
fn firewalld_rejects_at_the_end_until_the_links_are_in_a_zone() {
    let watcher = Watcher::new();
    firewalld(
        &watcher.host,
        "
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
",
    );
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

/// What pods of other nodes send by direct routes comes in by the uplink, which is in another
/// zone than the pods' links.
#[test]
fn with_direct_routes_the_zone_of_the_uplink_counts_too() {
    let watcher = Watcher::new();
    firewalld(
        &watcher.host,
        "
    chain filter_FORWARD_ZONES {
        iifname eth0 goto filter_FWD_public
        iifname tw* goto filter_FWD_trusted
        goto filter_FWD_public
    }
    chain filter_FORWARD_POLICIES_pre {
    }
    chain filter_FWD_public {
        jump filter_FORWARD_POLICIES_pre
        oifname eth0 accept
        reject with icmpx type admin-prohibited
    }
    chain filter_FWD_trusted {
        jump filter_FORWARD_POLICIES_pre
        accept
    }
    chain filter_FWD_policy_tweed {
        accept
    }
",
    );
    assert_eq!(watcher.problems(), []);
    let direct = || Packets {
        direct: [Family::V4].into(),
        ..packets()
    };
    let problems = watcher.dropped_of(direct());
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    let dropped = "drops what pods of other nodes send to pods here: a rule refuses them";
    assert!(problem.message.contains(dropped), "{problem}");
    let policy = "--policy=tweed --add-egress-zone=trusted && ";
    assert!(problem.cure.contains(policy), "{problem}");
    watcher.host.sh(
        "nft insert rule inet firewalld filter_FORWARD_POLICIES_pre \
         oifname 'tw*' jump filter_FWD_policy_tweed",
    );
    assert_eq!(watcher.dropped_of(direct()), []);
}

/// At a reload it replaces its whole table, which nobody else may change where it owns it.
#[test]
fn firewalld_is_cured_by_its_own_program_at_each_hook() {
    for (hook, cure) in [
        (
            "input",
            "`firewall-cmd --permanent --add-port=8472/udp && firewall-cmd --reload`",
        ),
        (
            "output",
            "`firewall-cmd --permanent --policy=POLICY --add-port=8472/udp && ",
        ),
    ] {
        let watcher = Watcher::new();
        watcher.host.sh(format!(
            "nft add table inet firewalld
             nft add chain inet firewalld filter_{hook} '{{ type filter hook {hook} priority 10; }}'
             nft add rule inet firewalld filter_{hook} reject with icmpx type admin-prohibited"
        ));
        let problem = watcher.problem();
        assert!(problem.cure.contains(cure), "{problem}");
        let zone = problem.cure.contains("--get-active-zones");
        assert_eq!(zone, hook == "input", "{problem}");
    }
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

/// `ufw disable` leaves its chains behind, empty, and Docker has the policy of its own.
#[test]
fn ufw_that_is_disabled_cures_nothing() {
    let watcher = Watcher::new();
    watcher.host.sh("iptables -P FORWARD DROP
         for c in DOCKER-USER ufw-before-forward ufw-user-forward; do iptables -N $c; done
         iptables -A FORWARD -j DOCKER-USER
         iptables -A FORWARD -j ufw-before-forward");
    let problem = watcher.problem();
    assert!(problem.cure.contains("-I DOCKER-USER -i tw+"), "{problem}");
    watcher.follow(&problem);
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
