//! System calls of a running agent fail for a while, one kind of call with one error that
//! the kernel may give there: the agent goes on, or it ends with an error and is started
//! again. Once they succeed again, everything is as it was.
//!
//! `make test` tries every eighth of the pairs, the same ones in each run.
//! `TWEED_CRASH_POINTS=all` tries all of them, and `TWEED_CRASH_POINTS=sendto:ENOMEM` the
//! one that a failed test has named.

use std::fs;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tweed_lab::{Agent, LabError, Strace, wait_until};

use crate::crash::{Stage, wait_until_no_draft};
use crate::state::state;

/// The calls of the agent, and errors that each of them may give.
const CALLS: &[(&str, &[&str])] = &[
    ("accept4", &["EMFILE", "ENOBUFS", "ECONNABORTED"]),
    ("clone", &["EAGAIN", "ENOMEM"]),
    ("epoll_wait", &["EINTR"]),
    ("execve", &["ENOMEM", "EACCES"]),
    ("fcntl", &["EMFILE"]),
    ("fsync", &["EIO", "ENOSPC"]),
    ("getdents64", &["EIO", "ENOMEM"]),
    ("lseek", &["EIO"]),
    ("openat", &["EMFILE", "ENOMEM", "EIO", "EINTR", "EACCES"]),
    ("poll", &["EINTR", "ENOMEM"]),
    ("recvfrom", &["ENOBUFS", "ENOMEM", "EINTR"]),
    ("rename", &["EIO", "ENOSPC", "EROFS", "EPERM"]),
    ("sendto", &["ENOBUFS", "ENOMEM", "EPERM", "EINTR"]),
    ("socket", &["EMFILE", "ENOBUFS", "EPERM"]),
    ("statx", &["EIO", "EACCES", "ENOMEM"]),
    ("wait4", &["EINTR"]),
];

/// The first of so many pairs is tried, unless all are.
const SAMPLE: usize = 8;

/// How many calls of each thread fail at most: an agent that tries without a pause is not
/// to fill the disk with what `strace` writes.
const MAX_FAILED: usize = 300;

/// After so many failed calls, or this time, they succeed again.
const ENOUGH: usize = 40;
const LONG_ENOUGH: Duration = Duration::from_secs(4);

/// Maximum time until everything is as before: the agent waits up to 15 s after failures,
/// and one that is started again needs some time to become ready.
const LIMIT: Duration = Duration::from_secs(90);

/// How long a probe waits for an answer, which may never come.
const PROBE_LIMIT: Duration = Duration::from_secs(5);

/// Objects of tweed's that are missing or wrong meanwhile.
const DAMAGE: &[&str] = &[
    "ip route del 10.244.2.0/24",
    "ip neigh del 10.244.2.0 dev tweed.1",
    "ip link set tweed.1 mtu 1300",
    "nft delete element inet tweed node_addresses4 { 192.0.2.12 }",
    "nft flush chain inet tweed prerouting_raw",
];

/// Files of the run folder that are missing meanwhile. The agent writes the other ones
/// only when it has something new for them.
const REMOVED: &[&str] = &["agent.json", "ready"];

impl Stage {
    /// Everything that makes an agent work, while the calls fail.
    fn disturb(&self) -> Result<(), LabError> {
        self.publish_joining()?;
        let node = &self.cluster[1].node;
        for line in DAMAGE {
            // Some of it the agent may be about to write.
            let _ = node.netns().sh(line);
        }
        node.netns().set_sysctl("ipv4/ip_forward", "0")?;
        for file in REMOVED {
            let _ = fs::remove_file(node.run_dir().join(file));
        }
        Ok(())
    }

    /// Waits until enough calls have failed, or the agent has ended.
    fn wait_for_failures(&mut self, strace: &Strace) -> Result<usize, LabError> {
        let start = Instant::now();
        loop {
            let failed = strace.injections()?;
            let agent = self.cluster.entry(1)?.agent.as_mut();
            let has_ended = match agent {
                Some(agent) => {
                    // A probe, as a kubelet makes it; it may stay without an answer.
                    let _ = agent.get_within("/readyz", PROBE_LIMIT);
                    agent.process().exit_status()?.is_some()
                }
                None => true,
            };
            let is_long = start.elapsed() >= LONG_ENOUGH && failed > 0;
            if failed >= ENOUGH || has_ended || is_long || start.elapsed() >= LIMIT {
                return Ok(failed);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts the agent again if it has ended; that has to be an orderly end.
    fn start_if_ended(&mut self, when: &str) -> Result<bool, LabError> {
        let Some(agent) = self.cluster.entry(1)?.agent.as_mut() else {
            return Ok(false);
        };
        let Some(status) = agent.process().exit_status()? else {
            return Ok(false);
        };
        let log = agent.log();
        assert!(
            status.code().is_some_and(|code| code != 0),
            "{when}: {status}: {log}"
        );
        assert!(!log.contains("panicked at"), "{when}: {log}");
        self.cluster.start_agent(1)?;
        Ok(true)
    }

    /// What is not as before.
    fn missing(&self) -> Result<Vec<String>, LabError> {
        let entry = &self.cluster[1];
        let mut missing = self.before.changes(&state(entry.node.netns())?);
        let files = self.files().into_iter().filter(|file| !file.exists());
        missing.extend(files.map(|file| format!("there is no {}", file.display())));
        missing.extend(self.astray().into_iter().map(str::to_owned));
        let agent = entry.agent.as_ref();
        match agent.map(|agent| agent.get("/readyz")).transpose()? {
            Some((200, _)) => {}
            answer => missing.push(format!("/readyz: {answer:?}")),
        }
        Ok(missing)
    }

    /// Waits until everything is as before. An agent that is about to end because its calls
    /// failed may still run after the first look, but it ends at most once. Returns whether
    /// it has ended.
    fn wait_until_as_before(&mut self, when: &str) -> Result<bool, LabError> {
        let what = format!("everything to be as before, {when}");
        let mut has_ended = false;
        wait_until(&what, LIMIT, || {
            if self.start_if_ended(when).map_err(|error| error.chain())? {
                assert!(!has_ended, "{when}: it has ended twice");
                has_ended = true;
            }
            let missing = self.missing().map_err(|error| error.chain())?;
            if missing.is_empty() {
                Ok(())
            } else {
                Err(missing.join("\n"))
            }
        })?;
        Ok(has_ended)
    }

    /// Checks that the files are whole, and that no agent has panicked.
    fn assert_clean(&mut self, when: &str) -> Result<(), LabError> {
        let log = self.cluster[1].agent.as_ref().map(Agent::log).unwrap();
        assert!(!log.contains("panicked at"), "{when}: {log}");
        self.assert_whole(when);
        wait_until_no_draft(&self.cluster[1].node, when)?;
        self.cluster.wait_ready()
    }
}

#[test]
fn an_agent_whose_system_calls_fail_for_a_while_converges() -> Result<(), LabError> {
    let wanted = std::env::var("TWEED_CRASH_POINTS").unwrap_or_default();
    let pairs = CALLS
        .iter()
        .flat_map(|(name, errors)| errors.iter().map(|error| (*name, *error)));
    let mut stage = Stage::new()?;
    let mut lines = Vec::new();
    for (position, (name, error)) in pairs.enumerate() {
        let point = format!("{name}:{error}");
        let is_chosen = match wanted.as_str() {
            "" => position.is_multiple_of(SAMPLE),
            "all" => true,
            one => point == one,
        };
        if !is_chosen {
            continue;
        }
        let node = &stage.cluster[1].node;
        let log = node.folder().join(format!("{name}-{error}.txt"));
        let strace = Strace::new(&log)
            .with_threads()
            .fail_first(MAX_FAILED, name, error);
        let agent = stage.cluster[1].agent.as_ref().map(Agent::pid);
        let mut attached = strace.attach(node.lab(), agent.unwrap())?;
        stage.disturb()?;
        let failed = stage.wait_for_failures(&strace)?;
        attached.stop(Signal::SIGTERM)?;
        assert!(failed > 0, "the agent makes no call {name}");
        stage.cluster.publish()?;
        let has_ended = stage.wait_until_as_before(&point)?;
        stage.assert_clean(&point)?;
        lines.push(format!(
            "{point}: {failed} calls failed, ended: {has_ended}"
        ));
        let _ = fs::remove_file(log);
    }
    println!("{}", lines.join("\n"));
    assert!(!lines.is_empty(), "there is no {wanted:?}");
    Ok(())
}
