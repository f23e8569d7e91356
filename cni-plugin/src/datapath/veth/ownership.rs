//! Which links belong to an attachment, or to a network.

use tweed_core::attachment::{Attachment, NetworkName};
use tweed_core::ownership::{
    ALIAS_PREFIX, LEAVING_LINK_GROUP, LEAVING_LINK_PREFIX, LINK_GROUP, LINK_PREFIX,
};
use tweed_netlink::link::Link;
use tweed_netlink::owned::{alias_key_of, has_alias_of};

/// Whether a link is the host end of this attachment: it has the name, which is a
/// hash of the attachment, and the group or the alias. Each of the two may be missing:
/// an ADD may be killed between creating the link and giving it an alias, a DEL after
/// another leaving link had the new name, and a person or a program may change either.
/// A foreign link with the name has neither.
pub fn belongs(link: &Link, attachment: &Attachment) -> bool {
    let name = attachment.link_name();
    is_named(link, &name) || (link.name == name && has_alias_of(link, attachment))
}

/// Whether a link is the host end of the attachment whose link has this name.
pub fn is_named(link: &Link, name: &str) -> bool {
    link.name == name && matches!(link.group, LINK_GROUP | LEAVING_LINK_GROUP)
}

/// Whether a link is the host end of some attachment of this network.
pub fn is_of_network(link: &Link, network: &NetworkName) -> bool {
    link.name.starts_with(LINK_PREFIX)
        && link.group == LINK_GROUP
        && alias_key_of(link)
            .and_then(|key| key.strip_prefix(ALIAS_PREFIX)?.split_once('/'))
            .is_some_and(|(name, _)| name == network.as_str())
}

/// The name that the host end gets when it is marked as leaving.
pub fn leaving_name(attachment: &Attachment) -> String {
    let name = attachment.link_name();
    let rest = name.strip_prefix(LINK_PREFIX).unwrap_or(&name);
    format!("{LEAVING_LINK_PREFIX}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tweed_core::attachment::{ContainerId, IfName};
    use tweed_core::ownership::alias;
    use tweed_netlink::owned::is_leaving_link;

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
    fn a_link_belongs_by_its_name_with_its_group_or_its_alias() {
        let a = attachment("tweed", "c1");
        let own = "tweed:tweed/c1/eth0 shop/cart-0";
        let of_group = |group, alias| Link {
            group,
            ..link(&a, alias)
        };
        for (group, alias, belongs_to_it) in [
            (LINK_GROUP, Some(own), true),
            (LINK_GROUP, None, true),
            (LINK_GROUP, Some("uplink"), true),
            (LINK_GROUP, Some("tweed:tweed/c2/eth0"), true),
            (LEAVING_LINK_GROUP, Some(own), true),
            (0, Some(own), true),
            (0, None, false),
            (0, Some(""), false),
            (0, Some("uplink"), false),
            (0, Some("tweed:tweed/c2/eth0"), false),
        ] {
            let found = belongs(&of_group(group, alias), &a);
            assert_eq!(found, belongs_to_it, "group {group}, alias {alias:?}");
        }
        let other_name = Link {
            name: "twx".to_owned(),
            ..link(&a, Some(own))
        };
        assert!(!belongs(&other_name, &a));
    }

    #[test]
    fn a_leaving_link_belongs_to_no_attachment() {
        let a = attachment("tweed", "c1");
        let leaving = Link {
            name: leaving_name(&a),
            group: LEAVING_LINK_GROUP,
            ..link(&a, Some("tweed:tweed/c1/eth0 shop/cart-0"))
        };
        assert_eq!(leaving.name.len(), 15, "{}", leaving.name);
        assert!(is_leaving_link(&leaving));
        assert!(!belongs(&leaving, &a));
        assert!(!is_of_network(&leaving, &a.network));
        assert!(!is_leaving_link(&link(&a, Some("tweed:tweed/c1/eth0"))));
        let unmarked = Link {
            alias: Some("mine".to_owned()),
            ..leaving
        };
        assert!(!is_leaving_link(&unmarked));
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
