//! The programs in the kernel: loaded, attached, taken over and removed. Needs root.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test ends at an unexpected result, and says why it is skipped"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use tweed_fastpath::{Error, Node, Plan, Programs, Vxlan, remove};

/// Runs `test` in namespaces of its own, with a folder in a bpffs of its own. All of it ends
/// with the thread.
fn in_namespace<T: Send + 'static>(test: impl FnOnce(&Path) -> T + Send + 'static) -> T {
    let run = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_FS)
            .expect("these tests need root: they make namespaces");
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        let folder = tempfile::tempdir().unwrap();
        mount(
            Some("bpf"),
            folder.path(),
            Some("bpf"),
            MsFlags::empty(),
            none,
        )
        .unwrap();
        let answer = test(&folder.path().join("tweed"));
        nix::mount::umount(folder.path()).unwrap();
        answer
    });
    run.join().unwrap()
}

fn ip(line: &str) {
    let status = Command::new("ip").args(line.split_whitespace()).status();
    assert!(status.unwrap().success(), "ip {line}");
}

fn index(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

/// The programs, unless this kernel is one of before tcx: then that is what is said.
fn load(dir: &Path, flows: u32) -> Option<Programs> {
    match Programs::load(dir, flows) {
        Ok(programs) => Some(programs),
        Err(Error::NoTcx) => {
            println!("skipped: {}", Error::NoTcx);
            assert!(!dir.exists(), "nothing is made where nothing can be loaded");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The files below a folder of pins.
fn pins(dir: &Path, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(dir.join(folder)).into_iter().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn plan() -> Plan {
    ip("link add twa type veth peer name peer-a");
    ip("link add nic type veth peer name peer-nic");
    ip("link add tweed.1 type vxlan id 1 dstport 8472");
    Plan {
        pods: [index("twa")].into(),
        vxlan: Some(Vxlan {
            link: index("tweed.1"),
            vni: 1,
            port: 8472,
            node: [10, 0, 0, 1].into(),
            source_ports: (32768, 61000),
            underlay: None,
        }),
        underlay: [index("nic")].into(),
        direct: [index("nic")].into(),
        nodes: [
            (
                "10.244.2.0/24".parse().unwrap(),
                Node::Vxlan([10, 0, 0, 2].into(), [2; 6]),
            ),
            ("fd00:3::/64".parse().unwrap(), Node::Direct(index("nic"))),
        ]
        .into(),
        ranges: ["10.244.0.0/16".parse().unwrap()].into(),
    }
}

#[test]
fn programs_are_attached_as_planned_and_put_back() {
    in_namespace(|dir| {
        let Some(mut programs) = load(dir, 1024) else {
            return;
        };
        let mut plan = plan();
        let changed = programs.apply(&plan).unwrap();
        assert_eq!(changed.attached.len(), 5, "{changed:?}");
        assert!(!programs.is_damaged(&plan));
        assert_eq!(programs.apply(&plan).unwrap(), Default::default());

        // Somebody detaches one.
        let nic = format!("nic_in-{}", index("nic"));
        fs::remove_file(dir.join("links").join(&nic)).unwrap();
        // The kernel detaches it a moment later.
        let until = Instant::now() + Duration::from_secs(10);
        while !programs.is_damaged(&plan) && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let changed = programs.apply(&plan).unwrap();
        assert_eq!(changed.attached.len(), 1, "{changed:?}");
        assert!(!programs.is_damaged(&plan));

        // A pod goes, with its link.
        ip("link del twa");
        plan.pods.clear();
        let changed = programs.apply(&plan).unwrap();
        assert_eq!(changed.attached.len(), 0);
        assert_eq!(pins(dir, "links").len(), 3);
    });
}

#[test]
fn the_next_run_takes_over_and_goes_on_with_the_epoch() {
    in_namespace(|dir| {
        let Some(mut programs) = load(dir, 1024) else {
            return;
        };
        let plan = plan();
        programs.apply(&plan).unwrap();
        let settings = programs.settings();
        settings.set_generation(1 << 27, 0xf800_0000);
        let epoch = settings.epoch();
        assert!(epoch > 0);
        drop((programs, settings));
        let left = tweed_fastpath::pinned_settings(dir, 1024).unwrap();
        left.invalidate();
        let epoch = epoch + 1;
        let mut programs = Programs::load(dir, 1024).unwrap();
        assert_eq!(programs.settings().epoch(), epoch);
        assert!(!programs.is_damaged(&plan), "replaced in their links");
        assert_eq!(programs.apply(&plan).unwrap(), Default::default());
        assert_eq!(programs.counters().read().unwrap().admitted, 0);

        // One that remembers another number of flows begins anew.
        drop(programs);
        let mut programs = Programs::load(dir, 2048).unwrap();
        assert_eq!(programs.settings().epoch(), 0);
        assert!(programs.is_damaged(&plan));
        assert_eq!(programs.apply(&plan).unwrap().attached.len(), 5);
        assert!(pins(dir, "maps").iter().all(|name| name.contains("_2048_")));
    });
}

#[test]
fn removal_leaves_nothing() {
    in_namespace(|dir| {
        assert_eq!(remove(dir).unwrap(), 0);
        let Some(mut programs) = load(dir, 1024) else {
            return;
        };
        let plan = plan();
        programs.apply(&plan).unwrap();
        drop(programs);
        assert_eq!(remove(dir).unwrap(), 10);
        assert!(!dir.exists());
        let mut programs = Programs::load(dir, 1024).unwrap();
        assert!(programs.is_damaged(&plan), "they were detached");
        programs.apply(&plan).unwrap();
    });
}

#[test]
fn what_is_missing_is_named() {
    in_namespace(|dir| {
        let elsewhere = PathBuf::from("/nonexistent/tweed");
        let error = Programs::load(&elsewhere, 1024).err().unwrap();
        assert!(matches!(error, Error::NoBpffs(_)), "{error}");
        use caps::Capability::{CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN};
        for missing in [CAP_BPF, CAP_PERFMON] {
            for right in [CAP_SYS_ADMIN, missing] {
                caps::drop(None, caps::CapSet::Effective, right).unwrap();
            }
            let error = Programs::load(dir, 1024).err().unwrap();
            for right in [CAP_SYS_ADMIN, missing] {
                caps::raise(None, caps::CapSet::Effective, right).unwrap();
            }
            let is_named = matches!(error.word(), "not-permitted" | "no-tcx");
            assert!(is_named, "{missing}: {error}");
        }
    });
}
