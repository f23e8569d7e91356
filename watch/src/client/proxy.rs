//! Which proxy leads to the API server: that of the kubeconfig's `proxy-url`, or
//! that of the variable `HTTPS_PROXY`, unless `NO_PROXY` excepts the server. The
//! variables mean what they mean to kubectl and kubelet (Go's `httpproxy`), except
//! that a proxy with `https://` or `socks5://` is refused; kube would compare
//! `NO_PROXY` with the proxy instead of the server. An agent that runs as a pod uses
//! no proxy: the API server is in its own cluster. Pure, but for the reading of the
//! variables.

use std::env;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use ipnetwork::IpNetwork;
use percent_encoding::percent_decode_str;

use super::Failure;

/// What the environment says of proxies.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProxyVariables {
    /// The proxy for servers with `https`; empty for none.
    pub https_proxy: String,
    /// Servers that are reached without a proxy, with commas between.
    pub no_proxy: String,
}

/// A proxy that makes tunnels (the method CONNECT).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    /// Its address, without credentials.
    pub uri: Uri,
    /// The credentials that the proxy asks for.
    pub authorization: Option<HeaderValue>,
}

/// Why a proxy cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum InvalidProxy {
    #[error("it is no URL")]
    NoUrl,
    #[error("{0} is not supported")]
    Scheme(String),
    #[error("the API server is not reached by https")]
    PlainServer,
}

impl ProxyVariables {
    /// Those of this process. A name in capitals comes before the same in small
    /// letters.
    pub(crate) fn of_process() -> Self {
        let value = |names: [&str; 2]| {
            let mut values = names.into_iter().filter_map(|name| env::var(name).ok());
            values.find(|value| !value.is_empty()).unwrap_or_default()
        };
        Self {
            https_proxy: value(["HTTPS_PROXY", "https_proxy"]),
            no_proxy: value(["NO_PROXY", "no_proxy"]),
        }
    }
}

impl Proxy {
    /// The proxy to `server`; none if it is reached directly. `proxy_url` is that
    /// of the kubeconfig, which comes first and for which `NO_PROXY` has no
    /// meaning.
    pub(super) fn to(
        server: &Uri,
        proxy_url: Option<&str>,
        variables: &ProxyVariables,
    ) -> Result<Option<Self>, Failure> {
        let is_https = server.scheme_str() == Some("https");
        let (origin, url) = match proxy_url {
            Some(url) => ("the kubeconfig's proxy-url", url),
            None if is_https && !is_excepted(server, &variables.no_proxy) => {
                ("HTTPS_PROXY", variables.https_proxy.as_str())
            }
            None => return Ok(None),
        };
        if url.is_empty() {
            return Ok(None);
        }
        let parsed = if is_https {
            Self::parse(url)
        } else {
            Err(InvalidProxy::PlainServer)
        };
        let proxy = parsed.map_err(|error| Failure::proxy(server, origin, &error))?;
        Ok(Some(proxy))
    }

    fn parse(url: &str) -> Result<Self, InvalidProxy> {
        let text = url.trim();
        let with_scheme = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let url: Uri = with_scheme.parse().map_err(|_| InvalidProxy::NoUrl)?;
        let scheme = url.scheme_str().unwrap_or_default();
        if scheme != "http" {
            return Err(InvalidProxy::Scheme(scheme.to_owned()));
        }
        let authority = url.authority().ok_or(InvalidProxy::NoUrl)?.as_str();
        let (credentials, host) = match authority.rsplit_once('@') {
            Some((credentials, host)) => (Some(credentials), host),
            None => (None, authority),
        };
        let uri = Uri::builder().scheme("http").authority(host);
        Ok(Self {
            uri: uri
                .path_and_query("/")
                .build()
                .map_err(|_| InvalidProxy::NoUrl)?,
            authorization: credentials.map(basic).transpose()?,
        })
    }
}

/// The header of the scheme Basic for the `user:password` of a URL.
fn basic(credentials: &str) -> Result<HeaderValue, InvalidProxy> {
    let credentials = if credentials.contains(':') {
        credentials.to_owned()
    } else {
        format!("{credentials}:")
    };
    let bytes: Vec<u8> = percent_decode_str(&credentials).collect();
    let value = format!("Basic {}", STANDARD.encode(bytes));
    HeaderValue::from_str(&value).map_err(|_| InvalidProxy::NoUrl)
}

/// Whether `server` is reached without a proxy. This machine itself always is.
fn is_excepted(server: &Uri, no_proxy: &str) -> bool {
    let host = without_brackets(server.host().unwrap_or_default()).to_ascii_lowercase();
    let ip: Option<IpAddr> = host.parse().ok();
    let port = server.port_u16().unwrap_or(443);
    if host == "localhost" || ip.is_some_and(|ip| ip.is_loopback()) {
        return true;
    }
    no_proxy.split(',').any(|entry| {
        let entry = entry.trim().to_ascii_lowercase();
        if entry == "*" {
            return true;
        }
        // A single address is a network too.
        if let Ok(network) = entry.parse::<IpNetwork>() {
            return ip.is_some_and(|ip| network.contains(ip));
        }
        let (name, only) = with_port(&entry);
        if only.is_some_and(|only| only != port) {
            return false;
        }
        match name.parse::<IpAddr>() {
            Ok(address) => ip == Some(address),
            Err(_) => ip.is_none() && is_in_domain(&host, name),
        }
    })
}

/// A host and the port after it, where there is one.
fn with_port(entry: &str) -> (&str, Option<u16>) {
    let split = entry.rsplit_once(':');
    match split.and_then(|(name, port)| Some((name, port.parse().ok()?))) {
        Some((name, port)) => (without_brackets(name), Some(port)),
        None => (without_brackets(entry), None),
    }
}

fn without_brackets(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    inner.unwrap_or(host)
}

/// Whether `host` is the domain or in it. `.example.org` and `*.example.org` stand
/// for what is in the domain alone.
fn is_in_domain(host: &str, domain: &str) -> bool {
    let domain = match domain.strip_prefix("*.") {
        Some(_) => &domain[1..],
        None => domain,
    };
    match domain.strip_prefix('.') {
        Some(_) => host.ends_with(domain),
        None if domain.is_empty() => false,
        None => {
            let rest = host.strip_suffix(domain);
            rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "https://api.example.org:6443/";

    fn proxy(server: &str, https_proxy: &str, no_proxy: &str) -> Result<Option<String>, Failure> {
        let variables = ProxyVariables {
            https_proxy: https_proxy.to_owned(),
            no_proxy: no_proxy.to_owned(),
        };
        let proxy = Proxy::to(&server.parse().unwrap(), None, &variables)?;
        Ok(proxy.map(|proxy| proxy.uri.to_string()))
    }

    #[test]
    fn an_https_server_is_reached_by_the_proxy_of_the_environment() {
        for (variable, url) in [
            ("", None),
            ("http://proxy:3128", Some("http://proxy:3128/")),
            ("proxy:3128", Some("http://proxy:3128/")),
            ("http://192.0.2.9:3128/", Some("http://192.0.2.9:3128/")),
            (
                "http://[2001:db8::9]:3128",
                Some("http://[2001:db8::9]:3128/"),
            ),
        ] {
            let expected = url.map(str::to_owned);
            assert_eq!(proxy(SERVER, variable, ""), Ok(expected), "{variable}");
        }
        assert_eq!(proxy("http://api.example.org/", "proxy:3128", ""), Ok(None));
    }

    #[test]
    fn no_proxy_names_servers_that_are_reached_directly() {
        let by_name = |no_proxy: &str| proxy(SERVER, "proxy:3128", no_proxy) == Ok(None);
        for no_proxy in [
            "*",
            "api.example.org",
            "API.example.org",
            "example.org",
            ".example.org",
            "*.example.org",
            "other, api.example.org:6443 ,",
        ] {
            assert!(by_name(no_proxy), "{no_proxy}");
        }
        for no_proxy in [
            "",
            ",",
            "proxy",
            "proxy:3128",
            "ple.org",
            ".api.example.org",
            "api.example.org:443",
            "192.0.2.0/24",
            "org.api",
        ] {
            assert!(!by_name(no_proxy), "{no_proxy}");
        }
        let by_address = |server: &str, no_proxy: &str| {
            let server = format!("https://{server}/");
            proxy(&server, "proxy:3128", no_proxy) == Ok(None)
        };
        for (server, no_proxy) in [
            ("192.0.2.1:6443", "192.0.2.1"),
            ("192.0.2.1:6443", "10.0.0.0/8,192.0.2.0/24"),
            ("192.0.2.1", "192.0.2.1:443"),
            ("[2001:db8::1]:6443", "2001:db8::/32"),
            ("[2001:db8::1]:6443", "[2001:db8::1]:6443"),
            ("127.0.0.1:6443", ""),
            ("[::1]:6443", ""),
            ("localhost:6443", ""),
        ] {
            assert!(by_address(server, no_proxy), "{server} {no_proxy}");
        }
        for (server, no_proxy) in [
            ("192.0.2.1:6443", "192.0.2.1:443"),
            ("192.0.2.1:6443", "192.0.2.10"),
            ("192.0.2.1:6443", "2.1"),
            ("[2001:db8::1]:6443", "192.0.2.0/24"),
        ] {
            assert!(!by_address(server, no_proxy), "{server} {no_proxy}");
        }
    }

    #[test]
    fn the_kubeconfig_s_proxy_comes_first() {
        let variables = ProxyVariables {
            https_proxy: "other:1".to_owned(),
            no_proxy: "*".to_owned(),
        };
        let chosen = Proxy::to(
            &SERVER.parse().unwrap(),
            Some("http://proxy:3128"),
            &variables,
        );
        let proxy = chosen.unwrap().unwrap();
        assert_eq!(proxy.uri, "http://proxy:3128/");
        assert_eq!(proxy.authorization, None);
    }

    #[test]
    fn credentials_go_to_the_proxy_and_into_no_message() {
        let variables = ProxyVariables {
            https_proxy: "http://me:p%40ss@proxy:3128".to_owned(),
            ..ProxyVariables::default()
        };
        let chosen = Proxy::to(&SERVER.parse().unwrap(), None, &variables);
        let proxy = chosen.unwrap().unwrap();
        assert_eq!(proxy.uri, "http://proxy:3128/");
        // The Base64 of `me:p@ss`.
        assert_eq!(proxy.authorization.unwrap(), "Basic bWU6cEBzcw==");
        let wrong = "socks5://me:secret@proxy:1080";
        let error = self::proxy(SERVER, wrong, "").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_with_its_origin() {
        for (https_proxy, why) in [
            ("socks5://proxy:1080", "socks5 is not supported"),
            ("https://proxy:3128", "https is not supported"),
            ("http://", "it is no URL"),
            ("http://pro xy:1", "it is no URL"),
        ] {
            let error = proxy(SERVER, https_proxy, "").unwrap_err().to_string();
            let named = error.contains("HTTPS_PROXY") && error.contains("NO_PROXY");
            assert!(named && error.contains(why), "{error}");
            assert_eq!(proxy(SERVER, https_proxy, "example.org"), Ok(None));
        }
        let plain = "http://192.0.2.1:8080/".parse().unwrap();
        let refused = Proxy::to(&plain, Some("http://proxy:1"), &ProxyVariables::default());
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("proxy-url"), "{error}");
    }
}
