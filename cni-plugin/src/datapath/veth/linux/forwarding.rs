//! Forwarding of a node on which no agent keeps it on.
//!
//! Links that live on router advertisements get `accept_ra=2` before IPv6 forwarding
//! is switched on: with 1 they ignore advertisements while forwarding, and the kernel
//! removes the default routes that they have.

use std::path::{Path, PathBuf};
use std::{fs, io};

use tweed_core::family::Family;
use tweed_core::sysctl::{ACCEPT_RA_ALWAYS, forwarding_of, place};
use tweed_netlink::Error;

/// The sysctls of the calling thread's namespace.
pub(super) const NET: &str = "/proc/sys/net";

/// Switches forwarding on, and returns whether it was off.
pub(super) fn enable(net: &Path, family: Family) -> Result<bool, Error> {
    let switch = place(net, forwarding_of(family));
    // Nothing else is known of a kernel whose /proc/sys cannot be read.
    match fs::read_to_string(&switch) {
        Ok(value) if value.trim() == "0" => {}
        _ => return Ok(false),
    }
    if family == Family::V6 {
        for accept_ra in of_each_link(net)? {
            let value = fs::read_to_string(&accept_ra);
            if value.is_ok_and(|value| value.trim() == "1") {
                write(&accept_ra, ACCEPT_RA_ALWAYS)?;
            }
        }
    }
    write(&switch, 1).map(|()| true)
}

/// The file `accept_ra` of each link, and of those that are to come (`default`).
fn of_each_link(net: &Path) -> Result<Vec<PathBuf>, Error> {
    let folder = net.join("ipv6/conf");
    let list = || -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(&folder)?;
        let paths = entries.map(|entry| Ok(entry?.path().join("accept_ra")));
        paths.collect()
    };
    let files = list().map_err(|error| Error {
        operation: "list",
        object: folder.display().to_string(),
        cause: error.into(),
    })?;
    // `all` is no link, and a change of it none of theirs.
    let all = folder.join("all/accept_ra");
    Ok(files.into_iter().filter(|file| *file != all).collect())
}

fn write(path: &Path, value: i32) -> Result<(), Error> {
    match fs::write(path, value.to_string()) {
        // A link that has gone meanwhile.
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error {
            operation: "write",
            object: format!("\"{value}\" to {}", path.display()),
            cause: error.into(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder like `/proc/sys/net`.
    fn net(forwarding: &str) -> tempfile::TempDir {
        let net = tempfile::tempdir().unwrap();
        for (path, value) in [
            ("ipv4/ip_forward", forwarding),
            ("ipv6/conf/all/forwarding", forwarding),
            ("ipv6/conf/all/accept_ra", "1"),
            ("ipv6/conf/default/accept_ra", "1"),
            ("ipv6/conf/eth0/accept_ra", "1"),
            ("ipv6/conf/eth1/accept_ra", "0"),
            ("ipv6/conf/eth2/accept_ra", "2"),
        ] {
            let path = net.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{value}\n")).unwrap();
        }
        net
    }

    fn value(net: &tempfile::TempDir, path: &str) -> String {
        let text = fs::read_to_string(net.path().join(path)).unwrap();
        text.trim().to_owned()
    }

    #[test]
    fn links_go_on_taking_advertisements() {
        let net = net("0");
        assert!(enable(net.path(), Family::V6).unwrap());
        let of = |link: &str| value(&net, &format!("ipv6/conf/{link}/accept_ra"));
        let values = ["all", "default", "eth0", "eth1", "eth2"].map(of);
        assert_eq!(values, ["1", "2", "2", "0", "2"]);
        assert_eq!(value(&net, "ipv6/conf/all/forwarding"), "1");
        assert_eq!(value(&net, "ipv4/ip_forward"), "0");
    }

    #[test]
    fn what_is_on_stays_as_it_is() {
        let forwarding = net("1");
        for family in [Family::V4, Family::V6] {
            assert!(!enable(forwarding.path(), family).unwrap());
        }
        assert_eq!(value(&forwarding, "ipv6/conf/eth0/accept_ra"), "1");
        let off = net("0");
        assert!(enable(off.path(), Family::V4).unwrap());
        assert_eq!(value(&off, "ipv4/ip_forward"), "1");
        assert_eq!(value(&off, "ipv6/conf/all/forwarding"), "0");
        assert_eq!(value(&off, "ipv6/conf/eth0/accept_ra"), "1");
    }

    #[test]
    fn without_sysctls_there_is_nothing_to_do() {
        let net = tempfile::tempdir().unwrap();
        assert!(!enable(net.path(), Family::V6).unwrap());
    }
}
