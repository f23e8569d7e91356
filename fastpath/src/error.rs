//! Why there is no fast path.

use std::io;
use std::path::PathBuf;

use nix::libc;

/// Why the programs cannot be loaded or attached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder is in no bpffs.
    #[error(
        "{0} is in no mounted bpffs; mount one above it (mount -t bpf bpf /sys/fs/bpf), and in \
         a container the host's"
    )]
    NoBpffs(PathBuf),
    /// The kernel does not say how its structures are laid out.
    #[error("this kernel has no BTF: {0} is missing; it needs CONFIG_DEBUG_INFO_BTF")]
    NoBtf(PathBuf),
    /// The kernel is older than tcx.
    #[error("this kernel has no tcx, which came with Linux 6.6")]
    NoTcx,
    /// The kernel keeps its memory from all programs.
    #[error(
        "the kernel is locked down for confidentiality (/sys/kernel/security/lockdown), so no \
         program may read what connection tracking knows"
    )]
    Lockdown,
    /// A right is missing.
    #[error(
        "the kernel does not permit it ({0}); the agent needs CAP_BPF, CAP_PERFMON and \
         CAP_NET_ADMIN, and bpf(2) in its filter of system calls"
    )]
    NotPermitted(String),
    /// The kernel refuses a program or a map.
    #[error("the kernel refuses {what}: {why}")]
    Refused {
        /// What it refuses.
        what: String,
        /// Its answer.
        why: String,
    },
    /// A program does not do on this kernel what it should.
    #[error("the test of the programs on this kernel has failed: {0}; please report it")]
    SelfTest(String),
    /// A file in bpffs cannot be read, made or removed.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// A word for it, for metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoBpffs(_) => "no-bpffs",
            Self::NoBtf(_) => "no-btf",
            Self::NoTcx => "no-tcx",
            Self::Lockdown => "lockdown",
            Self::NotPermitted(_) => "not-permitted",
            Self::Refused { .. } => "refused",
            Self::SelfTest(_) => "self-test",
            Self::File { .. } => "file",
        }
    }

    /// One that the kernel has given to a request for `what`.
    pub(crate) fn of(what: &str, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut why = error.to_string();
        for cause in causes(error) {
            let text = cause.to_string();
            if !why.contains(&text) {
                why = format!("{why}: {text}");
            }
        }
        match errno(error) {
            // The verifier refuses a program with EACCES.
            Some(libc::EPERM) => Self::NotPermitted(format!("{what}: {why}")),
            // In a container the file that says so is not seen.
            _ if LOCKED.iter().any(|words| why.contains(words)) => Self::Lockdown,
            _ => Self::Refused {
                what: what.to_owned(),
                why: last_lines(&why),
            },
        }
    }
}

/// An error and what has caused it.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// The number that the kernel has given, if it was the kernel.
fn errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    causes(error).find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
}

/// What the verifier says of a helper that a locked kernel does not have, by version. Where the
/// loader finds no `bpf_probe_read_kernel`, it takes `bpf_probe_read` instead.
const LOCKED: [&str; 2] = [
    "unknown func bpf_probe_read",
    "cannot use helper bpf_probe_read",
];
/// Maximum length of what the verifier says, in bytes.
const MAX_TEXT: usize = 600;

/// The end of a long text: the verifier says last why it refuses a program.
fn last_lines(text: &str) -> String {
    let text = text.trim();
    let start = text.len().saturating_sub(MAX_TEXT);
    let start = (start..text.len()).find(|at| text.is_char_boundary(*at));
    let end = text.get(start.unwrap_or(0)..).unwrap_or_default();
    end.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_right_is_told_from_a_refusal() {
        let of = |errno| Error::of("the map", &io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::EPERM).word(), "not-permitted");
        assert_eq!(of(libc::ENOMEM).word(), "refused");
    }

    #[test]
    fn a_locked_kernel_is_known_by_what_its_verifier_says() {
        let of = |text: &str| Error::of("the program", &io::Error::other(text)).word();
        for helper in ["bpf_probe_read_kernel#113", "bpf_probe_read#4"] {
            let end = format!("{helper} verification time 5 usec");
            for start in ["program of this type cannot use helper", "unknown func"] {
                assert_eq!(of(&format!("{start} {end}")), "lockdown");
            }
            assert_eq!(of(&format!("call {end}")), "refused");
        }
    }

    #[test]
    fn of_a_long_text_the_end_is_kept() {
        let text = format!("{} and so no", "é".repeat(600));
        let short = last_lines(&text);
        assert!(
            short.ends_with("and so no") && short.len() <= MAX_TEXT,
            "{short}"
        );
    }
}
