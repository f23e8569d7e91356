//! By what tweed knows its own, and the addresses that every pod shares.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tweed_core::attachment::{Attachment, NetworkName};
use tweed_core::ownership::{
    ALIAS_PREFIX, LEAVING_LINK_GROUP, LEAVING_LINK_PREFIX, LINK_PREFIX, alias_key,
};
pub use tweed_core::ownership::{LINK_GROUP, ROUTE_PROTOCOL, alias};
use tweed_netlink::link::Link;

/// Where pods send everything: an address of nobody, that the pod's neighbour
/// table maps to the host end's MAC.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The same for IPv6.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// The gateway of `address`'s family.
#[must_use]
pub fn gateway_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => GATEWAY_V4.into(),
        IpAddr::V6(_) => GATEWAY_V6.into(),
    }
}

/// Whether a link is the host end of this attachment: name, group and alias
/// agree. A link without any alias agrees too, as an ADD may be killed between
/// making the link and giving it one; and one in the group of links on their way
/// out, as a DEL may be killed when it found the name for these taken.
#[must_use]
pub fn belongs(link: &Link, attachment: &Attachment) -> bool {
    link.name == attachment.link_name()
        && matches!(link.group, LINK_GROUP | LEAVING_LINK_GROUP)
        && key_of(link).is_none_or(|key| key == alias_key(attachment))
}

/// Whether a link is the host end of some attachment of this network.
#[must_use]
pub fn is_of_network(link: &Link, network: &NetworkName) -> bool {
    link.name.starts_with(LINK_PREFIX)
        && link.group == LINK_GROUP
        && key_of(link)
            .and_then(|key| key.strip_prefix(ALIAS_PREFIX)?.split_once('/'))
            .is_some_and(|(name, _)| name == network.as_str())
}

/// The name that a link gets when it is on its way out.
#[must_use]
pub fn leaving_name(attachment: &Attachment) -> String {
    let name = attachment.link_name();
    let rest = name.strip_prefix(LINK_PREFIX).unwrap_or(&name);
    format!("{LEAVING_LINK_PREFIX}{rest}")
}

/// Whether a link is the host end of an attachment on its way out.
#[must_use]
pub fn is_leaving(link: &Link) -> bool {
    link.name.starts_with(LEAVING_LINK_PREFIX)
        && link.group == LEAVING_LINK_GROUP
        && key_of(link).is_some_and(|key| key.starts_with(ALIAS_PREFIX))
}

fn key_of(link: &Link) -> Option<&str> {
    let alias = link.alias.as_deref().filter(|alias| !alias.is_empty())?;
    alias.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::attachment::{ContainerId, IfName};

    fn attachment(network: &str, container_id: &str) -> Attachment {
        Attachment {
            network: NetworkName::new(network).unwrap(),
            container_id: ContainerId::new(container_id).unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        }
    }

    fn link(attachment: &Attachment, alias: Option<&str>) -> Link {
        Link {
            name: attachment.link_name(),
            group: LINK_GROUP,
            alias: alias.map(str::to_owned),
            ..Link::default()
        }
    }

    #[test]
    fn the_longest_names_still_name_their_network() {
        let a = attachment(&"n".repeat(200), &"c".repeat(200));
        assert!(is_of_network(&link(&a, Some(&alias(&a, None))), &a.network));
    }

    #[test]
    fn a_link_belongs_if_nothing_disagrees() {
        let a = attachment("tweed", "c1");
        assert!(belongs(
            &link(&a, Some("tweed:tweed/c1/eth0 shop/cart-0")),
            &a
        ));
        assert!(belongs(&link(&a, None), &a));
        assert!(!belongs(&link(&a, Some("tweed:tweed/c2/eth0")), &a));
        assert!(!belongs(&link(&a, Some("uplink")), &a));
        let half_way_out = Link {
            group: LEAVING_LINK_GROUP,
            ..link(&a, Some("tweed:tweed/c1/eth0"))
        };
        assert!(belongs(&half_way_out, &a));
        let other_group = Link {
            group: 0,
            ..link(&a, None)
        };
        assert!(!belongs(&other_group, &a));
        let other_name = Link {
            name: "twx".to_owned(),
            ..link(&a, None)
        };
        assert!(!belongs(&other_name, &a));
    }

    #[test]
    fn a_link_on_its_way_out_is_nobodys() {
        let a = attachment("tweed", "c1");
        let leaving = Link {
            name: leaving_name(&a),
            group: LEAVING_LINK_GROUP,
            ..link(&a, Some("tweed:tweed/c1/eth0 shop/cart-0"))
        };
        assert_eq!(leaving.name.len(), 15, "{}", leaving.name);
        assert!(is_leaving(&leaving));
        assert!(!belongs(&leaving, &a));
        assert!(!is_of_network(&leaving, &a.network));
        assert!(!is_leaving(&link(&a, Some("tweed:tweed/c1/eth0"))));
        let unmarked = Link {
            alias: Some("mine".to_owned()),
            ..leaving
        };
        assert!(!is_leaving(&unmarked));
    }

    #[test]
    fn a_network_is_not_its_prefix() {
        let a = attachment("tweed", "c1");
        let of = |text: &str| is_of_network(&link(&a, Some(text)), &a.network);
        assert!(of("tweed:tweed/c1/eth0"));
        assert!(!of("tweed:tweed2/c1/eth0"));
        assert!(!of("tweed:twee/c1/eth0"));
        assert!(!of("mine"));
        assert!(!is_of_network(&link(&a, None), &a.network));
    }
}
