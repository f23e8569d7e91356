//! NodeLocal DNSCache: a program of the node listens at the cluster IP of the cluster's DNS and
//! at an address of its own, and takes packets to and from them out of conntrack.

use tweed_core::family::Family;

use super::lab::{
    Addresses, Answer, FAMILIES, Lab, NEIGHBOUR, OTHER_SERVICE, POD, SERVICE, Servers, both,
};
use super::plan::{PROTOCOLS, Plan, endpoint, group};

/// Its own address.
const OWN: Addresses = both("169.254.20.10", "fd00:169:254::10");
const PORT: u16 = 53;

/// Its addresses: it has them on a device of the type `dummy`, which not every kernel has.
fn addresses(lab: &Lab, change: &str) {
    for family in FAMILIES {
        for address in [SERVICE, OWN].map(|one| one.of(family)) {
            lab.0.node.sh(format!("ip addr {change} {address} dev lo"));
        }
    }
}

/// Makes its rules, by `nft` in place of `iptables`.
fn add_rules(lab: &Lab) {
    let rules = |end: &str| {
        let of_family = FAMILIES.map(|family| {
            let ip = if family == Family::V4 { "ip" } else { "ip6" };
            let [service, own] = [SERVICE, OWN].map(|one| one.of(family));
            let port = format!("meta l4proto {{ tcp, udp }} th {end}port {PORT}");
            format!("{ip} {end}addr {{ {service}, {own} }} {port} notrack\n")
        });
        of_family.concat()
    };
    let (to, from) = (rules("d"), rules("s"));
    lab.0.node.sh(format!(
        "nft -f - <<'E'
         table inet local_dns {{
           chain prerouting {{
             type filter hook prerouting priority raw
             {to}
           }}
           chain output {{
             type filter hook output priority raw
             {to}
             {from}
           }}
         }}\nE"
    ));
}

#[test]
fn what_a_local_dns_cache_takes_out_of_conntrack_reaches_it() {
    let lab = Lab::new();
    // The second Service is the one by which the cache itself asks.
    let (mut plan, mut servers) = (Plan::new(), Servers::new());
    for (number, family) in (0..).zip(FAMILIES) {
        let (dns, target) = (NEIGHBOUR.port(family, 8053), group(2 * number));
        servers = servers.add(&lab.0.neighbour, "dns", dns);
        plan = plan.endpoints(target, &[endpoint(dns.ip(), dns.port())]);
        for protocol in PROTOCOLS {
            plan = plan
                .cluster_ip(protocol, SERVICE.port(family, PORT), target)
                .cluster_ip(protocol, OTHER_SERVICE.port(family, PORT), target);
        }
    }
    lab.reconcile(&plan);
    let (node, pod) = (&lab.0.node, &lab.0.pod);
    let the_service_answers = || {
        for family in FAMILIES {
            for protocol in PROTOCOLS {
                let to = SERVICE.port(family, PORT);
                assert_eq!(lab.name(pod, protocol, to), "dns", "{to} {protocol}");
                assert_eq!(lab.name(node, protocol, to), "dns", "{to} {protocol}");
            }
        }
    };
    the_service_answers();

    addresses(&lab, "add");
    for family in FAMILIES {
        for at in [SERVICE, OWN] {
            servers = servers.add(node, "cache", at.port(family, PORT));
        }
    }
    // What conntrack knows is the Service's.
    the_service_answers();
    add_rules(&lab);
    for family in FAMILIES {
        for protocol in PROTOCOLS {
            for to in [SERVICE, OWN].map(|one| one.port(family, PORT)) {
                let seen = Answer::From("cache".to_owned(), POD.of(family));
                assert_eq!(lab.ask(pod, protocol, to), seen, "{to} {protocol}");
                assert_eq!(lab.name(node, protocol, to), "cache", "{to} {protocol}");
            }
            let upstream = OTHER_SERVICE.port(family, PORT);
            assert_eq!(lab.name(node, protocol, upstream), "dns", "{upstream}");
            let other = SERVICE.port(family, PORT + 1);
            assert_eq!(lab.ask(pod, protocol, other), Answer::Refused, "{other}");
        }
    }

    node.sh("nft delete table inet local_dns");
    addresses(&lab, "del");
    the_service_answers();
    drop(servers);
}
