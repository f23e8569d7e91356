//! The machine-wide sysctls that the agent sets and the uninstaller restores.
//!
//! The kernel changes others when forwarding is switched:
//! `inet_forward_change` in `net/ipv4/devinet.c`, `addrconf_fixup_forwarding`
//! in `net/ipv6/addrconf.c`.
//!
//! | switch | also changes | on | off |
//! |---|---|---|---|
//! | `net.ipv4.ip_forward` | `net.ipv4.conf.all.accept_redirects` | 0 | 1 |
//! | | `net.ipv4.conf.<default, link>.forwarding` | 1 | 0 |
//! | `net.ipv6.conf.all.forwarding` | `net.ipv6.conf.<default, link>.forwarding` | 1 | 0 |
//!
//! Their former values are lost with that, and switching back restores them only if
//! they were the values in the last column. The agent therefore stores all others.

mod found;

use std::path::{Path, PathBuf};

use crate::family::Family;

pub use found::Found;

/// The switch of IPv4 forwarding.
pub const IP_FORWARD: &str = "net/ipv4/ip_forward";
/// The switch of IPv6 forwarding.
pub const FORWARDING_V6: &str = "net/ipv6/conf/all/forwarding";
/// The switch of a family's forwarding.
pub fn forwarding_of(family: Family) -> &'static str {
    match family {
        Family::V4 => IP_FORWARD,
        Family::V6 => FORWARDING_V6,
    }
}

/// Changes with [`IP_FORWARD`].
pub const ACCEPT_REDIRECTS: &str = "net/ipv4/conf/all/accept_redirects";
/// What new links take for IPv4 forwarding.
pub const FORWARDING_DEFAULT_V4: &str = "net/ipv4/conf/default/forwarding";
/// What new links take for IPv6 forwarding.
pub const FORWARDING_DEFAULT_V6: &str = "net/ipv6/conf/default/forwarding";
/// What new links take for `accept_ra`.
pub const ACCEPT_RA_DEFAULT: &str = "net/ipv6/conf/default/accept_ra";
/// Value of `accept_ra`: accept router advertisements unless forwarding.
pub const ACCEPT_RA: i32 = 1;
/// Value of `accept_ra`: accept router advertisements also while forwarding.
pub const ACCEPT_RA_ALWAYS: i32 = 2;
/// With the fast path: conntrack does not see all packets of a connection, and takes those
/// outside of the window that it knows.
pub const TCP_BE_LIBERAL: &str = "net/netfilter/nf_conntrack_tcp_be_liberal";
/// With the fast path: a reset that does not fit what conntrack has seen is forwarded.
pub const TCP_IGNORE_INVALID_RST: &str = "net/netfilter/nf_conntrack_tcp_ignore_invalid_rst";
/// Name of the file in the run folder with the former values: [`Found`].
pub const FOUND: &str = "sysctls.json";

/// A sysctl that changes with a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switched {
    /// The switch: its path below `/proc/sys`.
    pub switch: &'static str,
    /// Its value after that is switched on.
    pub on: i32,
    /// Its value after that is switched off.
    pub off: i32,
}

/// How the sysctl at `path` below `/proc/sys` changes with a switch; `None` if it
/// does not.
pub fn switched(path: &str) -> Option<Switched> {
    let by = |switch, on, off| Some(Switched { switch, on, off });
    if path == ACCEPT_REDIRECTS {
        return by(IP_FORWARD, 0, 1);
    }
    let (family, rest) = path.strip_prefix("net/")?.split_once("/conf/")?;
    let link = rest.strip_suffix("/forwarding")?;
    // `all` is the switch itself, under another name for IPv4.
    let is_link = !matches!(link, "" | "." | ".." | "all") && !link.contains('/');
    match family {
        "ipv4" if is_link => by(IP_FORWARD, 1, 0),
        "ipv6" if is_link => by(FORWARDING_V6, 1, 0),
        _ => None,
    }
}

/// The value that tweed sets for a sysctl whose former value it stores; `None` for
/// other paths.
pub fn set_to(path: &str) -> Option<i32> {
    match path {
        IP_FORWARD | FORWARDING_V6 | TCP_BE_LIBERAL | TCP_IGNORE_INVALID_RST => Some(1),
        _ => {
            let setting = path.strip_prefix("net/ipv6/conf/")?;
            let link = setting.strip_suffix("/accept_ra")?;
            (!link.is_empty() && !link.contains('/')).then_some(ACCEPT_RA_ALWAYS)
        }
    }
}

/// The name of the sysctl at `path` below `/proc/sys`, as sysctl(8) writes it.
pub fn name(path: &str) -> String {
    path.replace('.', "\0").replace('/', ".").replace('\0', "/")
}

/// The file of the sysctl at `path` below `/proc/sys`, if `net_dir` is the folder of
/// `/proc/sys/net`.
pub fn place(net_dir: &Path, path: &str) -> PathBuf {
    net_dir.join(path.strip_prefix("net/").unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_with_a_switch_is_known_by_its_path() {
        let switch = |path: &str| switched(path).map(|switched| switched.switch);
        assert_eq!(switch(ACCEPT_REDIRECTS), Some(IP_FORWARD));
        for link in ["default", "eth0", "eth1.5"] {
            let v4 = format!("net/ipv4/conf/{link}/forwarding");
            assert_eq!(switch(&v4), Some(IP_FORWARD));
            let v6 = format!("net/ipv6/conf/{link}/forwarding");
            assert_eq!(switch(&v6), Some(FORWARDING_V6));
        }
        for path in [
            IP_FORWARD,
            FORWARDING_V6,
            "net/ipv4/conf/all/forwarding",
            "net/ipv4/conf/eth0/accept_redirects",
            "net/ipv4/conf/../forwarding",
            "net/ipv4/conf/a/../../forwarding",
            "net/mpls/conf/lo/forwarding",
            "",
        ] {
            assert_eq!(switched(path), None, "{path}");
        }
    }
}
