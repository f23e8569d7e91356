//! When ADD returns, packets pass, the very first one too. Needs Linux 6.8.

use std::fs::File;
use std::net::UdpSocket;
use std::time::Duration;

use crate::lab::{Lab, ip};
use nix::sched::{CloneFlags, setns};
use tweed_cni::kernel::LinuxKernel;

const NODE: &str = "192.0.2.7";

#[test]
fn the_first_packet_passes_both_ways() {
    // Several times: what could drop it happens soon after, or up to a second.
    for _ in 0..5 {
        let mut lab = Lab::new();
        ip(&["address", "add", &format!("{NODE}/32"), "dev", "lo"]);
        lab.site.keys["hostSource"] = vec![NODE].into();
        let host = UdpSocket::bind((NODE, 0)).unwrap();
        host.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        lab.call(LinuxKernel::default(), "ADD", None).ok();

        setns(
            File::open(lab.pod.path()).unwrap(),
            CloneFlags::CLONE_NEWNET,
        )
        .unwrap();
        let pod = UdpSocket::bind(("10.244.1.2", 0)).unwrap();
        pod.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        pod.send_to(b"first", host.local_addr().unwrap()).unwrap();

        let mut buffer = [0; 16];
        let (length, from) = host.recv_from(&mut buffer).expect("the pod's first packet");
        assert_eq!(
            (&buffer[..length], from),
            (&b"first"[..], pod.local_addr().unwrap())
        );
        host.send_to(b"answer", from).unwrap();
        let (length, from) = pod.recv_from(&mut buffer).expect("the host's answer");
        assert_eq!(
            (&buffer[..length], from),
            (&b"answer"[..], host.local_addr().unwrap())
        );
    }
}
