//! What kube-proxy has of the Service in each of its modes.

/// A program that loads rules of IPv4, and the rules, in which `POD` stands for the pod's
/// address; and the program that loads the same of IPv6, if they are tested.
pub type Rules = (
    &'static [&'static str],
    &'static str,
    Option<&'static [&'static str]>,
);

/// What kube-proxy has in its mode `iptables`.
pub const IPTABLES: Rules = (
    &["iptables-nft-restore", "--noflush"],
    "*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-CDGGSHYLG3RE2FKL - [0:0]
:KUBE-SEP-AFGSLHOD2HFNCBX4 - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A OUTPUT -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A KUBE-SERVICES -d 10.96.0.10/32 -p tcp -m tcp --dport 7000 -j KUBE-SVC-CDGGSHYLG3RE2FKL
-A KUBE-SERVICES -d 10.96.0.10/32 -p udp -m udp --dport 7000 -j KUBE-SVC-CDGGSHYLG3RE2FKL
-A KUBE-SVC-CDGGSHYLG3RE2FKL -j KUBE-SEP-AFGSLHOD2HFNCBX4
-A KUBE-SEP-AFGSLHOD2HFNCBX4 -p tcp -m tcp -j DNAT --to-destination POD:7001
-A KUBE-SEP-AFGSLHOD2HFNCBX4 -p udp -m udp -j DNAT --to-destination POD:7001
COMMIT
",
    Some(&["ip6tables-nft-restore", "--noflush"]),
);

/// The same in its mode `nftables`.
pub const NFTABLES: Rules = (
    &["nft", "-f", "-"],
    "table ip kube-proxy {
    map service-ips {
        type ipv4_addr . inet_proto . inet_service : verdict
        elements = { 10.96.0.10 . tcp . 7000 : goto service-web,
                     10.96.0.10 . udp . 7000 : goto service-web }
    }
    chain service-web {
        meta l4proto { tcp, udp } dnat to POD:7001
    }
    chain services {
        ip daddr . meta l4proto . th dport vmap @service-ips
    }
    chain nat-prerouting {
        type nat hook prerouting priority dstnat; policy accept;
        jump services
    }
    chain nat-output {
        type nat hook output priority -100; policy accept;
        jump services
    }
}
",
    Some(&["nft", "-f", "-"]),
);

/// The same in its mode `ipvs`: the addresses of Services are the node's own, so that IPVS
/// sees their packets at the hook input. A kube-proxy that is back finds its services.
pub const IPVS: Rules = (
    &["sh", "-e"],
    "ip link add kube-ipvs0 type dummy
ip address add 10.96.0.10/32 dev kube-ipvs0
for protocol in t u; do
    ipvsadm --list -$protocol 10.96.0.10:7000 >/dev/null 2>&1 && continue
    ipvsadm --add-service -$protocol 10.96.0.10:7000 --scheduler rr
    ipvsadm --add-server -$protocol 10.96.0.10:7000 --real-server POD:7001 --masquerading
done
echo 1 >/proc/sys/net/ipv4/vs/conntrack
",
    None,
);

/// What differs in rules of IPv6 from those of IPv4.
const OVER_IPV6: [(&str, &str); 6] = [
    ("10.96.0.10/32", "fd00:96::10/128"),
    ("10.96.0.10", "fd00:96::10"),
    ("POD:", "[POD]:"),
    ("table ip ", "table ip6 "),
    ("ipv4_addr", "ipv6_addr"),
    ("ip daddr", "ip6 daddr"),
];

/// By family: the program that loads the rules, and those to the pod with these addresses,
/// of which that of IPv4 is the first.
pub fn by_family(
    (program, rules, program_of_ipv6): Rules,
    pod: &[String; 2],
) -> Vec<(&'static [&'static str], String)> {
    let mut all = vec![(program, rules.replace("POD", &pod[0]))];
    all.extend(program_of_ipv6.map(|program| {
        let replaced = |rules: String, (old, new): (&str, &str)| rules.replace(old, new);
        let rules = OVER_IPV6.into_iter().fold(rules.to_owned(), replaced);
        (program, rules.replace("POD", &pod[1]))
    }));
    all
}
