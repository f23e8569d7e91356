//! Parsers for the values of flags. Each error says what is allowed.

use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

use ipnetwork::IpNetwork;
use tweed_core::mtu;
use tweed_watch::client::Uri;

use super::Mtu;

/// Why a value is not valid. Clap prints the flag and the value before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ParseError {
    #[error("not a CIDR; allowed is an address, '/' and a prefix length, as in 10.244.0.0/16")]
    NotCidr,
    #[error("has bits set beyond the prefix length; did you mean {0}?")]
    HostBits(IpNetwork),
    #[error("not an MTU; allowed is auto, or a number of bytes from {min} to {max}", min = mtu::IPV4_MIN, max = mtu::KERNEL_MAX)]
    NotMtu,
    #[error(
        "not a node name; allowed are lower-case letters, digits, '-' and '.', at most 253 bytes, the first and the last a letter or a digit"
    )]
    NotNodeName,
    #[error(
        "not an address and a port; allowed is 192.0.2.7:9116, [2001:db8::7]:9116 or 2001:db8::7:9116"
    )]
    NotListenAddr,
    #[error(
        "not the URL of an API server; allowed is https://, a host or an address (IPv6 in brackets), and a port, as in https://192.0.2.10:6443"
    )]
    NotApiServer,
    #[error("not an absolute path; the CNI plugin runs in another working directory")]
    NotAbsolute,
    #[error(
        "not a log filter ({0}); allowed is off, error, warn, info, debug, trace, or directives such as info,tweed_watch=debug"
    )]
    NotLogFilter(String),
}

/// A CIDR without host bits.
pub(super) fn cidr(text: &str) -> Result<IpNetwork, ParseError> {
    if !text.contains('/') {
        return Err(ParseError::NotCidr);
    }
    let typed = IpNetwork::from_str(text).map_err(|_| ParseError::NotCidr)?;
    let network =
        IpNetwork::new(typed.network(), typed.prefix()).map_err(|_| ParseError::NotCidr)?;
    if network != typed {
        return Err(ParseError::HostBits(network));
    }
    Ok(network)
}

/// `auto`, or a number of bytes.
pub(super) fn mtu(text: &str) -> Result<Mtu, ParseError> {
    if text == "auto" {
        return Ok(Mtu::Auto);
    }
    match text.parse() {
        Ok(bytes) if (mtu::IPV4_MIN..=mtu::KERNEL_MAX).contains(&bytes) => Ok(Mtu::Fixed(bytes)),
        _ => Err(ParseError::NotMtu),
    }
}

/// A Node's name: a DNS subdomain, as Kubernetes wants it (RFC 1123).
pub(super) fn node_name(text: &str) -> Result<String, ParseError> {
    let alphanumeric = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let inside = |b: u8| alphanumeric(b) || b == b'-' || b == b'.';
    let bytes = text.as_bytes();
    let edges = [bytes.first(), bytes.last()];
    let good = bytes.len() <= 253
        && bytes.iter().copied().all(inside)
        && edges
            .iter()
            .all(|edge| edge.is_some_and(|b| alphanumeric(*b)));
    if good {
        Ok(text.to_owned())
    } else {
        Err(ParseError::NotNodeName)
    }
}

/// An address and a port. The text before the last colon is the address, so that
/// the same template `<address>:9116` works for both families.
pub(super) fn listen_addr(text: &str) -> Result<SocketAddr, ParseError> {
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    let (ip, port) = text.rsplit_once(':').ok_or(ParseError::NotListenAddr)?;
    let ip: Ipv6Addr = ip.parse().map_err(|_| ParseError::NotListenAddr)?;
    let port: u16 = port.parse().map_err(|_| ParseError::NotListenAddr)?;
    Ok((ip, port).into())
}

/// The URL of an API server.
pub(super) fn api_server(text: &str) -> Result<Uri, ParseError> {
    let url: Uri = text.parse().map_err(|_| ParseError::NotApiServer)?;
    let whole = url.scheme_str() == Some("https")
        && url.host().is_some_and(|host| !host.is_empty())
        && matches!(url.path(), "" | "/")
        && url.query().is_none();
    if whole {
        Ok(url)
    } else {
        Err(ParseError::NotApiServer)
    }
}

/// An absolute path.
pub(super) fn folder(text: &str) -> Result<std::path::PathBuf, ParseError> {
    let path = std::path::PathBuf::from(text);
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(ParseError::NotAbsolute)
    }
}

/// A log filter, checked and kept as text.
pub(super) fn log_level(text: &str) -> Result<String, ParseError> {
    match tracing_subscriber::EnvFilter::try_new(text) {
        Ok(_) if !text.trim().is_empty() => Ok(text.to_owned()),
        Ok(_) => Err(ParseError::NotLogFilter("empty".to_owned())),
        Err(error) => Err(ParseError::NotLogFilter(error.to_string())),
    }
}
