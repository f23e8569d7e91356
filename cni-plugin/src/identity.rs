//! By what tweed knows its own, and the addresses that every pod shares.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use tweed_ipam::attachment::{Attachment, NetworkName};
use tweed_ipam::record::PodName;
use tweed_netlink::link::Link;

/// Group of the host ends of pods' links. Firewall rules match it.
pub const LINK_GROUP: u32 = 116;
/// Protocol of tweed's routes.
pub const ROUTE_PROTOCOL: u8 = 116;
/// Where pods send everything: an address of nobody, that the pod's neighbour
/// table maps to the host end's MAC.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The same for IPv6.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);

/// Longest alias that the kernel takes: `IFALIASZ` less the final zero.
const ALIAS_MAX: usize = 255;
const ALIAS_PREFIX: &str = "tweed:";

/// The gateway of `address`'s family.
#[must_use]
pub fn gateway_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => GATEWAY_V4.into(),
        IpAddr::V6(_) => GATEWAY_V6.into(),
    }
}

/// The part of the alias that says which attachment a link belongs to. Where
/// the names are too long for the kernel, `#` and half of the digest stand for
/// container ID and ifname: no container ID starts so.
fn alias_key(attachment: &Attachment) -> String {
    let key = format!("{ALIAS_PREFIX}{attachment}");
    if key.len() <= ALIAS_MAX {
        return key;
    }
    let id = attachment.id();
    let half = id.get(..32).unwrap_or(&id);
    format!("{ALIAS_PREFIX}{}/#{half}", attachment.network)
}

/// The alias of a link's host end:
/// `tweed:<network>/<container ID>/<ifname> <namespace>/<pod>`. The pod is for
/// people, and left out where it does not fit or is not plain text.
#[must_use]
pub fn alias(attachment: &Attachment, pod: Option<&PodName>) -> String {
    let key = alias_key(attachment);
    let Some(pod) = pod else { return key };
    let named = format!("{key} {}/{}", pod.namespace, pod.name);
    let plain = pod.namespace.bytes().chain(pod.name.bytes());
    if named.len() <= ALIAS_MAX && plain.into_iter().all(|b| b.is_ascii_graphic()) {
        named
    } else {
        key
    }
}

/// Whether a link is the host end of this attachment: name, group and alias
/// agree. A link without any alias agrees too, as an ADD may be killed between
/// making the link and giving it one.
#[must_use]
pub fn belongs(link: &Link, attachment: &Attachment) -> bool {
    link.name == attachment.link_name()
        && link.group == LINK_GROUP
        && key_of(link).is_none_or(|key| key == alias_key(attachment))
}

/// Whether a link is the host end of some attachment of this network.
#[must_use]
pub fn is_of_network(link: &Link, network: &NetworkName) -> bool {
    link.name.starts_with("tw")
        && link.group == LINK_GROUP
        && key_of(link)
            .and_then(|key| key.strip_prefix(ALIAS_PREFIX)?.split_once('/'))
            .is_some_and(|(name, _)| name == network.as_str())
}

fn key_of(link: &Link) -> Option<&str> {
    let alias = link.alias.as_deref().filter(|alias| !alias.is_empty())?;
    alias.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_ipam::attachment::{ContainerId, IfName};

    fn attachment(network: &str, container_id: &str) -> Attachment {
        Attachment {
            network: NetworkName::new(network).unwrap(),
            container_id: ContainerId::new(container_id).unwrap(),
            ifname: IfName::new("eth0").unwrap(),
        }
    }

    fn pod(namespace: &str, name: &str) -> PodName {
        PodName {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
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
    fn an_alias_names_attachment_and_pod() {
        let a = attachment("tweed", "c1");
        assert_eq!(alias(&a, None), "tweed:tweed/c1/eth0");
        assert_eq!(
            alias(&a, Some(&pod("shop", "cart-0"))),
            "tweed:tweed/c1/eth0 shop/cart-0"
        );
        assert_eq!(alias(&a, Some(&pod("shop", "a\nb"))), "tweed:tweed/c1/eth0");
        assert_eq!(
            alias(&a, Some(&pod("shop", &"x".repeat(250)))),
            "tweed:tweed/c1/eth0"
        );
    }

    #[test]
    fn the_longest_names_still_fit_and_are_told_apart() {
        let long = |last: char| attachment(&"n".repeat(200), &format!("{}{last}", "c".repeat(199)));
        let (a, b) = (long('a'), long('b'));
        assert!(alias(&a, None).len() <= ALIAS_MAX);
        assert_ne!(alias(&a, None), alias(&b, None));
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
