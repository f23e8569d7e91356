//! Firewalls at the hooks input and output: what is said of them is what becomes of the
//! overlay's packets, and the cures work.

use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::{iptables_legacy, nf_tables::Drops};

use crate::lab::Host;
use crate::packets;
use crate::wires::{Server, Wires, ruleset, send};

/// The rules of a chain of nftables at the hook input, one a line, and whether they let
/// the packets pass.
const NFTABLES: &[(&str, bool)] = &[
    ("policy drop", false),
    // As in most hosts' files.
    (
        "policy drop
         ct state vmap { established : accept, related : accept, invalid : drop }
         iifname lo accept
         iif lo accept
         meta l4proto { icmp, ipv6-icmp } accept
         ip protocol icmp accept
         tcp dport { 22, 6443 } accept
         udp dport { 53, 68 } accept
         udp dport 33434-33523 reject",
        false,
    ),
    ("policy drop\n udp dport 8472 accept", true),
    ("policy drop\n udp dport { 4789, 8472 } accept", true),
    ("policy drop\n udp dport { 22, 8000-9000 } accept", true),
    ("policy drop\n udp dport { 22, 8473-9000 } accept", false),
    ("policy drop\n udp dport 8000-9000 accept", true),
    ("policy drop\n udp sport 67 udp dport 68 accept", false),
    (
        "policy accept\n udp sport != 68 udp dport 8472 accept\n drop",
        true,
    ),
    ("policy drop\n udp dport != 8472 accept", false),
    ("policy drop\n udp dport != { 53, 68 } accept", true),
    ("policy drop\n meta l4proto { tcp, udp } accept", true),
    ("policy drop\n meta nfproto ipv6 accept", false),
    ("policy drop\n fib daddr type local accept", true),
    ("policy drop\n ct status dnat accept", false),
    // What opens a port for packets that conntrack tracks opens none for these.
    ("policy drop\n ct state new udp dport 8472 accept", false),
    (
        "policy drop\n ct state { established, related } accept",
        false,
    ),
    ("policy drop\n ct state established,related accept", false),
    ("policy drop\n ct state { new, untracked } accept", true),
    ("policy drop\n ct state new,untracked accept", true),
    ("policy drop\n ct state != invalid accept", true),
    ("policy accept\n ct state invalid drop", true),
    (
        "policy accept\n ct state != { established, related } drop",
        false,
    ),
    ("policy accept\n udp dport 8472 drop", false),
    ("policy accept\n udp dport 8472 reject", false),
    (
        "policy accept\n meta pkttype { broadcast, multicast } drop",
        true,
    ),
    (
        "policy drop\n iifname vmap { lo : accept, twa : goto open }",
        false,
    ),
    (
        "policy drop\n udp dport vmap { 53 : drop, 8472 : goto open }",
        true,
    ),
    (
        "policy accept
         meta l4proto . th dport vmap { tcp . 22 : drop, udp . 53 : drop }",
        true,
    ),
    (
        "policy accept
         meta l4proto . th dport vmap { tcp . 22 : accept, udp . 8472 : drop }",
        false,
    ),
    (
        "policy drop
         meta l4proto . th dport { tcp . 22, tcp . 8472, udp . 53 } accept",
        false,
    ),
    (
        "policy drop
         meta l4proto . th dport { tcp . 22, udp . 8472 } accept",
        true,
    ),
    (
        "policy drop
         ip saddr . udp dport { 192.0.2.2 . 53, 192.0.2.3 . 68 } accept",
        false,
    ),
    ("policy accept\n jump closing", false),
    (
        "policy accept\n udp dport 8472 jump leaving\n jump closing",
        false,
    ),
    ("policy accept\n goto leaving\n drop", true),
    ("policy drop\n iifgroup 116 accept", false),
];

/// The same at the hook output.
const NFTABLES_OUT: &[(&str, bool)] = &[
    ("policy drop", false),
    // As in guides to harden a host.
    (
        "policy drop
         oifname lo accept
         ip protocol tcp ct state established,related,new accept
         ip protocol udp ct state established,related,new accept",
        false,
    ),
    ("policy drop\n oif lo accept\n oifgroup 116 accept", false),
    (
        "policy drop\n fib daddr type local accept\n udp dport 8472 accept",
        true,
    ),
    ("policy drop\n ct state != invalid accept", true),
    ("policy accept\n udp dport 8472 reject", false),
];

/// The same for iptables: arguments, one rule a line.
const IPTABLES: &[(&str, bool)] = &[
    ("-P INPUT DROP", false),
    // As in many a guide.
    (
        "-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
         -A INPUT -p icmp -j ACCEPT
         -A INPUT -i lo -j ACCEPT
         -A INPUT -p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT
         -A INPUT -m state --state NEW -m udp -p udp --dport 8472 -j ACCEPT
         -A INPUT -j REJECT --reject-with icmp-host-prohibited",
        false,
    ),
    (
        "-P INPUT DROP\n -A INPUT -p udp --dport 8472 -j ACCEPT",
        true,
    ),
    (
        "-P INPUT DROP\n -A INPUT -p udp -m udp --dport 8000:9000 -j ACCEPT",
        true,
    ),
    (
        "-P INPUT DROP\n -A INPUT -p udp ! --dport 8472 -j ACCEPT",
        false,
    ),
    (
        "-P INPUT DROP\n -A INPUT -p udp -m multiport --dports 53,8000:9000,123 -j ACCEPT",
        true,
    ),
    (
        "-P INPUT DROP\n -A INPUT -p udp -m multiport --dports 53,67:68,123 -j ACCEPT",
        false,
    ),
    (
        "-P INPUT DROP\n -A INPUT -p udp -m multiport ! --dports 53,123 -j ACCEPT",
        true,
    ),
    (
        "-P INPUT DROP\n -A INPUT -p udp -m multiport ! --dports 53,8472 -j ACCEPT",
        false,
    ),
    ("-P INPUT DROP\n -A INPUT ! -p tcp -j ACCEPT", true),
    ("-P INPUT DROP\n -A INPUT ! -p udp -j ACCEPT", false),
    ("-P INPUT DROP\n -A INPUT -i tw+ -j ACCEPT", false),
    (
        "-P INPUT DROP\n -A INPUT -m conntrack --ctstate NEW -j ACCEPT",
        false,
    ),
    (
        "-P INPUT DROP\n -A INPUT -m conntrack ! --ctstate NEW -j ACCEPT",
        true,
    ),
    (
        "-P INPUT DROP\n -A INPUT -m conntrack --ctstate NEW,UNTRACKED -j ACCEPT",
        true,
    ),
    (
        "-P INPUT DROP\n -A INPUT -m state --state UNTRACKED -j ACCEPT",
        true,
    ),
    (
        "-P INPUT DROP\n -A INPUT -m conntrack --ctstatus ASSURED -j ACCEPT",
        false,
    ),
    (
        "-P INPUT DROP\n -A INPUT -m conntrack --ctstate DNAT -j ACCEPT",
        false,
    ),
    ("-A INPUT -m conntrack --ctstate INVALID -j DROP", true),
    ("-A INPUT -m comment --comment closed -j DROP", false),
    (
        "-P INPUT DROP\n -N a\n -A a -j RETURN\n -A INPUT -j a\n -A INPUT -p udp -j ACCEPT",
        true,
    ),
    (
        "-N a\n -A a -j RETURN\n -A INPUT -g a\n -A INPUT -j DROP",
        true,
    ),
    ("-N a\n -A a -j DROP\n -A INPUT -p udp -g a", false),
    // A program decides, and may accept all.
    (
        "-A INPUT -p udp -j NFQUEUE --queue-bypass\n -A INPUT -p udp -j DROP",
        true,
    ),
    // ufw's, shortened.
    (
        "-P INPUT DROP
         -N ufw-before-input
         -N ufw-not-local
         -N ufw-user-input
         -A INPUT -j ufw-before-input
         -A ufw-before-input -i lo -j ACCEPT
         -A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
         -A ufw-before-input -m conntrack --ctstate INVALID -j DROP
         -A ufw-before-input -p udp --sport 67 --dport 68 -j ACCEPT
         -A ufw-before-input -j ufw-not-local
         -A ufw-before-input -j ufw-user-input
         -A ufw-not-local -m addrtype --dst-type LOCAL -j RETURN
         -A ufw-not-local -m addrtype --dst-type MULTICAST -j RETURN
         -A ufw-not-local -j DROP
         -A ufw-user-input -p tcp -m tcp --dport 22 -j ACCEPT",
        false,
    ),
];

fn problems(host: &Host) -> Vec<Problem> {
    host.run(|| {
        let mut problems = Drops::open()
            .and_then(|mut drops| Ok(drops.problems(&packets())?.to_vec()))
            .unwrap();
        problems.extend(iptables_legacy::drops(&packets()).unwrap());
        problems
    })
}

/// A way of packets through the overlay, by a hook of the node.
struct Way<'a> {
    hook: &'static str,
    problem: ProblemKind,
    node: &'a Host,
    from: (&'a Host, &'static str),
    to: (Server, &'static str),
}

impl<'a> Way<'a> {
    fn both(w: &'a Wires) -> [Self; 2] {
        let server = |host, address| (Server::new(host, address), address);
        [
            Self {
                hook: "input",
                problem: ProblemKind::InboundDrop,
                node: &w.node,
                from: (&w.remote_pod, "10.244.2.5:0"),
                to: server(&w.pod, "10.244.1.5:7"),
            },
            Self {
                hook: "output",
                problem: ProblemKind::OutboundDrop,
                node: &w.node,
                from: (&w.pod, "10.244.1.5:0"),
                to: server(&w.remote_pod, "10.244.2.5:7"),
            },
        ]
    }

    fn attempt(&self, text: &str) {
        send(self.from.0, self.from.1, self.to.1, text);
    }

    /// Runs `set`, and asks whether packets pass: packets, and the diagnosis.
    fn agree(&self, (set, clear): (&str, &str), passes: bool) {
        self.node.sh(clear);
        self.node.sh(set);
        let named = problems(self.node);
        self.attempt("behind the rules");
        if let [problem] = &named[..] {
            assert_eq!(problem.kind, self.problem, "{set}");
            assert!(!passes, "{set}\n{problem}");
            let cure = problem.cure.split('`').nth(1).unwrap();
            // ufw itself is not here.
            let cure = match cure {
                "ufw allow 8472/udp" => "iptables -A ufw-user-input -p udp --dport 8472 -j ACCEPT",
                cure => cure,
            };
            self.node.sh(cure);
            assert_eq!(problems(self.node), [], "{set}\n{cure}");
            self.attempt("after the cure");
            assert_eq!(self.to.0.next().0, "after the cure", "{set}");
        } else {
            assert_eq!(named, []);
            assert!(passes, "not named: {set}");
            assert_eq!(self.to.0.next().0, "behind the rules", "{set}");
        }
    }
}

#[test]
fn chains_of_nftables() {
    let w = Wires::new(&ruleset());
    let clear = "nft 'add table inet f; delete table inet f'";
    for (way, rows) in Way::both(&w).iter().zip([NFTABLES, NFTABLES_OUT]) {
        let hook = way.hook;
        for (rules, passes) in rows {
            let (policy, rules) = rules.split_once('\n').unwrap_or((rules, ""));
            let set = format!(
                "nft -f - <<'E'
table inet f {{
    chain open {{
        accept
    }}
    chain leaving {{
        return
        accept
    }}
    chain closing {{
        udp dport 8472 drop
    }}
    chain base {{
        type filter hook {hook} priority 0; {policy};
        {rules}
    }}
}}
E"
            );
            way.agree((&set, clear), *passes);
        }
        w.node.sh(clear);
    }
}

#[test]
fn chains_of_iptables() {
    let w = Wires::new(&ruleset());
    for way in Way::both(&w) {
        let chain = way.hook.to_uppercase();
        for program in ["iptables-nft", "iptables-legacy"] {
            let clear = format!("{program} -P {chain} ACCEPT; {program} -F; {program} -X");
            for (rules, passes) in IPTABLES {
                // What is not asked for at the hook output.
                if way.hook == "output" && [" -i ", "ufw"].iter().any(|word| rules.contains(word)) {
                    continue;
                }
                let of_chain = rules.replace("INPUT", &chain);
                let commands = of_chain.lines().map(|rule| format!("{program} {rule}\n"));
                let set: String = commands.collect();
                way.agree((&set, &clear), *passes);
            }
            w.node.sh(clear);
        }
    }
}

/// What accepts packets from somewhere may be meant for the nodes: better no word than
/// a false one.
#[test]
fn what_may_be_meant_for_the_nodes_is_not_named() {
    let w = Wires::new(&ruleset());
    for rule in [
        "ip saddr 203.0.113.0/24 accept",
        "ip saddr @nodes udp dport 8472 accept",
        "iifname eth7 accept",
        "udp dport 8472 ip saddr vmap { 192.0.2.2 : accept }",
        "meta mark 7 accept",
        "ip saddr . udp dport { 203.0.113.1 . 8472 } accept",
        "ip saddr vmap @named",
    ] {
        w.node.sh(format!(
            "nft -f - <<'E'
table inet f
delete table inet f
table inet f {{
    set nodes {{
        type ipv4_addr
    }}
    map named {{
        type ipv4_addr : verdict
    }}
    chain input {{
        type filter hook input priority 0; policy drop;
        {rule}
    }}
}}
E"
        ));
        assert_eq!(problems(&w.node), [], "{rule}");
    }
}

/// A chain for the other family is none of these packets' business.
#[test]
fn the_other_family() {
    let w = Wires::new(&ruleset());
    w.node
        .sh("ip6tables-nft -P INPUT DROP; ip6tables-legacy -P INPUT DROP");
    assert_eq!(problems(&w.node), []);
}
