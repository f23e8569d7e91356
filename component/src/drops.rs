//! Why tweed's rules drop packets: the one list of it. The rules of the tables count by it, and
//! metrics, the log of dropped packets and answers to people name it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The component whose table drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// `inet tweed`.
    Overlay,
    /// `inet tweed-policy`.
    Policy,
    /// `inet tweed-services`.
    Services,
}

macro_rules! reasons {
    ($($reason:ident of $owner:ident: $word:literal, $text:literal;)+) => {
        /// Why a packet is dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum DropReason {
            $(#[doc = $text] #[serde(rename = $word)] $reason,)+
        }

        impl DropReason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$reason),+];

            /// Its name everywhere: of the counter in the table, and in metrics and logs.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$reason => $word,)+ }
            }

            /// What it says of the packet, for people.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$reason => $text,)+ }
            }

            /// Whose rules drop for it.
            pub const fn owner(self) -> Owner {
                match self { $(Self::$reason => Owner::$owner,)+ }
            }
        }
    };
}

reasons! {
    SpoofedSource of Overlay: "spoofed-source", "A pod sends with a source that is not its own.";
    LinkLocalSource of Overlay: "link-local-source",
        "A pod sends over IPv6 without an address of its own, as kernels do by themselves.";
    LoopbackDestination of Overlay: "loopback-destination",
        "A pod sends to a loopback address of the node.";
    RouterAdvertisement of Overlay: "router-advertisement", "A pod poses as a router of IPv6.";
    Redirect of Overlay: "icmp-redirect", "A pod sends an ICMP redirect.";
    VxlanFromPod of Overlay: "vxlan-from-pod",
        "VXLAN to a node from a pod, or on another way through this node.";
    VxlanFromStranger of Overlay: "vxlan-from-stranger",
        "VXLAN from an address that is not a Node's, or to one that is not this Node's.";
    VxlanInnerSource of Overlay: "vxlan-inner-source",
        "VXLAN from a Node, with a source inside that is not in its pod CIDRs.";
    PolicyIngress of Policy: "policy-ingress", "A policy of the pod that it is for denies it.";
    PolicyEgress of Policy: "policy-egress", "A policy of the pod that sends it denies it.";
    NotEnforced of Policy: "not-enforced", "It is from or to a local pod for which policies are not enforced yet.";
    NoEndpoint of Services: "no-endpoint",
        "The Service has no endpoint, or not this port: the sender is told.";
    NoLocalEndpoint of Services: "no-local-endpoint",
        "The traffic policy of the Service is Local, and all endpoints are on other nodes.";
    UnknownAddress of Services: "unknown-address",
        "The address is in a ServiceCIDR, and no Service has it.";
    SourceNotAllowed of Services: "source-not-allowed",
        "The source is not in the loadBalancerSourceRanges of the Service.";
    InvalidState of Services: "invalid-state",
        "TCP of no known connection, from an endpoint or to an address of Services.";
    Unsettled of Services: "unsettled",
        "The sets of Services changed twice under the first packet of a connection.";
}

impl DropReason {
    /// The reasons of one table.
    pub fn of(owner: Owner) -> impl Iterator<Item = Self> {
        let all = Self::ALL.iter().copied();
        all.filter(move |reason| reason.owner() == owner)
    }

    /// The reason of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.word() == word)
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What was dropped for one reason since its table was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Why.
    pub reason: DropReason,
    /// Number of packets.
    pub packets: u64,
    /// Their length, with the headers from IP on.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_one_name_everywhere() {
        for reason in DropReason::ALL {
            let word = reason.word();
            assert_eq!(DropReason::from_word(word), Some(*reason));
            assert_eq!(serde_json::to_string(reason).unwrap(), format!("{word:?}"));
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '-';
            assert!(
                word.chars().all(is_plain),
                "{word} is the name of a counter"
            );
        }
    }
}
