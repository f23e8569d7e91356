//! Who is measured: the program, its config, its calls.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};
use tweed_lab::{Node, Pod, Programs};

use super::call::{Call, Chain};
use crate::Options;
use crate::report::BEFORE;

/// The MTU that every subject sets, in bytes: that of the node less VXLAN's 50.
const MTU: u32 = 1450;
/// From where flannel's plugin reads what flannel's daemon has found out.
const SUBNET_FILE: &str = "subnet.env";

/// A plugin with its IPAM.
#[derive(Debug, Clone)]
pub struct Subject {
    /// Its column's name.
    pub name: &'static str,
    kind: Kind,
    program: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The plugin `tweed` over its own store.
    Tweed,
    /// The reference `ptp` over `host-local`.
    Ptp,
    /// What flannel's manifest configures: its plugin, which runs `bridge` over
    /// `host-local`, then `portmap`.
    Flannel,
}

/// Half of an attachment's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// All, in the order of the columns.
    pub fn all(options: &Options) -> anyhow::Result<Vec<Self>> {
        let programs = Programs::find()?;
        let subject = |name, kind, program| Self {
            name,
            kind,
            program,
        };
        let mut all = vec![subject("tweed", Kind::Tweed, programs.own("tweed")?)];
        if let Some(program) = options.program_before("tweed")? {
            all.push(subject(BEFORE, Kind::Tweed, program));
        }
        all.extend([
            subject("ptp + host-local", Kind::Ptp, programs.tool("ptp")?),
            subject("flannel's chain", Kind::Flannel, programs.tool("flannel")?),
        ]);
        Ok(all)
    }

    /// Size of its program (of a chain's first program), in KiB.
    pub fn size(&self) -> anyhow::Result<f64> {
        let metadata = fs::metadata(&self.program);
        let bytes = metadata.with_context(|| self.program.display().to_string())?;
        Ok(bytes.len() as f64 / 1024.0)
    }

    /// Puts into the folder of its state what is there before the first call.
    pub fn prepare(&self, node: &Node, state: &Path) -> anyhow::Result<()> {
        if self.kind != Kind::Flannel {
            return Ok(());
        }
        let path = state.join(SUBNET_FILE);
        let text = format!(
            "FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_SUBNET={}\nFLANNEL_MTU={MTU}\nFLANNEL_IPMASQ=true\n",
            node.pod_cidr()
        );
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    fn configs(&self, node: &Node, state: &Path) -> Vec<Value> {
        let ranges = json!([[{ "subnet": node.pod_cidr() }]]);
        let mut configs = match self.kind {
            Kind::Tweed => vec![json!({
                "type": "tweed", "runDir": state, "hostSource": [node.address()],
                "ipam": { "type": "tweed-ipam", "ranges": ranges },
            })],
            Kind::Ptp => vec![json!({
                "type": "ptp",
                "ipam": {
                    "type": "host-local", "ranges": ranges, "routes": [{ "dst": "0.0.0.0/0" }],
                    "dataDir": state,
                },
            })],
            Kind::Flannel => vec![
                json!({
                    "type": "flannel", "subnetFile": state.join(SUBNET_FILE),
                    "dataDir": state.join("flannel"), "ipam": { "dataDir": state },
                    "delegate": { "hairpinMode": true, "isDefaultGateway": true },
                }),
                json!({ "type": "portmap", "capabilities": { "portMappings": true } }),
            ],
        };
        for config in &mut configs {
            config["cniVersion"] = self.cni_version().into();
            config["name"] = "bench".into();
            config["mtu"] = MTU.into();
        }
        configs
    }

    fn cni_version(&self) -> &'static str {
        match self.kind {
            // As in its manifest; the plugin knows none later than 0.4.0.
            Kind::Flannel => "0.3.1",
            _ => "1.0.0",
        }
    }

    /// Its calls for a pod of `node`. A DEL is given what the ADD
    /// answered, as runtimes do from version 0.4.0 on, and its plugins are called
    /// in reverse.
    pub fn calls(
        &self,
        verb: Verb,
        (node, state): (&Node, &Path),
        pod: &Pod,
        added: &[u8],
    ) -> anyhow::Result<Chain> {
        let folder = node.cni_bin_dir();
        let mut configs = self.configs(node, state);
        if verb == Verb::Del {
            configs.reverse();
        }
        let mut chain = Chain::new();
        for mut config in configs {
            if !added.is_empty() && self.kind != Kind::Flannel {
                config["prevResult"] = serde_json::from_slice(added)?;
            }
            let program = match config["type"].as_str() {
                Some("portmap") => folder.join("portmap"),
                _ => self.program.clone(),
            };
            chain.push(Call {
                program,
                environment: vec![
                    ("CNI_COMMAND", verb.as_str().to_owned()),
                    ("CNI_CONTAINERID", pod.container_id()),
                    ("CNI_NETNS", pod.path()),
                    ("CNI_IFNAME", "eth0".to_owned()),
                    ("CNI_PATH", folder.display().to_string()),
                    ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
                ],
                stdin: config,
            });
        }
        Ok(chain)
    }

    /// A call that does nothing but start the program.
    pub fn version(&self) -> Call {
        Call {
            program: self.program.clone(),
            environment: vec![("CNI_COMMAND", "VERSION".to_owned())],
            stdin: json!({ "cniVersion": self.cni_version() }),
        }
    }
}
