//! What a kube-proxy has made, as recorded from one, is found in each of its modes.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::Path;

use tweed_core::problem::ProblemKind;
use tweed_diagnosis::service_proxy::{Found, find, problems};
use tweed_netlink::nf::Socket;
use tweed_netlink::nf::idle::Idle;

use crate::lab::Host;

/// A file of the folder of recorded rules.
fn recorded(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kube-proxy");
    folder.join(name).display().to_string()
}

fn found(host: &Host) -> Found {
    host.run(|| find(&Idle::default()).unwrap())
}

/// What is said about the rules.
#[track_caller]
fn message(host: &Host) -> String {
    let problems = problems(&found(host), None);
    assert_eq!(problems.len(), 1, "{problems:?}");
    let problem = &problems[0];
    assert_eq!(problem.kind, ProblemKind::KubeProxyRules);
    problem.message.clone()
}

/// Closing one makes all transactions of nf_tables wait.
#[test]
fn looks_share_their_socket_of_nf_tables() {
    let host = Host::new();
    let sockets = host.run(|| {
        let idle = Idle::<Socket>::default();
        [(); 3].map(|()| {
            find(&idle).unwrap();
            let socket = idle.take().unwrap();
            let link = format!("/proc/self/fd/{}", socket.as_raw_fd());
            let socket_of_link = fs::read_link(link).unwrap();
            idle.give_back(socket);
            socket_of_link
        })
    });
    assert_eq!(sockets[0], sockets[1]);
    assert_eq!(sockets[0], sockets[2]);
}

#[test]
fn its_tables_are_found() {
    let host = Host::new();
    assert_eq!(found(&host), Found::default());
    host.sh(format!("nft -f {}", recorded("nftables.txt")));
    let message = message(&host);
    for table in ["ip kube-proxy", "ip6 kube-proxy"] {
        assert!(message.contains(table), "{message}");
    }
    host.sh("nft delete table ip kube-proxy; nft delete table ip6 kube-proxy");
    assert_eq!(found(&host), Found::default());
}

#[test]
fn its_chains_are_found_in_both_kinds_of_iptables() {
    for (program, shown) in [
        ("iptables-nft", "iptables"),
        ("ip6tables-nft", "ip6tables"),
        ("iptables-legacy", "iptables-legacy"),
        ("ip6tables-legacy", "ip6tables-legacy"),
    ] {
        let host = Host::new();
        let rules = recorded(if program.starts_with("ip6") {
            "ip6tables.txt"
        } else {
            "iptables.txt"
        });
        host.sh(format!("{program}-restore < {rules}"));
        let message = message(&host);
        for table in ["nat", "filter", "mangle"] {
            let part = format!("{shown} table {table} (");
            assert!(message.contains(&part), "{program}: {message}");
        }
        assert!(!message.contains("KUBE-FIREWALL"), "{program}: {message}");
    }
}

/// The kubelet's own chains, and tables of others.
#[test]
fn what_is_not_kube_proxys_is_not_named() {
    let host = Host::new();
    for program in ["iptables-nft", "iptables-legacy"] {
        host.sh(format!(
            "{program} -N KUBE-FIREWALL; {program} -A INPUT -j KUBE-FIREWALL
             {program} -t mangle -N KUBE-KUBELET-CANARY; {program} -t mangle -N KUBE-IPTABLES-HINT
             {program} -t nat -N KUBE-ROUTER-SERVICES"
        ));
    }
    host.sh("nft add table inet kube-proxy");
    assert_eq!(found(&host), Found::default());
}

#[test]
fn links_name_ipvs_and_other_proxies() {
    let host = Host::new();
    host.sh("ip link add kube-ipvs0 type bridge");
    assert!(message(&host).contains("link kube-ipvs0"));
    host.sh("ip link del kube-ipvs0; ip link add cilium_host type veth peer name cilium_net");
    let problems = problems(&found(&host), None);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].kind, ProblemKind::OtherServiceProxy);
    assert_eq!(problems[0].object, "Cilium");
}
