//! What is tweed's in the kernel, in one place. Nothing else is ever changed.
//!
//! | object | tweed's if | what happens to it, and to others |
//! |---|---|---|
//! | link | kind `vxlan` and named `tweed.<vni>` | others are never touched; one in the way is reported |
//! | …that somebody renamed | kind `vxlan`, this node's VTEP MAC, and all options that tweed creates it with | renamed back |
//! | pod's host end | named `tw…`, and alias `tweed:…`; or named in a record, and group 116 or the record's alias | up, MTU, MAC, group 116, that it is no port of another device, and sysctls are kept; never deleted |
//! | …that somebody renamed | group 116 and the alias of its record | renamed back |
//! | leaving link, of a deleted pod | named `twx…`, group 117 or one of 0x74000000 to 0x74ffffff, alias `tweed:…` | deleted |
//! | address | on the VXLAN device, and not link-local | others are never touched |
//! | route | main table, protocol 116 | others are never touched; one in the way is reported |
//! | …of these, to a pod's link | | added and repaired, never removed: DEL does that; others with its key are removed |
//! | route to an own address | local table, protocol 116 | added, repaired and removed |
//! | neighbour | on the VXLAN device, permanent | the kernel adds and removes others |
//! | …on a pod's link | permanent, for an address of its record | never removed |
//! | FDB entry | on the VXLAN device | entries of other devices are never touched |
//! | nftables table | `inet tweed`, `inet tweed-policy`, `inet tweed-services` | others are never written; their rules are read only where they may drop packets of pods or of the overlay, or translate those between pods |
//! | routing rule | none is | only read |
//!
//! The sysctls are listed where they are kept: `tweed_core::sysctl`.

use std::net::IpAddr;

use crate::nf::conntrack::Conntrack;
use crate::nf::element::{ITEM, KEY, VALUE};
use crate::nf::object::{DELETE_ELEMENTS, ELEMENTS, SET_NAME, TableKey};
use crate::nf::{FAMILY_INET, Socket, Transaction, attributes::Attributes};
use crate::route::{LOCAL_TABLE, MAIN_TABLE, Route};
use crate::{error::Error, link::Link};
use ipnetwork::IpNetwork;
use tweed_core::{attachment::Attachment, family::octets, mac::Mac};

use tweed_core::ownership::{
    ALIAS_PREFIX, DELETION_GROUPS, LEAVING_LINK_GROUP, LEAVING_LINK_PREFIX, LINK_GROUP,
    LINK_PREFIX, ROUTE_PROTOCOL, alias_key,
};

const DEVICE_PREFIX: &str = "tweed.";

/// The nftables table of the overlay.
pub const TABLE: TableKey<'static> = TableKey {
    family: FAMILY_INET,
    name: "tweed",
};

/// The table of policies.
pub const POLICY_TABLE: TableKey<'static> = TableKey {
    family: FAMILY_INET,
    name: "tweed-policy",
};

/// The table of Services.
pub const SERVICES_TABLE: TableKey<'static> = TableKey {
    family: FAMILY_INET,
    name: "tweed-services",
};

/// All of them, in the order in which they are removed: without Services the destination of
/// a flow is another one, which policies may forbid.
pub const TABLES: [TableKey<'static>; 3] = [SERVICES_TABLE, POLICY_TABLE, TABLE];

/// The sets of the table of policies with the addresses of pods that policies have been applied
/// to, without the digit of the family; a local address that is not in them passes nothing while
/// there are policies.
pub const ENFORCED_SETS: &str = "policy_judged";

/// Takes an address out of [`ENFORCED_SETS`], in the calling thread's network namespace: nobody
/// has enforced the pod that has it now. A set or table that does not exist has no such address.
///
/// If it was in there, nobody has taken it out when the pod before ended, and had that pod's flows
/// evaluated once more: they would pass as they did, from and to the new pod. They are forgotten.
///
/// # Errors
/// The kernel's refusal.
pub fn forget_enforcement(address: IpAddr) -> Result<(), Error> {
    let mut transaction = Transaction::new(format!("{address} in table {POLICY_TABLE}"));
    let digit = if address.is_ipv4() { '4' } else { '6' };
    let key = |item: Attributes| item.nest(KEY, |key| key.bytes(VALUE, &octets(address)));
    let set = Attributes::new().text(SET_NAME, &format!("{ENFORCED_SETS}{digit}"));
    let named = set.nest(ELEMENTS, |list| list.nest(ITEM, key));
    transaction.delete(POLICY_TABLE.message(DELETE_ELEMENTS, named));
    match Socket::open()?.commit(&transaction) {
        Err(error) if error.is_absent() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => Conntrack::open()?.delete_all_of(address).map(drop),
    }
}

/// Whether `name` is one that a VXLAN device of tweed can have.
pub fn is_device_name(name: &str) -> bool {
    name.strip_prefix(DEVICE_PREFIX)
        .is_some_and(|vni| !vni.is_empty() && vni.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether `link` is a VXLAN device of tweed, of this VNI or of an earlier one.
pub fn is_device(link: &Link) -> bool {
    link.vxlan.is_some() && is_device_name(&link.name)
}

/// Whether `link` is the VXLAN device of the node with this VTEP MAC, whatever
/// its name. The MAC is a hash of the node's name: nobody else gives it to a
/// VXLAN device.
pub fn is_device_of(link: &Link, vtep_mac: Mac) -> bool {
    link.vxlan.is_some() && link.mac == Some(vtep_mac)
}

/// Whether `link` is the host end of a pod's link, as far as the link alone says: its
/// group may have been changed, a link of that name without the alias is somebody else's.
/// Where a record names the link, the group is enough too.
pub fn is_pod_link(link: &Link) -> bool {
    link.name.starts_with(LINK_PREFIX)
        && !link.name.starts_with(LEAVING_LINK_PREFIX)
        && has_alias(link)
}

/// Whether `link` is the host end of a pod that is being deleted.
pub fn is_leaving_link(link: &Link) -> bool {
    (link.group == LEAVING_LINK_GROUP || DELETION_GROUPS.contains(&link.group))
        && link.name.starts_with(LEAVING_LINK_PREFIX)
        && has_alias(link)
}

fn has_alias(link: &Link) -> bool {
    link.alias
        .as_deref()
        .is_some_and(|alias| alias.starts_with(ALIAS_PREFIX))
}

/// Whether `link` is the host end of a pod's link at any stage of its life: one that
/// is being created has no alias yet.
pub fn is_any_pod_link(link: &Link) -> bool {
    link.name.starts_with(LINK_PREFIX) && (is_in_group(link) || has_alias(link))
}

/// Whether `link` has the alias that the plugin gives the host end of this attachment.
pub fn has_alias_of(link: &Link, attachment: &Attachment) -> bool {
    alias_key_of(link) == Some(&alias_key(attachment))
}

/// What the alias of `link` begins with: of the host end of an attachment, its key.
pub fn alias_key_of(link: &Link) -> Option<&str> {
    let alias = link.alias.as_deref().filter(|alias| !alias.is_empty())?;
    alias.split(' ').next()
}

/// Whether `link` is the host end of this attachment, whatever its name: it has the group
/// and the alias.
pub fn is_renamed_link_of(link: &Link, attachment: &Attachment) -> bool {
    link.group == LINK_GROUP && has_alias_of(link, attachment)
}

/// Whether `link` is in one of the groups of pods' links.
pub fn is_in_group(link: &Link) -> bool {
    matches!(link.group, LINK_GROUP | LEAVING_LINK_GROUP)
}

/// Whether `route` is one that tweed made.
pub fn is_route(route: &Route) -> bool {
    matches!(route.table, MAIN_TABLE | LOCAL_TABLE) && route.protocol == ROUTE_PROTOCOL
}

/// Whether the agent keeps or removes this address of the VXLAN device. The kernel
/// itself adds link-local addresses to a device.
pub fn is_device_address(address: &IpNetwork) -> bool {
    match address.ip() {
        IpAddr::V4(_) => true,
        IpAddr::V6(ip) => !ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use crate::link::Vxlan;

    use super::*;

    fn link(name: &str, group: u32, alias: &str, vxlan: bool) -> Link {
        Link {
            name: name.to_owned(),
            group,
            alias: Some(alias.to_owned()),
            vxlan: vxlan.then(|| Vxlan::nolearning(1, 8472, Ipv4Addr::LOCALHOST.into())),
            ..Link::default()
        }
    }

    #[test]
    fn a_device_is_ours_by_name_and_kind() {
        assert!(is_device(&link("tweed.1", 0, "", true)));
        assert!(is_device(&link("tweed.42", 0, "", true)));
        assert!(!is_device(&link("tweed.1", 0, "", false)));
        assert!(!is_device(&link("tweed.", 0, "", true)));
        assert!(!is_device(&link("tweed.x", 0, "", true)));
        assert!(!is_device(&link("flannel.1", 0, "", true)));
    }

    #[test]
    fn a_renamed_device_is_known_by_kind_and_mac() {
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let with_mac = |vxlan| Link {
            mac: Some(mac),
            ..link("renamed", 0, "", vxlan)
        };
        assert!(is_device_of(&with_mac(true), mac));
        assert!(!is_device_of(&with_mac(true), Mac([2, 0, 0, 0, 0, 2])));
        // A bridge takes the MAC of its first port.
        assert!(!is_device_of(&with_mac(false), mac));
        assert!(!is_device_of(&link("renamed", 0, "", true), mac));
    }

    #[test]
    fn a_pod_link_is_ours_by_name_and_alias() {
        let own = "tweed:tweed/c1/eth0 default/web";
        for (group, alias) in [(116, own), (116, ""), (116, "mine"), (117, ""), (0, own)] {
            let pod = link("twe00e76fd76b4", group, alias, false);
            assert_eq!(is_pod_link(&pod), alias == own, "{pod:?}");
            assert!(is_any_pod_link(&pod), "{pod:?}");
            let leaving = link("twxe00e76fd76b4", group, alias, false);
            assert!(!is_pod_link(&leaving) && is_any_pod_link(&leaving));
            assert!(!is_any_pod_link(&link("veth0", group, alias, false)));
        }
        for alias in ["", "mine"] {
            assert!(!is_any_pod_link(&link("twe00e76fd76b4", 0, alias, false)));
        }
        assert!(!is_pod_link(&link("tweed.1", 0, "", true)));
    }

    #[test]
    fn a_link_on_its_way_out_is_ours_only_if_name_group_and_alias_agree() {
        let alias = "tweed:tweed/c1/eth0";
        for group in [117, 0x7400_0000, 0x74ff_ffff] {
            assert!(is_leaving_link(&link(
                "twxe00e76fd76b4",
                group,
                alias,
                false
            )));
            assert!(!is_leaving_link(&link("twxe00e76fd76b4", group, "", false)));
        }
        for group in [0, 118, 0x73ff_ffff, 0x7500_0000] {
            assert!(!is_leaving_link(&link(
                "twxe00e76fd76b4",
                group,
                alias,
                false
            )));
        }
        assert!(!is_leaving_link(&link(
            "twxe00e76fd76b4",
            116,
            alias,
            false
        )));
        assert!(!is_leaving_link(&link("twe00e76fd76b4", 117, alias, false)));
        assert!(!is_leaving_link(&link("twxe00e76fd76b4", 117, "", false)));
    }
}
