//! Sysctls of the machine and of links, of tweed and of others.

use std::fs;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn6, sendto, socket,
};

use crate::families;
use crate::namespace::Namespace;
use crate::node::{Node, eventually, ip};

fn read(path: &str) -> String {
    let text = fs::read_to_string(format!("/proc/sys/net/{path}"));
    text.unwrap().trim().to_owned()
}

fn write(path: &str, value: &str) {
    fs::write(format!("/proc/sys/net/{path}"), value).unwrap();
}

fn becomes(path: &str, value: &str) {
    eventually(|| match read(path) {
        now if now == value => Ok(()),
        now => Err(format!("{path} is {now}")),
    });
}

/// `ip_forward` stays 1 all the while, so writing it again would change nothing.
#[test]
fn links_forward_one_by_one() {
    let node = Node::new();
    node.list(1..=2);
    let agent = node.start(&[]);
    agent.ready();
    write("ipv4/conf/tweed.1/forwarding", "0");
    becomes("ipv4/conf/tweed.1/forwarding", "1");
    for (link, effect) in [("eth0", "arrives on eth0"), ("default", "made from now on")] {
        let path = format!("ipv4/conf/{link}/forwarding");
        write(&path, "0");
        let problem = agent.complains("forwarding-off");
        assert!(problem.contains(effect), "{problem}");
        let cure = format!("sysctl -w net.ipv4.conf.{link}.forwarding=1");
        assert!(problem.contains(&cure), "{problem}");
        agent.passes();
        assert_eq!(read(&path), "0", "it is not tweed's");
        write(&path, "1");
        agent.ready();
    }
    assert_eq!(read("ipv4/ip_forward"), "1");
}

/// A router that is connected to `link` of the calling thread's namespace.
struct Router(Namespace);

impl Router {
    fn at(link: &str) -> Self {
        let namespace = Namespace::new();
        ip(&format!(
            "link add {link} type veth peer name far netns {}",
            namespace.pid()
        ));
        namespace.run(|| ip("link set far up"));
        Self(namespace)
    }

    /// Sends a router advertisement (RFC 4861) to all nodes on its link.
    fn advertises(&self) {
        self.0.run(|| {
            let far = ip("-o link show far");
            let index = far.split(':').next().unwrap().parse().unwrap();
            let to = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            let raw = socket(
                AddressFamily::Inet6,
                SockType::Raw,
                SockFlag::empty(),
                SockProtocol::Raw,
            );
            let to_link = SockaddrIn6::from(SocketAddrV6::new(to, 0, 0, index));
            let packet = advertisement(to);
            // Refused until the link is up.
            let _ = sendto(
                raw.unwrap().as_raw_fd(),
                &packet,
                &to_link,
                MsgFlags::empty(),
            );
        });
    }
}

fn advertisement(to: Ipv6Addr) -> Vec<u8> {
    let from = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0xbad);
    // Type, code, checksum, hop limit, flags, lifetime of the router, two timers.
    let mut message = [vec![134, 0, 0, 0, 64, 0], vec![7, 8], vec![0; 8]].concat();
    let length = u16::try_from(message.len()).unwrap();
    let pseudo = [&from.octets()[..], &to.octets(), &[0, 0]].concat();
    let pseudo = [&pseudo[..], &length.to_be_bytes(), &[0, 0, 0, 58], &message].concat();
    let words = pseudo
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let header = [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[58, 255]].concat();
    [&header, &from.octets()[..], &to.octets(), &message].concat()
}

/// No advertisement has come before the agent switches forwarding on.
#[test]
fn a_machine_with_ipv6_pods_still_gets_its_default_route_by_advertisements() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    let early = Router::at("up0");
    ip("link set up0 up");
    assert_eq!(read("ipv6/conf/up0/accept_ra"), "1");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let agent = node.start(&[]);
    agent.ready();
    assert_eq!(read("ipv6/conf/all/forwarding"), "1");
    assert_eq!(read("ipv6/conf/tweed.1/accept_ra"), "0");
    let gets_a_route = |router: &Router, link: &str| {
        eventually(|| {
            router.advertises();
            match ip(&format!("-6 route show default dev {link}")) {
                route if route.contains("fe80::bad") => Ok(()),
                other => Err(format!("the default route by {link} is {other:?}")),
            }
        });
    };
    gets_a_route(&early, "up0");

    let late = Router::at("up1");
    assert_eq!(read("ipv6/conf/up1/accept_ra"), "2", "as all new links");
    // As a network manager that does not know of forwarding.
    write("ipv6/conf/up1/accept_ra", "1");
    ip("link set up1 up");
    gets_a_route(&late, "up1");
    node.publishes("run/sysctls.json", "\"net/ipv6/conf/up1/accept_ra\": \"1\"");
    for link in ["up0", "default"] {
        let found = format!("\"net/ipv6/conf/{link}/accept_ra\": \"1\"");
        node.publishes("run/sysctls.json", &found);
    }
    agent.ready();
}

/// There a link with `accept_ra` 1 accepts none, and that is left as it is.
#[test]
fn a_machine_that_forwarded_before_is_left_as_it_is() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    write("ipv6/conf/all/forwarding", "1");
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let agent = node.start(&[]);
    agent.ready();
    agent.passes();
    for link in ["eth0", "default"] {
        assert_eq!(read(&format!("ipv6/conf/{link}/accept_ra")), "1", "{link}");
    }
}

/// What somebody switches off for a moment is not off from before tweed.
#[test]
fn a_machine_that_forwarded_before_is_left_as_it_is_when_forwarding_was_off_for_a_moment() {
    let node = Node::new();
    ip("address add 2001:db8::1/64 dev eth0 nodad");
    let switches = ["ipv4/ip_forward", "ipv6/conf/all/forwarding"];
    for switch in switches {
        write(switch, "1");
    }
    node.write_nodes(&[families::node(1), families::node(2)].concat());
    let agent = node.start(&[]);
    agent.ready();
    for switch in switches {
        write(switch, "0");
        becomes(switch, "1");
    }
    agent.passes();
    for link in ["eth0", "default"] {
        assert_eq!(read(&format!("ipv6/conf/{link}/accept_ra")), "1", "{link}");
    }
    for switch in switches {
        node.publishes("run/sysctls.json", &format!("\"net/{switch}\": \"1\""));
    }
    agent.ready();
}

/// In a run folder that a reboot does not empty.
#[test]
fn what_an_earlier_boot_has_stored_is_not_from_before() {
    let node = Node::new();
    node.list(1..=2);
    write("ipv4/ip_forward", "1");
    fs::create_dir(node.path("run")).unwrap();
    let of_earlier_boot = r#"{"bootId": "11111111-1111-4111-8111-111111111111",
        "net/ipv4/ip_forward": "0", "net/ipv4/conf/all/accept_redirects": "0"}"#;
    fs::write(node.path("run/sysctls.json"), of_earlier_boot).unwrap();
    let agent = node.start(&[]);
    agent.ready();
    node.publishes("run/sysctls.json", "\"net/ipv4/ip_forward\": \"1\"");
    let text = fs::read_to_string(node.path("run/sysctls.json")).unwrap();
    let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert!(text.contains(boot_id.trim()), "{text}");
    assert!(!text.contains("accept_redirects"), "{text}");
}

/// What is left of it may be put right by hand.
#[test]
fn a_damaged_file_with_the_values_from_before_is_reported_and_left_alone() {
    let node = Node::new();
    node.list(1..=2);
    write("ipv4/ip_forward", "0");
    fs::create_dir(node.path("run")).unwrap();
    let file = node.path("run/sysctls.json");
    let half = r#"{"net/ipv4/ip_forward": "0","#;
    fs::write(&file, half).unwrap();
    let agent = node.start(&[]);
    let problem = agent.complains("sysctls-file");
    assert!(problem.contains("damaged"), "{problem}");
    agent.serves();
    assert_eq!(read("ipv4/ip_forward"), "1");
    agent.passes();
    assert_eq!(fs::read_to_string(&file).unwrap(), half);
    fs::write(&file, r#"{"net/ipv4/ip_forward": "0"}"#).unwrap();
    agent.ready();
    node.publishes("run/sysctls.json", "\"bootId\"");
    node.publishes("run/sysctls.json", "\"net/ipv4/ip_forward\": \"0\"");
}

/// The limits are the machine's, which a namespace beside it cannot set: no problem.
#[test]
fn timeouts_of_conntrack_are_set_with_services_only_and_unless_they_are_switched_off() {
    let node = Node::new();
    node.list(1..=2);
    let paths = ["established", "close_wait"]
        .map(|state| format!("netfilter/nf_conntrack_tcp_timeout_{state}"));
    let before = paths.each_ref().map(|path| read(path));
    for flags in [&[][..], &["--services", "on", "--conntrack-limits", "off"]] {
        let agent = node.start(flags);
        agent.ready();
        agent.passes();
        assert_eq!(paths.each_ref().map(|path| read(path)), before);
    }
    let max = read("netfilter/nf_conntrack_max");
    let agent = node.start(&["--services", "on"]);
    agent.ready();
    becomes(&paths[0], "86400");
    becomes(&paths[1], "3600");
    assert_eq!(read("netfilter/nf_conntrack_max"), max);
}
