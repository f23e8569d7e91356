//! Only one process at a time changes an attachment. Others can see whether it still runs,
//! from any PID namespace and however it has ended.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginCall, Pod, wait_until};

use crate::fixture::{Fixture, assert_silent, with_prev_result};
use crate::script::write_script;

/// Maximum time until the IPAM plugin has been started.
const START_LIMIT: Duration = Duration::from_secs(30);

/// An IPAM plugin that blocks until `unblock`, and the config of an ADD with it.
struct BlockedIpam {
    folder: PathBuf,
    config: Value,
}

impl BlockedIpam {
    fn new(fixture: &Fixture) -> Self {
        let folder = fixture.node.folder().join("blocked");
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
        write_script(&program, &script);
        let mut config = fixture.config();
        config["ipam"] = json!({ "type": "slow-ipam" });
        Self { folder, config }
    }

    fn call(&self, fixture: &Fixture, verb: &str, pod: &Pod) -> PluginCall {
        let path = format!(
            "{}:{}",
            self.folder.display(),
            fixture.node.cni_bin_dir().display()
        );
        fixture
            .call(verb, pod)
            .config(&self.config)
            .env("CNI_PATH", &path)
    }

    /// Waits until the plugin blocks, and returns its process ID.
    fn wait_until_blocked(&self) -> Pid {
        let pid = wait_until("the IPAM plugin to be run", START_LIMIT, || {
            let text = fs::read_to_string(self.folder.join("pid"));
            text.map_err(|error| error.to_string())
        });
        Pid::from_raw(pid.unwrap().trim().parse().unwrap())
    }

    fn unblock(&self) {
        fs::write(self.folder.join("go"), "").unwrap();
    }
}

/// GC without a list, which frees only what interrupted calls have left. It runs in
/// another PID namespace, like an agent in a container.
fn gc_in_another_pid_namespace(fixture: &Fixture, config: &Value) {
    let plugin = fixture.wrapper(
        "other-pid-namespace",
        "exec unshare --pid --fork --kill-child \"$PLUGIN\"",
    );
    let gc = PluginCall::new("GC").config(config);
    assert_silent(&gc.run(&fixture.node, &plugin).unwrap());
}

fn start_add(fixture: &Fixture, blocked: &BlockedIpam, pod: &Pod) -> Child {
    let config = fixture.node.folder().join("blocked.json");
    fs::write(&config, blocked.config.to_string()).unwrap();
    let mut command = fixture
        .node
        .netns()
        .command(fixture.node.cni_bin_dir().join("tweed"));
    command
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", pod.container_id())
        .env("CNI_NETNS", pod.path())
        .env("CNI_IFNAME", "eth0")
        .env("CNI_PATH", &blocked.folder)
        .stdin(fs::File::open(&config).unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn a_killed_add_is_distinguished_from_a_running_one_in_another_pid_namespace() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let blocked = BlockedIpam::new(&fixture);
    let mut add = start_add(&fixture, &blocked, &pod);
    let ipam = blocked.wait_until_blocked();
    gc_in_another_pid_namespace(&fixture, &fixture.config());
    assert_eq!(fixture.records(), 1, "the ADD still runs");

    add.kill().unwrap();
    add.wait().unwrap();
    // The IPAM plugin, which the ADD has started, still runs, but the ADD does not.
    assert!(Path::new(&format!("/proc/{ipam}")).exists());
    gc_in_another_pid_namespace(&fixture, &fixture.config());
    assert_eq!(fixture.records(), 0);
    kill(ipam, Signal::SIGKILL).unwrap();
    fixture.assert_nothing_left(&before);
}

#[test]
fn a_del_waits_for_a_running_add_and_then_removes_it() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let blocked = BlockedIpam::new(&fixture);
    thread::scope(|scope| {
        let add = scope.spawn(|| fixture.run(&blocked.call(&fixture, "ADD", &pod)));
        blocked.wait_until_blocked();
        let del = scope.spawn(|| fixture.run(&blocked.call(&fixture, "DEL", &pod)));
        blocked.unblock();
        let added = add.join().unwrap();
        assert_eq!(added.code, Some(0), "{added:?}");
        assert_silent(&del.join().unwrap());
    });
    fixture.assert_nothing_left(&before);
}

/// Runtimes must not do this. If one does, each call either fails or succeeds, and the
/// attachment of the last successful ADD exists.
#[test]
fn concurrent_adds_and_dels_of_one_pod_do_not_delete_each_others_links() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    for _ in 0..4 {
        let added: Vec<AddResult> = thread::scope(|scope| {
            let workers: Vec<_> = (0..8)
                .map(|number| {
                    let (fixture, pod) = (&fixture, &pod);
                    scope.spawn(move || {
                        if number % 2 == 1 {
                            fixture.del(pod);
                            return None;
                        }
                        let output = fixture.run(&fixture.call("ADD", pod));
                        match output.code {
                            Some(0) => Some(AddResult::parse(&output.stdout).unwrap()),
                            _ => {
                                // It is added already, or another process is changing it.
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
        let reserved = fixture.reserved();
        let live: BTreeSet<_> = added
            .iter()
            .filter_map(AddResult::address)
            .filter(|address| reserved.contains(address))
            .collect();
        assert_eq!(live, reserved, "{added:?}");
        for added in &added {
            if added.address().is_some_and(|a| reserved.contains(&a)) {
                let config = with_prev_result(fixture.config(), added);
                assert_silent(&fixture.run(&fixture.call("CHECK", &pod).config(&config)));
            }
        }
        fixture.del(&pod);
    }
    fixture.assert_nothing_left(&before);
}
