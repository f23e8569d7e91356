//! By what the flows of the fast path become void: one handle, which all have who change what
//! is in force for flows.

use std::sync::{Arc, Mutex, PoisonError};

use tweed_core::ownership::POLICY_MARK_MASK;
use tweed_fastpath::Settings;
use tweed_nft::policy::InForce;

use crate::serve::metrics::Metrics;

/// Why flows have to pass the kernel's path again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Other policies are in force.
    Policies,
    /// Stale flows of Services were deleted from conntrack.
    Services,
    /// A local pod, its link or address came or went.
    Pods,
    /// Routes, neighbours, addresses or links are others.
    Network,
    /// A table was put back.
    Tables,
    /// Programs were attached, or their maps changed.
    Programs,
}

impl Cause {
    /// The label of the metric.
    pub fn word(self) -> &'static str {
        match self {
            Self::Policies => "policies",
            Self::Services => "services",
            Self::Pods => "pods",
            Self::Network => "network",
            Self::Tables => "tables",
            Self::Programs => "programs",
        }
    }
}

/// The epoch of the programs that are loaded, if any are, and which policies are in force.
#[derive(Clone)]
pub struct Epoch {
    metrics: Metrics,
    inner: Arc<Mutex<Inner>>,
}

struct Inner {
    settings: Option<Settings>,
    /// None until the table has been read.
    in_force: Option<InForce>,
}

impl Epoch {
    /// No programs are loaded.
    pub fn new(metrics: &Metrics) -> Self {
        Self {
            metrics: metrics.clone(),
            inner: Arc::new(Mutex::new(Inner {
                settings: None,
                in_force: None,
            })),
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The kernel has committed what is in force from now on.
    pub fn set_in_force(&self, in_force: InForce) {
        let changed = self.with(|inner| {
            let changed = inner.in_force != Some(in_force);
            inner.in_force = Some(in_force);
            let settings = inner.settings.as_ref().filter(|_| changed);
            settings.map(|settings| set_generation(settings, in_force))
        });
        if changed.is_some() {
            self.metrics.flows_invalidated(Cause::Policies.word());
        }
    }

    /// Whether it is known which policies are in force.
    pub fn knows_policies(&self) -> bool {
        self.with(|inner| inner.in_force.is_some())
    }

    /// What is in force for flows has changed in the kernel.
    pub fn invalidate(&self, cause: Cause) {
        let settings = self.with(|inner| inner.settings.clone());
        if let Some(settings) = settings {
            settings.invalidate();
            self.metrics.flows_invalidated(cause.word());
        }
    }

    /// The programs with these settings are loaded, or none are.
    pub fn set_settings(&self, settings: Option<Settings>) {
        self.with(|inner| {
            if let (Some(settings), Some(in_force)) = (&settings, inner.in_force) {
                set_generation(settings, in_force);
            }
            inner.settings = settings;
        });
    }
}

fn set_generation(settings: &Settings, in_force: InForce) {
    match in_force {
        InForce::Nothing => settings.set_generation(0, 0),
        InForce::Mark(mark) => settings.set_generation(mark, POLICY_MARK_MASK),
        InForce::Unknown => settings.set_generation(0, POLICY_MARK_MASK),
    }
}
