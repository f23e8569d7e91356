//! A plugin called directly, without a runtime: tests control every input.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::error::LabError;
use crate::node::Node;
use crate::run::exchange;
use crate::strace::Strace;

/// One call of a plugin: the CNI variables and stdin.
#[derive(Debug, Clone)]
pub struct PluginCall {
    env: BTreeMap<String, String>,
    stdin: Vec<u8>,
    read_only: Option<PathBuf>,
}

/// The output of a plugin.
#[derive(Debug, Clone)]
pub struct PluginOutput {
    /// The exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

impl PluginCall {
    /// A call of this verb (`ADD`), without any other variable.
    #[must_use]
    pub fn new(verb: &str) -> Self {
        Self {
            env: BTreeMap::from([("CNI_COMMAND".to_owned(), verb.to_owned())]),
            stdin: Vec::new(),
            read_only: None,
        }
    }

    /// `CNI_CONTAINERID`.
    #[must_use]
    pub fn container(self, id: &str) -> Self {
        self.env("CNI_CONTAINERID", id)
    }

    /// `CNI_IFNAME`.
    #[must_use]
    pub fn ifname(self, name: &str) -> Self {
        self.env("CNI_IFNAME", name)
    }

    /// `CNI_NETNS`.
    #[must_use]
    pub fn netns(self, path: &str) -> Self {
        self.env("CNI_NETNS", path)
    }

    /// Sets any environment variable.
    #[must_use]
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.env.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets stdin to this config.
    #[must_use]
    pub fn config(self, config: &Value) -> Self {
        self.stdin(config.to_string())
    }

    /// Sets stdin to any bytes.
    #[must_use]
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.stdin = bytes.into();
        self
    }

    /// Makes a folder read-only for the plugin that [`PluginCall::run`] runs, and for
    /// nobody else.
    #[must_use]
    pub fn read_only(mut self, folder: &Path) -> Self {
        self.read_only = Some(folder.to_owned());
        self
    }

    /// Runs the plugin of this name on a node. `CNI_PATH` is the node's plugin
    /// folder unless the call sets it.
    ///
    /// # Errors
    /// [`LabError::Start`] if it cannot be run at all.
    pub fn run(&self, node: &Node, plugin: &str) -> Result<PluginOutput, LabError> {
        let program = node.cni_bin_dir().join(plugin);
        let command = match &self.read_only {
            Some(folder) => node.netns().command_with_read_only(folder, program),
            None => node.netns().command(program),
        };
        self.run_command(node, command)
    }

    /// The same under `strace`.
    ///
    /// # Errors
    /// As [`PluginCall::run`].
    pub fn run_under(
        &self,
        strace: &Strace,
        node: &Node,
        plugin: &str,
    ) -> Result<PluginOutput, LabError> {
        let program = node.cni_bin_dir().join(plugin);
        self.run_command(node, strace.command(node.netns(), program))
    }

    fn run_command(&self, node: &Node, mut command: Command) -> Result<PluginOutput, LabError> {
        command.env("CNI_PATH", node.cni_bin_dir()).envs(&self.env);
        let output = exchange(&mut command, &self.stdin)?;
        Ok(PluginOutput {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

impl PluginOutput {
    /// Stdout as the one JSON document that the specification requires.
    ///
    /// # Errors
    /// [`LabError::Output`] if it is empty, no JSON, or more than one document.
    pub fn document(&self) -> Result<Value, LabError> {
        serde_json::from_str(&self.stdout).map_err(|_| LabError::Output {
            command: "the plugin".to_owned(),
            expected: "one JSON document",
            output: format!("{}{}", self.stdout, self.stderr),
        })
    }

    /// The `code` of an error document; `None` if stdout is no such document.
    #[must_use]
    pub fn error_code(&self) -> Option<u64> {
        self.document().ok()?["code"].as_u64()
    }
}
