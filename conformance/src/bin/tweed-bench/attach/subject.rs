//! Who is measured.

use std::net::Ipv4Addr;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use tweed_lab::{Node, Pod, Programs};

use super::call::Call;

/// The MTU that every subject sets.
const MTU: u32 = 1450;
/// The floor gives its links these numbers and upwards.
const FIRST_INDEX: usize = 1000;

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
    pub const ALL: [Self; 6] = [
        Self::Tweed,
        Self::Ptp,
        Self::Bridge,
        Self::Macvlan,
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
            Self::Floor => "floor",
            Self::FloorWaiting => "floor, waiting",
        }
    }

    /// Its program's file name.
    pub fn program(self) -> &'static str {
        match self {
            Self::Tweed => "tweed",
            Self::Ptp => "ptp",
            Self::Bridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::Floor | Self::FloorWaiting => "tweed-floor",
        }
    }

    /// Whether it is a CNI plugin.
    pub fn is_plugin(self) -> bool {
        !matches!(self, Self::Floor | Self::FloorWaiting)
    }

    /// Its config on `node`, with its state in a folder, as it comes on stdin.
    fn config(self, node: &Node, state: &Path) -> Value {
        let ranges = json!([[{ "subnet": node.pod_cidr() }]]);
        let host_local = json!({
            "type": "host-local", "ranges": ranges, "routes": [{ "dst": "0.0.0.0/0" }],
            "dataDir": state,
        });
        let mut config = match self {
            Self::Tweed => json!({
                "type": "tweed", "runDir": state, "hostSource": [node.address()],
                "ipam": { "type": "tweed-ipam", "ranges": ranges },
            }),
            Self::Ptp => json!({ "type": "ptp", "ipam": host_local }),
            Self::Bridge => {
                json!({ "type": "bridge", "bridge": "cni0", "isGateway": true, "ipam": host_local })
            }
            Self::Macvlan => json!({ "type": "macvlan", "master": "eth0", "ipam": host_local }),
            Self::Floor | Self::FloorWaiting => json!({}),
        };
        config["cniVersion"] = "1.0.0".into();
        config["name"] = "bench".into();
        config["mtu"] = MTU.into();
        config
    }

    /// Its call for the `number`th pod of `node`. A DEL is given what the ADD
    /// answered, as runtimes do.
    pub fn call(
        self,
        verb: Verb,
        node: &Node,
        state: &Path,
        pod: &Pod,
        number: usize,
        added: Option<&[u8]>,
    ) -> anyhow::Result<Call> {
        let folder = node.cni_bin_dir();
        if !self.is_plugin() {
            let verb = match (self, verb) {
                (_, Verb::Add) => "add",
                (Self::FloorWaiting, Verb::Del) => "del",
                (_, Verb::Del) => "leave",
            };
            let index = FIRST_INDEX + number;
            return Ok(Call {
                program: Programs::find()?.own(self.program())?,
                arguments: vec![
                    verb.to_owned(),
                    pod.path(),
                    index.to_string(),
                    address(number).to_string(),
                ],
                environment: Vec::new(),
                stdin: Vec::new(),
            });
        }
        let mut config = self.config(node, state);
        if let Some(added) = added {
            config["prevResult"] = serde_json::from_slice(added)?;
        }
        Ok(Call {
            program: folder.join(self.program()),
            arguments: Vec::new(),
            environment: environment(verb.as_str(), pod, &folder),
            stdin: config.to_string().into_bytes(),
        })
    }

    /// A call that asks for no more than to be started.
    pub fn version(self, node: &Node) -> Call {
        let folder = node.cni_bin_dir();
        Call {
            program: folder.join(self.program()),
            arguments: Vec::new(),
            environment: vec![("CNI_COMMAND", "VERSION".to_owned())],
            stdin: br#"{"cniVersion":"1.0.0"}"#.to_vec(),
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
