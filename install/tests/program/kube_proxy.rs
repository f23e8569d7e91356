//! `remove-kube-proxy`, on what a kube-proxy has made as recorded from one.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

use tweed_nft::services::ServicesTable;
use tweed_nft::{Connection, Table as _};
use tweed_planner::services::desired::Desired;

use crate::lab::Host;
use crate::node::{Answer, Node, answer, program};

/// What others have in the same tables: the kubelet, Docker, a person.
const OTHERS: &str = "
    for t in iptables-nft ip6tables-nft; do
        $t -N MINE; $t -I FORWARD -j MINE; $t -A MINE -p tcp --dport 1 -j DROP
        $t -t nat -N DOCKER; $t -t nat -I PREROUTING -j DOCKER
        $t -t mangle -N KUBE-KUBELET-CANARY
    done
    nft 'add table inet mine { chain services { }; }'
    ip link add mine0 type bridge";

/// The same in the old iptables: kube-router's policies, rules that mention Kubernetes, and
/// one that uses a chain of kube-proxy.
const OTHERS_IN_THE_OLD_ONE: &str = "
    t=iptables-legacy
    $t -A FORWARD -p tcp --dport 1 -j DROP -m comment --comment 'as KUBE-SERVICES does'
    $t -N KUBE-ROUTER-FORWARD; $t -I FORWARD -j KUBE-ROUTER-FORWARD
    $t -N KUBE-NWPLCY-CDGGSHYLG3RE2FKL; $t -N KUBE-POD-FW-CDGGSHYLG3RE2FKL
    $t -A KUBE-ROUTER-FORWARD -j KUBE-POD-FW-CDGGSHYLG3RE2FKL
    $t -A KUBE-POD-FW-CDGGSHYLG3RE2FKL -j KUBE-NWPLCY-CDGGSHYLG3RE2FKL
    $t -t mangle -N KUBE-KUBELET-CANARY
    $t -t nat -N CNI-HOSTPORT-SETMARK; $t -t nat -A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ";

/// A machine and its network namespace.
struct Machine {
    node: Node,
    host: Host,
}

impl Machine {
    /// One whose agent serves Services.
    fn new() -> Self {
        let (node, host) = (Node::new(), Host::new());
        host.run(|| {
            let run_dir = tempfile::tempdir().unwrap();
            let mut nft = Connection::open(run_dir.path(), Path::new("nft")).unwrap();
            let mut table = ServicesTable::new(run_dir.path(), false);
            table
                .reconcile(&mut nft, &Desired::default(), false)
                .unwrap();
        });
        node.write(
            "/run/tweed/agent.json",
            r#"{"ready": true, "services": true}"#,
        );
        Self { node, host }
    }

    fn with_kube_proxy() -> Self {
        let machine = Self::new();
        machine.host.sh(format!(
            "iptables-nft-restore < {}; ip6tables-nft-restore < {}; nft -f {}
             ip link add kube-ipvs0 type bridge",
            recorded("iptables.txt"),
            recorded("ip6tables.txt"),
            recorded("nftables.txt"),
        ));
        machine
    }

    fn run(&self, words: &[&str]) -> Answer {
        let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let watches = words.iter().any(|word| word == "--watch-seconds");
        if words[0] == "remove-kube-proxy" && !watches {
            words.extend(["--watch-seconds", "0"].map(str::to_owned));
        }
        let root = self.node.root().to_owned();
        self.host.run(move || {
            let mut command = Command::new(program());
            command.args(words).arg("--root").arg(root);
            answer(command)
        })
    }

    /// All rules and links, without what packets count.
    fn state(&self) -> String {
        self.host.sh(
            "for t in iptables-nft ip6tables-nft; do $t-save; done | sed '/^#/d; s/\\[.*\\]//'
             nft list tables; ip -o link | sed 's/^[0-9]*: //; s/ .*//'",
        )
    }
}

fn recorded(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../diagnosis/tests/kube-proxy");
    folder.join(name).display().to_string()
}

#[test]
fn all_of_it_goes_and_nothing_of_others() {
    let machine = Machine::with_kube_proxy();
    machine.host.sh(OTHERS);
    let said = machine.run(&["remove-kube-proxy"]).succeeds();
    for part in [
        "removed nftables table ip kube-proxy\n",
        "removed nftables table ip6 kube-proxy\n",
        "removed from iptables table nat: ",
        " chains of Services and endpoints",
        "PREROUTING -j KUBE-SERVICES",
        "removed from ip6tables table filter: ",
        "removed link kube-ipvs0\n",
    ] {
        assert!(said.contains(part), "no {part:?}: {said}");
    }
    let other = Machine::new();
    // What was there before, with the tables that were made then and the kubelet's chain.
    other.host.sh(format!(
        "for t in iptables-nft ip6tables-nft; do
             $t -N KUBE-FIREWALL; $t -A INPUT -j KUBE-FIREWALL; $t -A OUTPUT -j KUBE-FIREWALL
         done
         {}
         {OTHERS}",
        kubelet_drops("iptables-nft")
    ));
    assert_eq!(sorted(&machine.state()), sorted(&other.state()));
    let said = machine.run(&["remove-kube-proxy"]).succeeds();
    assert_eq!(said, "nothing of kube-proxy is on this machine\n");
}

/// The rule of the kubelet's chain.
fn kubelet_drops(program: &str) -> String {
    format!(
        "{program} -A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment \
         --comment 'block incoming localnet connections' \
         -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP"
    )
}

fn sorted(state: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = state.lines().map(str::trim_end).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_rehearsal_names_it_and_removes_nothing() {
    let machine = Machine::with_kube_proxy();
    let before = machine.state();
    let said = machine.run(&["remove-kube-proxy", "--dry-run"]).succeeds();
    assert!(
        said.contains("would remove nftables table ip kube-proxy"),
        "{said}"
    );
    assert_eq!(machine.state(), before);
}

/// The plugin portmap can be told to mark packets in kube-proxy's chain.
#[test]
fn a_chain_that_somebody_else_uses_stays() {
    let machine = Machine::with_kube_proxy();
    machine
        .host
        .sh("t='iptables-nft -t nat'; $t -N CNI-HOSTPORT-SETMARK
         $t -A CNI-HOSTPORT-SETMARK -j KUBE-MARK-MASQ");
    let used =
        "iptables-nft -t nat -S | grep -E 'KUBE-(MARK-MASQ|POSTROUTING)' | grep -vE 'KUBE-(S|EXT)'";
    let before = machine.host.sh(used);
    let said = machine.run(&["remove-kube-proxy"]).succeeds();
    for chain in ["KUBE-MARK-MASQ", "KUBE-POSTROUTING"] {
        let kept = format!(
            "kept chain {chain} of iptables table nat: a rule of chain CNI-HOSTPORT-SETMARK \
             needs it"
        );
        assert!(said.contains(&kept), "{said}");
    }
    // What is marked is masqueraded, as before.
    assert_eq!(sorted(&machine.host.sh(used)), sorted(&before));
    assert!(before.contains("-j MASQUERADE"), "{before}");
    assert_eq!(
        machine
            .host
            .sh("iptables-nft -t nat -S | grep -c KUBE-S || true"),
        "0\n"
    );
    // That is nothing which anybody has to mend.
    assert!(
        checked(&machine).starts_with("\"ok\" "),
        "{}",
        checked(&machine)
    );
}

#[test]
fn where_nobody_else_serves_services_it_stays() {
    let machine = Machine::with_kube_proxy();
    let before = machine.state();
    for state in [
        "{}",
        r#"{"ready": true}"#,
        r#"{"ready": true, "services": false}"#,
    ] {
        machine.node.write("/run/tweed/agent.json", state);
        let said = machine.run(&["remove-kube-proxy"]).fails();
        assert!(
            said.contains("does not say that it serves Services"),
            "{said}"
        );
        assert_eq!(machine.state(), before);
    }
    // An agent that has ended says nothing new, whatever happens to its table.
    let served = r#"{"ready": true, "services": true}"#;
    machine.node.write("/run/tweed/agent.json", served);
    machine.host.sh("nft delete table inet tweed-services");
    let before = machine.state();
    let said = machine.run(&["remove-kube-proxy"]).fails();
    assert!(said.contains("has no rules of Services"), "{said}");
    assert_eq!(machine.state(), before);
    let said = machine.run(&["remove-kube-proxy", "--dry-run"]).succeeds();
    assert!(said.starts_with("would refuse: "), "{said}");
    assert!(said.contains("would remove "), "{said}");
    machine.run(&["remove-kube-proxy", "--force"]).succeeds();
    assert!(!machine.state().contains("KUBE-SERVICES"));
}

/// Answers as kube-proxy's metrics server does, to anybody, until the namespace ends.
fn kube_proxy_runs(host: &Host) {
    let config = r#"{"kubeproxy.config.k8s.io": {"Mode": "iptables"}}"#;
    answers_for_kube_proxy(host, format!("200 OK\r\n\r\n{config}"));
}

/// Gives this answer on kube-proxy's metrics port.
fn answers_for_kube_proxy(host: &Host, answer: String) {
    let server = host.bind(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 10249)));
    std::thread::spawn(move || {
        for client in server.incoming() {
            let mut client = client.unwrap();
            let mut request = [0; 512];
            let length = client.read(&mut request).unwrap();
            assert!(request[..length].starts_with(b"GET /configz "));
            write!(client, "HTTP/1.0 {answer}").unwrap();
        }
    });
}

#[test]
fn a_kube_proxy_that_runs_would_make_its_rules_again() {
    let machine = Machine::with_kube_proxy();
    kube_proxy_runs(&machine.host);
    let before = machine.state();
    let said = machine.run(&["remove-kube-proxy"]).fails();
    assert!(
        said.contains("a kube-proxy runs on this node, in mode iptables"),
        "{said}"
    );
    assert_eq!(machine.state(), before);
}

/// Without its port, because somebody else listens there, kube-proxy cannot be asked. It
/// makes its rules again when it misses them.
#[test]
fn a_kube_proxy_that_cannot_be_asked_is_known_by_what_it_makes_again() {
    let machine = Machine::with_kube_proxy();
    answers_for_kube_proxy(&machine.host, "404 Not Found\r\n\r\n".to_owned());
    machine.host.sh(
        "again() { iptables-nft -t nat -N KUBE-SERVICES; iptables-nft -t mangle -N KUBE-PROXY-CANARY; }
         for i in $(seq 600); do
             iptables-nft -t nat -S KUBE-SERVICES || { again; break; }
             sleep 0.1
         done > /dev/null 2>&1 &",
    );
    let answer = machine.run(&["remove-kube-proxy", "--watch-seconds", "600"]);
    let said = answer.fails();
    for part in [
        "removed from iptables table nat",
        "rules are there again: iptables table",
    ] {
        assert!(said.contains(part), "no {part:?}: {said}");
    }
    let answer = machine.run(&["remove-kube-proxy", "--watch-seconds", "1"]);
    let said = answer.succeeds();
    assert!(said.ends_with("makes its rules again\n"), "{said}");
}

/// The old iptables can only replace whole tables.
#[test]
fn what_the_old_iptables_has_is_named_with_a_cure_that_works() {
    let machine = Machine::new();
    let rules = recorded("iptables.txt");
    machine.host.sh(format!(
        "iptables-legacy-restore < {rules}; {OTHERS_IN_THE_OLD_ONE}"
    ));
    let said = machine.run(&["remove-kube-proxy"]).fails();
    assert_eq!(
        said.matches("iptables-legacy-restore`").count(),
        3,
        "{said}"
    );
    for cure in said.split('`').skip(1).step_by(2) {
        machine.host.sh(cure);
    }
    let saved = "iptables-legacy-save | sed '/^#/d; s/\\[.*\\]//'";
    let left = machine.host.sh(saved);
    let other = Machine::new();
    other.host.sh(format!(
        "t=iptables-legacy
         $t -N KUBE-FIREWALL; $t -A INPUT -j KUBE-FIREWALL; $t -A OUTPUT -j KUBE-FIREWALL
         {}
         t='iptables-legacy -t nat'
         $t -N KUBE-MARK-MASQ; $t -A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
         $t -N KUBE-POSTROUTING
         $t -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
         $t -A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0
         $t -A KUBE-POSTROUTING -m comment --comment 'kubernetes service traffic requiring SNAT' \\
             -j MASQUERADE --random-fully
         $t -A POSTROUTING -m comment --comment 'kubernetes postrouting rules' -j KUBE-POSTROUTING
         {OTHERS_IN_THE_OLD_ONE}",
        kubelet_drops("iptables-legacy")
    ));
    assert_eq!(sorted(&left), sorted(&other.host.sh(saved)));
    let said = machine.run(&["remove-kube-proxy"]).succeeds();
    assert_eq!(said, "nothing of kube-proxy is on this machine\n");
}

/// The lines of `check` about other service proxies.
fn checked(machine: &Machine) -> String {
    let said = machine.run(&["check", "--output", "json"]);
    let found: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    let mut text = String::new();
    for finding in found["findings"].as_array().unwrap() {
        if finding["check"] == "service-proxy" {
            text += &format!("{} {}\n", finding["level"], finding["message"]);
        }
    }
    text
}

#[test]
fn check_names_it_only_where_the_agent_serves_services() {
    let machine = Machine::with_kube_proxy();
    machine
        .node
        .write("/run/tweed/agent.json", r#"{"ready": true}"#);
    assert_eq!(checked(&machine), "");
    let serves = r#"{"ready": false, "services": true}"#;
    machine.node.write("/run/tweed/agent.json", serves);
    let said = checked(&machine);
    assert!(
        said.starts_with("\"warning\" \"there are rules of kube-proxy"),
        "{said}"
    );
    kube_proxy_runs(&machine.host);
    let said = checked(&machine);
    assert!(
        said.starts_with("\"warning\" \"kube-proxy runs on this node"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
    let clean = Machine::new();
    assert!(
        checked(&clean).starts_with("\"ok\" "),
        "{}",
        checked(&clean)
    );
}
