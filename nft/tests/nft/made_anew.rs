//! The table, or a rule of it, is made anew while packets come.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::wires::{Wires, ruleset};

/// Tells the thread that sends to end, also where the test fails before its end.
struct Sends<'a>(&'a AtomicBool);

impl Drop for Sends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A set of ranges has no elements for a moment if its rules are made with it, on some
/// kernels: a pod would be masqueraded on its way to another pod then.
fn no_flow_between_pods_is_masqueraded_after(damage: &str) {
    let wires = Wires::new(&ruleset());
    let server = wires.remote_pod.bind(|| UdpSocket::bind("10.244.2.5:4000"));
    server.set_nonblocking(true).unwrap();
    let done = AtomicBool::new(false);
    let mut sources = std::collections::BTreeSet::new();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                wires.pod.run(|| {
                    for _ in 0..50 {
                        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
                        // There is no table for a moment, and so nothing that refuses it.
                        let _ = socket.send_to(b"x", "10.244.2.5:4000");
                    }
                });
                // The program that loads the rules needs a processor too.
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let sends = Sends(&done);
        for _ in 0..10 {
            wires.node.sh(format!("nft {damage}"));
            let made = wires.with(|table| table.reconcile(&ruleset(), false));
            assert!(made.unwrap().repaired > 0);
            while let Ok((_, from)) = server.recv_from(&mut [0; 1]) {
                sources.insert(from.ip().to_string());
            }
        }
        drop(sends);
        client.join().unwrap();
    });
    while let Ok((_, from)) = server.recv_from(&mut [0; 1]) {
        sources.insert(from.ip().to_string());
    }
    assert_eq!(sources, ["10.244.1.5".to_owned()].into());
}

#[test]
fn after_somebody_has_deleted_the_table() {
    no_flow_between_pods_is_masqueraded_after("delete table inet tweed");
}

#[test]
fn after_somebody_has_removed_a_rule() {
    no_flow_between_pods_is_masqueraded_after("flush chain inet tweed from_pod");
}
