//! The sysctls that tweed keeps: all of them, in one place.
//!
//! | sysctl | value | where |
//! |---|---|---|
//! | `net.ipv4.ip_forward` | 1 | with IPv4 pods |
//! | `net.ipv6.conf.<uplink>.accept_ra` | 2 | with IPv6 pods, on links that live on router advertisements: before the next, which would cost them their default route |
//! | `net.ipv6.conf.all.forwarding` | 1 | with IPv6 pods |
//! | `net.ipv6.conf.<link>.disable_ipv6` | 0 | with IPv6 pods, on `tweed.<vni>`; on the link of every pod with an IPv6 address: links are born as `conf.default` says |
//! | `net.ipv4.conf.<pod link>.{accept,send}_redirects` | 0 | every pod's link |
//! | `net.ipv6.conf.<pod link>.{accept_ra,autoconf,accept_redirects}` | 0 | every pod's link, where the kernel has IPv6 |
//! | `net.ipv6.conf.<pod link>.addr_gen_mode` | 1 (none) | the same |
//!
//! A value is written only if it differs, so a read-only `/proc/sys` in which
//! all is right is no problem. What the machine-wide ones were before is kept
//! in `sysctls.json`, for whoever uninstalls tweed; those of pods' links go
//! with their link.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tweed_netlink::link::Link;

use super::owned;
use super::state::Mirror;
use crate::config::Family;
use crate::problem::{Effect, Problem};

const IP_FORWARD: &str = "net/ipv4/ip_forward";
const FORWARDING_V6: &str = "net/ipv6/conf/all/forwarding";
/// `addr_gen_mode`: no link-local address by itself.
const ADDR_GEN_MODE_NONE: i32 = 1;
/// `accept_ra`: also while forwarding.
const ACCEPT_RA_ALWAYS: i32 = 2;
/// Name of the file in the run folder with the values found before, by path
/// below `/proc/sys`.
pub const FOUND: &str = "sysctls.json";

/// A sysctl and the value that it shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// Path below `/proc/sys`.
    pub path: String,
    /// The value.
    pub value: i32,
    /// Whether what was found before is remembered.
    pub remembered: bool,
}

impl Sysctl {
    fn machine(path: impl Into<String>, value: i32) -> Self {
        Self {
            path: path.into(),
            value,
            remembered: true,
        }
    }

    /// One of a link that tweed made: it goes with the link.
    fn own_link(link: &Link, family: &str, key: &str, value: i32) -> Self {
        Self {
            path: format!("net/{family}/conf/{}/{key}", link.name),
            value,
            remembered: false,
        }
    }

    /// As sysctl(8) names it.
    #[must_use]
    pub fn name(&self) -> String {
        self.path
            .replace('.', "\0")
            .replace('/', ".")
            .replace('\0', "/")
    }
}

/// What differs on a pod's link, by what the link's own dump says. `has_ipv6`:
/// whether the pod has an IPv6 address.
#[must_use]
pub fn pod_link(link: &Link, has_ipv6: bool) -> Vec<Sysctl> {
    let mut wanted = Vec::new();
    if let Some(v4) = link.ipv4 {
        wanted.push(("ipv4", "accept_redirects", v4.accept_redirects, 0));
        wanted.push(("ipv4", "send_redirects", v4.send_redirects, 0));
    }
    if let Some(v6) = link.ipv6 {
        wanted.push(("ipv6", "accept_ra", v6.accept_ra, 0));
        wanted.push(("ipv6", "autoconf", v6.autoconf, 0));
        wanted.push(("ipv6", "accept_redirects", v6.accept_redirects, 0));
        let mode = v6.addr_gen_mode;
        wanted.push(("ipv6", "addr_gen_mode", mode, ADDR_GEN_MODE_NONE));
        // After the one before: it decides on addresses when IPv6 comes on.
        if has_ipv6 {
            wanted.push(("ipv6", "disable_ipv6", v6.disable_ipv6, 0));
        }
    }
    wanted
        .into_iter()
        .filter(|(_, _, have, want)| have != want)
        .map(|(family, key, _, want)| Sysctl::own_link(link, family, key, want))
        .collect()
}

/// The machine-wide ones and the VXLAN device's, in the order in which they have
/// to be written.
/// `on_advertisements` are the links with a route learnt from a router.
#[must_use]
pub fn machine(
    mirror: &Mirror,
    families: &BTreeSet<Family>,
    on_advertisements: &BTreeSet<u32>,
) -> Vec<Sysctl> {
    let mut wanted = Vec::new();
    if families.contains(&Family::V4) {
        wanted.push(Sysctl::machine(IP_FORWARD, 1));
    }
    if families.contains(&Family::V6) {
        let uplinks = mirror.links.values().filter(|link| {
            on_advertisements.contains(&link.index)
                && !owned::is_any_pod_link(link)
                && link.ipv6.is_some_and(|v6| v6.accept_ra == 1)
        });
        for link in uplinks {
            let path = format!("net/ipv6/conf/{}/accept_ra", link.name);
            wanted.push(Sysctl::machine(path, ACCEPT_RA_ALWAYS));
        }
        wanted.push(Sysctl::machine(FORWARDING_V6, 1));
        let without_ipv6 = mirror.links.values().filter(|link| {
            owned::is_device(link) && link.ipv6.is_some_and(|v6| v6.disable_ipv6 != 0)
        });
        wanted
            .extend(without_ipv6.map(|device| Sysctl::own_link(device, "ipv6", "disable_ipv6", 0)));
    }
    wanted
}

/// What tweed sets a remembered sysctl to; none for a path that is not one.
#[must_use]
pub fn set_to(path: &str) -> Option<i32> {
    match path {
        IP_FORWARD | FORWARDING_V6 => Some(1),
        _ => {
            let link = path.strip_prefix("net/ipv6/conf/")?;
            let link = link.strip_suffix("/accept_ra")?;
            (!link.is_empty() && !link.contains('/')).then_some(ACCEPT_RA_ALWAYS)
        }
    }
}

/// What was found before tweed wrote, by path below `/proc/sys`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Found(BTreeMap<String, String>);

/// Writes sysctls and remembers what they were.
#[derive(Debug)]
pub struct Sysctls {
    net_dir: PathBuf,
    found_path: PathBuf,
}

impl Sysctls {
    /// Those of the calling thread's network namespace, written in `net_dir`:
    /// `/proc/sys/net` or, in a container where that is read-only, a mount of
    /// it. What they were is kept in `run_dir`.
    #[must_use]
    pub fn new(net_dir: &Path, run_dir: &Path) -> Self {
        Self {
            net_dir: net_dir.to_owned(),
            found_path: run_dir.join(FOUND),
        }
    }

    /// Brings `wanted` about, in its order. Gives how many were written, and
    /// what could not be.
    #[must_use]
    pub fn keep(&self, wanted: &[Sysctl]) -> (u64, Vec<Problem>) {
        let mut written = 0;
        let mut problems = Vec::new();
        for sysctl in wanted {
            match self.keep_one(sysctl) {
                Ok(true) => written += 1,
                Ok(false) => {}
                // A pod's link that is gone by now.
                Err(error) if !sysctl.remembered && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => problems.push(unwritable(sysctl, &error)),
            }
        }
        (written, problems)
    }

    fn keep_one(&self, sysctl: &Sysctl) -> io::Result<bool> {
        let in_net = sysctl.path.strip_prefix("net/").unwrap_or(&sysctl.path);
        let path = self.net_dir.join(in_net);
        let before = fs::read_to_string(&path)?;
        let value = sysctl.value.to_string();
        if before.trim() == value {
            return Ok(false);
        }
        if sysctl.remembered {
            self.remember(&sysctl.path, before.trim())?;
        }
        fs::OpenOptions::new()
            .write(true)
            .open(&path)?
            .write_all(value.as_bytes())?;
        tracing::info!(
            name = sysctl.name(),
            from = before.trim(),
            to = value,
            "sysctl set"
        );
        Ok(true)
    }

    /// Keeps the first value that was found: the later ones are tweed's own, or
    /// drift from them.
    fn remember(&self, path: &str, value: &str) -> io::Result<()> {
        let mut found: Found = match fs::read(&self.found_path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::default(),
            Err(error) => return Err(error),
        };
        if found.0.contains_key(path) {
            return Ok(());
        }
        found.0.insert(path.to_owned(), value.to_owned());
        let folder = self.found_path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(format!("{:#}\n", serde_json::json!(found)).as_bytes())?;
        file.persist(&self.found_path)?;
        Ok(())
    }
}

fn unwritable(sysctl: &Sysctl, error: &io::Error) -> Problem {
    let name = sysctl.name();
    let effect = if sysctl.remembered {
        Effect::RunningPods
    } else {
        Effect::Warning
    };
    Problem::new(
        "sysctl-unwritable",
        &name,
        effect,
        format!("it cannot be set to {}: {error}", sysctl.value),
        format!(
            "set it on the host (sysctl -w {name}={}), or give --sysctl-dir the host's /proc/sys/net, mounted so that it can be written",
            sysctl.value
        ),
    )
}

#[cfg(test)]
mod tests {
    use tweed_netlink::link::{Ipv4Settings, Ipv6Settings, Vxlan};

    use super::*;

    fn link(index: u32, name: &str, group: u32, accept_ra: i32) -> (u32, Link) {
        let link = Link {
            index,
            name: name.to_owned(),
            group,
            alias: Some("tweed:tweed/c/eth0".to_owned()),
            ipv4: Some(Ipv4Settings {
                forwarding: 1,
                accept_redirects: 0,
                send_redirects: 1,
                rp_filter: 0,
            }),
            ipv6: Some(Ipv6Settings {
                disable_ipv6: 0,
                forwarding: 0,
                accept_ra,
                autoconf: 0,
                accept_redirects: 0,
                addr_gen_mode: 1,
            }),
            ..Link::default()
        };
        (index, link)
    }

    fn mirror() -> Mirror {
        Mirror {
            links: [
                link(2, "eth0", 0, 1),
                link(3, "eth1.5", 0, 0),
                link(9, "tw001122334455", 116, 1),
            ]
            .into(),
            ..Mirror::default()
        }
    }

    fn names(sysctls: &[Sysctl]) -> Vec<String> {
        sysctls
            .iter()
            .map(|sysctl| format!("{}={}", sysctl.name(), sysctl.value))
            .collect()
    }

    #[test]
    fn only_what_differs_on_pods_links_is_to_be_written() {
        let expected = [
            "net.ipv4.conf.tw001122334455.send_redirects=0",
            "net.ipv6.conf.tw001122334455.accept_ra=0",
        ];
        assert_eq!(names(&pod_link(&mirror().links[&9], true)), expected);
    }

    #[test]
    fn ipv6_comes_on_where_pods_have_it_and_links_are_born_without() {
        let (_, mut pod) = link(9, "tw001122334455", 116, 0);
        let (_, mut device) = link(3, "tweed.1", 0, 0);
        device.vxlan = Some(Vxlan::nolearning(1, 8472, "192.0.2.1".parse().unwrap()));
        for link in [&mut pod, &mut device] {
            link.ipv4 = None;
            link.ipv6.as_mut().unwrap().disable_ipv6 = 1;
        }
        let expected = ["net.ipv6.conf.tw001122334455.disable_ipv6=0"];
        assert_eq!(names(&pod_link(&pod, true)), expected);
        assert_eq!(names(&pod_link(&pod, false)), [""; 0]);

        let mirror = Mirror {
            links: [(3, device), link(2, "eth0", 0, 0)].into(),
            ..Mirror::default()
        };
        let machine = |family| names(&machine(&mirror, &[family].into(), &BTreeSet::new()));
        let expected = [
            "net.ipv6.conf.all.forwarding=1",
            "net.ipv6.conf.tweed/1.disable_ipv6=0",
        ];
        assert_eq!(machine(Family::V6), expected);
        assert_eq!(machine(Family::V4), ["net.ipv4.ip_forward=1"]);
    }

    #[test]
    fn an_uplink_that_lives_on_advertisements_keeps_them_before_forwarding_is_on() {
        let machine = |families: &[Family]| {
            let families = families.iter().copied().collect();
            names(&machine(&mirror(), &families, &[2, 3].into()))
        };
        assert_eq!(machine(&[Family::V4]), ["net.ipv4.ip_forward=1"]);
        let expected = [
            "net.ipv6.conf.eth0.accept_ra=2",
            "net.ipv6.conf.all.forwarding=1",
        ];
        assert_eq!(machine(&[Family::V6]), expected);
        assert_eq!(machine(&[]), [""; 0]);
    }

    #[test]
    fn every_remembered_value_is_known_by_its_path() {
        let families = [Family::V4, Family::V6].into();
        for sysctl in machine(&mirror(), &families, &[2].into()) {
            assert_eq!(set_to(&sysctl.path), Some(sysctl.value), "{}", sysctl.path);
        }
        for path in ["net/ipv4/tcp_ecn", "net/ipv6/conf/../../x/accept_ra", ""] {
            assert_eq!(set_to(path), None, "{path}");
        }
    }

    #[test]
    fn a_dot_in_a_link_s_name_is_not_a_separator() {
        let sysctl = Sysctl::machine("net/ipv6/conf/eth1.5/accept_ra", 2);
        assert_eq!(sysctl.name(), "net.ipv6.conf.eth1/5.accept_ra");
    }

    #[test]
    fn the_first_value_found_is_remembered_and_nothing_is_written_twice() {
        let folder = tempfile::tempdir().unwrap();
        let (net, run) = (folder.path().join("net"), folder.path().join("run"));
        let file = net.join("ipv4/ip_forward");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "0\n").unwrap();
        let sysctls = Sysctls::new(&net, &run);
        let wanted = [Sysctl::machine(IP_FORWARD, 1)];
        assert_eq!(sysctls.keep(&wanted), (1, vec![]));
        assert_eq!(fs::read_to_string(&file).unwrap().trim(), "1");
        assert_eq!(sysctls.keep(&wanted), (0, vec![]));

        fs::write(&file, "7\n").unwrap();
        assert_eq!(sysctls.keep(&wanted), (1, vec![]));
        let found = fs::read(run.join(FOUND)).unwrap();
        let found: BTreeMap<String, String> = serde_json::from_slice(&found).unwrap();
        assert_eq!(found, [(IP_FORWARD.to_owned(), "0".to_owned())].into());
    }

    #[test]
    fn what_cannot_be_set_is_a_problem_that_says_what_to_type() {
        let folder = tempfile::tempdir().unwrap();
        let sysctls = Sysctls::new(&folder.path().join("none"), folder.path());
        let (written, problems) = sysctls.keep(&[Sysctl::machine(IP_FORWARD, 1)]);
        assert_eq!((written, problems.len()), (0, 1));
        assert!(problems[0].cure.contains("sysctl -w net.ipv4.ip_forward=1"));
        let gone = Sysctl {
            remembered: false,
            ..Sysctl::machine("net/ipv4/conf/tw0/send_redirects", 0)
        };
        assert_eq!(sysctls.keep(&[gone]), (0, vec![]));
    }
}
