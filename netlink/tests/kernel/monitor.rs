//! Notifications.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tweed_netlink::nf::attributes::{Attributes, find, number};
use tweed_netlink::nf::element::{ITEM, KEY, VALUE};
use tweed_netlink::nf::object::{
    DELETE_ELEMENTS, ELEMENTS, NEW_ELEMENTS, NEW_GENERATION, SET_NAME, TableKey, generation,
};
use tweed_netlink::nf::{self, FAMILY_INET, Transaction};
use tweed_netlink::{Monitor, Notification};

use crate::{new_namespace, nft, see};

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

#[test]
fn a_monitor_that_has_left_hears_nothing_until_it_is_back() {
    new_namespace();
    let mut monitor = nf::Monitor::open().unwrap();
    let membership = monitor.membership();
    let is_news = |heard: Vec<nf::Notification>| !heard.is_empty();

    membership.leave().unwrap();
    nft("add table inet a");
    membership.join().unwrap();
    membership.missed_nothing();
    assert_eq!(monitor.drain().unwrap(), [], "it was said that nothing was");
    nft("add table inet b");
    assert!(is_news(monitor.drain().unwrap()));

    membership.leave().unwrap();
    membership.join().unwrap();
    let heard = monitor.drain().unwrap();
    assert_eq!(heard, [nf::Notification::Overflow], "nobody knows");
    assert_eq!(monitor.drain().unwrap(), []);

    membership.leave().unwrap();
    membership.join().unwrap();
    membership.leave().unwrap();
    membership.join().unwrap();
    membership.missed_nothing();
    let heard = monitor.drain().unwrap();
    assert_eq!(heard, [nf::Notification::Overflow], "of the first time");
    assert_eq!(monitor.drain().unwrap(), []);

    membership.leave().unwrap();
    let heard = monitor.drain().unwrap();
    assert_eq!(heard, [nf::Notification::Overflow], "it joins by itself");
    nft("add table inet c");
    assert!(is_news(monitor.drain().unwrap()));
}

/// Maximum time until that moment has been met often enough.
const LIMIT: Duration = Duration::from_secs(60);

/// The kernel counts a transaction, and then writes its notifications: with thousands of
/// elements that takes milliseconds, in which another socket can ask for the count.
#[test]
fn after_waiting_every_transaction_that_was_counted_has_been_notified_of() {
    new_namespace();
    nft("add table inet t");
    nft("add set inet t s { type ipv4_addr; }");
    let mut monitor = nf::Monitor::with_room(64 << 20).unwrap();
    let mut socket = nf::Socket::open().unwrap();
    let first = generation(&mut socket).unwrap();
    let mut other = nf::Socket::open().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let changes = [NEW_ELEMENTS, DELETE_ELEMENTS].map(elements);
            while !stop.load(Ordering::Relaxed) {
                for change in &changes {
                    other.commit(change).unwrap();
                }
            }
        });
        let _stop = Stop(&stop);
        let (mut before, mut heard) = (first, None);
        // How often the count was read before the notification came.
        let mut late = 0;
        let start = Instant::now();
        while late < 5 {
            assert!(start.elapsed() < LIMIT, "seen {late} times only");
            let counted = generation(&mut socket).unwrap();
            if counted == before {
                continue;
            }
            before = counted;
            heard = last_generation(&mut monitor).or(heard);
            late += u32::from(heard < counted);
            socket.await_notifications().unwrap();
            heard = last_generation(&mut monitor).or(heard);
            assert!(heard >= counted, "{heard:?} {counted:?}");
        }
    });
}

/// Ends what goes on beside the test, also where it fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A transaction about thousands of elements of the set.
fn elements(what: u8) -> Transaction {
    let table = TableKey {
        family: FAMILY_INET,
        name: "t",
    };
    let mut transaction = Transaction::new("the set s");
    for high in 0..4u8 {
        let list = (0..1000u16).fold(Attributes::new(), |list, low| {
            let [third, last] = low.to_be_bytes();
            let value = Attributes::new().bytes(VALUE, &[10, high, third, last]);
            list.nested(ITEM, &Attributes::new().nested(KEY, &value))
        });
        let name = Attributes::new().text(SET_NAME, "s");
        transaction.create(table.message(what, name.nested(ELEMENTS, &list)));
    }
    transaction
}

/// The number of the last transaction that was notified of.
fn last_generation(monitor: &mut nf::Monitor) -> Option<u32> {
    let heard = monitor.drain().unwrap();
    heard
        .iter()
        .rev()
        .find_map(|notification| match notification {
            nf::Notification::Changed { message, .. }
                if message.number() == Some(NEW_GENERATION) =>
            {
                find(message.attributes.as_bytes(), 1).and_then(number)
            }
            _ => None,
        })
}
