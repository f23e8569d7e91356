//! When ADD returns, packets pass.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use crate::lab::{Lab, ip};
use nix::sched::{CloneFlags, setns};
use tweed_cni_plugin::datapath::veth::LinuxKernel;

const NODE: &str = "192.0.2.7";

/// The kernel has no IPv6 on such a link, and so no IPv6 settings.
#[test]
fn an_mtu_that_is_too_small_for_ipv6_is_good_enough_for_ipv4() {
    let mut lab = Lab::new();
    lab.site.keys = serde_json::json!({
        "mtu": 1000,
        "ipam": {"type": "tweed-ipam", "subnet": "10.244.1.0/24"},
    });
    let result = lab.call(LinuxKernel::default(), "ADD", None).ok();
    lab.call(LinuxKernel::default(), "CHECK", Some(&result))
        .ok();
    assert!(ip(&["route"]).contains("10.244.1.2 dev tw"));
    lab.call(LinuxKernel::default(), "DEL", None).ok();
}

/// What stops and continues this process, such as a debugger or a freezer, ends a
/// receive with a time limit (signal(7)): it is begun again.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The very first packet passes. It may not before Linux 6.8 (see `Step::QueryCarrier`), where
/// `make kernels` leaves this test out.
#[test]
fn the_first_packet_passes_both_ways() {
    // Several times: the kernel handles the carrier after a moment or up to a second.
    for _ in 0..5 {
        let mut lab = Lab::new();
        ip(&["address", "add", &format!("{NODE}/32"), "dev", "lo"]);
        lab.site.keys["hostSource"] = vec![NODE].into();
        let host = UdpSocket::bind((NODE, 0)).unwrap();
        host.set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        lab.call(LinuxKernel::default(), "ADD", None).ok();

        setns(
            File::open(lab.pod.path()).unwrap(),
            CloneFlags::CLONE_NEWNET,
        )
        .unwrap();
        let pod = UdpSocket::bind(("10.244.1.2", 0)).unwrap();
        pod.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        pod.send_to(b"first", host.local_addr().unwrap()).unwrap();

        let mut buffer = [0; 16];
        let (length, from) = receive(&host, &mut buffer).expect("the pod's first packet");
        assert_eq!(
            (&buffer[..length], from),
            (&b"first"[..], pod.local_addr().unwrap())
        );
        host.send_to(b"answer", from).unwrap();
        let (length, from) = receive(&pod, &mut buffer).expect("the host's answer");
        assert_eq!(
            (&buffer[..length], from),
            (&b"answer"[..], host.local_addr().unwrap())
        );
    }
}
