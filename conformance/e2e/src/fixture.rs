//! What a scenario gets: the cluster, its own namespace, and a list of measurements.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tweed_lab::LabError;
use tweed_lab_kubernetes::{Cluster, Kubectl, Report};

use crate::tier::Tier;

/// tweed's DaemonSet.
pub const AGENTS: &str = "kube-system/tweed";

/// Maximum time until the controllers have deleted an old namespace or set up a new one.
const NAMESPACE_LIMIT: Duration = Duration::from_secs(180);

/// What a scenario gets.
pub struct Fixture<'a> {
    /// The cluster, which all scenarios share.
    pub cluster: &'a mut Cluster,
    /// The size at which to run.
    pub tier: Tier,
    /// Measurements for the results: name and value.
    pub notes: Vec<(String, String)>,
    /// The cluster's state at the first failure.
    pub report: Option<Report>,
    /// The scenario's own Kubernetes namespace.
    namespace: String,
}

impl<'a> Fixture<'a> {
    /// A new namespace for the scenario of this name.
    ///
    /// # Errors
    /// kubectl's error.
    pub fn new(cluster: &'a mut Cluster, tier: Tier, scenario: &str) -> Result<Self, LabError> {
        let namespace = format!("e2e-{scenario}");
        let fixture = Self {
            cluster,
            tier,
            notes: Vec::new(),
            report: None,
            namespace,
        };
        let namespace = &fixture.namespace;
        // A namespace of an earlier run may still be in deletion.
        fixture.kubectl().sh(&format!(
            "delete namespace {namespace} --ignore-not-found --timeout={}s",
            NAMESPACE_LIMIT.as_secs()
        ))?;
        fixture
            .kubectl()
            .sh(&format!("create namespace {namespace}"))?;
        // Pods cannot be created before it exists.
        let what = format!("the service account of {namespace}");
        fixture.kubectl().wait_for(&what, NAMESPACE_LIMIT, || {
            let line = format!("get serviceaccount default --namespace {namespace}");
            fixture.kubectl().sh(&line).map_err(|error| error.chain())
        })?;
        Ok(fixture)
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
    /// kubectl's error.
    pub fn sh(&self, line: &str) -> Result<String, LabError> {
        let namespace = &self.namespace;
        self.kubectl()
            .sh(&format!("--namespace {namespace} {line}"))
    }

    /// Applies manifests in the scenario's namespace.
    ///
    /// # Errors
    /// kubectl's error.
    pub fn apply(&self, manifests: &str) -> Result<(), LabError> {
        self.kubectl()
            .apply_in(&self.namespace, manifests)
            .map(drop)
    }

    /// Waits until a pod of this namespace is Ready, and returns it.
    ///
    /// # Errors
    /// [`LabError::TimedOut`] with its state.
    pub fn wait_ready(&self, pod: &str, limit: Duration) -> Result<Value, LabError> {
        self.kubectl().wait_ready(&self.full(pod), limit)
    }

    /// Waits until there are exactly `count` pods with these labels and all are Ready;
    /// returns them.
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

    /// Runs a program in a pod of this namespace, and returns its stdout.
    ///
    /// # Errors
    /// Its output, if it failed.
    pub fn exec<S: AsRef<OsStr>>(
        &self,
        pod: &str,
        words: impl IntoIterator<Item = S>,
    ) -> Result<String, LabError> {
        self.kubectl().exec(&self.full(pod), words)
    }

    /// The name of the first worker, which has to exist.
    pub fn first_worker(&self) -> anyhow::Result<String> {
        let worker = self.cluster.workers().next().context("no worker")?;
        Ok(worker.name().to_owned())
    }

    /// The first address of a node's pod CIDR, as which pods of other nodes see the
    /// node.
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

    /// Prints a line of progress.
    pub fn log(&self, what: &str) {
        self.cluster.log(&format!("    {what}"));
    }

    /// If `result` is an error, makes a report of the cluster, unless there is one
    /// already. A scenario calls it before it restores what it has changed, because
    /// that may remove the cause.
    pub fn report_failure<T>(&mut self, result: anyhow::Result<T>) -> anyhow::Result<T> {
        if result.is_err() && self.report.is_none() {
            self.report = Some(self.cluster.report());
        }
        result
    }

    /// Records a measurement and prints it.
    pub fn measure(&mut self, what: &str, value: impl Into<String>) {
        let value = value.into();
        self.log(&format!("{what}: {value}"));
        self.notes.push((what.to_owned(), value));
    }

    /// Records how long something took.
    pub fn measure_time(&mut self, what: &str, took: Duration) {
        self.measure(what, format!("{:.1} s", took.as_secs_f64()));
    }

    fn full(&self, pod: &str) -> String {
        format!("{}/{pod}", self.namespace)
    }
}
