//! What switching forwarding on changes on this machine and switching it off does
//! not change back: see [`tweed_core::sysctl`].

use std::{collections::BTreeMap, fs, io, path::Path};

use tweed_core::sysctl::{ACCEPT_REDIRECTS, FORWARDING_V6, IP_FORWARD, place, switched};

/// The sysctls that get another value when `switch` is switched on and off
/// again, by path, with their values of now. Empty for a sysctl that is no
/// switch.
pub(super) fn lost_by(switch: &str, net_dir: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut lost = BTreeMap::new();
    for path in candidates(switch, net_dir)? {
        let Some(switched) = switched(&path) else {
            continue;
        };
        match fs::read_to_string(place(net_dir, &path)) {
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
        let name = link?.file_name();
        paths.push(format!(
            "net/{family}/conf/{}/forwarding",
            name.to_string_lossy()
        ));
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

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
