//! How files of the store are opened.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

use nix::fcntl::OFlag;

/// How every file of the store is opened: NONBLOCK, as opening a FIFO would
/// otherwise wait for a writer.
pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    options.mode(0o600).custom_flags(flags.bits());
    options
}
