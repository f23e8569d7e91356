//! The sysctls that tweed keeps: all of them, in one place.
//!
//! How data goes through: [`machine`] and [`pod_link`] decide, purely, which
//! sysctls there should be; [`Sysctls`] writes those that differ.
//!
//! | sysctl | value | where |
//! |---|---|---|
//! | `net.ipv4.ip_forward` | 1 | with IPv4 pods |
//! | `net.ipv6.conf.<uplink>.accept_ra` | 2 | with IPv6 pods, on links whose default route comes from router advertisements: before the next, with which they would lose it |
//! | `net.ipv6.conf.all.forwarding` | 1 | with IPv6 pods |
//! | `net.ipv6.conf.<link>.disable_ipv6` | 0 | with IPv6 pods, on `tweed.<vni>`; on the link of every pod with an IPv6 address: new links take the value of `conf.default` |
//! | `net.ipv4.conf.<pod link>.{accept,send}_redirects` | 0 | every pod's link |
//! | `net.ipv6.conf.<pod link>.{accept_ra,autoconf,accept_redirects}` | 0 | every pod's link, where the kernel has IPv6 |
//! | `net.ipv6.conf.<pod link>.addr_gen_mode` | 1 (none) | the same |
//!
//! A value is written only if it differs, so a read-only `/proc/sys` with the
//! right values is no problem. The values that the machine-wide ones had before
//! are kept in `sysctls.json` for the uninstallation, and with them those that
//! the kernel changes along with them ([`tweed_core::sysctl::switched`]). Those
//! of pods' links end with their link.

mod switched;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tweed_core::atomic_file;
use tweed_core::sysctl::{ACCEPT_RA_ALWAYS, FORWARDING_V6, FOUND, IP_FORWARD, place};
use tweed_netlink::{Error, link::Link};

use super::kernel::Kernel;
use super::kernel::mirror::{Mirror, MirrorPart};
use super::outcome::{ObjectKind, Outcome};
use tweed_core::family::Family;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_netlink::owned;

/// `addr_gen_mode`: the kernel makes no link-local address.
const ADDR_GEN_MODE_NONE: i32 = 1;

/// A sysctl and the value that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// Path below `/proc/sys`.
    pub path: String,
    /// The value that it should have.
    pub value: i32,
    /// Whether the value found before is kept for the uninstallation.
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

    /// One of a link that tweed made: it ends with the link.
    fn own_link(link: &Link, family: &str, key: &str, value: i32) -> Self {
        Self {
            path: format!("net/{family}/conf/{}/{key}", link.name),
            value,
            remembered: false,
        }
    }

    /// Its name as sysctl(8) writes it.
    pub fn name(&self) -> String {
        self.path
            .replace('.', "\0")
            .replace('/', ".")
            .replace('\0', "/")
    }
}

/// The sysctls that differ on a pod's link, going by the link's dump. `has_ipv6`
/// says whether the pod has an IPv6 address.
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
        // After the one before, which decides on addresses when IPv6 is enabled.
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

/// The machine-wide sysctls and those of the VXLAN device, in the order in which
/// they have to be written. `on_advertisements` are the links with a
/// route that a router advertised.
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

/// The values before tweed wrote any, by path below `/proc/sys`.
type Found = BTreeMap<String, String>;

/// Writes sysctls and keeps the values that they had before.
#[derive(Debug)]
pub struct Sysctls {
    net_dir: PathBuf,
    found_path: PathBuf,
}

impl Sysctls {
    /// Sysctls of the calling thread's network namespace, in `net_dir`:
    /// `/proc/sys/net` or, in a container where that is read-only, a mount of
    /// it. The values that they had are kept in `run_dir`.
    pub fn new(net_dir: &Path, run_dir: &Path) -> Self {
        Self {
            net_dir: net_dir.to_owned(),
            found_path: run_dir.join(FOUND),
        }
    }

    /// Sets the machine-wide sysctls and those of the VXLAN device, for pods of
    /// these families.
    ///
    /// # Errors
    /// When the kernel's socket fails.
    pub fn reconcile_machine(
        &self,
        kernel: &mut Kernel,
        families: &BTreeSet<Family>,
    ) -> Result<Outcome, Error> {
        let on_advertisements = match families.contains(&Family::V6) {
            true => kernel.links_on_advertisements()?,
            false => BTreeSet::new(),
        };
        Ok(self.write(&machine(kernel.mirror(), families, &on_advertisements)))
    }

    /// Sets the sysctls that differ on links of pods, `differing`.
    pub fn reconcile_pods(&self, kernel: &mut Kernel, differing: &[Sysctl]) -> Outcome {
        if !differing.is_empty() {
            // A change of them has no notification.
            kernel.invalidate([MirrorPart::Links]);
        }
        self.write(differing)
    }

    /// Writes those of `desired` that differ, in this order.
    fn write(&self, desired: &[Sysctl]) -> Outcome {
        let mut outcome = Outcome::default();
        for sysctl in desired {
            match self.write_one(sysctl) {
                Ok(written) => outcome.wrote(ObjectKind::Sysctl, written.into()),
                // A pod's link that is gone by now.
                Err(error) if !sysctl.remembered && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => outcome.fail(unwritable(sysctl, &error)),
            }
        }
        outcome
    }

    /// Says whether it differed.
    fn write_one(&self, sysctl: &Sysctl) -> io::Result<bool> {
        let path = place(&self.net_dir, &sysctl.path);
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

    /// Keeps the first value that was found, and those that the write changes
    /// with it: later values are tweed's own, or drift from them.
    fn remember(&self, path: &str, value: &str) -> io::Result<()> {
        let mut found: Found = match fs::read(&self.found_path) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::default(),
            Err(error) => return Err(error),
        };
        if found.contains_key(path) {
            return Ok(());
        }
        found.extend(switched::lost_by(path, &self.net_dir)?);
        found.insert(path.to_owned(), value.to_owned());
        let content = format!("{:#}\n", serde_json::json!(found));
        atomic_file::replace(&self.found_path, content.as_bytes(), atomic_file::PRIVATE)
            .map_err(io::Error::other)
    }
}

fn unwritable(sysctl: &Sysctl, error: &io::Error) -> Problem {
    let name = sysctl.name();
    let effect = match sysctl.remembered {
        true => Effect::RunningPods,
        false => Effect::Warning,
    };
    Problem::new(
        ProblemKind::SysctlUnwritable,
        &name,
        format!("it cannot be set to {}: {error}", sysctl.value),
    )
    .with_effect(effect)
    .with_cure(format!(
        "set it on the host (sysctl -w {name}={}), or give --sysctl-dir the host's /proc/sys/net, mounted so that it can be written",
        sysctl.value
    ))
}

#[cfg(test)]
mod tests;
