//! The process that deletes the links of DELs is killed at each system call: the next
//! one that comes deletes them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tweed_lab::{Strace, SystemCall, wait_until};

use super::points::chosen;
use super::stage::{Stage, succeeded};
use crate::fixture::DELETION_LIMIT;

/// How long a finisher that has looked for links still says that it is at work.
const PAUSE: Duration = Duration::from_secs(2);
/// How long to try to have a DEL in that time.
const LIMIT: Duration = Duration::from_secs(60);

/// DEL of the victim, whose link stays until [`run`] deletes it. The returned lock file
/// is what a finisher has, and names the node's namespace: otherwise no DEL relies on
/// its holder.
fn del_without_a_finisher(stage: &Stage, when: &str) -> File {
    let path = stage.fixture.node.run_dir().join("leaving.lock");
    let netns = stage.fixture.node.netns();
    stage.fixture.snapshot();
    stage.add(&stage.victim, when);
    let lock = File::options().write(true).open(path).unwrap();
    // A finisher of an earlier DEL looks once more after its unlock; it has ended then.
    lock.lock().unwrap();
    // Process 1 always runs, and is no zombie: after one, DELs start no finisher.
    let inode = netns.sh("stat -Lc %i /proc/self/ns/net").unwrap();
    let holder = format!("1 {}\n", inode.trim());
    lock.write_all_at(holder.as_bytes(), 0).unwrap();
    stage.del(&stage.victim, when);
    let links = stage.fixture.leaving();
    assert_eq!(links, 1, "{when}: the DEL deleted its link itself");
    lock
}

/// Runs a finisher. Returns whether it was killed, and the record of its calls.
fn run(stage: &Stage, lock: File, point: Option<&SystemCall>) -> (bool, Strace) {
    let mut strace = stage.strace().without_pauses();
    if let Some(point) = point {
        strace = strace.kill_at(point);
    }
    let status = finisher(stage, &strace, lock).status().unwrap();
    assert!(matches!(status.code(), None | Some(0)), "{status}");
    (status.code().is_none(), strace)
}

fn finisher(stage: &Stage, strace: &Strace, lock: File) -> Command {
    let node = &stage.fixture.node;
    let mut command = strace.command(node.netns(), node.cni_bin_dir().join("tweed"));
    command.arg("delete-leaving-links").stdin(Stdio::from(lock));
    command
}

/// A DEL relies on a finisher that says that it is at work, be it that this one has just
/// looked for links.
#[test]
fn a_link_that_comes_after_its_look_is_deleted() {
    let stage = Stage::new("tweed");
    let mut lock = del_without_a_finisher_after_one(&stage);
    // It writes to the lock file when it begins, and when it looks for no more links.
    let says_no_more = SystemCall {
        name: "pwrite64".to_owned(),
        number: 2,
    };
    let strace = stage.strace().delay(&says_no_more, PAUSE);
    let is_deleted = || match stage.fixture.leaving() {
        0 => Ok(()),
        count => Err(format!("{count} links are left")),
    };
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        stage.add(&stage.other, "ADD");
        let mut finisher = finisher(&stage, &strace, lock).spawn().unwrap();
        wait_until("the first link to be deleted", DELETION_LIMIT, is_deleted).unwrap();
        let says = || fs::read_to_string(stage.fixture.node.run_dir().join("leaving.lock"));
        let at_work = says().unwrap();
        stage.del(&stage.other, "DEL");
        // Otherwise the DEL may have come too late, and deletes the link by itself.
        let relied = at_work.contains(' ') && says().unwrap() == at_work;
        assert!(finisher.wait().unwrap().success());
        if relied {
            return is_deleted().unwrap();
        }
        wait_until("the other link to be deleted", DELETION_LIMIT, is_deleted).unwrap();
        lock = del_without_a_finisher(&stage, "DEL");
    }
    panic!("no DEL relied on the finisher");
}

#[test]
fn killed_at_each_call() {
    let stage = Stage::new("tweed");
    let lock = del_without_a_finisher_after_one(&stage);
    let made = run(&stage, lock, None).1.calls().unwrap();
    let before = stage.baseline();
    let mut killed = 0;
    for (round, point) in chosen(&made).iter().enumerate() {
        let when = format!("finisher killed at {point}");
        let lock = del_without_a_finisher(&stage, &when);
        killed += u32::from(run(&stage, lock, Some(point)).0);
        if round % 2 == 0 {
            stage.add(&stage.other, &when);
            stage.del(&stage.other, &when);
        } else {
            succeeded(&stage.run(&stage.gc()), &when);
        }
        // Waits until no link is on its way out.
        stage.fixture.snapshot();
        before.assert_same(|| stage.objects(), &when);
    }
    assert!(killed > 0, "no finisher was killed");
}

/// The first DEL makes the lock file.
fn del_without_a_finisher_after_one(stage: &Stage) -> File {
    stage.add(&stage.other, "ADD");
    stage.del(&stage.other, "DEL");
    del_without_a_finisher(stage, "DEL")
}
