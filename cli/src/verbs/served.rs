//! How destinations of Services and their clients are typed.

use std::net::SocketAddr;

use tweed_component::explain::{Client, Destination, End, protocol_name, protocol_number};

use super::places::{Place, source};

const NOT_A_DESTINATION: &str = "allowed is 10.96.0.10:443, 10.96.0.10:53/UDP, [fd00:96::a]:443, \
     shop/web, shop/web:80, shop/dns:53/UDP or nodeport:30080";
const NOT_A_CLIENT: &str = "not an IP address, and not pod, node or outside";

/// `ADDRESS:PORT`, `NAMESPACE/SERVICE[:PORT]` or `nodeport:PORT`, `/` and a protocol.
///
/// # Errors
/// What is allowed.
pub fn destination(text: &str) -> Result<Destination, String> {
    let not_allowed = || NOT_A_DESTINATION.to_owned();
    // `why` needs the prefix to tell a Service from a pod.
    let of_service = text.strip_prefix("svc/");
    let text = of_service.filter(|name| name.contains('/')).unwrap_or(text);
    // The text without "/UDP": a Service may be called udp.
    let (rest, number) = match text.rsplit_once('/') {
        Some((rest, name)) if rest.contains([':', '/']) && !name.contains([':', ']']) => {
            let number = protocol_number(&name.to_ascii_uppercase()).ok_or_else(not_allowed)?;
            (rest, Some(number))
        }
        _ => (text, None),
    };
    let port_of = |text: &str| text.parse::<u16>().map_err(|_| not_allowed());
    let protocol = number.unwrap_or(6);
    if let Some(port) = rest.strip_prefix("nodeport:") {
        return Ok(Destination::NodePort(port_of(port)?, protocol));
    }
    if let Ok(at) = rest.parse::<SocketAddr>() {
        return Ok(Destination::Address(at, protocol));
    }
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) => (name, Some(port_of(port)?)),
        None => (rest, None),
    };
    match source(&format!("pod/{name}")) {
        Ok(_) if !name.contains('/') => Err(not_allowed()),
        Ok(Place::End(End::Pod { namespace, name })) => Ok(Destination::Service {
            namespace,
            name,
            port,
            protocol: number,
        }),
        _ => Err(not_allowed()),
    }
}

/// An address, `pod`, `node` or `outside`.
///
/// # Errors
/// What is allowed.
pub fn client(text: &str) -> Result<Client, String> {
    match text {
        "pod" => Ok(Client::Pod),
        "node" => Ok(Client::Node),
        "outside" => Ok(Client::Outside),
        _ => match source(text) {
            Ok(Place::End(End::Address(address))) => Ok(Client::Address(address)),
            _ => Err(NOT_A_CLIENT.to_owned()),
        },
    }
}

/// A destination as it can be typed again.
#[must_use]
pub fn typed(destination: &Destination) -> String {
    let (rest, protocol) = match destination {
        Destination::Address(at, protocol) => (at.to_string(), Some(protocol)),
        Destination::NodePort(port, protocol) => (format!("nodeport:{port}"), Some(protocol)),
        Destination::Service {
            namespace,
            name,
            port,
            protocol,
        } => {
            let suffix = port.map(|port| format!(":{port}")).unwrap_or_default();
            (format!("svc/{namespace}/{name}{suffix}"), protocol.as_ref())
        }
    };
    let suffix = protocol.map(|number| format!("/{}", protocol_name(*number)));
    rest + &suffix.unwrap_or_default()
}

/// A client as it can be typed again.
#[must_use]
pub fn typed_client(client: Client) -> String {
    match client {
        Client::Pod => "pod".to_owned(),
        Client::Node => "node".to_owned(),
        Client::Outside => "outside".to_owned(),
        Client::Address(address) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_services_and_node_ports_are_understood() {
        for (text, shown) in [
            ("10.96.0.10:443", "10.96.0.10:443/TCP"),
            ("10.96.0.10:53/udp", "10.96.0.10:53/UDP"),
            ("[fd00::a]:9/SCTP", "[fd00::a]:9/SCTP"),
            ("shop/web", "Service shop/web"),
            ("svc/shop/web:80", "Service shop/web port 80"),
            ("shop/udp", "Service shop/udp"),
            ("shop/web:80", "Service shop/web port 80"),
            ("shop/dns:53/UDP", "Service shop/dns port 53 UDP"),
            ("shop/dns/UDP", "Service shop/dns UDP"),
            ("nodeport:30080", "node port 30080/TCP"),
            ("nodeport:30080/UDP", "node port 30080/UDP"),
        ] {
            let asked = destination(text).unwrap();
            assert_eq!(asked.to_string(), shown, "{text}");
            assert_eq!(destination(&typed(&asked)), Ok(asked));
        }
        for (text, expected) in [
            ("pod", Client::Pod),
            ("node", Client::Node),
            ("outside", Client::Outside),
            ("[::1]", Client::Address("::1".parse().unwrap())),
            ("192.0.2.1", Client::Address("192.0.2.1".parse().unwrap())),
        ] {
            assert_eq!(client(text), Ok(expected));
            assert_eq!(client(&typed_client(expected)), Ok(expected));
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_what_is_allowed() {
        for text in [
            "",
            "web",
            "10.96.0.10",
            "10.96.0.10:",
            "10.96.0.10:http",
            "10.96.0.10:53/HTTP",
            "10.96.0.10:70000",
            "fd00::a:443:",
            "nodeport:",
            "nodeport:x",
            "/web:80",
            "shop/web/80",
            "Shop/web",
        ] {
            assert!(destination(text).is_err(), "{text}");
        }
        assert!(destination("web").unwrap_err().contains("nodeport:30080"));
        assert!(client("everywhere").is_err());
    }
}
