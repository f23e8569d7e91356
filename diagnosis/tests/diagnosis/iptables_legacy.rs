//! The old iptables, of which nf_tables knows nothing.

use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::{Packets, iptables_legacy, nf_tables::Drops};

use crate::lab::Host;
use crate::packets;

fn drops(host: &Host) -> Vec<Problem> {
    host.run(|| iptables_legacy::drops(&packets()).unwrap())
}

#[test]
fn a_table_that_is_not_loaded_is_not_loaded_by_looking() {
    let host = Host::new();
    host.sh("iptables-legacy -t nat -P POSTROUTING ACCEPT");
    assert_eq!(drops(&host), []);
    assert_eq!(host.sh("cat /proc/net/ip_tables_names").trim(), "nat");
    host.sh("iptables-legacy -A FORWARD -i eth0 -j DROP");
    assert_eq!(drops(&host), []);
}

#[test]
fn a_policy_that_drops_is_named_until_the_cure_is_typed() {
    for program in ["iptables-legacy", "ip6tables-legacy"] {
        let host = Host::new();
        host.sh(format!(
            "{program} -P FORWARD DROP
             {program} -A FORWARD -i tw+ -p tcp -j ACCEPT
             {program} -A FORWARD -i two -j ACCEPT
             {program} -A FORWARD -o eth0 -j ACCEPT"
        ));
        let problems = drops(&host);
        let [problem] = &problems[..] else {
            panic!("{problems:?}");
        };
        assert_eq!(problem.kind, ProblemKind::ForwardDrop);
        assert_eq!(problem.object, format!("{program} FORWARD"));
        host.sh(format!(
            "{program} -A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"
        ));
        assert!(!drops(&host)[0].message.contains("answers"));
        host.sh(problem.cure.split('`').nth(1).unwrap());
        assert_eq!(drops(&host), []);
        host.sh(format!("{program} -I FORWARD -j REJECT"));
        assert_eq!(drops(&host).len(), 1);
    }
}

/// Who does not use IPv6 closes it, on nodes whose pods have none too.
#[test]
fn a_family_that_no_pod_has_may_be_closed() {
    let host = Host::new();
    host.sh("ip6tables-legacy -P FORWARD DROP; ip6tables-nft -P FORWARD DROP");
    assert_eq!(drops(&host).len(), 1);
    let ipv4 = || Packets {
        pods: [Family::V4].into(),
        ..packets()
    };
    let found = host.run(move || {
        let mut found = iptables_legacy::drops(&ipv4()).unwrap();
        found.extend_from_slice(Drops::open().unwrap().problems(&ipv4()).unwrap());
        found
    });
    assert_eq!(found, []);
}

#[test]
fn docker_is_cured_in_the_chain_that_it_keeps() {
    let host = Host::new();
    host.sh(
        "t=iptables-legacy; $t -N DOCKER-USER; $t -A DOCKER-USER -j RETURN
         $t -A FORWARD -j DOCKER-USER
         $t -A FORWARD -i docker0 ! -o docker0 -j ACCEPT
         $t -P FORWARD DROP",
    );
    let problem = drops(&host).remove(0);
    assert!(problem.cure.contains("-I DOCKER-USER -i tw+"), "{problem}");
    host.sh(problem.cure.split('`').nth(1).unwrap());
    assert_eq!(drops(&host), []);
}
