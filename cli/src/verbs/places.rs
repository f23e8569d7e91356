//! How the ends of a connection are typed.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use tweed_component::explain::{End, Why, protocol_name, protocol_number};

const NOT_A_SOURCE: &str =
    "allowed is NAMESPACE/POD, an IP address, node/NAME, container/ID or pod/NAMESPACE/POD";
const NOT_A_DESTINATION: &str = "allowed is shop/db-0:5432, shop/dns-0:53/UDP, svc/shop/web:80, \
     192.0.2.7:443, [2001:db8::7]:443, node/worker-1:22 or shop/db-0:icmp";

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// One end, as it is typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// What an agent knows.
    End(End),
    /// A container of this node, by its ID or the begin of it.
    Container(String),
    /// A Service: namespace and name.
    Service(String, String),
}

/// The destination with what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Who answers.
    pub place: Place,
    /// A protocol and its port; none is `icmp`.
    pub service: Option<(u8, u16)>,
}

impl Destination {
    /// The question about the flow between two ends, of which `to` stands for this place.
    #[must_use]
    pub fn question(&self, from: End, to: End) -> Why {
        let is_ipv6 = |end: &End| matches!(end, End::Address(address) if address.is_ipv6());
        let ping = if is_ipv6(&from) || is_ipv6(&to) {
            ICMPV6
        } else {
            ICMP
        };
        Why {
            protocol: self.service.map_or(ping, |(protocol, _)| protocol),
            port: self.service.map(|(_, port)| port),
            from,
            to,
        }
    }

    /// The same at an address.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Self {
        Self {
            place: Place::End(End::Address(address)),
            service: self.service,
        }
    }
}

/// `NAMESPACE/POD`, an address, or one of the longer forms.
fn place(text: &str) -> Option<Place> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = bare.unwrap_or(text).parse::<IpAddr>() {
        return Some(Place::End(End::Address(address)));
    }
    let is_name = |name: &&str| {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        !name.is_empty() && name.len() <= 253 && name.chars().all(is_allowed)
    };
    let pod = |namespace: &str, name: &str| {
        Place::End(End::Pod {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    };
    let parts: Vec<&str> = text.split('/').collect();
    match parts.as_slice() {
        ["container", id] if !id.is_empty() && id.chars().all(|c| c.is_ascii_graphic()) => {
            Some(Place::Container((*id).to_owned()))
        }
        names if !names.iter().all(is_name) => None,
        ["node", name] => Some(Place::End(End::Node((*name).to_owned()))),
        ["svc", namespace, name] => {
            Some(Place::Service((*namespace).to_owned(), (*name).to_owned()))
        }
        ["pod", namespace, name] | [namespace, name] => Some(pod(namespace, name)),
        _ => None,
    }
}

/// Who begins a connection, as it is typed.
///
/// # Errors
/// What is allowed.
pub fn source(text: &str) -> Result<Place, String> {
    match place(text) {
        Some(Place::Service(..)) => Err("a Service begins no connections".to_owned()),
        found => found.ok_or_else(|| NOT_A_SOURCE.to_owned()),
    }
}

/// An end, a colon and a port, `/` and a protocol.
///
/// # Errors
/// What is allowed.
pub fn destination(text: &str) -> Result<Destination, String> {
    let not_allowed = || NOT_A_DESTINATION.to_owned();
    // The text without "/UDP". The slash of a pod's name comes before the colon.
    let (rest, protocol) = match text.rsplit_once('/') {
        Some((rest, protocol)) if !protocol.contains(':') => {
            let number = protocol_number(&protocol.to_ascii_uppercase()).ok_or_else(not_allowed)?;
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
    match place(name).ok_or_else(not_allowed)? {
        Place::Service(..) if service.is_none() => {
            Err("a Service is not pinged: name one of its ports".to_owned())
        }
        place => Ok(Destination { place, service }),
    }
}

impl fmt::Display for Place {
    /// As it can be typed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::End(End::Pod { namespace, name }) => write!(f, "pod/{namespace}/{name}"),
            Self::End(End::Address(address)) => address.fmt(f),
            Self::End(End::Node(name)) => write!(f, "node/{name}"),
            Self::Container(id) => write!(f, "container/{id}"),
            Self::Service(namespace, name) => write!(f, "svc/{namespace}/{name}"),
        }
    }
}

impl fmt::Display for Destination {
    /// As it can be typed again.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::End(End::Address(IpAddr::V6(address))) => write!(f, "[{address}]")?,
            place => place.fmt(f)?,
        }
        match self.service {
            Some((protocol, port)) => write!(f, ":{port}/{}", protocol_name(protocol)),
            None => f.write_str(":icmp"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: u8 = 17;
    const SCTP: u8 = 132;

    fn asked(from: &str, to: &str) -> (String, u8, Option<u16>) {
        let to = destination(to).unwrap();
        assert_eq!(destination(&to.to_string()).as_ref(), Ok(&to));
        let from = source(from).unwrap();
        assert_eq!(source(&from.to_string()).as_ref(), Ok(&from));
        match (from, &to.place) {
            (Place::End(from), Place::End(end)) => {
                let why = to.question(from, end.clone());
                (format!("{} {}", why.from, why.to), why.protocol, why.port)
            }
            (from, place) => panic!("{from} {place}"),
        }
    }

    #[test]
    fn pods_nodes_and_addresses_of_both_families_are_understood() {
        for (from, to, ends, protocol, port) in [
            ("a/b", "c/d:80", "a/b c/d", TCP, Some(80)),
            ("pod/node/b", "c/d:53/udp", "node/b c/d", UDP, Some(53)),
            ("a/b.c-1", "c/d:9/SCTP", "a/b.c-1 c/d", SCTP, Some(9)),
            ("10.0.0.1", "c/d:80/TCP", "10.0.0.1 c/d", TCP, Some(80)),
            ("a/b", "192.0.2.7:443", "a/b 192.0.2.7", TCP, Some(443)),
            ("a/b", "[fd00::7]:443/UDP", "a/b fd00::7", UDP, Some(443)),
            ("node/n1", "node/n2:22", "Node n1 Node n2", TCP, Some(22)),
            ("fd00::1", "c/d:icmp", "fd00::1 c/d", ICMPV6, None),
            ("[fd00::1]", "c/d:icmp", "fd00::1 c/d", ICMPV6, None),
            ("a/b", "c/d:icmp", "a/b c/d", ICMP, None),
        ] {
            let expected = (ends.to_owned(), protocol, port);
            assert_eq!(asked(from, to), expected, "{from} {to}");
        }
        for to in [
            "svc/shop/web:80",
            "svc/shop/dns:53/UDP",
            "container/4F0a:80",
        ] {
            let typed = destination(to).unwrap();
            assert_eq!(destination(&typed.to_string()), Ok(typed));
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
            "svc/shop/web",
            "svc/shop/web:icmp",
        ] {
            assert!(destination(to).is_err(), "{to}");
        }
        for from in ["", "a", "a/", "/b", "a/b:80", "10.0.0", "a/b/c", "svc/a/b"] {
            assert!(source(from).is_err(), "{from}");
        }
        assert!(destination("c/d").unwrap_err().contains("shop/db-0:5432"));
    }
}
