//! Whether this machine's kernel is recent enough: pure but for [`running`].

use std::io;

/// Where the kernel gives its release: `6.1.0-18-amd64`.
const RELEASE: &str = "/proc/sys/kernel/osrelease";

/// The oldest kernel that the agent runs on. A feature that needs a newer one calls
/// [`require`] itself.
pub const LEAST: (u32, u32) = (5, 10);

/// The kernel is older than something needs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} needs Linux {major}.{minor} or later, and this is {release}: install a newer kernel",
    major = least.0,
    minor = least.1
)]
pub struct KernelTooOld {
    what: &'static str,
    least: (u32, u32),
    release: String,
}

/// The release of the kernel that runs.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn running() -> io::Result<String> {
    Ok(std::fs::read_to_string(RELEASE)?.trim().to_owned())
}

/// Checks that `release` is `least` or later, for `what`. A release that cannot be
/// read as a version counts as new enough: the kernel itself refuses what it does
/// not support.
///
/// # Errors
/// [`KernelTooOld`].
pub fn require(what: &'static str, least: (u32, u32), release: &str) -> Result<(), KernelTooOld> {
    match version(release) {
        Some(version) if version < least => Err(KernelTooOld {
            what,
            least,
            release: release.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn version(release: &str) -> Option<(u32, u32)> {
    let digits = |text: &str| -> Option<u32> {
        let end = text.find(|c: char| !c.is_ascii_digit());
        text[..end.unwrap_or(text.len())].parse().ok()
    };
    let (major, rest) = release.split_once('.')?;
    Some((digits(major)?, digits(rest)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_named_with_what_is_needed() {
        let said = require("tweed-agent", LEAST, "4.19.0-27-amd64").unwrap_err();
        assert_eq!(
            said.to_string(),
            "tweed-agent needs Linux 5.10 or later, and this is 4.19.0-27-amd64: install a newer kernel"
        );
        assert!(require("tweed-agent", LEAST, "5.9.16").is_err());
    }

    #[test]
    fn a_kernel_that_is_new_enough_or_of_unknown_age_is_taken() {
        for release in [
            "5.10.0",
            "5.10-rc1",
            "6.1.0-18-amd64",
            "10.0",
            "",
            "linux",
            "6",
        ] {
            assert_eq!(
                require("tweed-agent", LEAST, release),
                Ok(()),
                "{release:?}"
            );
        }
    }

    #[test]
    fn this_one_is_new_enough() {
        assert_eq!(require("tweed-agent", LEAST, &running().unwrap()), Ok(()));
    }
}
