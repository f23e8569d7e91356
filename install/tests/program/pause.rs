//! `pause`: the main container of the pod that cleans a node.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use crate::node::program;

/// SIGTERM, as a bit of a mask in `/proc/<pid>/status`.
const TERM: u64 = 1 << 14;

fn waits_for_term(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    u64::from_str_radix(blocked.unwrap().trim(), 16).unwrap() & TERM != 0
}

#[test]
fn it_waits_and_ends_well_when_it_is_told() {
    let mut pause = Command::new(program()).arg("pause").spawn().unwrap();
    while !waits_for_term(pause.id()) {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(pause.try_wait().unwrap(), None);
    let pid = pause.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    assert!(pause.wait().unwrap().success());
}
