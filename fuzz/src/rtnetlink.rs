//! What the kernel answers over rtnetlink: a datagram of messages.

use ipnetwork::IpNetwork;
use netlink_packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use tweed_netlink::address::Address;
use tweed_netlink::answer::{Answer, decode, decode_object, messages};
use tweed_netlink::fdb::Fdb;
use tweed_netlink::monitor::Notify as _;
use tweed_netlink::neighbour::Neighbour;
use tweed_netlink::protocol::Protocol as _;
use tweed_netlink::route::{Kind, Route};
use tweed_netlink::rule::Rule;
use tweed_netlink::{Request, Rtnetlink, address, fdb, neighbour, route};

/// Bytes of the shortest message.
const SHORTEST: usize = 16;

/// A datagram has as many messages as fit into it; an object that is read and asked of
/// the kernel again is the same object. Texts that are not UTF-8 are replaced in place.
pub fn check(input: &[u8]) {
    let mut count = 0;
    for message in messages(input) {
        count += 1;
        assert!(count * SHORTEST <= input.len() + SHORTEST);
        let Ok(message) = message else { continue };
        if let Answer::End(Err(cause)) = decode(message) {
            let _ = cause.to_string();
        }
        let decodable = Rtnetlink::decodable(message);
        assert_eq!(decodable.len(), message.len());
        assert_eq!(Rtnetlink::decodable(&decodable), decodable);
        let object = decode_object::<Rtnetlink>(message).ok();
        let _ = Rtnetlink::read(0, object.clone());
        if let Some(object) = object {
            check_object(&object);
        }
    }
}

fn check_object(object: &RouteNetlinkMessage) {
    use RouteNetlinkMessage as M;
    match object {
        M::NewRoute(message) | M::DelRoute(message) => {
            let _ = Route::parse_each(message);
            if let Some(route) = Route::parse(message) {
                check_route(&route);
            }
        }
        M::NewAddress(message) | M::DelAddress(message) => {
            let Some(read) = Address::parse(message) else {
                return;
            };
            let M::NewAddress(asked) = sent(&address::add(read.index, "link", read.network)) else {
                return;
            };
            let again = Address::parse(&asked).expect("an address is read back");
            assert_eq!((again.index, again.network), (read.index, read.network));
        }
        M::NewNeighbour(message) | M::DelNeighbour(message) => {
            check_fdb(Fdb::parse(message));
            check_neighbour(Neighbour::parse(message));
        }
        M::NewRule(message) | M::DelRule(message) => {
            if let Some(rule) = Rule::parse(message) {
                let _ = rule.to_string();
            }
        }
        _ => {}
    }
}

fn check_route(route: &Route) {
    // What a request for it does not say.
    let is_ipv4 = route.destination.is_ipv4();
    let destination = route.destination;
    let destination = IpNetwork::new(destination.network(), destination.prefix());
    let expected = Route {
        destination: destination.expect("the network of a network"),
        link_scope: route.link_scope && is_ipv4,
        more: false,
        ..route.clone()
    };
    let RouteNetlinkMessage::NewRoute(asked) = sent(&route::add(&expected)) else {
        return;
    };
    let again = Route::parse(&asked).expect("a route is read back");
    // A gateway or a source of the other family is asked for in the same attribute.
    let families = [route.gateway, route.source].into_iter().flatten();
    if families.into_iter().all(|ip| ip.is_ipv4() == is_ipv4) && route.kind != Kind::Other(0) {
        assert_eq!(again, expected);
    }
}

fn check_neighbour(read: Option<Neighbour>) {
    let Some(read) = read else { return };
    let Some(mac) = read.mac else { return };
    let request = neighbour::set(read.index, "link", read.ip, mac);
    let RouteNetlinkMessage::NewNeighbour(asked) = sent(&request) else {
        return;
    };
    let expected = Neighbour {
        permanent: true,
        ..read
    };
    assert_eq!(Neighbour::parse(&asked), Some(expected));
}

fn check_fdb(read: Option<Fdb>) {
    let Some(read) = read else { return };
    let Some(destination) = read.destination else {
        return;
    };
    let request = fdb::set(read.index, "link", read.mac, destination);
    let RouteNetlinkMessage::NewNeighbour(asked) = sent(&request) else {
        return;
    };
    let expected = Fdb {
        permanent: true,
        more: false,
        ..read
    };
    assert_eq!(Fdb::parse(&asked), Some(expected));
}

/// What the kernel would decode of a request.
fn sent(request: &Request) -> RouteNetlinkMessage {
    let payload = NetlinkPayload::InnerMessage(request.message().clone());
    let mut message = NetlinkMessage::new(NetlinkHeader::default(), payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    decode_object::<Rtnetlink>(&bytes).expect("a request is decoded")
}
