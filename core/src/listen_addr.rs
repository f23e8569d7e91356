//! The addresses that the agent listens on, as flags give them.

use std::net::{Ipv6Addr, SocketAddr};

const NOT_LISTEN_ADDR: &str =
    "not an address and a port; allowed is 192.0.2.7:9116, [2001:db8::7]:9116 or 2001:db8::7:9116";

/// An address and a port. The text before the last colon is the address, so that
/// the same template `<address>:9116` works for both families.
///
/// # Errors
/// It is something else.
pub fn parse(text: &str) -> Result<SocketAddr, &'static str> {
    let without_brackets = || {
        let (ip, port) = text.rsplit_once(':')?;
        Some((ip.parse::<Ipv6Addr>().ok()?, port.parse::<u16>().ok()?).into())
    };
    let addr = text.parse().ok().or_else(without_brackets);
    addr.ok_or(NOT_LISTEN_ADDR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_needs_no_brackets() {
        let expected = "[2001:db8::7]:9116".parse();
        for text in ["[2001:db8::7]:9116", "2001:db8::7:9116"] {
            assert_eq!(parse(text).ok(), expected.clone().ok(), "{text}");
        }
        for text in ["", "9116", "localhost:9116", "127.0.0.1"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
