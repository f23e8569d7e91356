//! A node's disk: a folder that stays when the node is rebooted.
//!
//! ```text
//! enter, node-init.sh, hosts   scripts that start and enter the node
//! proc/                        files mounted over those of /proc
//! own/                         folders mounted over /etc/kubernetes and others
//! overlay/                     everything written to other folders
//! <component>.log, .process    log and process ID of its programs
//! ```

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::config::{self, NODE_FOLDER, STATIC_PODS};
use crate::context::Context;
use crate::pki::node_file;
use crate::spec::NodeSpec;
use tweed_lab::LabError;

/// The script that is process 1 of a node.
const INIT: &str = include_str!("node-init.sh");

/// The boot ID's file, below `proc/`.
const BOOT_ID: &str = "sys/kernel/random/boot_id";

/// The OCI spec of all containers of a node that has been rebooted.
const BASE_SPEC: &str = "/etc/containerd/base.json";

/// The hook that gives a container the node's boot ID: a container has a new `/proc`,
/// in which a runtime cannot mount files.
const BOOT_ID_HOOK: &str = "/etc/containerd/boot-id";

/// The text of [`BOOT_ID_HOOK`]; it gets the container's state on stdin.
const BOOT_ID_HOOK_TEXT: &str = r#"#!/bin/sh
root=$(sed -n 's/.*"bundle": *"\([^"]*\)".*/\1/p')/rootfs
exec mount --bind /proc/sys/kernel/random/boot_id "$root/proc/sys/kernel/random/boot_id"
"#;

/// The folder of one node.
#[derive(Debug)]
pub(crate) struct Disk {
    folder: PathBuf,
}

impl Disk {
    /// The disk in this folder, which may not exist yet.
    pub(crate) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Its path.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path on the machine of one of the folders that the node has for itself.
    pub(crate) fn host_path(&self, path: &str) -> PathBuf {
        self.folder.join("own").join(path.trim_start_matches('/'))
    }

    /// Writes all files of a new node. `api` is the node of the API server.
    pub(crate) fn write(
        &self,
        context: &Context,
        node: &NodeSpec,
        api: &NodeSpec,
    ) -> Result<(), LabError> {
        let hosts = format!("127.0.0.1 localhost\n{} {}\n", node.address, node.name);
        write(&self.folder.join("hosts"), &hosts)?;
        write_program(&self.folder.join("node-init.sh"), INIT)?;
        for (file, value) in config::KUBELET_SYSCTLS {
            write(&self.folder.join("proc").join(file), &format!("{value}\n"))?;
        }
        // kubelet watches the folder only if it exists at its start.
        let pods = self.host_path(STATIC_PODS);
        fs::create_dir_all(&pods).map_err(|e| LabError::file("create", &pods, e))?;
        self.copy_certificates(context, node, api)?;
        self.copy_plugins(context)?;
        self.write_config(context, node)
    }

    /// Writes the configs of the node's programs.
    pub(crate) fn write_config(&self, context: &Context, node: &NodeSpec) -> Result<(), LabError> {
        let runc = context.programs.program("runc")?;
        let base_spec = self.has_boot_id().then_some(Path::new(BASE_SPEC));
        let containerd = config::containerd(&runc, base_spec);
        write(&self.host_path("/etc/containerd/config.toml"), &containerd)?;
        let kubernetes = self.host_path(NODE_FOLDER);
        let kubelet = config::kubelet(node);
        write(&kubernetes.join("kubelet.yaml"), &format!("{kubelet:#}\n"))?;
        if let Some(proxy) = config::kube_proxy(node, context.proxy(), context.spec.dual_stack) {
            write(&kubernetes.join("kube-proxy.yaml"), &format!("{proxy:#}\n"))?;
        }
        Ok(())
    }

    /// Whether the node has been rebooted: at its first boot it has the machine's ID.
    pub(crate) fn has_boot_id(&self) -> bool {
        self.boot_id().exists()
    }

    /// Sets a unique boot ID for the next boot.
    pub(crate) fn set_boot_id(&self) -> Result<(), LabError> {
        let source = Path::new("/proc/sys/kernel/random/uuid");
        let id = fs::read_to_string(source).map_err(|e| LabError::file("read", source, e))?;
        write(&self.boot_id(), &id)
    }

    /// Writes the OCI spec of containers that see the node's boot ID; `default_spec`
    /// is containerd's.
    pub(crate) fn write_base_spec(&self, default_spec: &str) -> Result<(), LabError> {
        let spec = with_hook(default_spec).ok_or_else(|| LabError::Output {
            command: "ctr oci spec".to_owned(),
            expected: "a JSON object",
            output: default_spec.to_owned(),
        })?;
        write_program(&self.host_path(BOOT_ID_HOOK), BOOT_ID_HOOK_TEXT)?;
        write(&self.host_path(BASE_SPEC), &spec.to_string())
    }

    /// Deletes the folder.
    pub(crate) fn remove(self) -> Result<(), LabError> {
        fs::remove_dir_all(&self.folder).map_err(|e| LabError::file("remove", &self.folder, e))
    }

    fn boot_id(&self) -> PathBuf {
        self.folder.join("proc").join(BOOT_ID)
    }

    fn copy_certificates(
        &self,
        context: &Context,
        node: &NodeSpec,
        api: &NodeSpec,
    ) -> Result<(), LabError> {
        context
            .pki
            .add_node(&node.name, node.address, api.address)?;
        let own = node_file(&node.name);
        let mut files = vec!["ca.crt".to_owned()];
        for name in [own.as_str(), "kube-proxy"] {
            files.extend(["crt", "key", "kubeconfig"].map(|ending| format!("{name}.{ending}")));
        }
        for file in files {
            copy(
                &context.pki.path(&file),
                &self.host_path(NODE_FOLDER).join(&file),
            )?;
        }
        Ok(())
    }

    /// Copies the reference plugins, which are part of a node's image. They are not
    /// links because an installer may replace them.
    fn copy_plugins(&self, context: &Context) -> Result<(), LabError> {
        let folder = context.lab.plugin_folder();
        let failed = |error| LabError::file("read", &folder, error);
        for entry in fs::read_dir(&folder).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if !is_of_tweed(&name) {
                copy(
                    &folder.join(&name),
                    &self.host_path("/opt/cni/bin").join(&name),
                )?;
            }
        }
        Ok(())
    }
}

/// Only tweed's installer puts tweed's plugins on a node.
fn is_of_tweed(plugin: &OsStr) -> bool {
    plugin.to_string_lossy().starts_with("tweed")
}

/// Adds the hook to containerd's spec.
fn with_hook(spec: &str) -> Option<Value> {
    let mut spec: Value = serde_json::from_str(spec).ok()?;
    spec.as_object_mut()?.insert(
        "hooks".to_owned(),
        json!({ "createContainer": [{ "path": BOOT_ID_HOOK }] }),
    );
    Some(spec)
}

/// Writes a file and creates the folders above it.
fn write(path: &Path, text: &str) -> Result<(), LabError> {
    make_parent(path)?;
    fs::write(path, text).map_err(|e| LabError::file("write", path, e))
}

/// Writes an executable file.
pub(crate) fn write_program(path: &Path, text: &str) -> Result<(), LabError> {
    write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
        .map_err(|e| LabError::file("make executable", path, e))
}

fn copy(from: &Path, to: &Path) -> Result<(), LabError> {
    make_parent(to)?;
    fs::copy(from, to)
        .map(drop)
        .map_err(|e| LabError::file("copy", from, e))
}

fn make_parent(path: &Path) -> Result<(), LabError> {
    match path.parent() {
        Some(folder) => fs::create_dir_all(folder).map_err(|e| LabError::file("create", folder, e)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reboot_sets_another_boot_id() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::new(folder.path());
        assert!(!disk.has_boot_id());
        let mut seen = Vec::new();
        for _ in 0..2 {
            disk.set_boot_id().unwrap();
            seen.push(fs::read_to_string(disk.boot_id()).unwrap());
        }
        assert!(disk.has_boot_id());
        assert_ne!(seen[0], seen[1]);
        assert_eq!(seen[0].trim().len(), 36);
    }

    #[test]
    fn the_hook_is_added_to_containerds_own_spec() {
        let spec = with_hook(r#"{"ociVersion":"1.2.0","mounts":[]}"#).unwrap();
        assert_eq!(spec["ociVersion"], "1.2.0");
        assert_eq!(spec["hooks"]["createContainer"][0]["path"], BOOT_ID_HOOK);
        assert!(with_hook("not JSON").is_none());
    }
}
