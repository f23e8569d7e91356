//! DEL and GC where the run folder is full or read-only.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use serde_json::json;
use tweed_cni_plugin::datapath::veth::LinuxKernel;

use crate::lab::{Lab, assert_same};

/// A tmpfs that only the calling thread sees. Unmounted on drop.
struct Disk(PathBuf);

impl Disk {
    fn over(folder: &Path) -> Self {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let (tmpfs, options) = (Some("tmpfs"), Some("size=128k,nr_inodes=100"));
        mount(tmpfs, folder, tmpfs, MsFlags::empty(), options).unwrap();
        Self(folder.to_owned())
    }

    /// Uses up all space and all inodes.
    fn fill(&self) {
        let full = |error: io::Error| assert_eq!(error.kind(), ErrorKind::StorageFull);
        let mut file = File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 4096]).map_err(full).is_ok() {}
        let mut names = (0..).map(|number| self.0.join(format!("filler{number}")));
        while File::create(names.next().unwrap()).map_err(full).is_ok() {}
    }

    fn make_read_only(&self) {
        let flags = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(None::<&str>, &self.0, None::<&str>, flags, None::<&str>).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

#[test]
fn what_an_add_made_goes_from_a_full_disk() {
    for list in [None, Some(json!([]))] {
        let mut lab = Lab::new();
        let disk = Disk::over(&lab.site.run_dir);
        let before = lab.picture();
        lab.call(LinuxKernel::default(), "ADD", None).ok();
        disk.fill();
        let verb = match list {
            None => "DEL",
            Some(list) => {
                lab.site.keys["cni.dev/valid-attachments"] = list;
                "GC"
            }
        };
        lab.call(LinuxKernel::default(), verb, None).ok();
        assert_same(&before, &lab.picture(), verb);
    }
}

#[test]
fn a_gc_says_that_the_disk_cannot_be_written() {
    let mut lab = Lab::new();
    let disk = Disk::over(&lab.site.run_dir);
    lab.call(LinuxKernel::default(), "ADD", None).ok();
    disk.make_read_only();
    lab.site.keys["cni.dev/valid-attachments"] = json!([]);
    let gc = lab.call(LinuxKernel::default(), "GC", None);
    assert_eq!(gc.code(), 5, "{:#}", gc.document);
}

#[test]
fn a_del_with_nothing_to_do_succeeds_on_a_read_only_disk() {
    let lab = Lab::new();
    let disk = Disk::over(&lab.site.run_dir);
    lab.call(LinuxKernel::default(), "ADD", None).ok();
    lab.call(LinuxKernel::default(), "DEL", None).ok();
    disk.make_read_only();
    let before = lab.picture();
    lab.call(LinuxKernel::default(), "DEL", None).ok();
    assert_same(&before, &lab.picture(), "DEL");
    assert_eq!(lab.call(LinuxKernel::default(), "STATUS", None).code(), 50);
    assert_eq!(lab.call(LinuxKernel::default(), "ADD", None).code(), 5);
}
