//! How a pod treats router advertisements.

use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, setsockopt,
    socket, sockopt,
};
use serde_json::{Value, json};
use tweed_cni_plugin::datapath::veth::LinuxKernel;

use crate::lab::{Lab, ip};

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Advertises a router and an autonomous prefix from the node's end of the link,
/// as a router does: RFC 4861, sections 4.2 and 4.6.2.
fn advertise(link: u32, prefix: Ipv6Addr) -> nix::Result<()> {
    let raw = socket(
        AddressFamily::Inet6,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::IcmpV6,
    )
    .unwrap();
    // The receiver ignores one with another hop limit.
    setsockopt(&raw, sockopt::Ipv6MulticastHops, &255).unwrap();
    // The kernel fills in the checksum; the router lasts for 1800 s.
    let mut message = vec![134, 0, 0, 0, 64, 0];
    message.extend(1800u16.to_be_bytes());
    message.extend([0; 8]);
    // A prefix for addresses of its own, of 64 bits, valid for an hour.
    message.extend([3, 4, 64, 0xc0]);
    message.extend(3600u32.to_be_bytes());
    message.extend(3600u32.to_be_bytes());
    message.extend([0; 4]);
    message.extend(prefix.octets());
    let to = SockaddrIn6::from(SocketAddrV6::new(ALL_NODES, 0, 0, link));
    sendto(raw.as_raw_fd(), &message, &to, MsgFlags::empty()).map(drop)
}

fn in_pod(lab: &Lab, arguments: &[&str]) -> String {
    let path = lab.pod.path();
    let name = path.rsplit('/').next().unwrap();
    ip(&[&["-n", name], arguments].concat())
}

/// Its settings are the kernel's defaults, which accept advertisements. The node's end
/// has no address to send one from; only root on the node can add one.
#[test]
fn the_node_advertises_nothing_to_a_pod_without_ipv6() {
    let mut lab = Lab::new();
    lab.site.keys = json!({"ipam": {"type": "tweed-ipam", "subnet": "10.244.1.0/24"}});
    // It is not an address of the link, so not a source for an advertisement.
    ip(&["address", "add", "fd00:2::7/128", "dev", "lo", "nodad"]);
    ip(&["link", "set", "lo", "up"]);
    lab.call(LinuxKernel::default(), "ADD", None).ok();
    let shown: Value = serde_json::from_str(&ip(&["-j", "link", "show", "group", "116"])).unwrap();
    // `ip` prints an empty object for each link that its filter leaves out.
    let mut links = shown.as_array().unwrap().iter();
    let link = links.find(|link| link["ifindex"].is_u64()).unwrap();
    let index = link["ifindex"].as_u64().unwrap().try_into().unwrap();
    let name = link["ifname"].as_str().unwrap();
    assert_eq!(ip(&["-6", "address", "show", "dev", name]), "");

    let sent = advertise(index, Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 0));
    // Linux 5.10 and 6.1 say of a link without an address that no network is reached.
    let refusals = [Errno::EADDRNOTAVAIL, Errno::ENETUNREACH];
    assert!(sent.is_err_and(|it| refusals.contains(&it)), "{sent:?}");
    // With a valid source the same message is sent and accepted, so the source was
    // all that was wrong with it.
    ip(&["address", "add", "fe80::7/64", "dev", name, "nodad"]);
    advertise(index, Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 0)).unwrap();
    let patience = Instant::now() + Duration::from_secs(30);
    let mut addresses = String::new();
    while !addresses.contains("2001:db8:2:") {
        assert!(Instant::now() < patience, "{addresses}");
        std::thread::sleep(Duration::from_millis(20));
        addresses = in_pod(&lab, &["-6", "address", "show", "dev", "eth0"]);
    }
    assert!(!addresses.contains("2001:db8:1:"), "{addresses}");
    let routes = in_pod(&lab, &["-6", "route", "show", "default"]);
    assert_eq!(routes.matches("default").count(), 1, "{routes}");
    assert!(routes.contains("via fe80::7 "), "{routes}");
}
