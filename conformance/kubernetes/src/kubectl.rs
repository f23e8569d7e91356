//! `kubectl` against a cluster, as its administrator.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use tweed_lab::LabError;
use tweed_lab::end_here_if_leaving;
use tweed_lab::{run, run_with};

/// How long between two looks: a kubectl is too heavy to run all the time.
const BETWEEN_LOOKS: Duration = Duration::from_millis(250);

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

    /// A kubectl with these arguments, not started: for one that runs on, as
    /// `port-forward` and `logs --follow` do, in a
    /// [`Background`](tweed_lab::Background).
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(self.words()).args(arguments);
        command
    }

    /// The words before the arguments, `nsenter` left out.
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

    /// A shell script that does the same, for people.
    pub(crate) fn script(&self) -> String {
        let words = self.words().join("' '");
        format!(
            "#!/bin/sh\n\
             # kubectl for this cluster.\n\
             sudo=$([ \"$(id -u)\" -eq 0 ] || echo sudo)\n\
             exec $sudo nsenter '{words}' \"$@\"\n"
        )
    }

    /// Runs kubectl and gives its stdout.
    ///
    /// # Errors
    /// [`LabError::Failed`] with kubectl's words.
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

    /// Runs a command line with `--output json` and reads what it prints.
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

    /// Applies manifests, those that name no namespace in this one.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub fn apply_in(&self, namespace: &str, manifests: &str) -> Result<String, LabError> {
        let arguments = ["apply", "--namespace", namespace, "--filename", "-"];
        run_with(&mut self.command(arguments), manifests)
    }

    /// Deletes what these manifests name, and waits until it is gone, at most
    /// three minutes.
    ///
    /// # Errors
    /// As [`Kubectl::run`]. What is gone already is no error.
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
        let (namespace, name) = namespaced(pod);
        let mut command = self.command(["exec", "--namespace", namespace, name, "--"]);
        run(command.args(words))
    }

    /// All that a pod's containers have printed.
    ///
    /// # Errors
    /// As [`Kubectl::run`].
    pub fn logs(&self, pod: &str) -> Result<String, LabError> {
        let (namespace, name) = namespaced(pod);
        self.run(["logs", "--all-containers", "--namespace", namespace, name])
    }

    /// Waits until a pod is Ready, and gives it.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with its conditions and container states.
    pub fn wait_ready(&self, pod: &str, limit: Duration) -> Result<Value, LabError> {
        let (namespace, name) = namespaced(pod);
        self.wait_for(&format!("the pod {pod} to be Ready"), limit, || {
            let found = self.json(&format!("get pod {name} --namespace {namespace}"));
            let found = found.map_err(|error| error.chain())?;
            if condition(&found, "Ready") == Some("True") {
                return Ok(found);
            }
            Err(found["status"].to_string())
        })
    }

    /// Waits until all pods that a `get pods` with these words lists are
    /// Ready, and that they are `count`; gives them.
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
            let pods = self.list(&format!("pods {words}"));
            let pods = pods.map_err(|error| error.chain())?;
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
                "{ready} of {there} are; not {}",
                waiting.join("; ")
            ))
        })
    }

    /// Waits until all pods of a DaemonSet, `namespace/name`, are made from what
    /// it says now, and are Ready.
    ///
    /// # Errors
    /// [`LabError::Failed`] with how far it has come.
    pub fn wait_rolled_out(&self, daemon_set: &str, limit: Duration) -> Result<(), LabError> {
        let (namespace, name) = namespaced(daemon_set);
        self.sh(&format!(
            "rollout status daemonset/{name} --namespace {namespace} --timeout {}s",
            limit.as_secs()
        ))
        .map(drop)
    }

    /// Calls `probe` four times a second until it gives a value; `Err` says
    /// what it saw instead.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with `what` and the last thing seen.
    pub fn wait_for<T>(
        &self,
        what: &str,
        limit: Duration,
        mut probe: impl FnMut() -> Result<T, String>,
    ) -> Result<T, LabError> {
        let start = Instant::now();
        loop {
            match probe() {
                Ok(value) => return Ok(value),
                Err(last) if start.elapsed() >= limit => {
                    end_here_if_leaving();
                    return Err(LabError::TimedOut {
                        what: what.to_owned(),
                        seconds: limit.as_secs(),
                        last,
                    });
                }
                Err(_) => std::thread::sleep(BETWEEN_LOOKS),
            }
        }
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

fn namespaced(pod: &str) -> (&str, &str) {
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
        assert_eq!(namespaced("kube-system/dns"), ("kube-system", "dns"));
        assert_eq!(namespaced("web"), ("default", "web"));
    }
}
