//! The links that a DEL leaves for a finisher are deleted even if the finisher is killed,
//! and no foreign link is deleted with them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tweed_lab::{PluginCall, Pod, wait_until};

use crate::fixture::{DELETION_LIMIT, Fixture, assert_silent};

/// How long to try to come before a finisher's end: on a busy machine it is often first.
const LIMIT: Duration = Duration::from_secs(60);

/// The processes that hold the lock file of finishers.
fn finishers(fixture: &Fixture) -> Vec<Pid> {
    let lock = fixture.node.run_dir().join("leaving.lock");
    let holds = |process: &Path| fs::read_link(process.join("fd/0")).is_ok_and(|file| file == lock);
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|process| holds(process))
        .filter_map(|process| process.file_name()?.to_str()?.parse().ok())
        .map(Pid::from_raw)
        .collect()
}

/// ADD and DEL of a pod whose finisher is killed before it has deleted the link.
fn del_with_a_killed_finisher(fixture: &Fixture, pod: &Pod) {
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        fixture.add(pod);
        fixture.del(pod);
        let found = finishers(fixture);
        assert!(found.len() <= 1, "more than one finisher: {found:?}");
        for pid in found {
            match kill(pid, Signal::SIGKILL) {
                // It has ended since it was looked for.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(error) => panic!("a finisher cannot be killed: {error}"),
            }
        }
        if fixture.leaving() > 0 && finishers(fixture).is_empty() {
            return;
        }
    }
    panic!("every finisher ended before it could be killed");
}

#[test]
fn the_next_del_finishes_after_a_killed_finisher() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let (one, other) = (fixture.pod("one"), fixture.pod("other"));
    del_with_a_killed_finisher(&fixture, &one);
    fixture.add(&other);
    fixture.del(&other);
    fixture.assert_nothing_left(&before);
}

#[test]
fn gc_finishes_after_a_killed_finisher() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    del_with_a_killed_finisher(&fixture, &pod);
    let mut config = fixture.config();
    config["cni.dev/valid-attachments"] = json!([]);
    assert_silent(&fixture.run(&PluginCall::new("GC").config(&config)));
    assert_eq!(fixture.leaving(), 0);
    fixture.assert_nothing_left(&before);
}

#[test]
fn the_links_end_with_the_pods_namespace_after_a_killed_finisher() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    del_with_a_killed_finisher(&fixture, &pod);
    drop(pod);
    fixture.assert_nothing_left(&before);
}

#[test]
fn an_add_ignores_links_of_a_killed_finisher() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    del_with_a_killed_finisher(&fixture, &pod);
    let added = fixture.add(&pod);
    assert_silent(&fixture.check(&pod, &added));
    fixture.del(&pod);
}

/// A runtime may wait for the end of a file that the plugin inherited.
#[test]
fn a_finisher_has_none_of_the_callers_files() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let plugin = fixture.wrapper("with_a_file", "exec 7<\"$0\"; exec $PLUGIN");
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        fixture.add(&pod);
        let del = fixture.call("DEL", &pod).run(&fixture.node, &plugin);
        assert_silent(&del.unwrap());
        for pid in finishers(&fixture) {
            let files = Path::new("/proc").join(pid.to_string()).join("fd");
            while files.join("0").is_symlink() {
                if !files.join("7").is_symlink() && files.join("0").is_symlink() {
                    return;
                }
            }
        }
    }
    panic!("no finisher was seen without the file");
}

/// Process 1 of a container may be a program that never waits for processes which it
/// has not started.
#[test]
fn where_nobody_reaps_processes_one_zombie_is_left_and_no_more() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    // In a PID namespace, `cat` is process 1, and ends when the shell beside it has
    // closed the FIFO.
    let script = r#"
config=$(cat)
mkfifo "$0.fifo"
exec unshare --fork --pid --mount-proc --kill-child sh -c '
    (
        exec 3>"$1"
        for round in 1 2 3 4 5; do
            for verb in ADD DEL; do
                echo "$2" | CNI_COMMAND=$verb "$3" 3>&- >"$1.$verb" || cat "$1.$verb" >&3
            done
            while grep -qsa delete-leaving-link[s] /proc/[0-9]*/cmdline; do sleep 0.02; done
        done
        grep -l "^State:.Z" /proc/[0-9]*/status | wc -l >&3
    ) >/dev/null &
    exec cat "$1"' sh "$0.fifo" "$config" "$PLUGIN""#;
    let call = fixture.call("DEL", &pod);
    let plugin = fixture.wrapper("never_reaped", script);
    let output = call.run(&fixture.node, &plugin).unwrap();
    assert_eq!(output.stdout.trim(), "1", "{output:?}");
    fixture.assert_nothing_left(&before);
}

/// Two nodes as network namespaces of one machine may share a run folder.
#[test]
fn a_finisher_of_another_network_namespace_is_not_relied_on() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    fixture.add(&pod);
    let lock = fixture.node.run_dir().join("leaving.lock");
    fs::write(&lock, "1 1\n").unwrap();
    let lock = fs::File::open(lock).unwrap();
    lock.lock().unwrap();
    fixture.del(&pod);
    assert_eq!(fixture.leaving(), 0);
    fixture.assert_nothing_left(&before);
}

/// It may be in any, and one that a DEL relies on says that it is in the same.
#[test]
fn a_holder_of_the_lock_that_names_no_network_namespace_is_not_relied_on() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    for text in ["", "1\n"] {
        fixture.add(&pod);
        let lock = fixture.node.run_dir().join("leaving.lock");
        fs::write(&lock, text).unwrap();
        let lock = fs::File::open(lock).unwrap();
        lock.lock().unwrap();
        fixture.del(&pod);
        assert_eq!(fixture.leaving(), 0, "{text:?}");
    }
    fixture.assert_nothing_left(&before);
}

#[test]
fn a_finisher_names_its_network_namespace_only_while_it_looks_for_links() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let lock = fixture.node.run_dir().join("leaving.lock");
    let named = || {
        let text = fs::read_to_string(&lock).unwrap();
        let words = text.split_whitespace().skip(1);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    let inode = fixture.node.netns().sh("stat -Lc %i /proc/self/ns/net");
    let own = inode.unwrap().trim().to_owned();
    let start = Instant::now();
    while start.elapsed() < LIMIT {
        fixture.add(&pod);
        fixture.del(&pod);
        let found = named();
        // It has none left to delete if it has ended before this.
        let is_at_work = fixture.leaving() > 0;
        wait_until("the finisher to end", DELETION_LIMIT, || {
            if finishers(&fixture).is_empty() {
                Ok(())
            } else {
                Err("it is at work".to_owned())
            }
        })
        .unwrap();
        assert_eq!(named(), [""; 0]);
        if is_at_work {
            assert_eq!(found, [own]);
            return;
        }
    }
    panic!("every finisher ended before it was looked at");
}

#[test]
fn nobody_else_may_write_to_the_folder_whatever_the_callers_umask() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let mut config = fixture.config();
    let run_dir = fixture.node.folder().join("new/run");
    config["runDir"] = json!(run_dir);
    config["ipam"]["dataDir"] = json!(fixture.data_dir());
    let plugin = fixture.wrapper("umask", "umask 0; exec $PLUGIN");
    for verb in ["ADD", "DEL"] {
        let call = fixture.call(verb, &pod).config(&config);
        let output = call.run(&fixture.node, &plugin).unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
    }
    for folder in [run_dir.as_path(), &fixture.data_dir(), &fixture.store()] {
        let mode = fs::metadata(folder).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{}", folder.display());
    }
}

#[test]
fn a_foreign_link_in_the_group_stays() {
    let fixture = Fixture::tweed();
    fixture
        .node
        .netns()
        .ip(["link add twxmine group 117 type bridge"])
        .unwrap();
    let pods = ["one", "two", "three"].map(|name| fixture.pod(name));
    for pod in &pods {
        fixture.add(pod);
    }
    for pod in &pods {
        fixture.del(pod);
    }
    wait_until(
        "all links but the foreign one to be deleted",
        DELETION_LIMIT,
        || match fixture.leaving() {
            0 => Ok(()),
            count => Err(format!("{count} links are left")),
        },
    )
    .unwrap();
    let link = fixture.node.netns().sh("ip -o link show twxmine");
    assert!(link.unwrap().contains("twxmine"));
}
