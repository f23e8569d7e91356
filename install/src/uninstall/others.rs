//! Who else on this machine may rely on forwarding: it may have found it on when it came, and
//! so have left it alone.

use std::path::Path;

use tweed_core::paths::CONFLIST;
use tweed_core::{limits, regular_file};
use tweed_diagnosis::cni_configs;
use tweed_netlink::link::{self, Link};
use tweed_netlink::route::{self, Route};
use tweed_netlink::{Error, Socket};

use super::kernel;
use crate::displaced::{SUFFIX, names};
use crate::{error::InstallError, places::Places};

/// Kinds of links that carry the machine's own packets. By those of other kinds, of
/// containers, virtual machines and tunnels, packets of others are forwarded.
const OWN_KINDS: [&str; 9] = [
    "bond", "dummy", "hsr", "ifb", "macsec", "nlmon", "team", "vlan", "vrf",
];

/// Their names: links, and CNI configs of other networks. `restore_cni` says that displaced
/// ones come back.
pub(super) fn find(places: &Places, restore_cni: bool) -> Result<Vec<String>, InstallError> {
    let mut found = links()?;
    found.extend(configs(&places.cni_conf_dir, restore_cni)?);
    Ok(found)
}

fn links() -> Result<Vec<String>, Error> {
    let mut socket = Socket::open()?;
    let links = link::list(&mut socket)?;
    let routes = route::list(&mut socket, None)?;
    Ok(forwarding(&links, &routes))
}

/// The links of others that may forward. One with a default route is the way out of the
/// machine itself, as on one that is a container or has its uplink in a bridge; one that is
/// down forwards nothing.
fn forwarding(links: &[Link], routes: &[Route]) -> Vec<String> {
    let is_uplink = |link: &Link| {
        let is_default = |route: &&Route| route.destination.prefix() == 0;
        let mut defaults = routes.iter().filter(is_default);
        defaults.any(|route| route.out == Some(link.index))
    };
    let forwards = |link: &&Link| {
        let kind = link.kind.as_deref();
        let is_kind = kind.is_some_and(|kind| !OWN_KINDS.contains(&kind));
        is_kind && link.up && !kernel::is_ours(link) && !is_uplink(link)
    };
    let found = links.iter().filter(forwards);
    found.map(|link| link.name.clone()).collect()
}

fn configs(folder: &Path, restore_cni: bool) -> Result<Vec<String>, InstallError> {
    let is_loopback = |name: &String| {
        let content = regular_file::read(&folder.join(name), limits::CNI_CONFIG);
        content.is_ok_and(|content| cni_configs::is_loopback(&content))
    };
    let is_other = |name: &String| {
        let displaced = name.strip_suffix(SUFFIX).filter(|_| restore_cni);
        let config = displaced.unwrap_or(name);
        cni_configs::is_config(config) && config != CONFLIST && !is_loopback(name)
    };
    let mut names = names(folder)?;
    names.retain(is_other);
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn link(index: u32, name: &str, kind: Option<&str>) -> Link {
        Link {
            index,
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
            up: true,
            ..Link::default()
        }
    }

    #[test]
    fn a_link_of_others_that_is_no_uplink_may_forward() {
        let down = Link {
            up: false,
            ..link(7, "sit0", Some("sit"))
        };
        let pod = Link {
            alias: Some("tweed:tweed/c1/eth0".to_owned()),
            ..link(8, "twe00e76fd76b4", Some("veth"))
        };
        let links = [
            link(1, "lo", None),
            link(2, "eth0", Some("veth")),
            link(3, "docker0", Some("bridge")),
            link(4, "wg0", Some("wireguard")),
            link(5, "dummy0", Some("dummy")),
            link(6, "bond0", Some("bond")),
            down,
            pod,
        ];
        let default = Route {
            out: Some(2),
            ..Route::to("::/0".parse().unwrap(), 4)
        };
        assert_eq!(forwarding(&links, &[default]), ["docker0", "wg0"]);
        let other = Route {
            out: Some(2),
            ..Route::to("10.0.0.0/8".parse().unwrap(), 4)
        };
        let expected = ["eth0", "docker0", "wg0"];
        assert_eq!(forwarding(&links, &[other]), expected);
    }

    #[test]
    fn a_config_of_others_may_be_a_network_s_that_forwards() {
        let names = [
            "10-flannel.conflist.tweed-displaced",
            "10-tweed.conflist",
            "87-podman.conflist",
            "notes.txt",
        ];
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), "{}").unwrap();
        }
        let loopback = folder.path().join("200-loopback.conflist");
        fs::write(loopback, r#"{"plugins": [{"type": "loopback"}]}"#).unwrap();
        let found = |restore_cni| configs(folder.path(), restore_cni).unwrap();
        assert_eq!(found(false), ["87-podman.conflist"]);
        assert_eq!(found(true), [names[0], names[2]]);
    }
}
