//! The sysctls that tweed sets, and those that it depends on.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;

use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::sysctl::{FORWARDING_V6, FOUND, IP_FORWARD, name, place, set_to};

use super::{Outcome, incomplete, ok};
use crate::places::Places;
use crate::uninstall::sysctls::read;

pub(super) fn find(places: &Places) -> Vec<Outcome> {
    let sysctl_dir = &places.sysctl_dir;
    let mut findings = Vec::new();
    for path in [IP_FORWARD, FORWARDING_V6] {
        let place = place(sysctl_dir, path);
        let value = fs::read_to_string(&place).ok();
        // Opening writes nothing.
        let is_writable = OpenOptions::new().write(true).open(&place).is_ok();
        findings.push(judge(path, value.as_deref().map(str::trim), is_writable));
    }
    let filter = |which: &str| {
        let path = sysctl_dir.join(format!("ipv4/conf/{which}/rp_filter"));
        fs::read_to_string(path).ok()?.trim().parse().ok()
    };
    findings.extend(judge_rp_filter(filter("all"), filter("default")));
    let file = places.run_dir.join(FOUND);
    match read(places) {
        Ok(before) => findings.extend(changed(&before.unwrap_or_default(), sysctl_dir, &file)),
        Err(error) => findings.push(incomplete(&file.display().to_string(), error.to_string())),
    }
    findings
}

/// Names the sysctls of the `file` that have another value than `before` tweed, without those
/// that somebody else has changed since, which stay. Where tweed was uninstalled, it is of
/// forwarding, which others may have relied on then.
fn changed(before: &BTreeMap<String, String>, sysctl_dir: &Path, file: &Path) -> Option<Outcome> {
    let differs = |(path, before): (&String, &String)| {
        let text = fs::read_to_string(place(sysctl_dir, path)).ok()?;
        let now = text.trim();
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

/// Forwarding, which the agent switches on, that of IPv6 only where pods have IPv6.
fn judge(path: &str, value: Option<&str>, is_writable: bool) -> Outcome {
    let (name, is_ipv4) = (name(path), path == IP_FORWARD);
    let needed = if is_ipv4 { "" } else { " where pods have IPv6" };
    let (message, cure) = match value {
        Some("1") => return ok(format!("{name} is on")),
        None if !is_ipv4 => {
            return ok("the kernel has no IPv6, or it is switched off: pods have IPv4 only");
        }
        Some(_) if is_writable => {
            return ok(format!("{name} is off: the agent switches it on{needed}"));
        }
        Some(_) => (
            format!("{name} cannot be written, and is off: it has to be on{needed}"),
            format!("run `sysctl -w {name}=1`, or run as root with a writable /proc/sys"),
        ),
        None => (
            format!("{name} cannot be read"),
            "mount /proc, or name it with --sysctl-dir".to_owned(),
        ),
    };
    let problem = Problem::new(ProblemKind::SysctlUnwritable, name, message).with_cure(cure);
    Err(if is_ipv4 {
        problem
    } else {
        problem.with_effect(Effect::Warning)
    })
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
        for (path, value, is_writable, level) in [
            (IP_FORWARD, Some("1"), false, Level::Ok),
            (IP_FORWARD, Some("0"), true, Level::Ok),
            (IP_FORWARD, Some("0"), false, Level::Error),
            (IP_FORWARD, None, false, Level::Error),
            // Pods of IPv4 do not need that of IPv6.
            (FORWARDING_V6, Some("0"), true, Level::Ok),
            (FORWARDING_V6, Some("0"), false, Level::Warning),
            (FORWARDING_V6, None, false, Level::Ok),
        ] {
            let judged = judge(path, value, is_writable);
            assert_eq!(Level::of(&judged), level, "{judged:?}");
            let said = judged.unwrap_or_else(|problem| problem.message);
            let is_off = value == Some("0");
            let says_where = said.ends_with("where pods have IPv6");
            assert_eq!(says_where, is_off && path == FORWARDING_V6, "{said}");
        }
    }
}
