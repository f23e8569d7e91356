//! Which system calls a test tries.

use std::collections::BTreeMap;

use tweed_lab::SystemCall;

/// One in so many of the calls that change nothing is tried, unless all are.
const SAMPLE: usize = 8;

/// The calls that change something outside of the process, the namespace that it works
/// in, or start another one.
const WRITES: &[&str] = &[
    "clone",
    "clone3",
    "execve",
    "fchmod",
    "fsync",
    "ftruncate",
    "linkat",
    "mkdir",
    "pwrite64",
    "rename",
    "renameat2",
    "rmdir",
    "sendmsg",
    "setns",
    "sendto",
    "symlink",
    "symlinkat",
    "unlink",
    "unlinkat",
    "vfork",
    "write",
];

/// The calls that are not made to fail: those by which the C library and Rust's prepare
/// a process and get memory, without which no program works, and `close`, which has no
/// error that a program could do something about: Rust's library panics for a folder.
pub const NEVER_REFUSED: &[&str] = &[
    "arch_prctl",
    "brk",
    "close",
    "execve",
    "exit_group",
    "getrandom",
    "madvise",
    "mmap",
    "mprotect",
    "munmap",
    "poll",
    "prlimit64",
    "rseq",
    "rt_sigaction",
    "rt_sigprocmask",
    "set_robust_list",
    "set_tid_address",
    "sigaltstack",
];

const VARIABLE: &str = "TWEED_CRASH_POINTS";

/// Whether each call is to be tried with all errors: also one that a failed test has
/// named, because which error it had then is chance.
pub fn is_every_error_wanted() -> bool {
    std::env::var(VARIABLE).is_ok_and(|wanted| !wanted.is_empty())
}

/// The calls to try of those that a run has made.
pub fn chosen(made: &BTreeMap<String, usize>) -> Vec<SystemCall> {
    let wanted = std::env::var(VARIABLE).unwrap_or_default();
    let offset = std::process::id() as usize;
    let of_name = |(name, count): (&String, &usize)| {
        let name = name.clone();
        (1..=*count).map(move |number| SystemCall {
            name: name.clone(),
            number,
        })
    };
    let is_chosen = |(position, call): &(usize, SystemCall)| match wanted.as_str() {
        "" => WRITES.contains(&call.name.as_str()) || (position + offset).is_multiple_of(SAMPLE),
        "all" => true,
        one => call.to_string() == one,
    };
    let all = made.iter().flat_map(of_name).enumerate();
    all.filter(is_chosen).map(|(_, call)| call).collect()
}
