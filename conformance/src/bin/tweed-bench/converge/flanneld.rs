//! flannel's daemon, as its manifest runs it: Nodes from the API server, VXLAN,
//! masquerading.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::json;
use tweed_lab::{Background, LabError, Node, Programs};

const PROGRAM: &str = "flanneld";

/// Whether there is one here to be measured.
pub fn is_built() -> Result<bool, LabError> {
    Ok(Programs::find()?.tool(PROGRAM).is_ok())
}

/// Starts it in `node`.
pub fn start(node: &Node, kubeconfig: &Path) -> anyhow::Result<Background> {
    let folder = node.folder();
    let config = folder.join("net-conf.json");
    // All pod CIDRs of the bench are in it.
    let network = json!({ "Network": "10.0.0.0/8", "Backend": { "Type": "vxlan" } });
    fs::write(&config, network.to_string()).context("flannel's config")?;
    let mut command = node.netns().command(Programs::find()?.tool(PROGRAM)?);
    command
        .args(["--kube-subnet-mgr", "--ip-masq", "--iface", "eth0"])
        .arg("--kubeconfig-file")
        .arg(kubeconfig)
        .arg("--net-config-path")
        .arg(config)
        .arg("--subnet-file")
        .arg(folder.join("subnet.env"))
        .env("NODE_NAME", node.name());
    let log = folder.join("flanneld.log");
    Ok(Background::start(node.lab(), &mut command, &log)?)
}
