//! Calls of `kubectl`, with the rights of a cluster's administrator.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use tweed_lab::{LabError, poll, run, run_with};

/// Time between two checks of a condition; a call of kubectl needs much CPU.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Runs kubectl in the network namespace of the control plane.
#[derive(Debug, Clone)]
pub struct Kubectl {
    netns: PathBuf,
    program: PathBuf,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(netns: &Path, program: PathBuf, kubeconfig: PathBuf, cache: PathBuf) -> Self {
        Self {
            netns: netns.to_owned(),
            program,
            kubeconfig,
            cache,
        }
    }

    /// A kubectl with these arguments, not started. `port-forward` and `logs --follow`
    /// keep running and need a [`Background`](tweed_lab::Background).
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(self.words()).args(arguments);
        command
    }

    /// Another client of the API server, with the same rights: a program in the same
    /// network namespace, with `KUBECONFIG`. Not started.
    #[must_use]
    pub fn client(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.netns.display()))
            .arg(program)
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// The words between `nsenter` and the arguments.
    fn words(&self) -> [String; 6] {
        [
            format!("--net={}", self.netns.display()),
            self.program.display().to_string(),
            "--kubeconfig".to_owned(),
            self.kubeconfig.display().to_string(),
            "--cache-dir".to_owned(),
            self.cache.display().to_string(),
        ]
    }

    /// A shell script that does the same.
    pub(crate) fn script(&self) -> String {
        let words = self.words().join("' '");
        format!(
            "#!/bin/sh\n\
             # kubectl for this cluster.\n\
             sudo=$([ \"$(id -u)\" -eq 0 ] || echo sudo)\n\
             exec $sudo nsenter '{words}' \"$@\"\n"
        )
    }

    /// Runs kubectl and returns its stdout.
    ///
    /// # Errors
    /// [`LabError::Failed`] with kubectl's error.
    pub fn run<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Result<String, LabError> {
        run(&mut self.command(arguments))
    }

    /// Runs kubectl with a command line whose words hold no spaces.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub fn sh(&self, line: &str) -> Result<String, LabError> {
        self.run(line.split_whitespace())
    }

    /// Runs a command line with `--output json` and parses its output.
    ///
    /// # Errors
    /// As [`Kubectl::run`]; [`LabError::Output`] if it is not JSON.
    pub fn json(&self, line: &str) -> Result<Value, LabError> {
        let text = self.sh(&format!("{line} --output json"))?;
        serde_json::from_str(&text).map_err(|_| LabError::Output {
            command: format!("kubectl {line}"),
            expected: "JSON",
            output: text,
        })
    }

    /// The `items` of a `get` with these words, as in `pods --all-namespaces`.
    ///
    /// # Errors
    /// As [`Kubectl::json`].
    pub fn list(&self, what: &str) -> Result<Vec<Value>, LabError> {
        match self.json(&format!("get {what}"))?["items"].take() {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    /// Applies manifests, YAML or JSON.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub fn apply(&self, manifests: &str) -> Result<String, LabError> {
        run_with(&mut self.command(["apply", "--filename", "-"]), manifests)
    }

    /// Applies manifests; those without a namespace are applied in `namespace`.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub fn apply_in(&self, namespace: &str, manifests: &str) -> Result<String, LabError> {
        let arguments = ["apply", "--namespace", namespace, "--filename", "-"];
        run_with(&mut self.command(arguments), manifests)
    }

    /// Deletes the objects of these manifests, and waits until they are deleted, at
    /// most three minutes.
    ///
    /// # Errors
    /// As [`Kubectl::run`]. It is no error if an object does not exist.
    pub fn delete(&self, manifests: &str) -> Result<String, LabError> {
        let arguments = [
            "delete",
            "--ignore-not-found",
            "--timeout=180s",
            "--filename",
            "-",
        ];
        run_with(&mut self.command(arguments), manifests)
    }

    /// Runs a program in a pod, `namespace/name` or `name` in `default`.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub fn exec<S: AsRef<OsStr>>(
        &self,
        pod: &str,
        words: impl IntoIterator<Item = S>,
    ) -> Result<String, LabError> {
        let (namespace, name) = split_namespace(pod);
        let mut command = self.command(["exec", "--namespace", namespace, name, "--"]);
        run(command.args(words))
    }

    /// The logs of all containers of a pod.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub fn logs(&self, pod: &str) -> Result<String, LabError> {
        let (namespace, name) = split_namespace(pod);
        self.run(["logs", "--all-containers", "--namespace", namespace, name])
    }

    /// Waits until a pod is Ready, and returns it.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with its conditions and container states.
    pub fn wait_ready(&self, pod: &str, limit: Duration) -> Result<Value, LabError> {
        let (namespace, name) = split_namespace(pod);
        self.wait_for(&format!("the pod {pod} to be Ready"), limit, || {
            let line = format!("get pod {name} --namespace {namespace}");
            let found = self.json(&line).map_err(|error| error.chain())?;
            if condition(&found, "Ready") == Some("True") {
                return Ok(found);
            }
            Err(found["status"].to_string())
        })
    }

    /// Waits until a `get pods` with these words lists exactly `count` pods and all of
    /// them are Ready; returns them.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with those that are not.
    pub fn wait_all_ready(
        &self,
        words: &str,
        count: usize,
        limit: Duration,
    ) -> Result<Vec<Value>, LabError> {
        let what = format!("{count} pods ({words}) to be Ready");
        self.wait_for(&what, limit, || {
            let pods = self.list(&format!("pods {words}")).map_err(|e| e.chain())?;
            let is_ready = |pod: &&Value| condition(pod, "Ready") == Some("True");
            let ready = pods.iter().filter(is_ready).count();
            if ready == count && pods.len() == count {
                return Ok(pods);
            }
            let waiting: Vec<String> = pods
                .iter()
                .filter(|pod| !is_ready(pod))
                .take(5)
                .map(|pod| format!("{} {}", pod["metadata"]["name"], pod["status"]))
                .collect();
            let there = pods.len();
            Err(format!(
                "{ready} of {there} are Ready; not Ready: {}",
                waiting.join("; ")
            ))
        })
    }

    /// Waits until all pods of a DaemonSet, `namespace/name`, have its current
    /// template and are Ready.
    ///
    /// # Errors
    /// [`LabError::Failed`] with the state of the rollout.
    pub fn wait_rolled_out(&self, daemon_set: &str, limit: Duration) -> Result<(), LabError> {
        let (namespace, name) = split_namespace(daemon_set);
        self.sh(&format!(
            "rollout status daemonset/{name} --namespace {namespace} --timeout {}s",
            limit.as_secs()
        ))
        .map(drop)
    }

    /// Calls `probe` four times a second until it returns a value; its `Err` describes
    /// what it saw instead.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] after `limit`, with `what` and the last description.
    pub fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        probe: impl FnMut() -> Result<T, String>,
    ) -> Result<T, LabError> {
        poll(what, limit, POLL_INTERVAL, probe)
    }
}

/// The status of a condition of an object: `True`, `False` or `Unknown`.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind)?["status"]
        .as_str()
}

fn split_namespace(pod: &str) -> (&str, &str) {
    pod.split_once('/').unwrap_or(("default", pod))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_is_found_by_its_type() {
        let pod = json!({ "status": { "conditions": [
            { "type": "Initialized", "status": "True" },
            { "type": "Ready", "status": "False" },
        ]}});
        assert_eq!(condition(&pod, "Ready"), Some("False"));
        assert_eq!(condition(&pod, "Other"), None);
        assert_eq!(condition(&json!({}), "Ready"), None);
    }

    #[test]
    fn a_pod_without_a_namespace_is_in_default() {
        assert_eq!(split_namespace("kube-system/dns"), ("kube-system", "dns"));
        assert_eq!(split_namespace("web"), ("default", "web"));
    }
}
