//! Restores the machine's sysctls to the values that the agent found, if they still
//! have the values that the agent set. Forwarding is not switched off where others may rely on
//! it: then the file with the values stays, for an uninstallation that finds nobody who does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use tweed_core::sysctl::{FORWARDING_V6, FOUND, Found, name, place, set_to, switched};
use tweed_core::uptime::is_older_than_boot;
use tweed_core::{limits, regular_file};

use super::others;
use crate::journal::{Action, Journal};
use crate::{error::InstallError, places::Places};

const NOT_OURS: &str = "tweed does not set it";
const AS_BEFORE: &str = "it has the value from before";
const CHANGED: &str = "somebody else has changed it since";

/// Forwarding is off.
const OFF: i32 = 0;

/// A sysctl of the file, with its present value.
struct Remembered<'a> {
    path: &'a str,
    place: PathBuf,
    before: &'a str,
    now: String,
}

/// What has become of the values of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Values {
    /// They are restored, or somebody else has changed them: nobody needs the file.
    Restored,
    /// Some of them could not be restored.
    NotRestored,
    /// Forwarding stays on, and they are for when nobody relies on it any more.
    NeededLater,
}

/// Restores all of them.
pub(super) fn restore(places: &Places, restore_cni: bool, journal: &mut Journal<'_>) -> Values {
    let Some(found) = journal.checked(read(places)) else {
        return Values::NotRestored;
    };
    let Some(found) = found else {
        let file = places.run_dir.join(FOUND);
        let why = format!("{} is of an earlier boot", file.display());
        journal.kept("all sysctls", why);
        return Values::Restored;
    };
    let mut all = true;
    // All are read before one is written: writing forwarding changes others.
    let mut remembered = Vec::new();
    for (path, before) in &found {
        let looked = journal.checked(look(&places.sysctl_dir, path, before));
        all &= looked.is_some();
        remembered.extend(looked.flatten());
    }
    // Forwarding first: while it is on, a link with the smaller `accept_ra` accepts
    // no router advertisements, and switching it changes others after that.
    remembered.sort_by_key(|one| !is_switch(one.path));
    let mut switched_off = BTreeSet::new();
    let mut stays_on = BTreeSet::new();
    let Some(others) = journal.checked(others::find(places, restore_cni)) else {
        return Values::NotRestored;
    };
    for one in &remembered {
        if stays_on.contains(switch_of(one.path)) && one.now != one.before {
            journal.kept(
                format_args!("sysctl {} at {}", one.path, one.now),
                format_args!(
                    "it belongs to forwarding, which stays on; before tweed it was {}",
                    one.before
                ),
            );
            continue;
        }
        let off = |switch: &str| switched_off.contains(switch);
        let Remembered { path, place, .. } = one;
        match decide(path, one.before, &one.now, off) {
            Ok(OFF) if is_switch(path) && !others.is_empty() => {
                let why = relied_on(path, &others);
                journal.kept(format_args!("sysctl {path} at {}", one.now), why);
                stays_on.insert(*path);
            }
            Ok(value) => {
                let object = format!("sysctl {path} to {value}");
                all &= journal.act(Action::RESTORE, object, || write(place, value));
                if is_switch(path) {
                    switched_off.insert(*path);
                }
            }
            Err(why) => journal.kept(format_args!("sysctl {path} at {}", one.now), why),
        }
    }
    match (all || journal.is_rehearsal(), stays_on.is_empty()) {
        (false, _) => Values::NotRestored,
        (true, false) => Values::NeededLater,
        (true, true) => Values::Restored,
    }
}

/// `None` if it no longer exists because its link was removed.
fn look<'a>(
    net_dir: &Path,
    path: &'a str,
    before: &'a str,
) -> Result<Option<Remembered<'a>>, InstallError> {
    let place = place(net_dir, path);
    let now = InstallError::if_exists("read", &place, fs::read_to_string(&place))?;
    Ok(now.map(|now| Remembered {
        path,
        place,
        before,
        now: now.trim().to_owned(),
    }))
}

/// Why forwarding stays on, and how to switch it off.
fn relied_on(path: &str, others: &[String]) -> String {
    format!(
        "others may rely on it ({}); once they do not, run uninstall again, or set it by hand: \
         sysctl -w {}={OFF}",
        others.join(", "),
        name(path)
    )
}

/// The switch that a sysctl belongs to: the kernel changes it with that, or the agent has set
/// it because of that, as `accept_ra`.
fn switch_of(path: &str) -> &str {
    match switched(path) {
        Some(how) => how.switch,
        None if path.ends_with("/accept_ra") => FORWARDING_V6,
        None => "",
    }
}

/// Whether the kernel changes others with it.
fn is_switch(path: &str) -> bool {
    path.ends_with("/ip_forward") || path.ends_with("/all/forwarding")
}

/// The value to restore, or why not: for a sysctl that tweed has set, or that the kernel has changed with a switch
/// and, if that `is_off` by now, has changed once more.
fn decide(
    path: &str,
    before: &str,
    now: &str,
    is_off: impl Fn(&str) -> bool,
) -> Result<i32, &'static str> {
    let (Ok(before), Ok(now)) = (before.parse::<i32>(), now.parse::<i32>()) else {
        return Err(NOT_OURS);
    };
    let (changed_to, lies) = match (switched(path), set_to(path)) {
        (Some(how), _) if is_off(how.switch) => (how.on, how.off),
        // An uninstall that was interrupted may have done nothing but switch it off.
        (Some(how), _) => (how.off, now),
        (None, Some(set)) => (set, now),
        (None, None) => return Err(NOT_OURS),
    };
    let right = if now == changed_to { before } else { now };
    match (right == lies, now == before) {
        (false, _) => Ok(right),
        (true, true) => Err(AS_BEFORE),
        (true, false) => Err(CHANGED),
    }
}

/// The values from before, by path below `/proc/sys`; empty where there is no file, and none
/// where it is of an earlier boot.
pub(crate) fn read(places: &Places) -> Result<Option<BTreeMap<String, String>>, InstallError> {
    let file = places.run_dir.join(FOUND);
    let bytes = regular_file::read(&file, limits::STATE);
    let Some(bytes) = InstallError::if_exists("read", &file, bytes)? else {
        return Ok(Some(BTreeMap::new()));
    };
    let found = match Found::parse(&bytes) {
        Ok(found) => found,
        // As the agent takes it.
        Err(_) if is_older_than_boot(&file) => return Ok(None),
        Err(error) => {
            let why = format!("{error}; set the sysctls by hand, and remove it");
            return Err(InstallError::Content { path: file, why });
        }
    };
    if found.boot_id.is_none() {
        return Ok(Some(found.values));
    }
    let boot_id = regular_file::read_text(&places.boot_id_file, limits::LOCK)
        .map_err(std::io::Error::from)
        .map_err(InstallError::file("read", &places.boot_id_file))?;
    Ok(found.is_of(boot_id.trim()).then_some(found.values))
}

fn write(place: &Path, value: i32) -> Result<(), InstallError> {
    fs::write(place, value.to_string()).map_err(InstallError::file("write", place))
}

#[cfg(test)]
mod tests {
    use tweed_core::sysctl::{TCP_BE_LIBERAL, TCP_IGNORE_INVALID_RST};

    use super::*;

    const FORWARD: &str = "net/ipv4/ip_forward";

    #[test]
    fn only_what_still_is_as_the_agent_or_the_kernel_left_it_is_restored() {
        let redirects = "net/ipv4/conf/all/accept_redirects";
        let link = "net/ipv6/conf/eth0/forwarding";
        for (path, before, now, is_off, expected) in [
            (FORWARD, "0", "1", false, Some(0)),
            (FORWARD, "0", "0", false, None),
            (FORWARD, "0", "2", false, None),
            (FORWARD, "0; rm", "1", false, None),
            ("net/ipv6/conf/eth0/accept_ra", "1", "2", false, Some(1)),
            // 0 before and since: the switch back makes it 1.
            (redirects, "0", "0", true, Some(0)),
            // Somebody's.
            (redirects, "0", "1", true, None),
            // Cut off after the switch.
            (redirects, "0", "1", false, Some(0)),
            (redirects, "0", "0", false, None),
            (link, "1", "1", true, Some(1)),
            (link, "2", "1", true, Some(2)),
            (link, "1", "0", false, Some(1)),
            // Somebody's.
            (link, "1", "0", true, None),
            (link, "1", "2", true, Some(2)),
            (link, "x", "1", true, None),
            // For the fast path.
            (TCP_BE_LIBERAL, "0", "1", true, Some(0)),
            (TCP_BE_LIBERAL, "1", "1", true, None),
            (TCP_IGNORE_INVALID_RST, "0", "1", false, Some(0)),
            (TCP_IGNORE_INVALID_RST, "1", "0", false, None),
            // A file that names others does not write them.
            ("net/netfilter/nf_conntrack_max", "1", "2", false, None),
            ("kernel/panic", "0", "1", false, None),
            ("net/ipv4/tcp_ecn", "0", "1", false, None),
            ("../etc/passwd", "0", "1", false, None),
        ] {
            let restored = decide(path, before, now, |_| is_off);
            assert_eq!(restored.ok(), expected, "{path} {before} {now} {is_off}");
        }
    }

    #[test]
    fn what_belongs_to_forwarding_stays_with_it() {
        assert_eq!(switch_of("net/ipv6/conf/eth0/accept_ra"), FORWARDING_V6);
        assert_eq!(switch_of("net/ipv6/conf/eth0/forwarding"), FORWARDING_V6);
        assert_eq!(switch_of("net/ipv4/conf/all/accept_redirects"), FORWARD);
        assert_eq!(switch_of(FORWARD), "");
        let why = relied_on(FORWARDING_V6, &["docker0".to_owned(), "wg0".to_owned()]);
        assert!(why.contains("(docker0, wg0)"), "{why}");
        assert!(
            why.ends_with("sysctl -w net.ipv6.conf.all.forwarding=0"),
            "{why}"
        );
    }
}
