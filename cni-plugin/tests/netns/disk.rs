//! DEL and GC where the run folder is full or read-only.

use serde_json::json;
use tweed_cni_plugin::datapath::veth::LinuxKernel;

use crate::lab::{Lab, assert_same};
use crate::mounted::Disk;

const SMALL: &str = "size=128k,nr_inodes=100";

#[test]
fn what_an_add_made_goes_from_a_full_disk() {
    for list in [None, Some(json!([]))] {
        let mut lab = Lab::new();
        let disk = Disk::over(&lab.site.run_dir, SMALL);
        let before = lab.picture();
        lab.call(LinuxKernel::default(), "ADD", None).ok();
        disk.fill(true);
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
    let disk = Disk::over(&lab.site.run_dir, SMALL);
    lab.call(LinuxKernel::default(), "ADD", None).ok();
    disk.make_read_only();
    lab.site.keys["cni.dev/valid-attachments"] = json!([]);
    let gc = lab.call(LinuxKernel::default(), "GC", None);
    assert_eq!(gc.code(), 5, "{:#}", gc.document);
}

#[test]
fn a_del_with_nothing_to_do_succeeds_on_a_read_only_disk() {
    let lab = Lab::new();
    let disk = Disk::over(&lab.site.run_dir, SMALL);
    lab.call(LinuxKernel::default(), "ADD", None).ok();
    lab.call(LinuxKernel::default(), "DEL", None).ok();
    disk.make_read_only();
    let before = lab.picture();
    lab.call(LinuxKernel::default(), "DEL", None).ok();
    assert_same(&before, &lab.picture(), "DEL");
    assert_eq!(lab.call(LinuxKernel::default(), "STATUS", None).code(), 50);
    assert_eq!(lab.call(LinuxKernel::default(), "ADD", None).code(), 5);
}
