//! Who is measured.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};
use tweed_lab::{Node, Pod, Programs};

use super::call::{Call, Chain};

/// The MTU that every subject sets.
const MTU: u32 = 1450;
/// The floor gives its links these numbers and upwards.
const FIRST_INDEX: usize = 1000;
/// What flannel's daemon tells its plugin by.
const SUBNET_FILE: &str = "subnet.env";

/// A plugin with its IPAM, or the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Subject {
    /// `tweed` over its own store.
    #[serde(rename = "tweed")]
    Tweed,
    /// The reference `ptp` over `host-local`.
    #[serde(rename = "ptp + host-local")]
    Ptp,
    /// The reference `bridge` over `host-local`.
    #[serde(rename = "bridge + host-local")]
    Bridge,
    /// The reference `macvlan` over `host-local`: less than a pod's network,
    /// as the node itself cannot reach such a pod.
    #[serde(rename = "macvlan + host-local")]
    Macvlan,
    /// What flannel's manifest configures: its plugin, which runs `bridge` over
    /// `host-local`, then `portmap`.
    #[serde(rename = "flannel's chain")]
    Flannel,
    /// `tweed-floor`; its DEL moves the link out of the way and leaves the
    /// deleting to others.
    #[serde(rename = "floor")]
    Floor,
    /// `tweed-floor`; its DEL waits for the kernel to have deleted the link.
    #[serde(rename = "floor, waiting")]
    FloorWaiting,
}

/// Which half of an attachment's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verb {
    /// Attach.
    Add,
    /// Detach.
    Del,
}

impl Verb {
    /// As `CNI_COMMAND` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
        }
    }
}

impl Subject {
    /// All, in the order of the tables.
    pub const ALL: [Self; 7] = [
        Self::Tweed,
        Self::Ptp,
        Self::Bridge,
        Self::Macvlan,
        Self::Flannel,
        Self::Floor,
        Self::FloorWaiting,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tweed => "tweed",
            Self::Ptp => "ptp + host-local",
            Self::Bridge => "bridge + host-local",
            Self::Macvlan => "macvlan + host-local",
            Self::Flannel => "flannel's chain",
            Self::Floor => "floor",
            Self::FloorWaiting => "floor, waiting",
        }
    }

    /// Its program's file name; of a chain, the first one's.
    pub fn program(self) -> &'static str {
        match self {
            Self::Tweed => "tweed",
            Self::Ptp => "ptp",
            Self::Bridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::Flannel => "flannel",
            Self::Floor | Self::FloorWaiting => "tweed-floor",
        }
    }

    /// Whether it is a CNI plugin.
    pub fn is_plugin(self) -> bool {
        !matches!(self, Self::Floor | Self::FloorWaiting)
    }

    /// Puts into the folder of its state what has to be there before the first
    /// call: of flannel, what its daemon writes.
    pub fn prepare(self, node: &Node, state: &Path) -> anyhow::Result<()> {
        if self != Self::Flannel {
            return Ok(());
        }
        let path = state.join(SUBNET_FILE);
        let text = format!(
            "FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_SUBNET={}\nFLANNEL_MTU={MTU}\nFLANNEL_IPMASQ=true\n",
            node.pod_cidr()
        );
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// The configs of its plugins on `node`, with their state in a folder, as they
    /// come on stdin.
    fn configs(self, node: &Node, state: &Path) -> Vec<Value> {
        let ranges = json!([[{ "subnet": node.pod_cidr() }]]);
        let host_local = json!({
            "type": "host-local", "ranges": ranges, "routes": [{ "dst": "0.0.0.0/0" }],
            "dataDir": state,
        });
        let mut configs = match self {
            Self::Tweed => vec![json!({
                "type": "tweed", "runDir": state, "hostSource": [node.address()],
                "ipam": { "type": "tweed-ipam", "ranges": ranges },
            })],
            Self::Ptp => vec![json!({ "type": "ptp", "ipam": host_local })],
            Self::Bridge => vec![
                json!({ "type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": host_local }),
            ],
            Self::Macvlan => {
                vec![json!({ "type": "macvlan", "master": "eth0", "ipam": host_local })]
            }
            Self::Flannel => vec![
                json!({
                    "type": "flannel", "subnetFile": state.join(SUBNET_FILE),
                    "dataDir": state.join("flannel"), "ipam": { "dataDir": state },
                    "delegate": { "hairpinMode": true, "isDefaultGateway": true },
                }),
                json!({ "type": "portmap", "capabilities": { "portMappings": true } }),
            ],
            Self::Floor | Self::FloorWaiting => Vec::new(),
        };
        for config in &mut configs {
            config["cniVersion"] = self.cni_version().into();
            config["name"] = "bench".into();
            config["mtu"] = MTU.into();
        }
        configs
    }

    /// The version of CNI that it is spoken to in.
    fn cni_version(self) -> &'static str {
        match self {
            // As in its manifest; the plugin knows none later than 0.4.0.
            Self::Flannel => "0.3.1",
            _ => "1.0.0",
        }
    }

    /// Its calls for the `number`th pod of `node`. A DEL is given what the ADD
    /// answered, as runtimes do from version 0.4.0 on, and its plugins are called
    /// in reverse.
    pub fn call(
        self,
        verb: Verb,
        node: &Node,
        state: &Path,
        pod: &Pod,
        number: usize,
        added: Option<&[u8]>,
    ) -> anyhow::Result<Chain> {
        if !self.is_plugin() {
            return Ok(Chain(vec![self.floor(verb, pod, number)?]));
        }
        let folder = node.cni_bin_dir();
        let mut configs = self.configs(node, state);
        if verb == Verb::Del {
            configs.reverse();
        }
        let mut calls = Vec::new();
        for mut config in configs {
            if let Some(added) = added.filter(|_| self != Self::Flannel) {
                config["prevResult"] = serde_json::from_slice(added)?;
            }
            let program = config["type"].as_str().unwrap_or_default();
            calls.push(Call {
                program: folder.join(program),
                arguments: Vec::new(),
                environment: environment(verb.as_str(), pod, &folder),
                stdin: config.to_string().into_bytes(),
            });
        }
        Ok(Chain(calls))
    }

    fn floor(self, verb: Verb, pod: &Pod, number: usize) -> anyhow::Result<Call> {
        let verb = match (self, verb) {
            (_, Verb::Add) => "add",
            (Self::FloorWaiting, Verb::Del) => "del",
            (_, Verb::Del) => "leave",
        };
        let index = FIRST_INDEX + number;
        Ok(Call {
            program: Programs::find()?.own(self.program())?,
            arguments: vec![
                verb.to_owned(),
                pod.path(),
                index.to_string(),
                address(number).to_string(),
            ],
            environment: Vec::new(),
            stdin: Vec::new(),
        })
    }

    /// A call that asks for no more than to be started.
    pub fn version(self, node: &Node) -> Call {
        let folder = node.cni_bin_dir();
        Call {
            program: folder.join(self.program()),
            arguments: Vec::new(),
            environment: vec![("CNI_COMMAND", "VERSION".to_owned())],
            stdin: json!({ "cniVersion": self.cni_version() })
                .to_string()
                .into_bytes(),
        }
    }
}

fn environment(verb: &str, pod: &Pod, folder: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("CNI_COMMAND", verb.to_owned()),
        ("CNI_CONTAINERID", pod.container_id()),
        ("CNI_NETNS", pod.path()),
        ("CNI_IFNAME", "eth0".to_owned()),
        ("CNI_PATH", folder.display().to_string()),
        (
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ),
    ]
}

/// The floor has no IPAM: a pod's number gives its address.
fn address(number: usize) -> Ipv4Addr {
    let base = u32::from(Ipv4Addr::new(10, 250, 0, 1));
    Ipv4Addr::from(base + u32::try_from(number).unwrap_or(u32::MAX - base))
}
