//! The sysctls of the machine, put back to what the agent found: only where
//! they still are what the agent has made of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tweed_core::sysctl::{FOUND, Switched, place, set_to, switched};

use crate::error::InstallError;
use crate::journal::{Deed, Journal};
use crate::places::Places;

const NOT_OURS: &str = "tweed does not set it";
const AS_BEFORE: &str = "it is as it was before";
const CHANGED: &str = "somebody else has changed it since";

/// What is to become of one of them.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It gets this value.
    PutBack(i32),
    /// It is left as it is, and why.
    Keep(&'static str),
}

/// One of them, as it is.
struct Remembered<'a> {
    path: &'a str,
    place: PathBuf,
    before: &'a str,
    now: String,
}

/// Puts them back. Says whether nothing is left to do, and so the file that
/// remembers them may go.
pub(super) fn put_back(places: &Places, journal: &mut Journal<'_>) -> bool {
    let file = places.run_dir.join(FOUND);
    let found = match read(&file) {
        Ok(found) => found,
        Err(error) => {
            journal.failed(&error);
            return false;
        }
    };
    let mut all = true;
    // All are read before one is written: forwarding changes others with it.
    let mut remembered = Vec::new();
    for (path, before) in &found {
        match look(&places.sysctl_dir, path, before) {
            Ok(one) => remembered.extend(one),
            Err(error) => {
                journal.failed(&error);
                all = false;
            }
        }
    }
    // Forwarding first. While it is on, a link with the smaller `accept_ra`
    // takes no advertisements, and what changes with it would be lost again.
    remembered.sort_by_key(|one| !is_switch(one.path));
    let mut switched_off = BTreeSet::new();
    for one in &remembered {
        let fate = match switched(one.path) {
            Some(how) => {
                let off = switched_off.contains(how.switch);
                fate_of_switched(one.before, &one.now, how, off)
            }
            None => fate(one.path, one.before, &one.now),
        };
        let Remembered { path, place, .. } = one;
        match fate {
            Fate::PutBack(value) => {
                let object = format!("sysctl {path} to {value}");
                all &= journal.act(Deed::RESTORE, object, || write(place, value));
                if is_switch(path) {
                    switched_off.insert(*path);
                }
            }
            Fate::Keep(why) => journal.kept(format_args!("sysctl {path} at {}", one.now), why),
        }
    }
    all
}

/// None if its link is gone, and it with it.
fn look<'a>(
    net_dir: &Path,
    path: &'a str,
    before: &'a str,
) -> Result<Option<Remembered<'a>>, InstallError> {
    let place = place(net_dir, path);
    match fs::read_to_string(&place) {
        Ok(now) => Ok(Some(Remembered {
            path,
            place,
            before,
            now: now.trim().to_owned(),
        })),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(InstallError::file("read", &place)(error)),
    }
}

/// Whether others change with it.
fn is_switch(path: &str) -> bool {
    path.ends_with("/ip_forward") || path.ends_with("/all/forwarding")
}

/// One that tweed has set.
fn fate(path: &str, before: &str, now: &str) -> Fate {
    let (Some(set), Ok(before)) = (set_to(path), before.parse::<i32>()) else {
        return Fate::Keep(NOT_OURS);
    };
    match now.parse::<i32>() {
        Ok(now) if now == before => Fate::Keep(AS_BEFORE),
        Ok(now) if now == set => Fate::PutBack(before),
        _ => Fate::Keep(CHANGED),
    }
}

/// One that the kernel has changed with a switch and, if that was switched off
/// just now, has changed once more.
fn fate_of_switched(before: &str, now: &str, how: Switched, switched_off: bool) -> Fate {
    let (Ok(before), Ok(now)) = (before.parse::<i32>(), now.parse::<i32>()) else {
        return Fate::Keep(NOT_OURS);
    };
    // An uninstall that was cut off may have switched it off, and no more.
    let (by_switch, lies) = match switched_off {
        true => (how.on, how.off),
        false => (how.off, now),
    };
    let right = if now == by_switch { before } else { now };
    match (right == lies, now == before) {
        (false, _) => Fate::PutBack(right),
        (true, true) => Fate::Keep(AS_BEFORE),
        (true, false) => Fate::Keep(CHANGED),
    }
}

fn read(file: &Path) -> Result<BTreeMap<String, String>, InstallError> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(InstallError::file("read", file)(error)),
    };
    serde_json::from_slice(&bytes).map_err(|error| InstallError::Content {
        path: file.to_owned(),
        why: format!("{error}; set the sysctls by hand, and remove it"),
    })
}

fn write(place: &Path, value: i32) -> Result<(), InstallError> {
    fs::write(place, value.to_string()).map_err(InstallError::file("write", place))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORWARD: &str = "net/ipv4/ip_forward";

    #[test]
    fn only_what_still_is_as_the_agent_left_it_is_put_back() {
        assert_eq!(fate(FORWARD, "0", "1"), Fate::PutBack(0));
        assert!(matches!(fate(FORWARD, "0", "0"), Fate::Keep(_)));
        assert!(matches!(fate(FORWARD, "0", "2"), Fate::Keep(_)));
        assert_eq!(
            fate("net/ipv6/conf/eth0/accept_ra", "1", "2"),
            Fate::PutBack(1)
        );
    }

    #[test]
    fn what_a_switch_takes_along_is_put_back_after_it() {
        let kept = |fate| matches!(fate, Fate::Keep(_));
        let redirects = switched("net/ipv4/conf/all/accept_redirects").unwrap();
        let fate = |before, now, off| fate_of_switched(before, now, redirects, off);
        // 0 before and since: the switch back makes it 1.
        assert_eq!(fate("0", "0", true), Fate::PutBack(0));
        assert!(kept(fate("0", "1", true)), "somebody's");
        // Cut off after the switch.
        assert_eq!(fate("0", "1", false), Fate::PutBack(0));
        assert!(kept(fate("0", "0", false)));
        let link = switched("net/ipv6/conf/eth0/forwarding").unwrap();
        let fate = |before, now, off| fate_of_switched(before, now, link, off);
        assert_eq!(fate("1", "1", true), Fate::PutBack(1));
        assert_eq!(fate("2", "1", true), Fate::PutBack(2));
        assert_eq!(fate("1", "0", false), Fate::PutBack(1));
        assert!(kept(fate("1", "0", true)), "somebody's");
        assert_eq!(fate("1", "2", true), Fate::PutBack(2), "somebody's");
        assert!(kept(fate("x", "1", true)));
    }

    #[test]
    fn a_file_that_names_others_does_not_write_them() {
        for path in ["kernel/panic", "net/ipv4/tcp_ecn", "../etc/passwd"] {
            assert!(matches!(fate(path, "0", "1"), Fate::Keep(_)), "{path}");
        }
        assert!(matches!(fate(FORWARD, "0; rm", "1"), Fate::Keep(_)));
    }
}
