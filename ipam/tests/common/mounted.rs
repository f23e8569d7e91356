//! A small file system in memory, which a test can fill or make read-only.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};

/// A tmpfs that only the thread that mounted it sees. Unmounted on drop.
pub struct Disk(PathBuf);

impl Disk {
    /// Mounts it over `folder` with these options, as in tmpfs(5). Needs root.
    pub fn over(folder: &Path, options: &str) -> Self {
        unshare(CloneFlags::CLONE_NEWNS).expect("these tests need root");
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        mount(
            Some("tmpfs"),
            folder,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(options),
        )
        .unwrap();
        Self(folder.to_owned())
    }

    /// Uses up all space and, where `inodes` says so, all inodes.
    pub fn fill(&self, inodes: bool) {
        let full = |error: io::Error| assert_eq!(error.kind(), ErrorKind::StorageFull);
        let mut file = File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 4096]).map_err(full).is_ok() {}
        let mut numbers = 0..;
        while inodes
            && let Some(number) = numbers.next()
            && File::create(self.0.join(format!("filler{number}")))
                .map_err(full)
                .is_ok()
        {}
    }

    /// Makes it read-only.
    ///
    /// The kernel refuses that while a file is open for writing. A process that another
    /// test has just forked holds a copy of each open file until it executes its program.
    pub fn make_read_only(&self) {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        let remount = || mount(None::<&str>, &self.0, None::<&str>, flags, None::<&str>);
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut result = remount();
        while result == Err(Errno::EBUSY) && Instant::now() < deadline {
            sleep(Duration::from_millis(5));
            result = remount();
        }
        result.unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
