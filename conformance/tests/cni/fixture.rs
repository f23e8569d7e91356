//! The test fixture: a node, the plugin under test, and the calls of a runtime.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tweed_lab::{
    AddResult, CniTool, Lab, LabError, Node, PluginCall, PluginOutput, Pod, Snapshot, Underlay,
    wait_until,
};

use crate::script::write_script;

/// The network's name, unless a test sets another one.
pub const NETWORK: &str = "pods";

/// The MTU in every config. No program would choose this value by itself.
pub const MTU: u64 = 1437;

/// The node's IPv6 address.
pub const NODE_V6: &str = "2001:db8::11";

/// The pods' IPv6 subnet in configs with both families.
pub const SUBNET_V6: &str = "fd00:244:1::/64";

/// Maximum time until links that a DEL has left are deleted: many times what it takes,
/// as the kernel's lock may be in demand elsewhere.
pub const DELETION_LIMIT: Duration = Duration::from_secs(30);

/// Maximum time until the kernel has made the node as it should be.
const NODE_LIMIT: Duration = Duration::from_secs(30);

/// The plugin under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The plugin `tweed` over its own store.
    Tweed,
    /// The reference: `ptp` over `host-local`.
    Reference,
}

/// A node with forwarding and without an agent, and the plugin under test.
#[derive(Debug)]
pub struct Fixture {
    /// The plugin under test.
    pub subject: Subject,
    /// The node.
    pub node: Node,
    lab: Lab,
}

impl Fixture {
    /// For tweed.
    pub fn tweed() -> Self {
        Self::new(Subject::Tweed)
    }

    /// For the reference.
    pub fn reference() -> Self {
        Self::new(Subject::Reference)
    }

    fn new(subject: Subject) -> Self {
        let lab = Lab::new().unwrap();
        let node = Underlay::new(&lab).unwrap().node(1).unwrap();
        let netns = node.netns();
        // Usually set by the agent.
        netns.set_sysctl("ipv4/ip_forward", "1").unwrap();
        netns.set_sysctl("ipv6/conf/all/forwarding", "1").unwrap();
        netns
            .ip([
                // The link-local address is tentative at first, so it would change by itself.
                "addr flush dev eth0 scope link".to_owned(),
                format!("addr add {NODE_V6}/64 dev eth0 nodad"),
            ])
            .unwrap();
        // The kernel adds the routes of an IPv6 address in a work of its own.
        wait_until("the routes of the node's address", NODE_LIMIT, || {
            let routes = netns.sh("ip -6 route show table local dev eth0");
            match routes.map_err(|error| error.chain())? {
                routes if routes.contains("anycast 2001:db8::") => Ok(()),
                routes => Err(routes),
            }
        })
        .map_err(|error| error.chain())
        .unwrap();
        let fixture = Self { subject, node, lab };
        fixture.write_chain("1.1.0", &[fixture.config()]);
        fixture
    }

    /// Whether the plugin under test is tweed.
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

    /// The config of the plugin alone, as it is passed on stdin.
    pub fn config(&self) -> Value {
        self.config_over(&json!([[{ "subnet": self.node.pod_cidr() }]]))
    }

    /// The config with these range sets.
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

    /// The config with one range of each family.
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

    /// `cnitool` for the list of `write_chain`.
    pub fn tool(&self) -> CniTool<'_> {
        CniTool::new(&self.node, NETWORK)
    }

    /// A new pod.
    pub fn pod(&self, name: &str) -> Pod {
        Pod::new(&self.lab, name).unwrap()
    }

    /// A call for `eth0` of a pod, with the container ID that `cnitool` would use.
    pub fn call(&self, verb: &str, pod: &Pod) -> PluginCall {
        PluginCall::new(verb)
            .container(&pod.container_id())
            .ifname("eth0")
            .netns(&pod.path())
            .config(&self.config())
    }

    /// Runs a call of the plugin under test.
    pub fn run(&self, call: &PluginCall) -> PluginOutput {
        call.run(&self.node, self.plugin()).unwrap()
    }

    /// ADD of a pod with this config, which must succeed.
    pub fn add_with(&self, pod: &Pod, config: &Value) -> AddResult {
        let output = self.run(&self.call("ADD", pod).config(config));
        assert_eq!(output.code, Some(0), "ADD: {output:?}");
        AddResult::parse(&output.stdout).unwrap()
    }

    /// ADD with the default config, which must succeed.
    pub fn add(&self, pod: &Pod) -> AddResult {
        self.add_with(pod, &self.config())
    }

    /// DEL, which must succeed without output.
    pub fn del(&self, pod: &Pod) {
        assert_silent(&self.run(&self.call("DEL", pod)));
    }

    /// CHECK with the result of ADD.
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

    /// The addresses that are reserved in the store: the names of its files that are
    /// addresses.
    pub fn reserved(&self) -> BTreeSet<IpAddr> {
        file_names(&self.store())
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect()
    }

    /// The number of records in the store.
    pub fn records(&self) -> usize {
        file_names(&self.store().join("attachments"))
            .iter()
            .filter(|name| !name.starts_with('.'))
            .count()
    }

    /// A snapshot of the node, taken after the links that DELs have left are deleted.
    pub fn snapshot(&self) -> Snapshot {
        wait_until(
            "links that DELs have left to be deleted",
            DELETION_LIMIT,
            || {
                let now = Snapshot::of(self.node.netns()).map_err(|error| error.chain())?;
                let leaving = now
                    .of_kind("link")
                    .find(|link| link.contains(r#""ifname":"twx"#));
                match leaving {
                    None => Ok(now.clone()),
                    Some(link) => Err(link.to_owned()),
                }
            },
        )
        .map_err(|error| error.chain())
        .unwrap()
    }

    /// The number of links that DELs have left to be deleted. Whoever deletes several moves
    /// them out of group 117 before, so it is name and alias that tell them from others.
    pub fn leaving(&self) -> usize {
        let links = self.node.netns().sh("ip -o link show").unwrap();
        let is_leaving = |link: &&str| link.contains(": twx") && link.contains("alias tweed:");
        links.lines().filter(is_leaving).count()
    }

    /// Checks that the node is as before and no address is reserved. It waits until links
    /// are deleted.
    pub fn assert_nothing_left(&self, before: &Snapshot) {
        assert_eq!(self.reserved(), BTreeSet::new(), "reserved addresses");
        assert_eq!(self.records(), 0, "records in {}", self.store().display());
        self.assert_same_kernel(before);
    }

    /// Checks that the node's kernel has the same objects as before.
    pub fn assert_same_kernel(&self, before: &Snapshot) {
        self.assert_same_kernel_without(before, |_| false);
    }

    /// The same without the objects whose line `ignored` picks.
    pub fn assert_same_kernel_without(&self, before: &Snapshot, ignored: impl Fn(&str) -> bool) {
        let expected = before.clone().without(&ignored);
        wait_until("the node to be as before", DELETION_LIMIT, || {
            let changes = expected.changes(&self.snapshot().without(&ignored));
            match changes.as_slice() {
                [] => Ok(()),
                changes => Err(changes.join("\n")),
            }
        })
        .map_err(|error| error.chain())
        .unwrap();
    }

    /// Writes a shell script that is run instead of the plugin. `$PLUGIN` in it is the
    /// plugin's path. Returns the script's path.
    pub fn wrapper(&self, name: &str, script: &str) -> String {
        let program = self.node.cni_bin_dir().join(self.plugin());
        let path = self.lab.folder().join(name);
        let text = format!("#!/bin/sh\nPLUGIN={}\n{script}\n", program.display());
        write_script(&path, &text);
        path.display().to_string()
    }
}

fn file_names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

/// The config of a call after ADD, with the result of ADD.
pub fn with_prev_result(mut config: Value, added: &AddResult) -> Value {
    config["prevResult"] = added.document.clone();
    config
}

/// Checks that a call succeeded and printed nothing on stdout.
#[track_caller]
pub fn assert_silent(output: &PluginOutput) {
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(output.stdout, "", "{output:?}");
}

/// Checks that a call failed with exactly one error document, and returns it.
#[track_caller]
pub fn assert_refused(output: &PluginOutput) -> Value {
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

/// Checks in addition the error code, and that the message contains each of these words.
#[track_caller]
pub fn assert_refused_with(output: &PluginOutput, code: u64, words: &[&str]) {
    let document = assert_refused(output);
    assert_eq!(document["code"], code, "{document}");
    let message = format!("{} {}", document["msg"], document["details"]);
    for word in words {
        assert!(message.contains(word), "{word:?} is not in {message}");
    }
}

/// The error of a command that must fail.
pub fn error_of<T: std::fmt::Debug>(outcome: Result<T, LabError>) -> String {
    outcome.unwrap_err().chain()
}
