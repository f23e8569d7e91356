//! The sysctls that tweed sets, and those that it depends on.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;

use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::sysctl::{FOUND, name, place, set_to};

use super::{Outcome, incomplete, ok};
use crate::places::Places;
use crate::uninstall::sysctls::read;

/// The state of a sysctl that the agent sets to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Forwarding {
    name: &'static str,
    on: bool,
    writable: bool,
}

pub(super) fn find(places: &Places) -> Vec<Outcome> {
    let sysctl_dir = &places.sysctl_dir;
    let forwarding = |name, path: &str| {
        let path = sysctl_dir.join(path);
        let value = fs::read_to_string(&path).ok()?;
        Some(Forwarding {
            name,
            on: value.trim() == "1",
            // Opening writes nothing.
            writable: OpenOptions::new().write(true).open(&path).is_ok(),
        })
    };
    let mut findings = vec![
        judge_ipv4(forwarding("net.ipv4.ip_forward", "ipv4/ip_forward")),
        judge_ipv6(forwarding(
            "net.ipv6.conf.all.forwarding",
            "ipv6/conf/all/forwarding",
        )),
    ];
    let filter = |which: &str| {
        let path = sysctl_dir.join(format!("ipv4/conf/{which}/rp_filter"));
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    findings.extend(judge_rp_filter(filter("all"), filter("default")));
    let file = places.run_dir.join(FOUND);
    match read(places) {
        Ok(before) => {
            let before = before.unwrap_or_default();
            findings.extend(changed(&before, sysctl_dir, &file));
        }
        Err(error) => findings.push(incomplete(&file.display().to_string(), error.to_string())),
    }
    findings
}

/// Names the sysctls of the `file` that have another value than `before` tweed, without those
/// that somebody else has changed since, which stay. Where tweed was uninstalled, it is of
/// forwarding, which others may have relied on then.
fn changed(before: &BTreeMap<String, String>, sysctl_dir: &Path, file: &Path) -> Option<Outcome> {
    let differs = |(path, before): (&String, &String)| {
        let now = fs::read_to_string(place(sysctl_dir, path)).ok()?;
        let now = now.trim();
        let is_changed_since = set_to(path).is_some_and(|set| now != set.to_string());
        (now != before && !is_changed_since)
            .then(|| format!("{} was {before} and is {now}", name(path)))
    };
    let changed: Vec<String> = before.iter().filter_map(differs).collect();
    (!changed.is_empty()).then(|| {
        ok(format!(
            "before tweed {}; `tweed-install uninstall` restores that by {}",
            changed.join(", "),
            file.display()
        ))
    })
}

fn judge_ipv4(found: Option<Forwarding>) -> Outcome {
    let unreadable = || {
        let name = "net.ipv4.ip_forward";
        unwritable(name, format!("{name} cannot be read"))
            .with_cure("mount /proc, or name it with --sysctl-dir")
    };
    found.map_or_else(|| Err(unreadable()), |found| judge(found, ""))
}

fn judge_ipv6(found: Option<Forwarding>) -> Outcome {
    let off = "the kernel has no IPv6, or it is switched off: pods have IPv4 only";
    let judged = found.map(|found| judge(found, " where pods have IPv6"));
    let judged = judged.unwrap_or_else(|| ok(off));
    // The agent leaves it alone where pods have IPv4 only.
    judged.map_err(|problem| problem.with_effect(Effect::Warning))
}

/// `needed` says where it has to be on, if not everywhere.
fn judge(found: Forwarding, needed: &str) -> Outcome {
    let Forwarding { name, on, writable } = found;
    match (on, writable) {
        (true, _) => ok(format!("{name} is on")),
        (false, true) => ok(format!("{name} is off: the agent switches it on{needed}")),
        (false, false) => {
            let message = format!("{name} cannot be written, and is off: it has to be on{needed}");
            let problem = unwritable(name, message);
            let cure =
                format!("run `sysctl -w {name}=1`, or run as root with a writable /proc/sys");
            Err(problem.with_cure(cure))
        }
    }
}

fn unwritable(name: &str, message: String) -> Problem {
    Problem::new(ProblemKind::SysctlUnwritable, name, message)
}

/// The stricter of the two is reported.
fn judge_rp_filter(all: Option<u8>, default: Option<u8>) -> Option<Outcome> {
    let strict = [all?, default?].contains(&1);
    Some(if strict {
        ok(
            "rp_filter is strict, which tweed works with; only --masquerade-nodes off over VXLAN \
             needs 0 or 2",
        )
    } else {
        ok("rp_filter is loose or off")
    })
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn forwarding_must_be_on_or_writable() {
        for (on, writable, level) in [
            (true, false, Level::Ok),
            (false, true, Level::Ok),
            (false, false, Level::Error),
        ] {
            let found = Forwarding {
                name: "net.ipv4.ip_forward",
                on,
                writable,
            };
            assert_eq!(Level::of(&judge_ipv4(Some(found))), level, "{found:?}");
        }
    }

    /// Pods of IPv4 do not need that of IPv6.
    #[test]
    fn forwarding_of_ipv6_that_cannot_be_written_is_a_warning() {
        let found = |writable| Forwarding {
            name: "net.ipv6.conf.all.forwarding",
            on: false,
            writable,
        };
        let refused = judge_ipv6(Some(found(false)));
        assert_eq!(Level::of(&refused), Level::Warning);
        assert!(
            refused
                .unwrap_err()
                .message
                .ends_with("where pods have IPv6")
        );
        let said = judge_ipv6(Some(found(true))).unwrap();
        assert!(said.ends_with("where pods have IPv6"), "{said}");
    }

    #[test]
    fn a_kernel_without_ipv6_is_no_problem_and_one_without_ipv4_is() {
        assert_eq!(Level::of(&judge_ipv6(None)), Level::Ok);
        assert_eq!(Level::of(&judge_ipv4(None)), Level::Error);
    }
}
