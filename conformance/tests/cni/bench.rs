//! One node, one subject, and the calls that a runtime makes.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tweed_lab::{
    AddResult, CniTool, Lab, LabError, Node, PluginCall, PluginOutput, Pod, Snapshot, Underlay,
    wait_until,
};

/// The network's name in every config that a test does not say another for.
pub const NETWORK: &str = "pods";
/// MTU in every config: none that anything would choose by itself.
pub const MTU: u64 = 1437;
/// The node's IPv6 address.
pub const NODE_V6: &str = "2001:db8::11";
/// The pods' IPv6 subnet, where a test asks for both families.
pub const SUBNET_V6: &str = "fd00:244:1::/64";
/// How long what is on its way out may take.
const GONE: Duration = Duration::from_secs(5);

/// Who is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The plugin `tweed` over its own store.
    Tweed,
    /// The reference: `ptp` over `host-local`.
    Reference,
}

/// A node that forwards, without any agent, and its subject.
#[derive(Debug)]
pub struct Bench {
    /// Who is tested.
    pub subject: Subject,
    /// The node.
    pub node: Node,
    lab: Lab,
}

impl Bench {
    /// With tweed.
    pub fn tweed() -> Self {
        Self::new(Subject::Tweed)
    }

    /// With the reference.
    pub fn reference() -> Self {
        Self::new(Subject::Reference)
    }

    fn new(subject: Subject) -> Self {
        let lab = Lab::new().unwrap();
        let node = Underlay::new(&lab).unwrap().node(1).unwrap();
        let netns = node.netns();
        // What the agent does where there is one.
        netns.set_sysctl("ipv4/ip_forward", "1").unwrap();
        netns.set_sysctl("ipv6/conf/all/forwarding", "1").unwrap();
        netns
            .ip([
                // It stays tentative for a while, and so changes by itself.
                "addr flush dev eth0 scope link".to_owned(),
                format!("addr add {NODE_V6}/64 dev eth0 nodad"),
            ])
            .unwrap();
        let bench = Self { subject, node, lab };
        bench.write_chain("1.1.0", &[bench.config()]);
        bench
    }

    /// Whether what only tweed promises is to be looked at.
    pub fn is_tweed(&self) -> bool {
        self.subject == Subject::Tweed
    }

    /// The program's name.
    pub fn plugin(&self) -> &'static str {
        match self.subject {
            Subject::Tweed => "tweed",
            Subject::Reference => "ptp",
        }
    }

    /// The subject's config for this plugin alone, as it comes on stdin.
    pub fn config(&self) -> Value {
        self.config_over(&json!([[{ "subnet": self.node.pod_cidr() }]]))
    }

    /// The same with these range sets.
    pub fn config_over(&self, ranges: &Value) -> Value {
        match self.subject {
            Subject::Tweed => json!({
                "cniVersion": "1.1.0", "name": NETWORK, "type": "tweed", "mtu": MTU,
                "runDir": self.node.run_dir(),
                "hostSource": [self.node.address(), NODE_V6],
                "ipam": { "type": "tweed-ipam", "ranges": ranges },
            }),
            Subject::Reference => json!({
                "cniVersion": "1.1.0", "name": NETWORK, "type": "ptp", "mtu": MTU,
                "ipam": { "type": "host-local", "ranges": ranges,
                          "dataDir": self.data_dir(), "routes": [{ "dst": "0.0.0.0/0" }] },
            }),
        }
    }

    /// With one address range of each family.
    pub fn dual_stack_config(&self) -> Value {
        let sets = json!([[{ "subnet": self.node.pod_cidr() }], [{ "subnet": SUBNET_V6 }]]);
        let mut config = self.config_over(&sets);
        if self.subject == Subject::Reference {
            config["ipam"]["routes"] = json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]);
        }
        config
    }

    /// Writes the network's list of plugins, for `cnitool`.
    pub fn write_chain(&self, version: &str, plugins: &[Value]) {
        let mut plugins = plugins.to_vec();
        for plugin in &mut plugins {
            let keys = plugin.as_object_mut().unwrap();
            keys.remove("cniVersion");
            keys.remove("name");
        }
        let list = json!({ "cniVersion": version, "name": NETWORK, "plugins": plugins });
        self.node
            .write_cni_config("10-pods.conflist", &list.to_string())
            .unwrap();
    }

    /// `cnitool` for that list.
    pub fn tool(&self) -> CniTool<'_> {
        CniTool::new(&self.node, NETWORK)
    }

    /// A new pod.
    pub fn pod(&self, name: &str) -> Pod {
        Pod::new(&self.lab, name).unwrap()
    }

    /// A call for `eth0` of a pod, with the same container ID as `cnitool`'s.
    pub fn call(&self, verb: &str, pod: &Pod) -> PluginCall {
        PluginCall::new(verb)
            .container(&pod.container_id())
            .ifname("eth0")
            .netns(&pod.path())
            .config(&self.config())
    }

    /// Runs a call of the subject.
    pub fn run(&self, call: &PluginCall) -> PluginOutput {
        call.run(&self.node, self.plugin()).unwrap()
    }

    /// ADD of a pod with a config, which must succeed.
    pub fn add_with(&self, pod: &Pod, config: &Value) -> AddResult {
        let output = self.run(&self.call("ADD", pod).config(config));
        assert_eq!(output.code, Some(0), "ADD: {output:?}");
        AddResult::parse(&output.stdout).unwrap()
    }

    /// ADD with the usual config.
    pub fn add(&self, pod: &Pod) -> AddResult {
        self.add_with(pod, &self.config())
    }

    /// DEL, which must succeed and say nothing.
    pub fn del(&self, pod: &Pod) {
        silent(&self.run(&self.call("DEL", pod)));
    }

    /// CHECK against what ADD answered.
    pub fn check(&self, pod: &Pod, added: &AddResult) -> PluginOutput {
        let config = with_prev_result(self.config(), added);
        self.run(&self.call("CHECK", pod).config(&config))
    }

    /// The folder that holds the stores of all networks.
    pub fn data_dir(&self) -> PathBuf {
        self.node.run_dir().join("ipam")
    }

    /// The folder of the network's store.
    pub fn store(&self) -> PathBuf {
        self.data_dir().join(NETWORK)
    }

    /// The addresses that the store has given: its files with an address for a
    /// name.
    pub fn reserved(&self) -> BTreeSet<IpAddr> {
        file_names(&self.store())
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect()
    }

    /// How many attachments the store remembers.
    pub fn records(&self) -> usize {
        file_names(&self.store().join("attachments"))
            .iter()
            .filter(|name| !name.starts_with('.'))
            .count()
    }

    /// The node's kernel now, or once the links that DELs have left behind
    /// themselves are gone.
    pub fn snapshot(&self) -> Snapshot {
        wait_until("links on their way out to be gone", GONE, || {
            let now = Snapshot::of(self.node.netns()).map_err(|error| error.chain())?;
            let leaving = now
                .of_kind("link")
                .find(|link| link.contains(r#""ifname":"twx"#));
            match leaving {
                None => Ok(now.clone()),
                Some(link) => Err(link.to_owned()),
            }
        })
        .map_err(|error| error.chain())
        .unwrap()
    }

    /// The node is as it was, and no address is reserved. Links may take a
    /// moment to go.
    pub fn assert_nothing_left(&self, before: &Snapshot) {
        assert_eq!(self.reserved(), BTreeSet::new(), "reserved addresses");
        assert_eq!(self.records(), 0, "records in {}", self.store().display());
        self.assert_same_kernel(before);
    }

    /// The node's kernel is as it was.
    pub fn assert_same_kernel(&self, before: &Snapshot) {
        wait_until("the node to be as it was", GONE, || {
            let changes = before.changes(&self.snapshot());
            match changes.as_slice() {
                [] => Ok(()),
                changes => Err(changes.join("\n")),
            }
        })
        .map_err(|error| error.chain())
        .unwrap();
    }

    /// A program in place of the subject: a shell script in which `$PLUGIN` is
    /// the subject's path.
    pub fn wrapper(&self, name: &str, script: &str) -> String {
        let program = self.node.cni_bin_dir().join(self.plugin());
        let path = self.lab.folder().join(name);
        let text = format!("#!/bin/sh\nPLUGIN={}\n{script}\n", program.display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.display().to_string()
    }
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// The config of a call after ADD, as the specification wants it.
pub fn with_prev_result(mut config: Value, added: &AddResult) -> Value {
    config["prevResult"] = added.document.clone();
    config
}

/// A verb without a result succeeded: nothing on stdout.
#[track_caller]
pub fn silent(output: &PluginOutput) {
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stdout, "", "{output:?}");
}

/// A verb failed, with exactly one document that says why; gives that.
#[track_caller]
pub fn refused(output: &PluginOutput) -> Value {
    assert_eq!(output.code, Some(1), "{output:?}");
    let document = output
        .document()
        .unwrap_or_else(|error| panic!("{}: {output:?}", error.chain()));
    assert!(document["code"].as_u64().is_some(), "{document}");
    assert!(
        !document["msg"].as_str().unwrap_or_default().is_empty(),
        "{document}"
    );
    document
}

/// The same, with this code, and each of these words in what it says.
#[track_caller]
pub fn refused_with(output: &PluginOutput, code: u64, words: &[&str]) {
    let document = refused(output);
    assert_eq!(document["code"], code, "{document}");
    let said = format!("{} {}", document["msg"], document["details"]);
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

/// What a failed command said.
pub fn words_of<T: std::fmt::Debug>(outcome: Result<T, LabError>) -> String {
    outcome.unwrap_err().chain()
}
