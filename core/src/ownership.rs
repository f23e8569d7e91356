//! The marks of tweed's own links and routes in the kernel. The plugin sets them;
//! plugin, agent and uninstaller recognise them. They are frozen, as programs of
//! neighbouring versions handle each other's links and routes.

use std::ops::RangeInclusive;

use crate::attachment::{Attachment, PodName};

/// Link group of the host ends of pods' links. Firewall rules match it.
pub const LINK_GROUP: u32 = 116;
/// Link group of leaving links: host ends that a DEL has set down and renamed, and
/// that are still to be deleted.
pub const LEAVING_LINK_GROUP: u32 = 117;
/// Link groups of leaving links that are deleted at this moment: `t`, and 24 bits that are
/// drawn for each deletion, so that nobody else has a link in the group.
pub const DELETION_GROUPS: RangeInclusive<u32> = 0x7400_0000..=0x74ff_ffff;
/// Protocol number of tweed's routes (`rtm_protocol`).
pub const ROUTE_PROTOCOL: u8 = 116;
/// Bits of the conntrack mark in which the rules of policy write that a flow has been
/// evaluated, and under which generation of the policies. Others may use all other bits but
/// those of [`SERVICE_MASQUERADE_MARK`] and [`SERVICE_REMOTE_POD_MARK`].
///
/// It is the mark and not the labels: the kernel's expression that sets labels only ORs
/// bits into them (net/netfilter/nft_ct.c, `nft_ct_set_eval`, `NFT_CT_LABELS`), so a
/// number there could never be replaced by the next one. Kubernetes uses bits 14 and 15
/// of the *packet's* mark, which is another field.
pub const POLICY_MARK_MASK: u32 = 0xf800_0000;
/// The bit of the conntrack mark by which the rules of Services order that a new flow is
/// masqueraded. It stays with the flow and means nothing afterwards.
pub const SERVICE_MASQUERADE_MARK: u32 = 0x0400_0000;
/// The bit of the conntrack mark by which the rules of Services say that a new flow to a
/// Service comes from a pod of another node. It stays with the flow and means nothing
/// afterwards.
pub const SERVICE_REMOTE_POD_MARK: u32 = 0x0200_0000;
/// The generations of the policies, as numbers in [`POLICY_MARK_MASK`]; 0 is a flow that
/// has never been evaluated.
pub const POLICY_GENERATIONS: RangeInclusive<u8> = 1..=31;
/// The group of `nfnetlink_log` to which dropped packets are logged.
pub const POLICY_LOG_GROUP: u16 = 116;
/// Prefix of the name of a pod link's host end; see [`Attachment::link_name`].
pub const LINK_PREFIX: &str = "tw";
/// Prefix of the name of a leaving link.
pub const LEAVING_LINK_PREFIX: &str = "twx";
/// Prefix of the alias of a pod link's host end.
pub const ALIAS_PREFIX: &str = "tweed:";

/// Maximum length of an alias, in bytes: `IFALIASZ` of linux/if.h less two. The kernel
/// stores a final zero, and counts the one in the message as a part of the alias.
const ALIAS_MAX: usize = 254;

/// The part of the alias that identifies the attachment. If the names are too long
/// for the kernel, it has `#` and half of the digest instead of container ID and
/// ifname; no container ID starts with `#`.
pub fn alias_key(attachment: &Attachment) -> String {
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
/// people, and left out if it does not fit or is not printable ASCII.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::{ContainerId, IfName, NetworkName};

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
    fn the_longest_names_still_fit_and_stay_distinct() {
        let long = |last: char| attachment(&"n".repeat(200), &format!("{}{last}", "c".repeat(199)));
        let (a, b) = (long('a'), long('b'));
        assert!(alias(&a, None).len() <= ALIAS_MAX);
        assert_ne!(alias(&a, None), alias(&b, None));
    }
}
