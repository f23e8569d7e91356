//! Parsers for the values of flags. Each error says what is allowed; clap prints
//! the flag and the value before it.

use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnetwork::IpNetwork;
use tracing_subscriber::filter::{EnvFilter, LevelFilter, ParseError};
use tweed_core::agent_socket::message::MAX_WAIT;
use tweed_core::mtu::{IPV4_MIN, KERNEL_MAX};
use tweed_watch::client::Uri;

use super::Mtu;

const NOT_CIDR: &str =
    "not a CIDR; allowed is an address, '/' and a prefix length, as in 10.244.0.0/16";
const NOT_NODE_NAME: &str = "not a node name; allowed are lower-case letters, digits, '-' and '.', at most 253 bytes, the first and the last a letter or a digit";
const NOT_API_SERVER: &str = "not the URL of an API server; allowed is https://, a host or an address (IPv6 in brackets), and a port, as in https://192.0.2.10:6443";
const NOT_LISTEN_ADDR: &str =
    "not an address and a port; allowed is 192.0.2.7:9116, [2001:db8::7]:9116 or 2001:db8::7:9116";
const NOT_WAIT: &str = "not a time to wait; allowed is 0 to 60s, such as 2s or 500ms";
const NOT_ABSOLUTE: &str = "not an absolute path; the CNI plugin runs in another working directory";

/// A CIDR without host bits.
pub(super) fn cidr(text: &str) -> Result<IpNetwork, String> {
    match text.parse::<IpNetwork>() {
        Ok(cidr) if text.contains('/') => {
            let (network, prefix) = (cidr.network(), cidr.prefix());
            let meant = format!("did you mean {network}/{prefix}?");
            let whole = (cidr.ip() == network).then_some(cidr);
            whole.ok_or_else(|| format!("has bits set beyond the prefix length; {meant}"))
        }
        _ => Err(NOT_CIDR.to_owned()),
    }
}

/// One part of `--nodeport-addresses` or `--load-balancer-cidrs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedAt {
    /// At the first address of each family in the Node object.
    Primary,
    /// At all addresses.
    All,
    /// At those in this network.
    Network(IpNetwork),
}

/// `primary`, `all`, or a CIDR: kube-proxy's words (KEP-6032), but for `localhost`, where its
/// nftables mode needs a proxy in userspace.
pub(super) fn node_ports_at(text: &str) -> Result<ServedAt, String> {
    match text {
        "primary" => Ok(ServedAt::Primary),
        "all" => Ok(ServedAt::All),
        "localhost" => Err(
            "node ports do not answer at loopback addresses, as nftables cannot \
                            serve them there: leave localhost out, and use an address of the node"
                .to_owned(),
        ),
        other => (cidr(other).map(ServedAt::Network))
            .map_err(|why| format!("{why}; primary and all are allowed too")),
    }
}

/// `all`, or a CIDR.
pub(super) fn load_balancers_in(text: &str) -> Result<ServedAt, String> {
    match text {
        "all" => Ok(ServedAt::All),
        other => {
            (cidr(other).map(ServedAt::Network)).map_err(|why| format!("{why}; all is allowed too"))
        }
    }
}

/// `auto`, or a number of bytes.
pub(super) fn mtu(text: &str) -> Result<Mtu, String> {
    match text.parse() {
        _ if text == "auto" => Ok(Mtu::Auto),
        Ok(bytes) if (IPV4_MIN..=KERNEL_MAX).contains(&bytes) => Ok(Mtu::Fixed(bytes)),
        _ => Err(format!(
            "not an MTU; allowed is auto, or a number of bytes from {IPV4_MIN} to {KERNEL_MAX}"
        )),
    }
}

/// A Node's name: a DNS subdomain, as Kubernetes wants it (RFC 1123).
pub(super) fn node_name(text: &str) -> Result<String, &'static str> {
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let inside = |b: &u8| alphanumeric(b) || matches!(b, b'-' | b'.');
    let bytes = text.as_bytes();
    let good = bytes.len() <= 253
        && bytes.iter().all(inside)
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric);
    good.then(|| text.to_owned()).ok_or(NOT_NODE_NAME)
}

/// The URL of an API server.
pub(super) fn api_server(text: &str) -> Result<Uri, &'static str> {
    let whole = |url: &Uri| {
        url.scheme_str() == Some("https")
            && url.host().is_some_and(|host| !host.is_empty())
            && matches!(url.path(), "" | "/")
            && url.query().is_none()
    };
    text.parse().ok().filter(whole).ok_or(NOT_API_SERVER)
}

/// An address and a port. The text before the last colon is the address, so that
/// the same template `<address>:9116` works for both families.
pub(super) fn listen_addr(text: &str) -> Result<SocketAddr, &'static str> {
    let without_brackets = || {
        let (ip, port) = text.rsplit_once(':')?;
        Some((ip.parse::<Ipv6Addr>().ok()?, port.parse::<u16>().ok()?).into())
    };
    let addr = text.parse().ok().or_else(without_brackets);
    addr.ok_or(NOT_LISTEN_ADDR)
}

/// A time that an ADD may wait: a number and its unit, or 0.
pub(super) fn wait(text: &str) -> Result<Duration, &'static str> {
    let milliseconds = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => number.parse().ok(),
        (None, Some(number)) => number.parse::<u64>().ok().and_then(|s| s.checked_mul(1000)),
        (None, None) => (text == "0").then_some(0),
    };
    let wait = milliseconds.map(Duration::from_millis);
    wait.filter(|wait| *wait <= MAX_WAIT).ok_or(NOT_WAIT)
}

/// An absolute path.
pub(crate) fn absolute(text: &str) -> Result<PathBuf, &'static str> {
    let path = Some(PathBuf::from(text));
    path.filter(|path| path.is_absolute()).ok_or(NOT_ABSOLUTE)
}

/// A filter of these directives. Values of fields are compared as texts: as regular
/// expressions, which is the default, some take minutes to compile.
///
/// # Errors
/// A directive is not valid.
pub fn log_filter(directives: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().with_regex(false).parse(directives)
}

/// The first directive that is a word alone and no level, as a misspelt one. It would be taken
/// for the one target that is logged. Fields of spans may have commas, and so such words.
fn muting<'a>(directives: &[&'a str]) -> Option<&'a str> {
    let has_fields = directives.iter().any(|one| one.contains('{'));
    let mut words = directives
        .iter()
        .filter(|one| !one.contains(['=', '[']) && !has_fields);
    words
        .find(|word| word.parse::<LevelFilter>().is_err())
        .copied()
}

/// A log filter, checked and kept as text. White space around directives, by which
/// `tracing-subscriber` 0.3.23 takes the wrong part of a directive or panics, is left out.
pub(super) fn log_level(text: &str) -> Result<String, String> {
    let parts = text.split(',').map(str::trim);
    let directives: Vec<&str> = parts.filter(|one| !one.is_empty()).collect();
    let filter = directives.join(",");
    let why = match (log_filter(&filter), muting(&directives)) {
        (Err(error), _) => error.to_string(),
        (Ok(_), _) if filter.is_empty() => "empty".to_owned(),
        (Ok(_), Some(word)) => format!("{word} is no level"),
        (Ok(_), None) => return Ok(filter),
    };
    Err(format!(
        "not a log filter ({why}); allowed is off, error, warn, info, debug, trace, or directives such as info,tweed_watch=debug"
    ))
}
