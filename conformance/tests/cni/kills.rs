//! The plugin killed at any moment: the next DEL or GC leaves nothing, and no
//! address is two pods'.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use tweed_lab::{Background, PluginCall, Pod};

use crate::bench::{Bench, refused_with, silent};

/// Starts a verb, to be killed.
fn start(bench: &Bench, verb: &str, pod: &Pod) -> Child {
    let folder = bench.node.cni_bin_dir();
    let mut command = bench.node.netns().command(folder.join("tweed"));
    command
        .env("CNI_COMMAND", verb)
        .env("CNI_CONTAINERID", pod.container_id())
        .env("CNI_NETNS", pod.path())
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", &folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let config = bench.config().to_string();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(config.as_bytes()).unwrap();
    child
}

/// The moments to kill at: spread over all of what a verb takes, which is
/// learnt on the way, for the machine may have other work.
struct Moments {
    span: Duration,
    round: u32,
}

impl Moments {
    /// Starts with what an ADD takes now.
    fn of_add(bench: &Bench, pod: &Pod) -> Self {
        let begin = Instant::now();
        assert!(start(bench, "ADD", pod).wait().unwrap().success());
        let span = begin.elapsed();
        bench.del(pod);
        Self { span, round: 0 }
    }

    /// Kills a verb at the next moment; whether it had ended before.
    fn kill(&mut self, bench: &Bench, verb: &str, pod: &Pod) -> bool {
        // 61 and 100 have no common divisor: every hundredth, far apart.
        let hundredth = self.round * 61 % 100;
        self.round += 1;
        let ended = kill_at(bench, verb, pod, self.span * hundredth / 100);
        if ended {
            self.span = self.span * 9 / 10;
        } else if hundredth > 90 {
            self.span = self.span * 6 / 5;
        }
        ended
    }
}

/// Kills a verb after a part of its usual time; whether it had ended before.
fn kill_at(bench: &Bench, verb: &str, pod: &Pod, after: Duration) -> bool {
    let mut child = start(bench, verb, pod);
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap().success()
}

fn gc_with_nothing_listed(bench: &Bench) {
    let mut config = bench.config();
    config["cni.dev/valid-attachments"] = json!([]);
    silent(&bench.run(&PluginCall::new("GC").config(&config)));
}

/// What comes after a killed verb.
#[derive(Clone, Copy)]
enum Then {
    Del,
    Gc,
    /// A runtime that tries again without a DEL, then DELs.
    AddAndDel,
}

const ROUNDS: u32 = 100;

fn leaves_nothing(verb: &str, then: &[Then]) {
    let bench = Bench::tweed();
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let mut moments = Moments::of_add(&bench, &pod);
    let (mut cut_off, mut mended) = (0, 0);
    for (round, then) in (0..ROUNDS).zip(then.iter().cycle()) {
        if verb == "DEL" {
            bench.add(&pod);
        }
        cut_off += u32::from(!moments.kill(&bench, verb, &pod));
        match then {
            Then::Del => bench.del(&pod),
            Then::Gc => gc_with_nothing_listed(&bench),
            Then::AddAndDel => {
                let again = bench.run(&bench.call("ADD", &pod));
                mended += u32::from(again.code == Some(0));
                // Attached as before: the kill came too late, or too early.
                if again.code != Some(0) {
                    refused_with(&again, 102, &["an ADD without a DEL before it"]);
                }
                bench.del(&pod);
            }
        }
        assert_eq!(bench.reserved(), BTreeSet::new(), "round {round}");
        assert_eq!(bench.records(), 0, "round {round}");
    }
    bench.assert_nothing_left(&before);
    assert!(cut_off > ROUNDS / 4, "only {cut_off} were cut off");
    let tried_again = then.iter().any(|then| matches!(then, Then::AddAndDel));
    assert_eq!(mended > 0, tried_again);
}

#[test]
fn an_add_then_del_or_gc() {
    leaves_nothing("ADD", &[Then::Del, Then::Gc]);
}

#[test]
fn an_add_then_the_same_again() {
    leaves_nothing("ADD", &[Then::AddAndDel]);
}

#[test]
fn a_del_then_del_gc_or_add() {
    leaves_nothing("DEL", &[Then::Del, Then::Gc, Then::AddAndDel]);
}

/// Killed ADDs of many pods, none cleaned up after, while others come: what is
/// given is given once; after one GC the whole range can be given again.
#[test]
fn what_is_given_beside_killed_adds_is_given_once() {
    let bench = Bench::tweed();
    let mut config = bench.config();
    config["ipam"]["ranges"] = json!([[{ "subnet": "10.244.1.0/26" }]]);
    let probe = bench.pod("probe");
    let mut moments = Moments::of_add(&bench, &probe);
    let mut held: BTreeSet<IpAddr> = BTreeSet::new();
    let mut pods = Vec::new();
    for round in 0..25 {
        let victim = bench.pod(&format!("victim{round}"));
        moments.kill(&bench, "ADD", &victim);
        let pod = bench.pod(&format!("pod{round}"));
        let address = bench.add_with(&pod, &config).address().unwrap();
        assert!(
            held.insert(address),
            "round {round}: {address} is given twice"
        );
        pods.push((pod, victim));
    }
    let mut gc = config.clone();
    gc["cni.dev/valid-attachments"] = pods
        .iter()
        .map(|(pod, _)| json!({ "containerID": pod.container_id(), "ifname": "eth0" }))
        .collect();
    silent(&bench.run(&PluginCall::new("GC").config(&gc)));
    assert_eq!(bench.reserved(), held);
    assert_eq!(bench.records(), 25);
    // 61 addresses, 25 of them held.
    let more: Vec<Pod> = (0..36).map(|n| bench.pod(&format!("more{n}"))).collect();
    for pod in &more {
        let address = bench.add_with(pod, &config).address().unwrap();
        assert!(held.insert(address), "{address} is given twice");
    }
    assert_eq!(held.len(), 61);
}

/// A process that was stopped while it holds the store's lock: nobody waits for
/// it for ever, and nobody goes on without the lock.
#[test]
fn a_lock_that_a_stopped_process_holds_is_code_11() {
    let bench = Bench::tweed();
    let [attached, other, new] = ["attached", "other", "new"].map(|name| bench.pod(name));
    let added = bench.add(&attached);
    bench.add(&other);
    let before = bench.snapshot();
    let lock = bench.store().join("lock");
    // One process, which has the lock as long as it lives.
    let script = "exec 9>\"$0\"; flock 9; echo held; exec sleep 600";
    let mut holder = bench.node.netns().command("sh");
    holder.args(["-c", script]).arg(&lock);
    let log = bench.node.folder().join("holder.log");
    let mut holder = Background::start(bench.node.lab(), &mut holder, &log).unwrap();
    tweed_lab::wait_until("the lock to be held", Duration::from_secs(5), || {
        let output = holder.output();
        if output.contains("held") {
            Ok(())
        } else {
            Err(output)
        }
    })
    .unwrap();
    holder.signal(Signal::SIGSTOP);

    // It needs no lock.
    silent(&bench.check(&attached, &added));
    let mut nothing_listed = bench.config();
    nothing_listed["cni.dev/valid-attachments"] = json!([]);
    let calls = [
        bench.call("ADD", &new),
        bench.call("DEL", &attached),
        PluginCall::new("GC").config(&nothing_listed),
    ];
    let outputs = std::thread::scope(|scope| {
        let running = calls.each_ref().map(|call| scope.spawn(|| bench.run(call)));
        running.map(|thread| thread.join().unwrap())
    });
    for output in &outputs {
        refused_with(output, 11, &[&lock.display().to_string()]);
    }
    let changed = before.changes(&bench.snapshot());
    assert!(
        changed
            .iter()
            .all(|line| !line.contains(&new.container_id())),
        "{changed:#?}"
    );

    holder.stop(Signal::SIGKILL).unwrap();
    bench.del(&attached);
    bench.add(&new);
}
