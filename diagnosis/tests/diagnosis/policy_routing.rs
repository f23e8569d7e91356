//! Routing rules and tables of others, as the kernel applies them.

use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::policy_routing::{Peer, Ways, problems};
use tweed_netlink::{Socket, link, rule};

use crate::lab::Host;

/// A node with a pod `10.244.1.5` on the link `pod`, an uplink `eth0`, a peer
/// `10.244.2.0/24` that is reached over `over`, and one `10.244.3.0/24` by `eth0`; the same
/// with IPv6, `fd00:0:0:N::/64`.
fn node() -> Host {
    let host = Host::new();
    host.sh("echo 1 > /proc/sys/net/ipv4/ip_forward
         echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
         for name in pod over eth0 eth1; do
           ip link add $name type veth peer name other-$name
           ip link set other-$name up
           echo 0 > /proc/sys/net/ipv4/conf/$name/rp_filter
           ip link set $name up
         done
         echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
         ip address add 192.0.2.1/24 dev eth0
         ip address add 198.51.100.1/24 dev eth1
         ip -6 address add 2001:db8::1/64 dev eth0 nodad
         ip -6 address add 2001:db8:1::1/64 dev eth1 nodad
         ip route add default via 192.0.2.254
         ip -6 route add default via 2001:db8::fe
         ip route add 10.244.1.5 dev pod
         ip route add unreachable 10.244.1.0/24 metric 4294967295
         ip route add 10.244.2.0/24 via 10.244.2.0 dev over onlink
         ip route add 10.244.3.0/24 via 192.0.2.3
         ip -6 route add fd00:0:0:1::5 dev pod
         ip -6 route add unreachable fd00:0:0:1::/64 metric 4294967295
         ip -6 route add fd00:0:0:2::/64 via fd00:0:0:2:: dev over onlink
         ip -6 route add fd00:0:0:3::/64 via 2001:db8::3");
    host
}

/// What is named on such a node.
fn named(host: &Host) -> Vec<Problem> {
    host.run(|| {
        let mut socket = Socket::open().unwrap();
        let links = link::list(&mut socket).unwrap();
        let index = |name: &str| links.iter().find(|link| link.name == name).unwrap().index;
        let peer = |range: &str, gateway: &str, link: &str| Peer {
            range: range.parse().unwrap(),
            gateway: gateway.parse().unwrap(),
            link: index(link),
        };
        let peers = [
            peer("10.244.2.0/24", "10.244.2.0", "over"),
            peer("10.244.3.0/24", "192.0.2.3", "eth0"),
            peer("fd00:0:0:2::/64", "fd00:0:0:2::", "over"),
            peer("fd00:0:0:3::/64", "2001:db8::3", "eth0"),
        ];
        let sources = ["192.0.2.1", "198.51.100.1", "2001:db8::1", "2001:db8:1::1"];
        let pods = ["10.244.1.5", "fd00:0:0:1::5"];
        let ways = Ways {
            links: &links
                .iter()
                .map(|link| (link.index, link.clone()))
                .collect(),
            sources: &sources.map(|ip| ip.parse().unwrap()),
            pods: &pods.map(|ip| (ip.parse().unwrap(), index("pod"))).into(),
            own: &["10.244.1.0/24", "fd00:0:0:1::/64"].map(|range| range.parse().unwrap()),
            peers: &peers,
            uplink: index("eth0"),
            ranges: &["10.244.0.0/16", "fd00::/16"]
                .map(|range| range.parse().unwrap())
                .into(),
        };
        problems(&mut socket, &ways).unwrap()
    })
}

/// The one thing that is named.
#[track_caller]
fn one(host: &Host) -> Problem {
    let mut problems = named(host);
    assert_eq!(problems.len(), 1, "{problems:?}");
    problems.remove(0)
}

/// Types the last thing between backquotes in the cure.
fn follow(host: &Host, problem: &Problem) {
    host.sh(problem.cure.rsplit('`').nth(1).unwrap());
}

/// IPv4, and the same of IPv6.
const FAMILIES: [(&str, Family); 2] = [("ip", Family::V4), ("ip -6", Family::V6)];

/// The words of IPv4 in those of IPv6.
fn of(family: Family, text: &str) -> String {
    let pairs = [
        ("10.244.0.0/16", "fd00::/16"),
        ("10.244.1.0/24", "fd00:0:0:1::/64"),
        ("10.244.2.0/24", "fd00:0:0:2::/64"),
        ("10.244.3.0/24", "fd00:0:0:3::/64"),
        ("10.244.1.5", "fd00:0:0:1::5"),
        ("10.244.2.64/26", "fd00:0:0:2:4000::/66"),
        ("10.244.2.7", "fd00:0:0:2::7"),
        ("10.244.3.7", "fd00:0:0:3::7"),
        ("10.244.1.64/26", "fd00:0:0:1:4000::/66"),
        ("192.0.2.3", "2001:db8::3"),
        ("192.0.2.0/24", "2001:db8::/64"),
        ("192.0.2.254", "2001:db8::fe"),
        ("198.51.100.1", "2001:db8:1::1"),
        ("198.51.100.254", "2001:db8:1::fe"),
    ];
    let of_family = |text: &str| {
        let pair = pairs.iter().find(|(four, _)| *four == text);
        pair.map_or_else(|| text.to_owned(), |(_, six)| (*six).to_owned())
    };
    match family {
        Family::V4 => text.to_owned(),
        Family::V6 => text.split(' ').map(of_family).collect::<Vec<_>>().join(" "),
    }
}

/// A machine with two uplinks: what it sends from the address of the second one goes out
/// there, packets of its own to pods of other nodes included; and other rules that take
/// packets of pods elsewhere.
#[test]
fn a_rule_that_leads_packets_of_pods_elsewhere_is_named_until_its_cure_is_typed() {
    for (ip, family) in FAMILIES {
        for (route, rule) in [
            ("default via 198.51.100.254", "from 198.51.100.1 lookup 77"),
            // What pods send.
            ("default via 198.51.100.254", "from 10.244.0.0/16 lookup 77"),
            ("default via 198.51.100.254", "from 10.244.1.5 lookup 77"),
            ("default via 198.51.100.254", "iif pod lookup 77"),
            // What pods of other nodes send, and these nodes.
            ("default via 198.51.100.254", "from 10.244.2.0/24 lookup 77"),
            (
                "default via 198.51.100.254",
                "from 10.244.3.7 iif eth0 lookup 77",
            ),
            ("default via 198.51.100.254", "iif over lookup 77"),
            ("default via 192.0.2.254", "iif eth0 lookup 77"),
            (
                "default via 192.0.2.254",
                "from 192.0.2.0/24 iif eth0 lookup 77",
            ),
            ("blackhole default", "to 10.244.2.0/24 lookup 77"),
            (
                "default via 192.0.2.254",
                "from 10.244.1.5 to 10.244.3.7 prohibit",
            ),
            ("default via 192.0.2.254", "not from 192.0.2.0/24 lookup 77"),
        ] {
            let host = node();
            // The answers are led elsewhere as well, and strict checks refuse packets.
            let strict = u8::from(rule.starts_with("from"));
            host.sh(format!(
                "echo {strict} > /proc/sys/net/ipv4/conf/all/rp_filter"
            ));
            assert_eq!(named(&host), []);
            host.sh(of(family, &format!("{ip} route add {route} table 77")));
            host.sh(of(family, &format!("{ip} rule add {rule} priority 200")));
            let problem = one(&host);
            assert_eq!(
                problem.kind,
                ProblemKind::RouteShadowed,
                "{rule}: {problem}"
            );
            let text = host.run(move || {
                let rules = rule::list(&mut Socket::open().unwrap(), family).unwrap();
                let rule = rules.into_iter().find(|rule| rule.priority == 200);
                format!("`{}`", rule.unwrap())
            });
            assert!(problem.message.contains(&text), "{rule}: {problem}");
            follow(&host, &problem);
            assert_eq!(named(&host), [], "{rule}");
        }
    }
}

/// Pods that leave by another gateway are what such rules are for.
#[test]
fn a_rule_that_leads_pods_out_is_named_only_if_it_does_not() {
    for (ip, family) in FAMILIES {
        let host = node();
        host.sh(of(
            family,
            &format!(
                "{ip} rule add to 10.244.0.0/16 lookup main priority 199
             {ip} rule add from 10.244.1.0/24 lookup 77 priority 200"
            ),
        ));
        assert_eq!(named(&host), [], "an empty table");
        let (eight, two) = (of(family, "198.51.100.254"), of(family, "10.244.2.0/24"));
        host.sh(format!("{ip} route add default via {eight} table 77"));
        assert_eq!(named(&host), [], "another gateway");
        host.sh(format!(
            "{ip} route replace unreachable default table 77 metric 9
             {ip} route delete default via {eight} table 77"
        ));
        let problem = one(&host);
        assert!(problem.message.contains("the world outside"), "{problem}");
        host.sh(format!(
            "{ip} route flush table 77; {ip} rule delete priority 200
             {ip} rule add from {} prohibit priority 200",
            of(family, "10.244.1.5")
        ));
        assert!(one(&host).message.contains("the world outside"));
        // For what others mark.
        host.sh(format!("{ip} rule delete priority 200
             {ip} rule add fwmark 7 prohibit priority 200; {ip} rule add to {two} iif eth1 prohibit"));
        assert_eq!(named(&host), []);
    }
}

/// As a routing daemon may have them in a table of its own.
#[test]
fn a_route_to_some_pods_in_the_table_of_a_rule_is_named_until_its_cure_is_typed() {
    for (ip, family) in FAMILIES {
        for (route, rule) in [
            ("10.244.2.64/26 via 192.0.2.254", "from all"),
            ("10.244.3.0/24 via 198.51.100.254", "from 10.244.1.5"),
            // What answers to pods from outside.
            ("10.244.1.0/24 via 192.0.2.254", "iif eth0"),
            ("blackhole 10.244.2.64/26", "from all"),
            ("10.244.2.7 via 192.0.2.254", "from 10.244.1.5"),
            ("10.244.1.5 via 192.0.2.254", "iif over"),
            ("10.244.1.64/26 via 192.0.2.254", "from all"),
            ("10.244.2.7 dev eth1", "iif lo"),
        ] {
            let host = node();
            let route = of(family, route);
            host.sh(format!("{ip} route add {route} table 1077"));
            assert_eq!(named(&host), [], "no rule leads there");
            host.sh(of(
                family,
                &format!("{ip} rule add {rule} lookup 1077 priority 200"),
            ));
            let problem = one(&host);
            assert_eq!(problem.kind, ProblemKind::RouteTaken, "{route}: {problem}");
            let to = route
                .trim_start_matches("blackhole ")
                .split(' ')
                .next()
                .unwrap();
            assert!(problem.message.contains(to), "{problem}");
            assert!(problem.message.contains("table 1077"), "{problem}");
            follow(&host, &problem);
            assert_eq!(named(&host), [], "{route}");
        }
    }
}

#[test]
fn routes_that_take_nothing_from_pods_are_not_named() {
    for (ip, family) in FAMILIES {
        let host = node();
        host.sh(of(
            family,
            &format!(
                "ip link add cni0 type bridge
             ip link set cni0 up
             {ip} route add 10.244.1.64/26 dev cni0 table 77
             {ip} route add throw 10.244.2.64/26 table 77
             {ip} route add 10.244.3.0/24 via 192.0.2.3 table 77
             {ip} rule add lookup 77 priority 200"
            ),
        ));
        assert_eq!(named(&host), []);
    }
}

/// The table of the machine's own addresses is asked first of all.
#[test]
fn an_address_of_the_machine_that_is_a_peers_pods_is_named() {
    for (ip, family) in FAMILIES {
        let host = node();
        let whole = if ip == "ip" { 32 } else { 128 };
        let add = |address: &str| {
            host.sh(format!(
                "{ip} address add {address}/{whole} dev lo
                 until {ip} route show table local | grep -q 'local {address} '; do sleep 0.01; done"
            ));
        };
        let address = of(family, "10.244.2.7");
        add(&address);
        let problem = one(&host);
        assert_eq!(problem.kind, ProblemKind::RouteTaken);
        let named = format!("local {address}/{whole}");
        assert!(problem.message.contains(&named), "{problem}");
        host.sh(format!("{ip} address delete {address}/{whole} dev lo"));
        // Other plugins have addresses in this node's own pod CIDR.
        add(&of(family, "10.244.1.5"));
        assert_eq!(self::named(&host), []);
    }
}
