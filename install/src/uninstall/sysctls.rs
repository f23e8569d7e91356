//! The sysctls of the machine, put back to what the agent found: only where
//! they still are what the agent has made of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use tweed_agent::kernel::sysctl::{FOUND, set_to};

use crate::error::InstallError;
use crate::journal::{Deed, Journal};
use crate::places::Places;

/// What is to become of one of them.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// It gets this value.
    PutBack(i32),
    /// It is left as it is, and why.
    Keep(&'static str),
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
    let mut paths: Vec<(&String, &String)> = found.iter().collect();
    // Forwarding before `accept_ra`, as it was set in the other order: while
    // forwarding is on, the smaller value takes no advertisements.
    paths.sort_by_key(|(path, _)| {
        Reverse(path.ends_with("forward") || path.ends_with("forwarding"))
    });
    let mut all = true;
    for (path, before) in paths {
        let place = places
            .sysctl_dir
            .join(path.strip_prefix("net/").unwrap_or(path));
        let now = match fs::read_to_string(&place) {
            Ok(now) => now,
            // Its link is gone, and it with it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                journal.failed(&InstallError::file("read", &place)(error));
                all = false;
                continue;
            }
        };
        match fate(path, before, now.trim()) {
            Fate::PutBack(value) => {
                let object = format!("sysctl {path} to {value}");
                all &= journal.act(Deed::RESTORE, object, || write(&place, value));
            }
            Fate::Keep(why) => journal.kept(format_args!("sysctl {path} at {}", now.trim()), why),
        }
    }
    all
}

fn fate(path: &str, before: &str, now: &str) -> Fate {
    let (Some(set), Ok(before)) = (set_to(path), before.parse::<i32>()) else {
        return Fate::Keep("tweed does not set it");
    };
    match now.parse::<i32>() {
        Ok(now) if now == before => Fate::Keep("it is as it was before"),
        Ok(now) if now == set => Fate::PutBack(before),
        _ => Fate::Keep("somebody else has changed it since"),
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
    fn a_file_that_names_others_does_not_write_them() {
        for path in ["kernel/panic", "net/ipv4/tcp_ecn", "../etc/passwd"] {
            assert!(matches!(fate(path, "0", "1"), Fate::Keep(_)), "{path}");
        }
        assert!(matches!(fate(FORWARD, "0; rm", "1"), Fate::Keep(_)));
    }
}
