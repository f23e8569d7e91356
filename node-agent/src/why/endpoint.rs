//! How the ends of a connection are typed.

use std::net::{IpAddr, SocketAddr};

use tweed_component::explain::{End, Why};

use crate::packet::{ICMP, ICMPV6, SCTP, TCP, UDP};

const NOT_AN_END: &str = "not NAMESPACE/POD, and not an IP address";
const NOT_A_DESTINATION: &str = "allowed is shop/db-0:5432, shop/dns-0:53/UDP, 192.0.2.7:443, [2001:db8::7]:443 or shop/db-0:icmp";

/// The destination with what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    end: End,
    /// A protocol and its port; none is `icmp`.
    service: Option<(u8, u16)>,
}

impl Destination {
    /// The question about the flow from there.
    pub(super) fn question(&self, from: &End) -> Why {
        let is_ipv6 = |end: &End| matches!(end, End::Address(address) if address.is_ipv6());
        let ping = if is_ipv6(from) || is_ipv6(&self.end) {
            ICMPV6
        } else {
            ICMP
        };
        Why {
            from: from.clone(),
            to: self.end.clone(),
            protocol: self.service.map_or(ping, |(protocol, _)| protocol),
            port: self.service.map(|(_, port)| port),
        }
    }
}

/// The number of a protocol with ports.
pub(crate) fn protocol(name: &str) -> Option<u8> {
    match name.to_ascii_uppercase().as_str() {
        "TCP" => Some(TCP),
        "UDP" => Some(UDP),
        "SCTP" => Some(SCTP),
        _ => None,
    }
}

/// `NAMESPACE/POD`, or an address.
pub(crate) fn end(text: &str) -> Result<End, String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = bare.unwrap_or(text).parse::<IpAddr>() {
        return Ok(End::Address(address));
    }
    let is_name = |name: &str| {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        !name.is_empty() && name.len() <= 253 && name.chars().all(is_allowed)
    };
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(End::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }),
        _ => Err(NOT_AN_END.to_owned()),
    }
}

/// An end, a colon and a port, `/` and a protocol.
pub(super) fn destination(text: &str) -> Result<Destination, String> {
    let not_allowed = || NOT_A_DESTINATION.to_owned();
    // The text without "/UDP". The slash of a pod's name comes before the colon.
    let (rest, protocol) = match text.rsplit_once('/') {
        Some((rest, protocol)) if !protocol.contains(':') => {
            let number = self::protocol(protocol).ok_or_else(not_allowed)?;
            (rest, Some(number))
        }
        _ => (text, None),
    };
    let (name, port) = rest.rsplit_once(':').ok_or_else(not_allowed)?;
    if name.contains(':') && rest.parse::<SocketAddr>().is_err() && !name.starts_with('[') {
        // An IPv6 address without brackets, whose end is no port.
        return Err(not_allowed());
    }
    let service = match (port, protocol) {
        ("icmp", None) => None,
        (port, protocol) => {
            let port = port.parse().map_err(|_| not_allowed())?;
            Some((protocol.unwrap_or(TCP), port))
        }
    };
    Ok(Destination {
        end: end(name)?,
        service,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(from: &str, to: &str) -> (String, u8, Option<u16>) {
        let why = destination(to).unwrap().question(&end(from).unwrap());
        (format!("{} {}", why.from, why.to), why.protocol, why.port)
    }

    #[test]
    fn pods_and_addresses_of_both_families_are_understood() {
        for (from, to, ends, protocol, port) in [
            ("a/b", "c/d:80", "a/b c/d", TCP, Some(80)),
            ("a/b", "c/d:53/udp", "a/b c/d", UDP, Some(53)),
            ("a/b.c-1", "c/d:9/SCTP", "a/b.c-1 c/d", SCTP, Some(9)),
            ("10.0.0.1", "c/d:80/TCP", "10.0.0.1 c/d", TCP, Some(80)),
            ("a/b", "192.0.2.7:443", "a/b 192.0.2.7", TCP, Some(443)),
            ("a/b", "[fd00::7]:443/UDP", "a/b fd00::7", UDP, Some(443)),
            ("fd00::1", "c/d:icmp", "fd00::1 c/d", ICMPV6, None),
            ("[fd00::1]", "c/d:icmp", "fd00::1 c/d", ICMPV6, None),
            ("a/b", "c/d:icmp", "a/b c/d", ICMP, None),
        ] {
            let expected = (ends.to_owned(), protocol, port);
            assert_eq!(asked(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_what_is_allowed() {
        for to in [
            "",
            "c",
            "c/d",
            "c/d:",
            "c/d:http",
            "c/d:80/HTTP",
            "c/d:70000",
            "fd00::7:443",
            "/d:80",
            "c/d:icmp/TCP",
            "C/d:80",
            "c/d/e:80",
        ] {
            assert!(destination(to).is_err(), "{to}");
        }
        for from in ["", "a", "a/", "/b", "a/b:80", "10.0.0", "a/b/c"] {
            assert!(end(from).is_err(), "{from}");
        }
        assert!(destination("c/d").unwrap_err().contains("shop/db-0:5432"));
    }
}
