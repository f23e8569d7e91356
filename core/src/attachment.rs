//! The names of an attachment, and what is derived from them.
//!
//! An attachment is one interface of one container in one network: what a CNI ADD
//! creates and a DEL removes. Its names come from the runtime. The types here hold
//! only names that the CNI specification allows, so that no later use (a path, a
//! link alias, a netlink attribute) has to check again.
//!
//! The derivation is frozen: nodes and programs of different versions must agree on
//! it. The vectors in the tests are part of the contract.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::mac::Mac;
use crate::name::InvalidName;
use crate::text::hex;

/// Name of the network that the agent publishes, and of its folder in the address store.
pub const NETWORK_NAME: &str = "tweed";

macro_rules! name_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $check:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks `value` by the rules of the CNI specification.
            ///
            /// # Errors
            /// [`InvalidName`] with the rule that `value` breaks.
            pub fn new(value: impl Into<String>) -> Result<Self, InvalidName> {
                let value = value.into();
                match $check(&value) {
                    Ok(()) => Ok(Self(value)),
                    Err(why) => Err(InvalidName { what: $what, value, why }),
                }
            }

            /// The checked name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidName;
            fn try_from(value: String) -> Result<Self, InvalidName> {
                Self::new(value)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name_type!(
    /// A container ID: CNI specification 1.1, "Parameters", `CNI_CONTAINERID`.
    ContainerId,
    "container ID",
    check_container_id
);
name_type!(
    /// A network's name: CNI specification 1.1, "Configuration format", `name`.
    NetworkName,
    "network name",
    check_network
);
name_type!(
    /// An interface name: at most 15 bytes, by the kernel's `IFNAMSIZ`
    /// (`dev_valid_name` in `net/core/dev.c`).
    IfName,
    "interface name",
    check_ifname
);

/// Maximum length of a network's name, in bytes: it is the name of a folder, which the kernel
/// limits to 255.
const NETWORK_MAX: usize = 200;
/// Maximum length of a container ID, in bytes. The specification has none; names of files and
/// links are hashes of it.
const CONTAINER_ID_MAX: usize = 4096;

fn check_network(value: &str) -> Result<(), &'static str> {
    check_word(value)?;
    if value.len() > NETWORK_MAX {
        return Err("is longer than 200 bytes");
    }
    Ok(())
}

fn check_container_id(value: &str) -> Result<(), &'static str> {
    check_word(value)?;
    if value.len() > CONTAINER_ID_MAX {
        return Err("is longer than 4096 bytes");
    }
    Ok(())
}

fn check_word(value: &str) -> Result<(), &'static str> {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    match value.as_bytes() {
        [] => Err("is empty"),
        [first, ..] if !first.is_ascii_alphanumeric() => Err("must start with a letter or a digit"),
        bytes if !bytes.iter().all(allowed) => {
            Err("may hold only letters, digits, '_', '.' and '-'")
        }
        _ => Ok(()),
    }
}

fn check_ifname(value: &str) -> Result<(), &'static str> {
    let separates = |b: &u8| matches!(b, b'/' | b':' | b' ') || b.is_ascii_control();
    match value.as_bytes() {
        [] => Err("is empty"),
        bytes if bytes.len() > 15 => Err("is longer than 15 bytes"),
        b"." | b".." => Err("may not be '.' or '..'"),
        // The kernel treats a name with '%' as a pattern: `eth%d` becomes `eth0`.
        bytes if bytes.contains(&b'%') => Err("may not hold '%'"),
        bytes if bytes.iter().any(separates) => {
            Err("may not hold '/', ':', white space or control characters")
        }
        _ => Ok(()),
    }
}

/// The key of everything that an ADD creates: one interface of one container in one
/// network.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attachment {
    /// The network's name.
    pub network: NetworkName,
    /// The container (for Kubernetes, the sandbox).
    pub container_id: ContainerId,
    /// The interface inside the container.
    pub ifname: IfName,
}

/// The Kubernetes pod behind an attachment, as the runtime names it
/// (`K8S_POD_NAMESPACE`, `K8S_POD_NAME`): by it the agent knows whose policies are those
/// of its addresses, and people find the link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodName {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

impl Attachment {
    /// SHA-256 of network, container ID and ifname, separated by a zero byte.
    pub fn digest(&self) -> [u8; 32] {
        let names = [&self.network.0, &self.container_id.0, &self.ifname.0];
        Sha256::digest(names.map(String::as_str).join("\0")).into()
    }

    /// The digest as 64 hex digits: the name of the attachment's record.
    pub fn id(&self) -> String {
        hex(&self.digest())
    }

    /// The name of the link's host end: `tw` and the digest's first 12 hex digits.
    pub fn link_name(&self) -> String {
        format!("tw{}", hex(&self.digest()[..6]))
    }

    /// The MAC of the link's host end, locally administered. It is derived, so that a
    /// second ADD of the same attachment has the same, and also recorded.
    pub fn host_mac(&self) -> Mac {
        self.mac_at(6)
    }

    /// The MAC of the link's pod end, unless the runtime requests another.
    pub fn pod_mac(&self) -> Mac {
        self.mac_at(12)
    }

    fn mac_at(&self, offset: usize) -> Mac {
        let digest = self.digest();
        let mut bytes = [0; 6];
        bytes.copy_from_slice(&digest[offset..offset + 6]);
        Mac::local(bytes)
    }
}

impl fmt::Display for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container_id, self.ifname)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(network: &str, container_id: &str, ifname: &str) -> Attachment {
        Attachment {
            network: NetworkName::new(network).unwrap(),
            container_id: ContainerId::new(container_id).unwrap(),
            ifname: IfName::new(ifname).unwrap(),
        }
    }

    /// Frozen. `printf 'tweed\0c1\0eth0' | sha256sum` gives the same.
    #[test]
    fn link_names_are_frozen() {
        for (network, container_id, ifname, link, host_mac, pod_mac) in VECTORS {
            let a = attachment(network, container_id, ifname);
            assert_eq!(a.link_name(), *link);
            assert_eq!(a.host_mac().to_string(), *host_mac);
            assert_eq!(a.pod_mac().to_string(), *pod_mac);
        }
    }

    type Vector = (
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        &'static str,
        &'static str,
    );
    const VECTORS: &[Vector] = &[
        (
            "tweed",
            "c1",
            "eth0",
            "twe00e76fd76b4",
            "26:d3:0d:b5:98:96",
            "2a:07:c5:6e:99:61",
        ),
        (
            "tweed",
            "c1",
            "eth1",
            "twbbfd3218a6f4",
            "e6:62:e8:42:9a:06",
            "4a:ae:0d:2f:7c:bb",
        ),
        (
            "other",
            "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "net1",
            "tw41364ca3e361",
            "16:f9:a9:3e:db:0e",
            "42:8c:f6:b9:62:b0",
        ),
    ];

    #[test]
    fn names_that_could_lead_out_of_a_folder_are_refused() {
        for bad in ["", ".", "..", "../x", "a/b", "-a", "a b", "a\0b", "ä"] {
            assert!(ContainerId::new(bad).is_err(), "{bad:?}");
            assert!(NetworkName::new(bad).is_err(), "{bad:?}");
        }
        for bad in [
            "",
            ".",
            "..",
            "a/b",
            "a:b",
            "a b",
            "sixteen-bytes-xx",
            "a\nb",
            "eth%d",
        ] {
            assert!(IfName::new(bad).is_err(), "{bad:?}");
        }
        assert!(IfName::new("fifteen-bytes-x").is_ok());
    }
}
