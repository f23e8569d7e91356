//! What a pod may not send, beside what it may.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::wires::{Server, Wires, ruleset, send};

/// Sends with a false source, then with the right one: only the second comes.
fn refused(w: &Wires, false_source: &str, right_source: &str, server: &Server, address: &str) {
    let before = w.dropped("a source that is not the pod's");
    send(&w.pod, false_source, address, "spoofed");
    send(&w.pod, right_source, address, "right");
    let (text, _) = server.next();
    assert_eq!(text, "right", "{false_source} got through to {address}");
    assert_eq!(w.dropped("a source that is not the pod's"), before + 1);
}

#[test]
fn only_the_own_address_whatever_rp_filter_says() {
    let w = Wires::new(&ruleset());
    // The neighbour's, the own node's, a node's, a remote pod's, the own
    // node's .0, one of nobody in the own CIDR, one of the world.
    let v4 = [
        "10.244.1.6",
        "192.0.2.1",
        "192.0.2.2",
        "10.244.2.5",
        "10.244.1.0",
        "10.244.1.99",
        "198.51.100.2",
        "203.0.113.9",
    ];
    let v6 = [
        "fd00:0:0:1::6",
        "2001:db8::1",
        "2001:db8::2",
        "fd00:0:0:2::5",
        "fd00:0:0:1::99",
        "2001:db8:1::2",
    ];
    for address in v4 {
        w.pod.sh(format!("ip addr add {address}/32 dev lo"));
    }
    for address in v6 {
        w.pod.sh(format!("ip addr add {address}/128 dev lo"));
    }
    let to = [
        (&w.node, "192.0.2.1"),
        (&w.neighbour, "10.244.1.6"),
        (&w.peer, "192.0.2.2"),
        (&w.remote_pod, "10.244.2.5"),
        (&w.world, "198.51.100.2"),
    ];
    for filter in [0, 1, 2] {
        w.node.sh(format!(
            "for c in all default twa; do echo {filter} > /proc/sys/net/ipv4/conf/$c/rp_filter; done"
        ));
        // Strict filtering would drop these by itself, before or after.
        let before = w.dropped("a source that is not the pod's");
        for (host, address) in to {
            let server = Server::new(host, &format!("{address}:7"));
            for source in v4 {
                if source == address {
                    continue; // The pod would speak to itself.
                }
                w.pod.sh(format!(
                    "ip addr del {address}/32 dev lo 2>/dev/null || true"
                ));
                refused(
                    &w,
                    &format!("{source}:0"),
                    "10.244.1.5:0",
                    &server,
                    &format!("{address}:7"),
                );
            }
            if v4.contains(&address) {
                w.pod.sh(format!("ip addr add {address}/32 dev lo"));
            }
        }
        assert!(w.dropped("a source that is not the pod's") > before);
    }
    let server = Server::new(&w.world, "[2001:db8:1::2]:7");
    w.pod.sh("ip addr del 2001:db8:1::2/128 dev lo");
    for source in v6.into_iter().filter(|source| *source != "2001:db8:1::2") {
        refused(
            &w,
            &format!("[{source}]:0"),
            "[fd00:0:0:1::5]:0",
            &server,
            "[2001:db8:1::2]:7",
        );
    }
}

/// The pod's own nft makes of an echo request what is to be sent.
fn refused_icmp(disguise: &str, ping: &str, comment: &str) {
    let w = Wires::new(&ruleset());
    let before = w.dropped(comment);
    w.pod.sh(format!("{ping} >/dev/null"));
    assert_eq!(
        w.dropped(comment),
        before,
        "an honest echo request is refused"
    );
    w.pod.sh(format!(
        "nft add table inet disguise
         nft add chain inet disguise out '{{ type filter hook output priority 0; }}'
         nft add rule inet disguise out {disguise}"
    ));
    w.pod.sh(format!("{ping} >/dev/null || true"));
    assert_eq!(w.dropped(comment), before + 1, "{disguise}");
}

#[test]
fn redirects() {
    refused_icmp(
        "icmp type echo-request icmp type set 5",
        "ping -c 1 -W 1 192.0.2.1",
        "a redirect from a pod",
    );
    refused_icmp(
        "icmpv6 type echo-request icmpv6 type set 137",
        "ping -c 1 -W 1 2001:db8::1",
        "a redirect from a pod",
    );
}

#[test]
fn router_advertisements() {
    refused_icmp(
        "icmpv6 type echo-request icmpv6 type set nd-router-advert",
        "ping -c 1 -W 1 2001:db8::1",
        "a router advertisement from a pod",
    );
}

#[test]
fn no_source_at_all() {
    refused_icmp(
        "icmp type echo-request ip daddr set 255.255.255.255 ip saddr set 0.0.0.0",
        "ping -c 1 -W 1 192.0.2.1",
        "a source in 0.0.0.0/8",
    );
}

/// What a pod without a link-local address sends of itself: reports of the
/// groups that it is in.
#[test]
fn no_ipv6_source_at_all() {
    let w = Wires::new(&ruleset());
    let before = w.dropped("the source ::");
    w.pod.sh("ip addr add ff02::7:7 dev eth0 autojoin");
    let deadline = Instant::now() + Duration::from_secs(10);
    while w.dropped("the source ::") == before {
        assert!(Instant::now() < deadline, "no report was refused");
        sleep(Duration::from_millis(20));
    }
}

/// The rules look at a message's type before they look at the protocol; in UDP
/// the high byte of the source's port stands there.
#[test]
fn a_port_is_not_taken_for_the_type_of_a_message() {
    let w = Wires::new(&ruleset());
    let to = [
        ("10.244.1.5", "192.0.2.1:7"),
        ("[fd00:0:0:1::5]", "[2001:db8::1]:7"),
    ];
    for (source, address) in to {
        let server = Server::new(&w.node, address);
        for kind in [5_u16, 134, 137] {
            let text = format!("from port {} of {source}", kind << 8);
            send(&w.pod, &format!("{source}:{}", kind << 8), address, &text);
            assert_eq!(server.next().0, text);
        }
    }
}

#[test]
fn link_local_sources() {
    let w = Wires::new(&ruleset());
    w.node.sh("ip -6 addr add fe80::1/64 dev twa nodad");
    w.pod
        .sh("ip -6 addr add fe80::66/64 dev eth0 nodad; ip -6 addr add fe80::67/128 dev lo nodad");
    let server = Server::new(&w.node, "[2001:db8::1]:7");
    let comment = "a link-local source";
    let index = w.pod.sh("ip -o link show eth0 | cut -d: -f1");
    let index = index.trim();
    let before = w.dropped(comment);
    send(
        &w.pod,
        &format!("[fe80::66%{index}]:0"),
        "[2001:db8::1]:7",
        "link-local",
    );
    send(&w.pod, "[fd00:0:0:1::5]:0", "[2001:db8::1]:7", "right");
    assert_eq!(server.next().0, "right");
    assert!(w.dropped(comment) > before);
}
