//! Each step of an ADD is made to fail, in real namespaces: afterwards everything is
//! as before.

use std::fs;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::lab::{Lab, Netns, Site, assert_same, ip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tweed_cni::CniError;
use tweed_cni_plugin::datapath::veth::plan::Step;
use tweed_cni_plugin::datapath::veth::{Applied, Failed, Kernel, LinuxKernel, Observed};
use tweed_core::family::Family;
use tweed_netlink::link::Link;
use tweed_netlink::route::Route;
use tweed_netlink::{Cause, Error};

/// What happens instead of a step.
enum Fault {
    /// The kernel refuses it.
    Refuse,
    /// The plugin panics.
    Panic,
    /// The process is killed.
    Kill,
    /// No fault, but this folder of records is emptied after the last step, as by a GC
    /// that should not have run.
    EmptyRecords(PathBuf),
    /// No fault, but the list of links is from before the first was created.
    OldLinks,
    /// The kernel refuses it, and to delete the link afterwards.
    RefuseUndo,
    /// The kernel refuses to take the link out of use.
    RefuseLeaving,
    /// No fault, but an ADD attaches the pod before the link is looked for.
    AddMeanwhile(Site),
    /// No fault.
    Nothing,
}

/// The real kernel, with a fault at one step.
struct FailAt {
    kernel: LinuxKernel,
    step: usize,
    fault: Fault,
}

impl FailAt {
    fn new(step: usize, fault: Fault) -> Self {
        Self {
            kernel: LinuxKernel::default(),
            step,
            fault,
        }
    }
}

impl Kernel for FailAt {
    fn open_pod(&mut self, path: &Path) -> Result<(), CniError> {
        self.kernel.open_pod(path)
    }
    fn apply(&mut self, steps: &[Step]) -> Result<Applied, Failed> {
        let Some(failing) = steps.get(self.step) else {
            let applied = self.kernel.apply(steps)?;
            if let Fault::EmptyRecords(folder) = &self.fault {
                for entry in fs::read_dir(folder).unwrap() {
                    fs::remove_file(entry.unwrap().path()).unwrap();
                }
            }
            return Ok(applied);
        };
        self.kernel.apply(&steps[..self.step])?;
        match self.fault {
            Fault::Panic => panic!("injected at step {}", self.step),
            Fault::Kill => {
                kill(Pid::this(), Signal::SIGKILL).unwrap();
                unreachable!("the kernel has killed this process")
            }
            _ => Err(Failed {
                step: self.step,
                error: injected("carry out", format!("{failing:?}")),
            }),
        }
    }
    fn enable_forwarding(&mut self, family: Family) -> Result<bool, Error> {
        self.kernel.enable_forwarding(family)
    }
    fn forget_enforcement(&mut self, address: IpAddr) -> Result<(), Error> {
        self.kernel.forget_enforcement(address)
    }
    fn host_link(&mut self, name: &str) -> Result<Option<Link>, Error> {
        match mem::replace(&mut self.fault, Fault::Nothing) {
            Fault::AddMeanwhile(site) => drop(site.call(LinuxKernel::default(), "ADD", None).ok()),
            other => self.fault = other,
        }
        self.kernel.host_link(name)
    }
    fn host_links(&mut self) -> Result<Vec<Link>, Error> {
        match self.fault {
            Fault::OldLinks => Ok(Vec::new()),
            _ => self.kernel.host_links(),
        }
    }
    fn delete_host_link(&mut self, link: &Link) -> Result<(), Error> {
        match self.fault {
            Fault::RefuseUndo => Err(injected("delete", link.name.clone())),
            _ => self.kernel.delete_host_link(link),
        }
    }
    fn mark_leaving(&mut self, link: &Link, name: &str, alias: &str) -> Result<(), Error> {
        match self.fault {
            Fault::RefuseLeaving => Err(injected("rename", link.name.clone())),
            _ => self.kernel.mark_leaving(link, name, alias),
        }
    }
    fn rename_pod_end(&mut self, ifname: &str, host: &Link, name: &str) -> Result<(), Error> {
        self.kernel.rename_pod_end(ifname, host, name)
    }
    fn delete_leaving(&mut self) -> Result<(), Error> {
        self.kernel.delete_leaving()
    }
    fn delete_leaving_later(&mut self, folder: &Path) -> Result<(), Error> {
        self.kernel.delete_leaving_later(folder)
    }
    fn pod_has_link(&mut self, name: &str) -> Result<bool, Error> {
        self.kernel.pod_has_link(name)
    }
    fn host_routes_to(&mut self, ip: IpAddr) -> Result<Vec<(Route, Option<Link>)>, Error> {
        self.kernel.host_routes_to(ip)
    }
    fn observe(&mut self, host: &str, pod: &str) -> Result<Observed, Error> {
        self.kernel.observe(host, pod)
    }
}

fn injected(operation: &'static str, object: String) -> Error {
    Error {
        operation,
        object,
        cause: Cause::Io(io::Error::other("injected")),
    }
}

/// Makes each step fail in turn until an ADD succeeds, and returns how many steps
/// there were.
fn fail_each_step(code: u64, fault: impl Fn() -> Fault) -> usize {
    let lab = Lab::new();
    let before = lab.picture();
    for step in 0.. {
        let answer = lab.call(FailAt::new(step, fault()), "ADD", None);
        if answer.exit == 0 {
            assert_ne!(lab.picture(), before, "the ADD that succeeds is seen");
            lab.call(LinuxKernel::default(), "DEL", None).ok();
            assert_same(&before, &lab.picture(), "after DEL");
            return step;
        }
        assert_eq!(answer.code(), code, "step {step}: {:#}", answer.document);
        assert!(
            answer.document.to_string().contains("injected"),
            "{:#}",
            answer.document
        );
        assert_same(&before, &lab.picture(), &format!("step {step}"));
    }
    unreachable!("the loop ends by an ADD that succeeds")
}

#[test]
fn a_refused_step_leaves_nothing() {
    let steps = fail_each_step(103, || Fault::Refuse);
    assert!(steps > 20, "only {steps} steps: has the plan lost some?");
}

/// Its record leads the DEL to the link, and nobody gets its address meanwhile.
#[test]
fn what_could_not_be_undone_keeps_its_record_until_the_del() {
    let lab = Lab::new();
    let before = lab.picture();
    let answer = lab.call(FailAt::new(20, Fault::RefuseUndo), "ADD", None);
    assert_eq!(answer.code(), 103, "{:#}", answer.document);
    assert!(answer.log.contains("cannot undo"), "{}", answer.log);
    assert!(ip(&["link"]).contains("twe00e76fd76b4"));
    assert_eq!(lab.site.store().len(), 3, "a record and two addresses");
    lab.call(LinuxKernel::default(), "DEL", None).ok();
    assert_same(&before, &lab.picture(), "after DEL");
}

/// Nobody else gets the address while packets to it still reach the pod.
#[test]
fn a_pod_whose_link_the_kernel_leaves_in_use_keeps_its_address_until_the_next_del() {
    let lab = Lab::new();
    let before = lab.picture();
    lab.call(LinuxKernel::default(), "ADD", None).ok();
    let answer = lab.call(FailAt::new(usize::MAX, Fault::RefuseLeaving), "DEL", None);
    assert_eq!(answer.code(), 103, "{:#}", answer.document);
    assert!(ip(&["link"]).contains("twe00e76fd76b4"));
    assert_eq!(lab.site.store().len(), 3, "a record and two addresses");
    lab.call(LinuxKernel::default(), "DEL", None).ok();
    assert_same(&before, &lab.picture(), "after the next DEL");
}

/// Without a store there is nothing that the DEL could lock.
#[test]
fn a_del_that_the_first_add_of_a_node_overtakes_comes_after_it() {
    let lab = Lab::new();
    let before = lab.picture();
    let site = Site::new(lab.site.pod.clone(), lab.site.run_dir.clone());
    let kernel = FailAt::new(usize::MAX, Fault::AddMeanwhile(site));
    lab.call(kernel, "DEL", None).ok();
    assert_same(&before, &lab.picture(), "after DEL");
    assert_eq!(lab.site.store(), Vec::<String>::new());
}

#[test]
fn a_panic_at_any_step_leaves_nothing() {
    fail_each_step(999, || Fault::Panic);
}

/// What [`the_process_that_is_killed`] gets from its parent.
const STEP: &str = "TWEED_TEST_STEP";
const POD: &str = "TWEED_TEST_POD";
const RUN_DIR: &str = "TWEED_TEST_RUN_DIR";

/// Runs an ADD in a process of its own, to be killed at `step`.
fn killed_at(lab: &Lab, step: usize) -> ExitStatus {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "undo::the_process_that_is_killed", "--ignored"])
        .env(STEP, step.to_string())
        .env(POD, &lab.site.pod)
        .env(RUN_DIR, &lab.site.run_dir)
        .stdout(Stdio::null())
        .status()
        .unwrap()
}

#[test]
#[ignore = "not a test: a_kill_at_any_step_is_repaired_by_the_next_verb runs it"]
fn the_process_that_is_killed() {
    let text = |name: &str| std::env::var(name).unwrap();
    let site = Site::new(text(POD), text(RUN_DIR).into());
    let step = text(STEP).parse().unwrap();
    site.call(FailAt::new(step, Fault::Kill), "ADD", None).ok();
}

#[test]
fn a_kill_at_any_step_is_repaired_by_the_next_verb() {
    let lab = Lab::new();
    let before = lab.picture();
    let now = |verb: &str| lab.call(LinuxKernel::default(), verb, None).ok();
    for step in 0.. {
        for mend in [&["DEL"][..], &["GC"], &["ADD", "DEL"]] {
            let status = killed_at(&lab, step);
            if status.success() {
                assert!(step > 20, "only {step} steps: has the plan lost some?");
                return now("DEL").as_null().unwrap();
            }
            assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
            assert!(
                !lab.site.store().is_empty(),
                "a record leads to what is left"
            );
            mend.iter().for_each(|verb| drop(now(verb)));
            assert_same(&before, &lab.picture(), &format!("step {step}, {mend:?}"));
        }
    }
}

#[test]
fn a_record_that_is_taken_away_meanwhile_fails_the_add_and_leaves_nothing() {
    let lab = Lab::new();
    let records = lab.site.run_dir.join("ipam/tweed/attachments");
    let answer = lab.call(
        FailAt::new(usize::MAX, Fault::EmptyRecords(records)),
        "ADD",
        None,
    );
    assert_eq!(answer.code(), 11, "{:#}", answer.document);
    assert!(!ip(&["link"]).contains("twe00e76fd76b4"));
}

#[test]
fn an_interface_that_is_there_already_stays_as_it_is() {
    let lab = Lab::new();
    let pod = lab.pod.path();
    let name = pod.rsplit('/').next().unwrap();
    ip(&[
        "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "other",
    ]);
    let before = lab.picture();
    let answer = lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(answer.code(), 102);
    assert!(answer.document["msg"].as_str().unwrap().contains("eth0"));
    assert_same(&before, &lab.picture(), "after the failure");
}

/// Somebody has emptied the folder of records while the pod was there.
#[test]
fn an_add_of_a_pod_whose_record_is_lost_leaves_it_its_link() {
    let lab = Lab::new();
    let added = lab.call(LinuxKernel::default(), "ADD", None).ok();
    fs::remove_dir_all(lab.site.run_dir.join("ipam/tweed")).unwrap();
    let before = lab.picture();
    let answer = lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(answer.code(), 102, "{:#}", answer.document);
    assert_same(&before, &lab.picture(), "after the failure");
    lab.call(LinuxKernel::default(), "DEL", Some(&added)).ok();
}

/// The interface in the pod has its other end in a third namespace, with the index that
/// a leaving link has on the host; and that one's other end, in another pod, has the
/// index of the interface.
#[test]
fn an_interface_whose_index_is_at_the_end_of_a_leaving_link_stays_as_it_is() {
    let lab = Lab::new();
    let (third_netns, other_pod) = (Netns::new("third"), Netns::new("pod"));
    let name_of = |netns: &Netns| netns.path().rsplit('/').next().unwrap().to_owned();
    let (pod, third, other) = (
        name_of(&lab.pod),
        name_of(&third_netns),
        name_of(&other_pod),
    );
    let node = name_of(&lab.node);
    let pair = |netns: &str, name: &str, index: [&str; 2], peer: &str, peer_netns: &str| {
        ip(&[
            "-n", netns, "link", "add", name, "index", index[0], "type", "veth", "peer", "name",
            peer, "index", index[1], "netns", peer_netns,
        ]);
    };
    pair(&pod, "eth0", ["77", "88"], "elsewhere", &third);
    pair(&node, "twx000000000000", ["88", "77"], "eth0", &other);
    ip(&["link", "set", "twx000000000000", "group", "117"]);
    let alias = "tweed:tweed/gone/eth0";
    ip(&["link", "set", "twx000000000000", "alias", alias]);
    let before = lab.picture();
    let answer = lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(answer.code(), 102);
    assert_same(&before, &lab.picture(), "after the failure");
}

#[test]
fn an_add_with_a_taken_address_names_who_has_it() {
    let lab = Lab::new();
    let node = lab.node.path();
    let name = node.rsplit('/').next().unwrap();
    ip(&[
        "-n", name, "link", "add", "foreign", "type", "veth", "peer", "name", "other",
    ]);
    ip(&[
        "-n",
        name,
        "link",
        "set",
        "foreign",
        "alias",
        "somebody else's",
        "up",
    ]);
    ip(&[
        "-n",
        name,
        "route",
        "add",
        "10.244.1.2/32",
        "dev",
        "foreign",
    ]);
    let before = lab.picture();
    let answer = lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(answer.code(), 103);
    let details = answer.document["details"].as_str().unwrap();
    assert!(
        details.contains("foreign") && details.contains("somebody else's"),
        "{details}"
    );
    assert_same(&before, &lab.picture(), "after the failure");
}

#[test]
fn a_link_that_only_has_our_name_is_left_alone() {
    let lab = Lab::new();
    ip(&[
        "link",
        "add",
        "twe00e76fd76b4",
        "type",
        "veth",
        "peer",
        "name",
        "other",
    ]);
    let before = lab.picture();
    let add = lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(add.code(), 102);
    assert!(
        add.document["msg"]
            .as_str()
            .unwrap()
            .contains("twe00e76fd76b4")
    );
    assert_same(&before, &lab.picture(), "after the failure");
    let del = lab.call(LinuxKernel::default(), "DEL", None);
    assert!(del.log.contains("left alone"), "{}", del.log);
    del.ok();
    assert_same(&before, &lab.picture(), "after the failure");
}

#[test]
fn a_gc_without_a_list_leaves_a_pod_that_came_after_its_list_of_links() {
    let lab = Lab::new();
    lab.call(LinuxKernel::default(), "ADD", None).ok();
    let before = lab.picture();
    lab.call(FailAt::new(0, Fault::OldLinks), "GC", None).ok();
    assert_same(&before, &lab.picture(), "after GC");
}
