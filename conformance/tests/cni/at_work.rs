//! One process at a time works on an attachment, and whoever comes by can tell
//! whether it still does: from any PID namespace, however it ended.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginCall, Pod, wait_until};

use crate::bench::{Bench, silent, with_prev_result};

/// How long a plugin may take to get to the point that is waited for.
const SOON: Duration = Duration::from_secs(10);

/// An IPAM plugin that gives an address when it is let go, and the ADD over it.
struct HeldUp {
    folder: PathBuf,
    config: Value,
}

impl HeldUp {
    fn new(bench: &Bench) -> Self {
        let folder = bench.node.folder().join("held-up");
        fs::create_dir_all(&folder).unwrap();
        let (pid, go) = (folder.join("pid"), folder.join("go"));
        let script = format!(
            "#!/bin/sh\n[ \"$CNI_COMMAND\" = ADD ] || exit 0\necho $$ >{pid}.new\nmv {pid}.new {pid}\n\
             while ! [ -e {go} ]; do sleep 0.01; done\n\
             echo '{{\"cniVersion\":\"1.1.0\",\"ips\":[{{\"address\":\"10.244.1.9/24\"}}]}}'\n",
            pid = pid.display(),
            go = go.display(),
        );
        let program = folder.join("slow-ipam");
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut config = bench.config();
        config["ipam"] = json!({ "type": "slow-ipam" });
        Self { folder, config }
    }

    fn call(&self, bench: &Bench, verb: &str, pod: &Pod) -> PluginCall {
        let path = format!(
            "{}:{}",
            self.folder.display(),
            bench.node.cni_bin_dir().display()
        );
        bench
            .call(verb, pod)
            .config(&self.config)
            .env("CNI_PATH", &path)
    }

    /// The number of the plugin's process, once it is held up.
    fn reached(&self) -> Pid {
        let pid = wait_until("the IPAM plugin to be run", SOON, || {
            let text = fs::read_to_string(self.folder.join("pid"));
            text.map_err(|error| error.to_string())
        });
        Pid::from_raw(pid.unwrap().trim().parse().unwrap())
    }

    fn let_go(&self) {
        fs::write(self.folder.join("go"), "").unwrap();
    }
}

/// GC without a list, which takes back what was cut off and no more, in a PID
/// namespace of its own, as an agent in a container is.
fn sweep_from_elsewhere(bench: &Bench, config: &Value) {
    let plugin = bench.wrapper(
        "elsewhere",
        "exec unshare --pid --fork --kill-child \"$PLUGIN\"",
    );
    let gc = PluginCall::new("GC").config(config);
    silent(&gc.run(&bench.node, &plugin).unwrap());
}

fn start_add(bench: &Bench, held_up: &HeldUp, pod: &Pod) -> Child {
    let config = bench.node.folder().join("held-up.json");
    fs::write(&config, held_up.config.to_string()).unwrap();
    let mut command = bench
        .node
        .netns()
        .command(bench.node.cni_bin_dir().join("tweed"));
    command
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", pod.container_id())
        .env("CNI_NETNS", pod.path())
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", &held_up.folder)
        .stdin(fs::File::open(&config).unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn a_killed_add_is_told_from_one_at_work_in_another_pid_namespace() {
    let bench = Bench::tweed();
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let held_up = HeldUp::new(&bench);
    let mut add = start_add(&bench, &held_up, &pod);
    let ipam = held_up.reached();
    sweep_from_elsewhere(&bench, &bench.config());
    assert_eq!(bench.records(), 1, "the ADD is at work");

    add.kill().unwrap();
    add.wait().unwrap();
    // What it ran is still there, and is not the ADD.
    assert!(Path::new(&format!("/proc/{ipam}")).exists());
    sweep_from_elsewhere(&bench, &bench.config());
    assert_eq!(bench.records(), 0);
    kill(ipam, Signal::SIGKILL).unwrap();
    bench.assert_nothing_left(&before);
}

#[test]
fn a_del_lets_an_add_end_and_then_takes_it_away() {
    let bench = Bench::tweed();
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let held_up = HeldUp::new(&bench);
    thread::scope(|scope| {
        let add = scope.spawn(|| bench.run(&held_up.call(&bench, "ADD", &pod)));
        held_up.reached();
        let del = scope.spawn(|| bench.run(&held_up.call(&bench, "DEL", &pod)));
        held_up.let_go();
        let added = add.join().unwrap();
        assert_eq!(added.code, Some(0), "{added:?}");
        silent(&del.join().unwrap());
    });
    bench.assert_nothing_left(&before);
}

/// A runtime must not do so; one that does gets an error or what it asked for,
/// and what ADD answered last is there.
#[test]
fn adds_and_dels_of_one_pod_at_once_do_not_take_each_others_links() {
    let bench = Bench::tweed();
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    for _ in 0..4 {
        let given: Vec<AddResult> = thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|number| {
                    let (bench, pod) = (&bench, &pod);
                    scope.spawn(move || {
                        if number % 2 == 1 {
                            bench.del(pod);
                            return None;
                        }
                        let output = bench.run(&bench.call("ADD", pod));
                        match output.code {
                            Some(0) => Some(AddResult::parse(&output.stdout).unwrap()),
                            _ => {
                                // Added already, or somebody is at work on it.
                                let code = output.error_code();
                                assert!(matches!(code, Some(11 | 102)), "{output:?}");
                                None
                            }
                        }
                    })
                })
                .collect();
            workers
                .into_iter()
                .filter_map(|worker| worker.join().unwrap())
                .collect()
        });
        let reserved = bench.reserved();
        let there: BTreeSet<_> = given
            .iter()
            .filter_map(AddResult::address)
            .filter(|address| reserved.contains(address))
            .collect();
        assert_eq!(there, reserved, "{given:?}");
        for added in &given {
            if added.address().is_some_and(|a| reserved.contains(&a)) {
                let config = with_prev_result(bench.config(), added);
                silent(&bench.run(&bench.call("CHECK", &pod).config(&config)));
            }
        }
        bench.del(&pod);
    }
    bench.assert_nothing_left(&before);
}
