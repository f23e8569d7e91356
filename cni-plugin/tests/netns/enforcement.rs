//! ADD while network policies are in force: what it asks the agent, and that it neither
//! fails nor hangs over what the agent does.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket,
};
use serde_json::{Value, json};
use tweed_cni_plugin::datapath::veth::LinuxKernel;
use tweed_core::agent_socket::path::with_short_path;

use crate::lab::{Answer, Lab, Picture, Site, assert_same, ip};

const ISOLATED: &str = "is isolated until the agent has enforced the network policies for it";
/// For a wait that something else is to end, in milliseconds: the maximum.
pub const LONG: u64 = 60_000;
/// For a wait that is to end, in milliseconds.
const SHORT: u64 = 50;

/// A lab with policies in force, as the agent's files say it.
pub fn lab(wait: u64) -> Lab {
    let mut lab = Lab::new();
    begin_agent(&mut lab);
    lab.site.keys["policyWait"] = wait.into();
    fs::write(lab.site.run_dir.join("policy"), "").unwrap();
    lab
}

/// Has the plugin find an agent's `ready`.
fn begin_agent(lab: &mut Lab) {
    let ready = lab.site.run_dir.join("ready");
    fs::write(&ready, "").unwrap();
    lab.site.keys["readyFile"] = json!(ready);
}

fn listen_in(run_dir: &Path) -> UnixListener {
    with_short_path(run_dir, "agent.sock", |path| UnixListener::bind(path)).unwrap()
}

/// An agent that gets one request and does `behave` with it.
pub fn agent<T: Send + 'static>(
    run_dir: &Path,
    behave: impl FnOnce(Value, UnixStream) -> T + Send + 'static,
) -> JoinHandle<T> {
    let listener = listen_in(run_dir);
    thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        reader.read_line(&mut line).unwrap();
        behave(serde_json::from_str(&line).unwrap(), stream)
    })
}

/// Both ends of the pair and an address of each family.
#[track_caller]
fn assert_whole(result: &Value) {
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 2);
    assert_eq!(result["ips"].as_array().unwrap().len(), 2);
    assert_eq!(result["routes"].as_array().unwrap().len(), 2);
}

/// The ADD succeeded, and one line says that the pod is isolated and `why`.
#[track_caller]
fn assert_isolated(answer: Answer, why: &str) {
    let log = answer.log.clone();
    assert_eq!(log.lines().count(), 1, "{why}: {log}");
    assert!(log.contains(ISOLATED) && log.contains(why), "{why}: {log}");
    assert_whole(&answer.ok());
}

/// The one record; null if there is none. The file that takes its name next is not it yet.
fn record(run_dir: &Path) -> Value {
    let folder = run_dir.join("ipam/tweed/attachments");
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths = entries.map(|entry| entry.unwrap().path());
    let path: Option<PathBuf> = paths.find(|path| !path.ends_with(".new"));
    let text = path.and_then(|path| fs::read(path).ok());
    let record = text.and_then(|text| serde_json::from_slice(&text).ok());
    record.unwrap_or_default()
}

#[test]
fn the_agent_is_asked_once_the_record_is_there_and_answers_at_the_end() {
    for folder in ["a".to_owned(), "deep/".repeat(40)] {
        let mut lab = lab(LONG);
        let run_dir = lab.site.run_dir.join(folder);
        fs::create_dir_all(&run_dir).unwrap();
        fs::write(run_dir.join("policy"), "").unwrap();
        lab.site.run_dir.clone_from(&run_dir);
        lab.site.args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;\
                         K8S_POD_INFRA_CONTAINER_ID=c1;K8S_POD_UID=f0e1"
            .to_owned();
        let agent = agent(&run_dir.clone(), move |request, mut stream| {
            let at_request = record(&run_dir);
            // The plugin makes the links without the answer.
            while record(&run_dir)["state"]["is"] != "live" {
                thread::sleep(Duration::from_millis(1));
            }
            stream
                .write_all(b"{\"version\":1,\"judged\":{}}\n")
                .unwrap();
            (request, at_request)
        });
        let answer = lab.call(LinuxKernel::default(), "ADD", None);
        assert_eq!(answer.log, "");
        let result = answer.ok();
        assert_whole(&result);
        let (request, record) = agent.join().unwrap();
        let judge = &request["judge"];
        assert_eq!(request["version"], 1);
        assert_eq!(judge["network"], "tweed");
        assert_eq!(
            (&judge["containerId"], &judge["ifname"]),
            (&json!("c1"), &json!("eth0"))
        );
        let pod = json!({"namespace": "shop", "name": "cart-0", "uid": "f0e1"});
        assert_eq!(judge["pod"], pod);
        assert_eq!(judge["waitMs"], LONG);
        let recorded = record["addresses"].as_array().unwrap();
        let addresses = judge["addresses"].as_array().unwrap();
        assert_eq!(addresses.len(), 2);
        let given = result["ips"].as_array().unwrap();
        for ((address, recorded), given) in addresses.iter().zip(recorded).zip(given) {
            let prefix = format!("{}/", address.as_str().unwrap());
            assert!(recorded.as_str().unwrap().starts_with(&prefix));
            assert!(given["address"].as_str().unwrap().starts_with(&prefix));
        }
    }
}

#[test]
fn an_agent_that_knows_of_no_policy_ends_the_wait() {
    let lab = lab(LONG);
    let agent = agent(&lab.site.run_dir, |_, mut stream| {
        stream
            .write_all(b"{\"version\":1,\"not-in-force\":{}}\n")
            .unwrap();
    });
    let answer = lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(answer.log, "");
    assert_whole(&answer.ok());
    agent.join().unwrap();
}

#[test]
fn whatever_the_agent_answers_the_pod_gets_its_network() {
    for (wait, answer, why) in [
        (LONG, "", "without an end"),
        (LONG, "{\"version\":1,\"judged\"", "without an end"),
        (LONG, "hello\n", "cannot be understood"),
        (
            LONG,
            "{\"version\":1,\"later\":{}}\n",
            "cannot be understood",
        ),
        (LONG, "{\"version\":2,\"judged\":{}}\n", "version 2"),
        (LONG, &"x".repeat(300_000), "more than 262144 bytes"),
        (
            LONG,
            "{\"version\":7,\"error\":{\"message\":\"no,\\nnever\"}}\n",
            "the agent refuses the request: no, never",
        ),
        (
            LONG,
            "{\"version\":1,\"pending\":{\"reason\":\"Pod shop/cart-0 is not known\"}}\n",
            "Pod shop/cart-0 is not known",
        ),
    ] {
        let lab = lab(wait);
        let answer = answer.to_owned();
        let agent = agent(&lab.site.run_dir, move |_, mut stream| {
            // The plugin may close the connection before it has all of it.
            let _ = stream.write_all(answer.as_bytes());
        });
        assert_isolated(lab.call(LinuxKernel::default(), "ADD", None), why);
        agent.join().unwrap();
        lab.call(LinuxKernel::default(), "DEL", None).ok();
    }
}

#[test]
fn an_agent_that_is_silent_holds_an_add_no_longer_than_policy_wait() {
    for beginning in ["", "{\"version\":1,"] {
        let lab = lab(SHORT);
        let agent = agent(&lab.site.run_dir, move |_, mut stream| {
            // On a busy machine the plugin may be gone before this.
            let _ = stream.write_all(beginning.as_bytes());
            // Until it is gone.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let answer = lab.call(LinuxKernel::default(), "ADD", None);
        assert_isolated(answer, "has not answered in time");
        agent.join().unwrap();
    }
}

#[test]
fn without_an_agent_nothing_waits() {
    let lab = lab(LONG);
    let add = || lab.call(LinuxKernel::default(), "ADD", None);
    assert_isolated(add(), "tweed-agent is not running");
    lab.call(LinuxKernel::default(), "DEL", None).ok();
    // It was killed, and has left its socket. One that listens could be held open by a
    // process that another test begins at this moment.
    let path = UnixAddr::new(&lab.site.run_dir.join("agent.sock")).unwrap();
    let (family, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
    let left = socket(family, SockType::Stream, flags, None).unwrap();
    bind(left.as_raw_fd(), &path).unwrap();
    drop(left);
    assert_isolated(add(), "tweed-agent is not running");
}

#[test]
fn an_agent_that_accepts_nobody_holds_up_no_add() {
    let lab = lab(LONG);
    let path = UnixAddr::new(&lab.site.run_dir.join("agent.sock")).unwrap();
    let unix = |flags| socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
    let listener = unix(SockFlag::SOCK_CLOEXEC);
    bind(listener.as_raw_fd(), &path).unwrap();
    listen(&listener, Backlog::new(1).unwrap()).unwrap();
    let mut clients = Vec::new();
    loop {
        let client = unix(SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK);
        match connect(client.as_raw_fd(), &path) {
            Ok(()) => clients.push(client),
            Err(error) => break assert_eq!(error, Errno::EAGAIN),
        }
    }
    let answer = lab.call(LinuxKernel::default(), "ADD", None);
    assert_isolated(answer, "takes no requests");
}

#[test]
fn nobody_is_asked_unless_a_policy_is_in_force_and_the_config_says_so() {
    for (wait, marked) in [(Some(LONG), false), (Some(0), true), (None, true)] {
        let mut lab = Lab::new();
        begin_agent(&mut lab);
        if let Some(wait) = wait {
            lab.site.keys["policyWait"] = wait.into();
        }
        if marked {
            fs::write(lab.site.run_dir.join("policy"), "").unwrap();
        }
        let listener = listen_in(&lab.site.run_dir);
        listener.set_nonblocking(true).unwrap();
        let answer = lab.call(LinuxKernel::default(), "ADD", None);
        assert_eq!(answer.log, "");
        assert_whole(&answer.ok());
        let nobody = listener.accept().unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn an_add_that_fails_does_not_wait_and_leaves_nothing() {
    let lab = lab(LONG);
    ip(&["-n", lab.pod_name(), "link", "add", "eth0", "type", "veth"]);
    let agent = agent(&lab.site.run_dir, |_, mut stream| {
        stream.read_to_end(&mut Vec::new()).unwrap();
    });
    let before = lab.picture();
    let answer = lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(answer.exit, 1, "{:#}", answer.document);
    assert_same(&before, &lab.picture(), "a failed ADD");
    agent.join().unwrap();
}

/// An ADD that was freed while it waited for its agent: the lab, what was there before, and
/// what the freeing returned.
struct Freed<T> {
    lab: Lab,
    before: Picture,
    returned: T,
}

/// Has an ADD wait for its agent, and meanwhile frees its attachment by calls of the plugin in
/// the same node. The ADD fails.
#[track_caller]
fn freed<T: Send + 'static>(frees: impl FnOnce(&Site) -> T + Send + 'static) -> Freed<T> {
    let lab = lab(LONG);
    let before = lab.picture();
    let mut site = Site::new(lab.site.pod.clone(), lab.site.run_dir.clone());
    site.keys["policyWait"] = 0.into();
    let node = lab.node.path();
    let agent = agent(&lab.site.run_dir, move |_, mut stream| {
        while record(&site.run_dir)["state"]["is"] != "live" {
            thread::sleep(Duration::from_millis(1));
        }
        setns(File::open(node).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        let returned = frees(&site);
        stream
            .write_all(b"{\"version\":1,\"judged\":{}}\n")
            .unwrap();
        returned
    });
    let answer = lab.call(LinuxKernel::default(), "ADD", None);
    let returned = agent.join().unwrap();
    assert_eq!(answer.code(), 11, "{:#}", answer.document);
    let message = answer.document["msg"].as_str().unwrap();
    assert!(message.contains("was deleted while its ADD"), "{message}");
    Freed {
        lab,
        before,
        returned,
    }
}

/// Neither of the ADD nor of what freed it.
#[track_caller]
fn assert_nothing_is_left<T>(freed: &Freed<T>) {
    let what = "an ADD that was freed";
    assert_same(&freed.before, &freed.lab.picture(), what);
}

#[test]
fn an_add_that_a_del_frees_while_it_waits_fails_and_leaves_nothing() {
    assert_nothing_is_left(&freed(|site| {
        site.call(LinuxKernel::default(), "DEL", None).ok();
    }));
}

#[test]
fn an_add_that_a_gc_frees_while_it_waits_fails_and_leaves_nothing() {
    assert_nothing_is_left(&freed(|site| {
        let mut gc = Site::new(site.pod.clone(), site.run_dir.clone());
        gc.keys["cni.dev/valid-attachments"] = json!([]);
        gc.call(LinuxKernel::default(), "GC", None).ok();
    }));
}

#[test]
fn an_add_whose_record_is_lost_while_it_waits_fails_and_leaves_nothing() {
    assert_nothing_is_left(&freed(|site| {
        let folder = site.run_dir.join("ipam/tweed/attachments");
        for record in fs::read_dir(folder).unwrap() {
            fs::remove_file(record.unwrap().path()).unwrap();
        }
    }));
    assert_nothing_is_left(&freed(|site| {
        fs::remove_dir_all(site.run_dir.join("ipam/tweed")).unwrap();
    }));
}

#[test]
fn an_add_that_another_one_has_replaced_while_it_waits_fails_and_touches_nothing_of_it() {
    let freed = freed(|site| {
        site.call(LinuxKernel::default(), "DEL", None).ok();
        site.call(LinuxKernel::default(), "ADD", None).ok()
    });
    let checked = freed
        .lab
        .call(LinuxKernel::default(), "CHECK", Some(&freed.returned));
    checked.ok();
}

#[test]
fn other_verbs_ask_nobody() {
    let lab = lab(LONG);
    let listener = listen_in(&lab.site.run_dir);
    fs::remove_file(lab.site.run_dir.join("policy")).unwrap();
    let result = lab.call(LinuxKernel::default(), "ADD", None).ok();
    fs::write(lab.site.run_dir.join("policy"), "").unwrap();
    listener.set_nonblocking(true).unwrap();
    for (verb, result) in [
        ("CHECK", Some(&result)),
        ("STATUS", None),
        ("GC", None),
        ("DEL", Some(&result)),
    ] {
        lab.call(LinuxKernel::default(), verb, result);
        let nobody = listener.accept().unwrap_err();
        assert_eq!(nobody.kind(), ErrorKind::WouldBlock, "{verb}");
    }
}

/// Runs `nft` in the node of the thread's lab. Whether it succeeds.
pub fn nft(command: &str) -> bool {
    let ran = Command::new("nft").arg(command).output();
    let output = ran.expect("these tests need nftables: apt-get install nftables");
    output.status.success()
}

/// Whether the node's table says of all addresses of a result that they are enforced, or of
/// none.
fn are_enforced(result: &Value) -> bool {
    let ips = result["ips"].as_array().unwrap().iter();
    let enforced: Vec<bool> = ips
        .map(|ip| {
            let (address, _) = ip["address"].as_str().unwrap().split_once('/').unwrap();
            let family = if address.contains(':') { 6 } else { 4 };
            nft(&format!(
                "get element inet tweed-policy policy_judged{family} {{ {address} }}"
            ))
        })
        .collect();
    assert!(
        enforced.iter().all(|one| *one == enforced[0]),
        "{enforced:?}"
    );
    enforced[0]
}

/// The agent has enforced the pod before, which had the same addresses.
#[test]
fn what_the_pod_before_could_do_a_pod_can_only_if_the_agent_says_so_in_time() {
    for (wait, answer, enforced) in [
        (LONG, Some("{\"version\":1,\"judged\":{}}\n"), true),
        (
            LONG,
            Some("{\"version\":1,\"pending\":{\"reason\":\"it is not known\"}}\n"),
            false,
        ),
        (LONG, Some(""), false),
        // Nobody listens, or nobody is to be asked.
        (LONG, None, false),
        (0, None, false),
    ] {
        let lab = lab(wait);
        let hosts = 1..=9;
        let all = |prefix: &str| {
            let all: Vec<String> = hosts
                .clone()
                .map(|host| format!("{prefix}{host}"))
                .collect();
            all.join(", ")
        };
        assert!(nft(&format!(
            "table inet tweed-policy {{
                set policy_judged4 {{ type ipv4_addr; elements = {{ {} }}; }}
                set policy_judged6 {{ type ipv6_addr; elements = {{ {} }}; }}
            }}",
            all("10.244.1."),
            all("fd00:1::"),
        )));
        let agent = answer.map(|answer| {
            agent(&lab.site.run_dir, move |_, mut stream| {
                stream.write_all(answer.as_bytes()).unwrap();
            })
        });
        let result = lab.call(LinuxKernel::default(), "ADD", None).ok();
        assert_eq!(are_enforced(&result), enforced, "{wait} {answer:?}");
        if let Some(agent) = agent {
            agent.join().unwrap();
        }
    }
}
