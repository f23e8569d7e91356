//! A node and its pods as network namespaces, and calls to the plugin inside
//! the test's own process.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};
use tempfile::TempDir;
use tweed_cni::{Invocation, run};
use tweed_cni_plugin::Tweed;
use tweed_cni_plugin::datapath::veth::{Kernel, Veth};
use tweed_cni_plugin::delegate::Processes;

static COUNTER: AtomicU32 = AtomicU32::new(0);

/// The objects that exist, a line for each.
pub type Picture = BTreeSet<String>;

/// Fails with the objects that were added and removed.
#[track_caller]
pub fn assert_same(before: &Picture, after: &Picture, when: &str) {
    let added: Vec<_> = after.difference(before).collect();
    let removed: Vec<_> = before.difference(after).collect();
    assert!(
        before == after,
        "{when}: added {added:#?}, removed {removed:#?}"
    );
}

/// A network namespace, deleted when dropped.
pub struct Netns(String);

impl Netns {
    pub fn new(role: &str) -> Self {
        let netns = Self::named(role);
        ip(&["netns", "add", &netns.0]);
        netns.up()
    }

    /// One that another user namespace owns, as that of a pod with `hostUsers: false`. There
    /// has to be one of [`Self::new`].
    pub fn in_user_namespace(role: &str) -> Self {
        let netns = Self::named(role);
        let mut owner = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net"])
            .args(["sh", "-c", "echo; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("these tests need util-linux: apt-get install util-linux");
        // It says so when it is in its namespaces.
        let said = owner.stdout.take().unwrap().read_exact(&mut [0]);
        said.expect("user namespaces cannot be made here");
        let process = format!("/proc/{}/ns", owner.id());
        let user = |process: &str| fs::read_link(format!("{process}/user")).unwrap();
        assert_ne!(user(&process), user("/proc/self/ns"));
        File::create(netns.path()).unwrap();
        let (from, none) = (format!("{process}/net"), None::<&str>);
        mount(
            Some(from.as_str()),
            netns.path().as_str(),
            none,
            MsFlags::MS_BIND,
            none,
        )
        .unwrap();
        // It ends with its stdin.
        drop(owner.stdin.take());
        assert!(owner.wait().unwrap().success());
        netns.up()
    }

    fn named(role: &str) -> Self {
        let count = COUNTER.fetch_add(1, Ordering::Relaxed);
        Self(format!("tweed-{role}-{}-{count}", std::process::id()))
    }

    fn up(self) -> Self {
        ip(&["-n", &self.0, "link", "set", "lo", "up"]);
        self
    }

    pub fn path(&self) -> String {
        format!("/run/netns/{}", self.0)
    }

    /// Everything that an attachment could leave, as `ip` sees it. Of the neighbours only
    /// the permanent ones: the kernel adds others whenever it sends a multicast packet. Without
    /// the state of links, which the kernel changes some time after their other end.
    fn picture(&self, role: &str) -> Picture {
        let kinds: [&[&str]; 5] = [
            &["-d", "link", "show"],
            &["address", "show"],
            &["-4", "route", "show", "table", "all"],
            &["-6", "route", "show", "table", "all"],
            &["neigh", "show", "nud", "permanent"],
        ];
        let show = |kind: &[&str]| {
            let text = ip(&[&["-n", self.0.as_str(), "-j"], kind].concat());
            let objects: Vec<Value> =
                serde_json::from_str(if text.trim().is_empty() { "[]" } else { &text }).unwrap();
            let lines = objects.into_iter().map(|mut object| {
                if let Some(link) = object.as_object_mut() {
                    link.remove("operstate");
                    let flags = link.get_mut("flags").and_then(Value::as_array_mut);
                    if let Some(flags) = flags {
                        flags.retain(|flag| flag != "NO-CARRIER");
                    }
                }
                format!("{role} {kind:?} {object}")
            });
            lines.collect::<Vec<_>>()
        };
        kinds.into_iter().flat_map(show).collect()
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// Runs `ip` and returns its stdout.
pub fn ip(arguments: &[&str]) -> String {
    let output = Command::new("ip")
        .args(arguments)
        .output()
        .expect("these tests need iproute2: apt-get install iproute2");
    assert!(
        output.status.success(),
        "ip {}: {} (these tests need root)",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and output of a call.
pub struct Answer {
    pub exit: u8,
    pub document: Value,
    pub log: String,
}

impl Answer {
    #[track_caller]
    pub fn ok(self) -> Value {
        assert_eq!(self.exit, 0, "{:#}\n{}", self.document, self.log);
        self.document
    }

    #[track_caller]
    pub fn code(&self) -> u64 {
        assert_eq!(self.exit, 1, "{:#}\n{}", self.document, self.log);
        self.document["code"].as_u64().unwrap()
    }
}

/// The parameters of a call.
pub struct Site {
    /// Path of the pod's namespace.
    pub pod: String,
    pub run_dir: PathBuf,
    /// Keys of the config beside the usual ones.
    pub keys: Value,
    pub cni_path: PathBuf,
    /// `CNI_ARGS`.
    pub args: String,
}

/// A node with one pod. The thread of the test is in the node's namespace.
pub struct Lab {
    pub node: Netns,
    pub pod: Netns,
    pub site: Site,
    _run_dir: TempDir,
}

impl Lab {
    /// Moves the calling thread, which is that of the test, into a new node.
    pub fn new() -> Self {
        Self::with(Netns::new)
    }

    /// The same with a pod in such a namespace.
    pub fn with(pod: impl FnOnce(&str) -> Netns) -> Self {
        let (node, pod) = (Netns::new("node"), pod("pod"));
        setns(File::open(node.path()).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        let run_dir = tempfile::tempdir().unwrap();
        Self {
            site: Site::new(pod.path(), run_dir.path().to_owned()),
            node,
            pod,
            _run_dir: run_dir,
        }
    }

    /// The name of the pod's namespace.
    pub fn pod_name(&self) -> &str {
        &self.pod.0
    }

    pub fn call(&self, kernel: impl Kernel, verb: &str, prev_result: Option<&Value>) -> Answer {
        self.site.call(kernel, verb, prev_result)
    }

    /// Node, pod and store. The address given last is not part of it, as every ADD
    /// changes it.
    pub fn picture(&self) -> Picture {
        let mut all = self.node.picture("node");
        all.extend(self.pod.picture("pod"));
        all.extend(self.site.store());
        all
    }
}

impl Site {
    pub fn new(pod: String, run_dir: PathBuf) -> Self {
        Self {
            pod,
            run_dir,
            keys: json!({"ipam": {"type": "tweed-ipam", "ranges": [
                [{"subnet": "10.244.1.0/24"}],
                [{"subnet": "fd00:1::/112"}],
            ]}}),
            cni_path: PathBuf::new(),
            args: String::new(),
        }
    }

    pub fn call(&self, kernel: impl Kernel, verb: &str, prev_result: Option<&Value>) -> Answer {
        let mut config = json!({
            "cniVersion": "1.1.0",
            "name": "tweed",
            "type": "tweed",
            "mtu": 1450,
            "runDir": self.run_dir,
        });
        for (key, value) in self.keys.as_object().unwrap() {
            config[key] = value.clone();
        }
        if let Some(result) = prev_result {
            config["prevResult"] = result.clone();
        }
        let env = |name: &str| match name {
            "CNI_COMMAND" => Some(OsString::from(verb)),
            "CNI_CONTAINERID" => Some(OsString::from("c1")),
            "CNI_NETNS" => Some(OsString::from(&self.pod)),
            "CNI_IFNAME" => Some(OsString::from("eth0")),
            "CNI_ARGS" => Some(OsString::from(&self.args)),
            "CNI_PATH" => Some(self.cni_path.clone().into_os_string()),
            _ => None,
        };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let exit = run(
            Invocation {
                env: &env,
                stdin: &mut config.to_string().as_bytes(),
                stdout: &mut stdout,
                stderr: &mut stderr,
            },
            &mut Tweed::new(Veth::new(kernel), Processes::default()),
        );
        let document = if stdout.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&stdout).unwrap()
        };
        Answer {
            exit,
            document,
            log: String::from_utf8(stderr).unwrap(),
        }
    }

    /// Records and claims.
    pub fn store(&self) -> Vec<String> {
        let folder = self.run_dir.join("ipam/tweed");
        let names = |folder: PathBuf| {
            let entries = fs::read_dir(folder).into_iter().flatten();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap())
        };
        let mut found: Vec<String> = names(folder.join("attachments"))
            .chain(names(folder))
            .collect();
        found.retain(|name| {
            !["attachments", "lock", "boot_id"].contains(&name.as_str())
                && !name.starts_with("last_reserved_ip.")
        });
        found.sort();
        found
    }
}
