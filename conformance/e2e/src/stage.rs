//! What a scenario gets: the cluster, a namespace of its own, and a notebook.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tweed_lab::LabError;
use tweed_lab_kubernetes::{Cluster, Kubectl, Report};

use crate::scenarios::Tier;

/// tweed's DaemonSet.
pub const AGENTS: &str = "kube-system/tweed";

/// For the controllers to empty an old namespace, and to fill a new one.
const NAMESPACE_LIMIT: Duration = Duration::from_secs(180);

/// Where one scenario plays.
pub struct Stage<'a> {
    /// The cluster, which all scenarios share.
    pub cluster: &'a mut Cluster,
    /// At which size to play.
    pub tier: Tier,
    /// What was measured and is worth telling: what, and how much.
    pub notes: Vec<(String, String)>,
    /// What was to be seen when the first thing failed.
    pub evidence: Option<Report>,
    /// The scenario's own Kubernetes namespace.
    namespace: String,
}

impl<'a> Stage<'a> {
    /// A new namespace for the scenario of this name.
    ///
    /// # Errors
    /// What kubectl says.
    pub fn new(cluster: &'a mut Cluster, tier: Tier, scenario: &str) -> Result<Self, LabError> {
        let namespace = format!("e2e-{scenario}");
        let stage = Self {
            cluster,
            tier,
            notes: Vec::new(),
            evidence: None,
            namespace,
        };
        let namespace = &stage.namespace;
        // One of an earlier run may be on its way out.
        stage.kubectl().sh(&format!(
            "delete namespace {namespace} --ignore-not-found --timeout={}s",
            NAMESPACE_LIMIT.as_secs()
        ))?;
        stage
            .kubectl()
            .sh(&format!("create namespace {namespace}"))?;
        // No pod can be made before.
        let what = format!("the service account of {namespace}");
        stage.kubectl().wait_for(&what, NAMESPACE_LIMIT, || {
            let line = format!("get serviceaccount default --namespace {namespace}");
            stage.kubectl().sh(&line).map_err(|error| error.chain())
        })?;
        Ok(stage)
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// kubectl, without a namespace.
    pub fn kubectl(&self) -> &Kubectl {
        self.cluster.kubectl()
    }

    /// Runs a line of kubectl in the scenario's namespace.
    ///
    /// # Errors
    /// What kubectl says.
    pub fn sh(&self, line: &str) -> Result<String, LabError> {
        let namespace = &self.namespace;
        self.kubectl()
            .sh(&format!("--namespace {namespace} {line}"))
    }

    /// Applies manifests in the scenario's namespace.
    ///
    /// # Errors
    /// What kubectl says.
    pub fn apply(&self, manifests: &str) -> Result<(), LabError> {
        self.kubectl()
            .apply_in(&self.namespace, manifests)
            .map(drop)
    }

    /// Waits until a pod of this namespace is Ready, and gives it.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with its state.
    pub fn wait_ready(&self, pod: &str, limit: Duration) -> Result<Value, LabError> {
        self.kubectl().wait_ready(&self.full(pod), limit)
    }

    /// Waits until the pods with these labels are Ready and `count`; gives
    /// them.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with those that are not.
    pub fn wait_all_ready(
        &self,
        labels: &str,
        count: usize,
        limit: Duration,
    ) -> Result<Vec<Value>, LabError> {
        let words = format!("--namespace {} --selector {labels}", self.namespace);
        self.kubectl().wait_all_ready(&words, count, limit)
    }

    /// Runs a program in a pod of this namespace, and gives its stdout.
    ///
    /// # Errors
    /// What it printed, if it failed.
    pub fn exec<S: AsRef<OsStr>>(
        &self,
        pod: &str,
        words: impl IntoIterator<Item = S>,
    ) -> Result<String, LabError> {
        self.kubectl().exec(&self.full(pod), words)
    }

    /// The address by which pods of other nodes see a node: the first of its pod
    /// CIDR.
    ///
    /// # Errors
    /// It has no pod CIDR.
    pub fn overlay_address(&self, node: &str) -> anyhow::Result<IpAddr> {
        let object = self.kubectl().json(&format!("get node {node}"))?;
        let cidr = object["spec"]["podCIDR"].as_str().unwrap_or_default();
        let first = cidr.split('/').next().unwrap_or_default();
        first
            .parse()
            .with_context(|| format!("{node} has the pod CIDR {cidr:?}"))
    }

    /// Says what is going on.
    pub fn tell(&self, what: &str) {
        self.cluster.tell(&format!("    {what}"));
    }

    /// Looks at the whole cluster if `played` has failed, the first time only.
    /// For a scenario to call before it changes back what it has changed: that
    /// takes away what one would look for.
    pub fn witness<T>(&mut self, played: anyhow::Result<T>) -> anyhow::Result<T> {
        if played.is_err() && self.evidence.is_none() {
            self.evidence = Some(self.cluster.report());
        }
        played
    }

    /// Notes a measurement, and says it.
    pub fn measure(&mut self, what: &str, value: impl Into<String>) {
        let value = value.into();
        self.tell(&format!("{what}: {value}"));
        self.notes.push((what.to_owned(), value));
    }

    fn full(&self, pod: &str) -> String {
        format!("{}/{pod}", self.namespace)
    }
}
