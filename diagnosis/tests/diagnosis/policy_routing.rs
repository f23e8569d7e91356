//! Routing rules of others, as the kernel applies them.

use tweed_core::problem::ProblemKind;
use tweed_diagnosis::policy_routing::{Target, problems};
use tweed_netlink::Socket;

use crate::lab::Host;

/// A machine with two uplinks: what it sends from the address of the second one goes out
/// there, packets of its own to pods of other nodes included.
#[test]
fn a_rule_for_packets_from_one_of_the_machines_addresses_is_named() {
    let host = Host::new();
    host.sh("ip link add first type veth peer name one
         ip link add second type veth peer name two
         ip addr add 192.0.2.1/24 dev first
         ip addr add 198.51.100.1/24 dev second
         ip -6 addr add 2001:db8:1::1/64 dev second nodad
         for link in first one second two; do ip link set $link up; done
         ip route add 10.244.2.0/24 via 192.0.2.2
         ip route add default via 198.51.100.2 table 102
         ip rule add from 198.51.100.1 lookup 102 priority 200");
    let named = |sources: &'static [&'static str]| {
        let target = Target {
            address: "10.244.2.0".parse().unwrap(),
            range: "10.244.0.0/16".parse().unwrap(),
        };
        let sources: Vec<_> = sources.iter().map(|text| text.parse().unwrap()).collect();
        host.run(move || {
            let mut socket = Socket::open().unwrap();
            problems(&mut socket, &[target], &sources).unwrap()
        })
    };
    assert_eq!(named(&[]), []);
    assert_eq!(named(&["192.0.2.1", "2001:db8:1::1"]), []);
    let found = named(&["192.0.2.1", "198.51.100.1"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].kind, ProblemKind::RouteShadowed);
    assert!(
        found[0]
            .message
            .contains("`200: from 198.51.100.1/32 lookup 102`"),
        "{}",
        found[0]
    );
    // The cure that it names.
    host.sh("ip rule add to 10.244.0.0/16 lookup main priority 199");
    assert_eq!(named(&["192.0.2.1", "198.51.100.1"]), []);
}
