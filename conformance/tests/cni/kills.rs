//! The plugin is killed at any time: the next DEL or GC leaves nothing, and no address is
//! assigned to two pods.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::IpAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use tweed_lab::{Background, PluginCall, Pod};

use crate::fixture::{Fixture, assert_refused_with, assert_silent};

/// Starts a call that will be killed.
fn start(fixture: &Fixture, verb: &str, pod: &Pod) -> Child {
    let folder = fixture.node.cni_bin_dir();
    let mut command = fixture.node.netns().command(folder.join("tweed"));
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
    let config = fixture.config().to_string();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(config.as_bytes()).unwrap();
    child
}

/// The times at which calls are killed: spread over the duration of a call, which is
/// adapted because the machine may be busy.
struct Moments {
    span: Duration,
    round: u32,
}

impl Moments {
    /// Starts with the duration of an ADD.
    fn of_add(fixture: &Fixture, pod: &Pod) -> Self {
        let begin = Instant::now();
        assert!(start(fixture, "ADD", pod).wait().unwrap().success());
        let span = begin.elapsed();
        fixture.del(pod);
        Self { span, round: 0 }
    }

    /// Kills a call at the next time. Returns whether it had ended before.
    fn kill(&mut self, fixture: &Fixture, verb: &str, pod: &Pod) -> bool {
        // 61 and 100 have no common divisor, so every hundredth occurs, with large steps.
        let hundredth = self.round * 61 % 100;
        self.round += 1;
        let ended = kill_at(fixture, verb, pod, self.span * hundredth / 100);
        if ended {
            self.span = self.span * 9 / 10;
        } else if hundredth > 90 {
            self.span = self.span * 6 / 5;
        }
        ended
    }
}

/// Kills a call after this time. Returns whether it had ended before.
fn kill_at(fixture: &Fixture, verb: &str, pod: &Pod, after: Duration) -> bool {
    let mut child = start(fixture, verb, pod);
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap().success()
}

const ROUNDS: u32 = 100;

/// After a killed call comes an ADD without a DEL, as by a runtime that repeats it, and
/// then a DEL. What DEL and GC leave after a killed call is in `crash`.
fn an_add_and_a_del_leave_nothing_after(verb: &str) {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let mut moments = Moments::of_add(&fixture, &pod);
    let (mut killed, mut repeated) = (0, 0);
    for round in 0..ROUNDS {
        if verb == "DEL" {
            fixture.add(&pod);
        }
        killed += u32::from(!moments.kill(&fixture, verb, &pod));
        let again = fixture.run(&fixture.call("ADD", &pod));
        repeated += u32::from(again.code == Some(0));
        // The first ADD had finished, or the DEL had not begun, before it was killed.
        if again.code != Some(0) {
            assert_refused_with(&again, 102, &["an ADD without a DEL before it"]);
        }
        fixture.del(&pod);
        assert_eq!(fixture.reserved(), BTreeSet::new(), "round {round}");
        assert_eq!(fixture.records(), 0, "round {round}");
    }
    fixture.assert_nothing_left(&before);
    assert!(
        killed > ROUNDS / 4,
        "only {killed} were killed before they ended"
    );
    assert!(repeated > 0, "no ADD succeeded after a killed {verb}");
}

#[test]
fn a_killed_add_then_another_add() {
    an_add_and_a_del_leave_nothing_after("ADD");
}

#[test]
fn a_killed_del_then_an_add() {
    an_add_and_a_del_leave_nothing_after("DEL");
}

/// ADDs of many pods are killed without any cleanup while other pods are added: no address
/// is assigned twice, and after one GC the whole range can be used again.
#[test]
fn no_address_is_assigned_twice_between_killed_adds() {
    let fixture = Fixture::tweed();
    let mut config = fixture.config();
    config["ipam"]["ranges"] = json!([[{ "subnet": "10.244.1.0/26" }]]);
    let probe = fixture.pod("probe");
    let mut moments = Moments::of_add(&fixture, &probe);
    let mut held: BTreeSet<IpAddr> = BTreeSet::new();
    let mut pods = Vec::new();
    for round in 0..25 {
        let victim = fixture.pod(&format!("victim{round}"));
        moments.kill(&fixture, "ADD", &victim);
        let pod = fixture.pod(&format!("pod{round}"));
        let address = fixture.add_with(&pod, &config).address().unwrap();
        assert!(
            held.insert(address),
            "round {round}: {address} is assigned twice"
        );
        pods.push((pod, victim));
    }
    let mut gc = config.clone();
    gc["cni.dev/valid-attachments"] = pods
        .iter()
        .map(|(pod, _)| json!({ "containerID": pod.container_id(), "ifname": "eth0" }))
        .collect();
    assert_silent(&fixture.run(&PluginCall::new("GC").config(&gc)));
    assert_eq!(fixture.reserved(), held);
    assert_eq!(fixture.records(), 25);
    // 61 addresses, 25 of them in use.
    let more: Vec<Pod> = (0..36).map(|n| fixture.pod(&format!("more{n}"))).collect();
    for pod in &more {
        let address = fixture.add_with(pod, &config).address().unwrap();
        assert!(held.insert(address), "{address} is assigned twice");
    }
    assert_eq!(held.len(), 61);
}

/// A stopped process holds the store's lock: no call waits for it for ever, and no call
/// continues without the lock.
#[test]
fn a_lock_that_a_stopped_process_holds_is_code_11() {
    let fixture = Fixture::tweed();
    let [attached, other, new] = ["attached", "other", "new"].map(|name| fixture.pod(name));
    let added = fixture.add(&attached);
    fixture.add(&other);
    let before = fixture.snapshot();
    let lock = fixture.store().join("lock");
    // A process that holds the lock until it ends.
    let script = "exec 9>\"$0\"; flock 9; echo held; exec sleep 600";
    let mut holder = fixture.node.netns().command("sh");
    holder.args(["-c", script]).arg(&lock);
    let log = fixture.node.folder().join("holder.log");
    let mut holder = Background::start(fixture.node.lab(), &mut holder, &log).unwrap();
    tweed_lab::wait_until("the lock to be held", Duration::from_secs(30), || {
        let output = holder.output();
        if output.contains("held") {
            Ok(())
        } else {
            Err(output)
        }
    })
    .unwrap();
    holder.signal(Signal::SIGSTOP);

    // CHECK needs no lock.
    assert_silent(&fixture.check(&attached, &added));
    let mut nothing_listed = fixture.config();
    nothing_listed["cni.dev/valid-attachments"] = json!([]);
    let calls = [
        fixture.call("ADD", &new),
        fixture.call("DEL", &attached),
        PluginCall::new("GC").config(&nothing_listed),
    ];
    let outputs = std::thread::scope(|scope| {
        let running = calls
            .each_ref()
            .map(|call| scope.spawn(|| fixture.run(call)));
        running.map(|thread| thread.join().unwrap())
    });
    for output in &outputs {
        assert_refused_with(output, 11, &[&lock.display().to_string()]);
    }
    let changed = before.changes(&fixture.snapshot());
    assert!(
        changed
            .iter()
            .all(|line| !line.contains(&new.container_id())),
        "{changed:#?}"
    );

    holder.stop(Signal::SIGKILL).unwrap();
    fixture.del(&attached);
    fixture.add(&new);
}
