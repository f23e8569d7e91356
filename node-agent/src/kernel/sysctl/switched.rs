//! What the kernel changes by itself when forwarding is switched:
//! `inet_forward_change` in `net/ipv4/devinet.c`, `addrconf_fixup_forwarding`
//! in `net/ipv6/addrconf.c`.
//!
//! | switch | changes too | on | off |
//! |---|---|---|---|
//! | `net.ipv4.ip_forward` | `net.ipv4.conf.all.accept_redirects` | 0 | 1 |
//! | | `net.ipv4.conf.<default, link>.forwarding` | 1 | 0 |
//! | `net.ipv6.conf.all.forwarding` | `net.ipv6.conf.<default, link>.forwarding` | 1 | 0 |
//!
//! What was in force before is lost with that, and comes back by itself only if
//! it is what the switch back sets. All else is remembered.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use super::{FORWARDING_V6, IP_FORWARD};

const ACCEPT_REDIRECTS: &str = "net/ipv4/conf/all/accept_redirects";

/// A sysctl that changes with a switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switched {
    /// The switch: its path below `/proc/sys`.
    pub switch: &'static str,
    /// What it becomes when that is switched on.
    pub on: i32,
    /// What it becomes when that is switched off.
    pub off: i32,
}

/// How the sysctl at `path` below `/proc/sys` changes with a switch; none for
/// one that does not.
#[must_use]
pub fn switched(path: &str) -> Option<Switched> {
    if path == ACCEPT_REDIRECTS {
        return Some(Switched {
            switch: IP_FORWARD,
            on: 0,
            off: 1,
        });
    }
    let (family, rest) = path.strip_prefix("net/")?.split_once("/conf/")?;
    let link = rest.strip_suffix("/forwarding")?;
    let switch = match family {
        "ipv4" => IP_FORWARD,
        "ipv6" => FORWARDING_V6,
        _ => return None,
    };
    // `all` is the switch itself, under another name for IPv4.
    let is_link = !matches!(link, "" | "." | ".." | "all") && !link.contains('/');
    is_link.then_some(Switched {
        switch,
        on: 1,
        off: 0,
    })
}

/// What `switch`, once switched on, cannot be switched back to: paths and
/// values as they are now. Empty for a sysctl that is no switch.
pub(super) fn lost_by(switch: &str, net_dir: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut lost = BTreeMap::new();
    for path in candidates(switch, net_dir)? {
        let Some(switched) = switched(&path) else {
            continue;
        };
        match fs::read_to_string(super::place(net_dir, &path)) {
            Ok(value) if value.trim() != switched.off.to_string() => {
                lost.insert(path, value.trim().to_owned());
            }
            Ok(_) => {}
            // Its link is gone by now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(lost)
}

fn candidates(switch: &str, net_dir: &Path) -> io::Result<Vec<String>> {
    let (family, mut paths) = match switch {
        IP_FORWARD => ("ipv4", vec![ACCEPT_REDIRECTS.to_owned()]),
        FORWARDING_V6 => ("ipv6", vec![]),
        _ => return Ok(vec![]),
    };
    let links = match fs::read_dir(net_dir.join(family).join("conf")) {
        Ok(links) => links,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(paths),
        Err(error) => return Err(error),
    };
    for link in links {
        let link = link?.file_name();
        paths.push(format!(
            "net/{family}/conf/{}/forwarding",
            link.to_string_lossy()
        ));
    }
    Ok(paths)
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

    #[test]
    fn only_what_the_switch_back_would_not_bring_back_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, value: &str| {
            let place = folder.path().join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::write(place, format!("{value}\n")).unwrap();
        };
        write("ipv4/conf/all/accept_redirects", "1");
        write("ipv4/conf/all/forwarding", "0");
        write("ipv4/conf/default/forwarding", "0");
        write("ipv4/conf/eth0/forwarding", "0");
        let lost = |switch| lost_by(switch, folder.path()).unwrap();
        assert_eq!(lost(IP_FORWARD), BTreeMap::new());
        write("ipv4/conf/all/accept_redirects", "0");
        write("ipv4/conf/eth0/forwarding", "1");
        let pair = |path: &str, value: &str| (path.to_owned(), value.to_owned());
        let expected = [
            pair(ACCEPT_REDIRECTS, "0"),
            pair("net/ipv4/conf/eth0/forwarding", "1"),
        ];
        assert_eq!(lost(IP_FORWARD), expected.into());
        assert_eq!(lost(FORWARDING_V6), BTreeMap::new());
        assert_eq!(lost("net/ipv6/conf/eth0/accept_ra"), BTreeMap::new());
    }
}
