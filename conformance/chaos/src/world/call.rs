//! A call of the plugin that can be stopped or killed while it runs.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;
use tweed_lab::{Background, LabError, Node};

/// A call of the plugin on a node, as a runtime makes it.
#[derive(Debug, Clone)]
pub struct Call {
    /// The verb.
    pub verb: &'static str,
    /// The container; empty for GC.
    pub container: String,
    /// The pod's Kubernetes namespace; empty for GC.
    pub namespace: &'static str,
    /// Path of the pod's namespace; empty for GC.
    pub netns: String,
    /// The config.
    pub config: Value,
    /// A folder that the plugin finds read-only.
    pub read_only: Option<PathBuf>,
}

/// A call that was stopped while it ran.
#[derive(Debug)]
pub struct Held {
    /// The call.
    pub call: Call,
    /// Its process.
    pub running: Background,
}

impl Call {
    /// `CNI_ARGS` as a kubelet's runtime gives them.
    pub fn args(&self) -> String {
        let Self {
            namespace,
            container,
            ..
        } = self;
        format!("IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={container}")
    }

    /// Starts it in the background.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, node: &Node) -> Result<Background, LabError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let stdin = node.folder().join(format!("call{number}.json"));
        fs::write(&stdin, self.config.to_string())
            .map_err(|e| LabError::file("write", &stdin, e))?;
        let mut command = match &self.read_only {
            Some(folder) => node.netns().command_with_read_only(folder, "sh"),
            None => node.netns().command("sh"),
        };
        command
            .args(["-c", "exec \"$0\" <\"$1\""])
            .arg(node.cni_bin_dir().join("tweed"))
            .arg(&stdin)
            .env("CNI_COMMAND", self.verb)
            .env("CNI_CONTAINERID", &self.container)
            .env("CNI_NETNS", &self.netns)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_ARGS", self.args())
            .env("CNI_PATH", node.cni_bin_dir());
        Background::start(node.lab(), &mut command, &node.folder().join("calls.log"))
    }
}
