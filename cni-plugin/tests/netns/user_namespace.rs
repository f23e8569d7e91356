//! A pod with `hostUsers: false`: another user namespace owns its network namespace.

use std::fs::File;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use tweed_cni_plugin::datapath::veth::LinuxKernel;

use crate::lab::{Lab, Netns, assert_same, ip};

const NODE: [&str; 2] = ["192.0.2.7", "2001:db8::7"];
const POD: [&str; 2] = ["10.244.1.2", "fd00:1::2"];
/// Many times what a packet takes.
const ATTEMPTS: usize = 30;

/// Runs `work` in the pod's network namespace.
fn in_pod<T: Send>(lab: &Lab, work: impl FnOnce() -> T + Send) -> T {
    let pod = File::open(lab.pod.path()).unwrap();
    std::thread::scope(|scope| {
        let inside = move || {
            setns(pod, CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        scope.spawn(inside).join().unwrap()
    })
}

fn socket(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind((address, 0)).unwrap();
    let limit = Some(Duration::from_secs(1));
    socket.set_read_timeout(limit).unwrap();
    socket
}

/// Sends until it arrives, with the sender's own source: before Linux 6.8 the first packets may
/// be lost.
fn arrives(from: &UdpSocket, to: &UdpSocket) {
    for _ in 0..ATTEMPTS {
        from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        match to.recv_from(&mut [0; 8]) {
            Ok((_, source)) => return assert_eq!(source, from.local_addr().unwrap()),
            Err(error) => assert!(
                [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()),
                "{error}"
            ),
        }
    }
    panic!("nothing arrives at {to:?}");
}

#[test]
fn a_pod_with_users_of_its_own_has_a_network_as_others() {
    let mut lab = Lab::with(Netns::in_user_namespace);
    for address in NODE {
        ip(&["address", "add", address, "dev", "lo", "nodad"]);
    }
    lab.site.keys["hostSource"] = NODE.to_vec().into();
    let before = lab.picture();
    let kernel = LinuxKernel::default;
    let result = lab.call(kernel(), "ADD", None).ok();
    lab.call(kernel(), "CHECK", Some(&result)).ok();
    for setting in ["accept_ra", "autoconf"] {
        let path = format!("/proc/sys/net/ipv6/conf/eth0/{setting}");
        let value = in_pod(&lab, || std::fs::read_to_string(path)).unwrap();
        assert_eq!(value, "0\n", "{setting}");
    }
    for (node, pod) in NODE.into_iter().zip(POD) {
        let (node, pod) = (socket(node), in_pod(&lab, || socket(pod)));
        arrives(&pod, &node);
        arrives(&node, &pod);
    }
    lab.call(kernel(), "DEL", Some(&result)).ok();
    assert_same(&before, &lab.picture(), "after DEL");
}
