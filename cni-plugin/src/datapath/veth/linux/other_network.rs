//! Whether a pod has another network already, so that a default route that nobody
//! asked for would take packets from it.
//!
//! The network that a runtime attaches first is the pod's default network, for both
//! families; one that is attached later (Multus, nerdctl) must not take over a
//! family because the first has no address of it. Every other link with an address
//! counts, whoever made it.

use tweed_core::ownership::LEAVING_LINK_PREFIX;
use tweed_netlink::address::{self, Address};
use tweed_netlink::link::{self, Link};
use tweed_netlink::{Error, Socket};

use super::End;

/// Index of `lo` in every namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK: u32 = 1;

/// The name of a link of the pod, other than `own`, that has an address. Neither index
/// nor name of `own` says that it is the pod's first: a link that was moved into the
/// namespace keeps its name, and its index where that is free.
pub(super) fn find(socket: &mut Socket, own: &End) -> Result<Option<String>, Error> {
    let mut seen = None;
    for index in with_addresses(&address::list(socket)?, own.index) {
        if seen.replace(index) == Some(index) {
            continue;
        }
        let found = link::by_index(socket, index)?;
        if let Some(link) = found.filter(is_in_use) {
            return Ok(Some(link.name));
        }
    }
    Ok(None)
}

/// Indexes of links with an address that leads to other machines.
fn with_addresses(all: &[Address], own: u32) -> impl Iterator<Item = u32> {
    all.iter()
        .filter(move |address| address.index != LOOPBACK && address.index != own)
        .filter(|address| !is_link_local(address))
        .map(|address| address.index)
}

fn is_link_local(address: &Address) -> bool {
    match address.network.ip() {
        std::net::IpAddr::V4(ip) => ip.is_link_local() || ip.is_loopback(),
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local() || ip.is_loopback(),
    }
}

/// Not so the pod's end of an attachment that is being deleted.
fn is_in_use(link: &Link) -> bool {
    link.up && !link.name.starts_with(LEAVING_LINK_PREFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lo_the_own_link_and_link_local_addresses_do_not_count() {
        let address = |index, text: &str| Address {
            index,
            network: text.parse().unwrap(),
            tentative: false,
            temporary: false,
        };
        let all = [
            address(1, "127.0.0.1/8"),
            address(1, "10.0.0.1/32"),
            address(2, "fe80::5/64"),
            address(3, "10.244.1.5/32"),
            address(4, "169.254.7.7/16"),
            address(5, "fd00::5/128"),
        ];
        assert_eq!(with_addresses(&all, 3).collect::<Vec<_>>(), [5]);
        assert_eq!(with_addresses(&all, 9).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn a_link_that_is_down_or_leaving_does_not_count() {
        let link = |name: &str, up| Link {
            name: name.to_owned(),
            up,
            ..Link::default()
        };
        assert!(is_in_use(&link("net1", true)));
        assert!(!is_in_use(&link("net1", false)));
        assert!(!is_in_use(&link("twx0123456789ab", true)));
    }
}
