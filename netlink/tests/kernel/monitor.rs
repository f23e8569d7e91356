//! Notifications.

use tweed_netlink::{Monitor, Notification};

use crate::{new_namespace, see};

#[test]
fn the_monitor_hears_what_others_change() {
    new_namespace();
    let mut monitor = Monitor::open().unwrap();
    see("ip link add dev a type veth peer name b");
    see("ip link set dev a up");
    see("ip link set dev b up");
    see("ip addr add 192.0.2.1/24 dev a");
    see("ip route add 10.0.0.0/8 dev a proto 116");
    see("ip neigh add 192.0.2.2 lladdr 02:00:00:00:00:02 dev a nud permanent");
    see("ip link add vx type vxlan id 5 dstport 8472 nolearning");
    see("bridge fdb add 02:00:00:00:00:07 dev vx dst 192.0.2.2");
    see("ip route del 10.0.0.0/8 dev a");
    let heard = monitor.drain().unwrap();
    let has = |what: &str, test: &dyn Fn(&Notification) -> bool| {
        assert!(heard.iter().any(test), "{what} in {heard:?}");
    };
    has(
        "link",
        &|n| matches!(n, Notification::Link(l) if l.name == "vx"),
    );
    has(
        "address",
        &|n| matches!(n, Notification::Address(a) if a.network.prefix() == 24),
    );
    has(
        "route",
        &|n| matches!(n, Notification::Route(r) if r.protocol == 116),
    );
    has(
        "route gone",
        &|n| matches!(n, Notification::RouteRemoved(r) if r.protocol == 116),
    );
    has(
        "neighbour",
        &|n| matches!(n, Notification::Neighbour(n) if n.permanent),
    );
    has(
        "fdb",
        &|n| matches!(n, Notification::Fdb(f) if f.mac.0[5] == 7),
    );
    assert_eq!(monitor.drain().unwrap(), []);
}

#[test]
fn a_monitor_has_its_room_whatever_the_systems_limit() {
    new_namespace();
    let monitor = Monitor::with_room(8 << 20).unwrap();
    let room = nix::sys::socket::getsockopt(&monitor, nix::sys::socket::sockopt::RcvBuf);
    // The kernel doubles it for its own accounting: socket(7).
    assert_eq!(room, Ok(16 << 20));
}

#[test]
fn a_monitor_that_missed_something_says_so_and_hears_again() {
    new_namespace();
    let mut monitor = Monitor::with_room(4096).unwrap();
    for n in 0..40 {
        see(&format!("ip link add name x{n} type veth peer name y{n}"));
    }
    assert!(monitor.drain().unwrap().contains(&Notification::Overflow));
    see("ip link del x0");
    let heard = monitor.drain().unwrap();
    assert!(
        heard
            .iter()
            .any(|n| matches!(n, Notification::LinkRemoved(l) if l.name == "x0")),
        "{heard:?}"
    );
}
