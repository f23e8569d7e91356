//! The sysctls that tweed keeps: all of them, in one place.
//!
//! How data goes through: [`desired`] decides, purely, which sysctls there should be,
//! and which ones of others lose packets of pods; [`Sysctls`] writes those that differ.
//!
//! | sysctl | value | where |
//! |---|---|---|
//! | `net.ipv4.ip_forward` | 1 | with IPv4 pods |
//! | `net.ipv4.conf.<link>.forwarding` | 1 | with IPv4 pods, on `tweed.<vni>` and the link of every pod with an IPv4 address: the kernel asks the link by which a packet comes in |
//! | `net.ipv6.conf.<default, link>.accept_ra` | 2 | with IPv6 pods, where router advertisements are accepted, and would not be with forwarding: before that is switched on, and on links that come later |
//! | `net.ipv6.conf.all.forwarding` | 1 | with IPv6 pods |
//! | `net.ipv6.conf.<link>.disable_ipv6` | 0 | with IPv6 pods, on `tweed.<vni>`; on the link of every pod with an IPv6 address: new links take the value of `conf.default` |
//! | `net.ipv6.conf.tweed.<vni>.accept_ra` | 0 | with IPv6 pods: no router is behind it |
//! | `net.ipv4.conf.<pod link>.{accept,send}_redirects` | 0 | every pod's link |
//! | `net.ipv6.conf.<pod link>.{accept_ra,autoconf,accept_redirects}` | 0 | every pod's link, where the kernel has IPv6 |
//! | `net.ipv6.conf.<pod link>.addr_gen_mode` | 1 (none) | the same |
//! | `net.netfilter.nf_conntrack_…` | see [`conntrack`] | with Services |
//! | `net.netfilter.nf_conntrack_tcp_…` | see [`fast_path`] | with the fast path |
//!
//! A value is written only if it differs, so a read-only `/proc/sys` with the
//! right values is no problem. The values that those had before which do not end
//! with a link of tweed are kept in `sysctls.json` for the uninstallation, and with
//! them those that the kernel changes along with them
//! ([`tweed_core::sysctl::switched`]). Those of forwarding are kept at the first look
//! even if they are right: a later change by somebody else is not the value from before.
//!
//! A change of these values has no notification of a link: each poll reads them with the
//! links, or from their files.

mod conntrack;
mod desired;
mod fast_path;
mod found;
mod switched;

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tweed_core::family::Family;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::sysctl::{
    ACCEPT_RA_DEFAULT, FORWARDING_DEFAULT_V4, FORWARDING_DEFAULT_V6, FORWARDING_V6, Found, place,
};
use tweed_netlink::Error;
use tweed_planner::overlay::Network;
use tweed_planner::overlay::desired::Route;

use super::kernel::Kernel;
use super::kernel::mirror::MirrorPart;
use super::outcome::{ObjectKind, Outcome};
use desired::{Defaults, Rule, device, forwarding_off, machine, uplinks};
use found::{FoundError, FoundFile};

pub use desired::{Sysctl, pod_link};

/// The list of the CPUs that are in use.
const CPUS: &str = "/sys/devices/system/cpu/online";

/// The value of a switch of forwarding that is off.
const OFF: &str = "0";

/// Writes sysctls and keeps the values that they had before.
#[derive(Debug)]
pub struct Sysctls {
    net_dir: PathBuf,
    found: FoundFile,
}

impl Sysctls {
    /// Sysctls of the calling thread's network namespace, in `net_dir`:
    /// `/proc/sys/net` or, in a container where that is read-only, a mount of
    /// it. The values that they had in this boot are kept in `run_dir`.
    pub fn new(net_dir: &Path, run_dir: &Path, boot_id: &str) -> Self {
        Self {
            net_dir: net_dir.to_owned(),
            found: FoundFile::new(run_dir, boot_id),
        }
    }

    /// Sets the machine-wide sysctls and those of the VXLAN device, and names those of
    /// others that lose packets of pods.
    ///
    /// # Errors
    /// When the kernel's socket fails.
    pub fn reconcile_machine(
        &self,
        kernel: &mut Kernel,
        network: &Network,
    ) -> Result<Outcome, Error> {
        let families = &network.desired.forwarding;
        let read = self.found.read();
        let unread = read.as_ref().err().map(|error| self.found.problem(error));
        let mut found = read.ok();
        let mut defaults = self.defaults(families, found.as_ref());
        let mut desired = machine(kernel.mirror(), families, &defaults);
        desired.extend(device(kernel.mirror(), families));
        let mut outcome = self.write(&desired, found.as_mut());
        outcome.problems.extend(unread);
        if !outcome.written.is_empty() {
            // Switching forwarding changes all links, without a notification.
            kernel.invalidate([MirrorPart::Links]);
            kernel.refresh()?;
            defaults = self.defaults(families, found.as_ref());
        }
        if families.contains(&Family::V4) {
            let is_direct = |route: &Route| matches!(route, Route::Direct { .. });
            let direct = || network.desired.routes.values().any(is_direct);
            let uplinks = uplinks(kernel.mirror(), network);
            let off = forwarding_off(kernel.mirror(), &uplinks, direct, &defaults);
            outcome.problems.extend(off);
        }
        Ok(outcome)
    }

    /// What no dump of links has, going by the values `found` before tweed. A value that
    /// cannot be read is left out.
    fn defaults(&self, families: &BTreeSet<Family>, found: Option<&Found>) -> Defaults {
        let read = |family, path| -> Option<i32> {
            let file = families
                .contains(&family)
                .then(|| place(&self.net_dir, path))?;
            fs::read_to_string(file).ok()?.trim().parse().ok()
        };
        let before = found.and_then(|found| found.values.get(FORWARDING_V6));
        Defaults {
            ipv4_forwarding: read(Family::V4, FORWARDING_DEFAULT_V4),
            ipv6_forwarding: read(Family::V6, FORWARDING_DEFAULT_V6),
            accept_ra: read(Family::V6, ACCEPT_RA_DEFAULT),
            // Where it was on before tweed, somebody else has switched it off since.
            ipv6_off: before.is_none() && read(Family::V6, FORWARDING_V6) == Some(0),
            switched: families.contains(&Family::V6) && before.is_some_and(|value| value == OFF),
        }
    }

    /// Sets the sysctls of links that tweed made: those that differ on links of pods,
    /// `of_pods`, and those of a VXLAN device that was just made for pods of `families`.
    pub fn reconcile_links(
        &self,
        kernel: &mut Kernel,
        families: &BTreeSet<Family>,
        of_pods: Vec<Sysctl>,
    ) -> Outcome {
        let mut differing = of_pods;
        differing.extend(device(kernel.mirror(), families));
        if !differing.is_empty() {
            // A change of them has no notification.
            kernel.invalidate([MirrorPart::Links]);
        }
        self.write(&differing, None)
    }

    /// Sets the limits and timeouts of conntrack.
    pub fn reconcile_conntrack(&self) -> Outcome {
        let list = fs::read_to_string(CPUS).ok();
        let cpus = list.and_then(|list| conntrack::count(&list));
        // Not the number of CPUs that this process may use: it may be confined to a few.
        self.write(&conntrack::limits(cpus.unwrap_or(1)), None)
    }

    /// Writes those of `desired` that differ, in this order. Those that have to be
    /// remembered are, if they are not in `found` yet; without it none is.
    fn write(&self, desired: &[Sysctl], mut found: Option<&mut Found>) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(found) = found.as_deref_mut()
            && let Err(error) = self.remember_met(desired, found)
        {
            outcome.problems.push(self.found.problem(&error));
        }
        for sysctl in desired {
            match self.write_one(sysctl, found.as_deref_mut()) {
                Ok(written) => outcome.wrote(ObjectKind::Sysctl, written.into(), &sysctl.path),
                // Its link is gone by now, or the module is not loaded yet.
                Err(error) if !sysctl.is_switch() && error.kind() == io::ErrorKind::NotFound => {}
                // Each pass reads it again, and nothing else is worse for it: that would be
                // a full resync each time, and a wait for whatever changes meanwhile.
                Err(error) if conntrack::has(sysctl) => {
                    outcome.problems.push(unwritable(sysctl, &error));
                }
                Err(error) => outcome.fail(unwritable(sysctl, &error)),
            }
        }
        outcome
    }

    /// Says whether it differed.
    fn write_one(&self, sysctl: &Sysctl, found: Option<&mut Found>) -> io::Result<bool> {
        let path = place(&self.net_dir, &sysctl.path);
        let before = fs::read_to_string(&path)?;
        let value = sysctl.value.to_string();
        if sysctl.is_met(before.trim()) || is_of_the_machine(sysctl, &path)? {
            return Ok(false);
        }
        if let Some(found) = found.filter(|_| sysctl.remembered) {
            self.remember(&sysctl.path, before.trim(), found)?;
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
    fn remember(&self, path: &str, value: &str, found: &mut Found) -> io::Result<()> {
        if found.values.contains_key(path) {
            return Ok(());
        }
        let lost = switched::lost_by(path, &self.net_dir)?;
        found.values.extend(lost);
        found.values.insert(path.to_owned(), value.to_owned());
        self.found.write(found).map_err(io::Error::other)
    }

    /// Keeps those of `desired` that were never looked at and need no change. Nothing is
    /// kept of what changes with them: tweed does not switch them. A file of an older
    /// version gets the boot ID with that.
    fn remember_met(&self, desired: &[Sysctl], found: &mut Found) -> Result<(), FoundError> {
        let is_known = |sysctl: &Sysctl| found.values.contains_key(&sysctl.path);
        let is_new = |sysctl: &&Sysctl| sysctl.remembered && !is_known(sysctl);
        let value_if_met = |sysctl: &Sysctl| {
            // What cannot be read is a problem when it is to be written.
            let text = fs::read_to_string(place(&self.net_dir, &sysctl.path)).ok()?;
            let now = text.trim();
            sysctl
                .is_met(now)
                .then(|| (sysctl.path.clone(), now.to_owned()))
        };
        let new = desired.iter().filter(is_new);
        let met: Vec<_> = new.filter_map(value_if_met).collect();
        if met.is_empty() && found.boot_id.is_some() {
            return Ok(());
        }
        found.values.extend(met);
        self.found.write(found).map_err(FoundError::Write)
    }
}

/// Whether it is a limit of the whole machine, and this network namespace is not the one
/// that can set it: nobody can write there then, whatever the mount.
fn is_of_the_machine(sysctl: &Sysctl, path: &Path) -> io::Result<bool> {
    let is_limit = sysctl.rule == Rule::AtLeast;
    Ok(is_limit && fs::metadata(path)?.permissions().mode() & 0o222 == 0)
}

fn unwritable(sysctl: &Sysctl, error: &io::Error) -> Problem {
    let name = sysctl.name();
    let effect = if sysctl.is_switch() {
        Effect::RunningPods
    } else {
        Effect::Warning
    };
    Problem::new(
        ProblemKind::SysctlUnwritable,
        &name,
        format!("it cannot be set to {}: {error}", sysctl.value),
    )
    .with_effect(effect)
    .with_cure(format!(
        "set it on the host (sysctl -w {name}={}), or give --sysctl-dir the host's /proc/sys/net, mounted so that it can be written{}",
        sysctl.value,
        if conntrack::has(sysctl) { "; with --conntrack-limits off it stays as it is" } else { "" }
    ))
}

#[cfg(test)]
mod tests;
