//! The links of local pods: put back what their records say, take back what
//! nobody owns any more.
//!
//! How data goes through: each network has a store of records, which the plugin
//! writes; [`store`] reads it when its folder has changed. [`plan`] compares a
//! record with the mirror and gives the writes. A record may change at any
//! moment, so whatever is written for a pod is written under its store's lock,
//! after the record was read again and found to be the same. [`leaving`] decides
//! when the links that a DEL left are deleted, [`usage`] counts addresses, [`owners`]
//! says which pod has which.

mod leaving;
mod owners;
mod plan;
mod store;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use std::{mem, sync::Arc};

use tweed_core::attachment::{NETWORK_NAME, NetworkName};
use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_core::{leaving::try_lock_cleanup, version::Version};
use tweed_ipam::record::Record;
use tweed_ipam::store::{Host, Store};
use tweed_netlink::{Error, link::Link};
use tweed_planner::overlay::desired::RouteKey;
use tweed_planner::overlay::{Network, OverlayPlanner};
use tweed_planner::policy::LocalPod;

use super::sysctl::{self, Sysctl};
use super::{kernel::Kernel, outcome::Outcome, tables::PodLinks};
use crate::{config::Config, serve::metrics::Metrics};
use leaving::{Leaving, Step};
use owners::{Owners, owners};
use store::{NetworkStore, store_problem};

/// Maximum number of pods that a message names.
const MAX_NAMED: usize = 5;

/// After an ADD the plugins that come later in the chain have changed the pod's end by then.
const CHAIN_TIME: Duration = Duration::from_secs(1);

/// Keeps the links of local pods as their records say.
pub struct PodReconciler {
    run_dir: PathBuf,
    /// Folder of the stores.
    data_dir: PathBuf,
    /// What the stores need of the machine.
    host: Host,
    metrics: Metrics,
    stores: BTreeMap<NetworkName, NetworkStore>,
    leaving: Leaving,
    /// The MTUs of the pods' ends when they were last read, by the index of the host end.
    pod_mtus: BTreeMap<u32, u32>,
    /// When these are to be read again: the kernel notifies the pod's namespace alone.
    pod_mtus_due: Option<Instant>,
    /// Whether a store was read since addresses were last counted.
    changed: bool,
    /// The plan for which addresses were last counted.
    counted: Option<Version>,
    /// Ranges that were used up when addresses were last counted.
    full_ranges: Vec<Problem>,
}

impl PodReconciler {
    /// The pods whose records are in `<run_dir>/ipam`.
    pub fn new(config: &Config, metrics: Metrics) -> Self {
        Self {
            run_dir: config.run_dir.clone(),
            data_dir: config.run_dir.join("ipam"),
            host: Host::with_boot_id(&config.boot_id_file),
            metrics,
            stores: BTreeMap::new(),
            leaving: Leaving::default(),
            pod_mtus: BTreeMap::new(),
            pod_mtus_due: None,
            changed: false,
            counted: None,
            full_ranges: Vec::new(),
        }
    }

    /// Reads the stores that have changed, or every store if `all` says so.
    pub fn read_stores(&mut self, all: bool) -> Outcome {
        let mut outcome = Outcome::default();
        let mut has_read = false;
        let names: BTreeSet<NetworkName> = match Store::networks(&self.data_dir) {
            Ok(names) => names.into_iter().collect(),
            Err(error) => {
                outcome.fail(store_problem(&error));
                return outcome;
            }
        };
        self.stores.retain(|name, _| names.contains(name));
        for name in names {
            let new = |name: &NetworkName| NetworkStore::new(&self.host, &self.data_dir, name);
            let store = self.stores.entry(name).or_insert_with_key(new);
            match store.read(all) {
                Ok(read) => has_read |= read,
                Err(error) => outcome.fail(store_problem(&error)),
            }
        }
        if all {
            self.pod_mtus_due = Some(Instant::now());
        } else if has_read {
            self.pod_mtus_due = Some(Instant::now() + CHAIN_TIME);
        }
        self.changed |= all || has_read;
        outcome
    }

    /// Counts the addresses of this node's pod CIDRs, if a store or the plan has
    /// changed.
    fn count_addresses(&mut self, network: &Network, version: Version) {
        if mem::take(&mut self.changed) || self.counted != Some(version) {
            let usage = usage::usage(&self.host, &self.data_dir, &network.pod_cidrs);
            self.metrics.set_addresses(&usage);
            self.full_ranges = usage::full_ranges(&usage);
            self.counted = Some(version);
        }
    }

    /// The keys of the routes to local pods: no other reconciler removes these.
    pub fn route_keys(&self) -> BTreeSet<RouteKey> {
        self.kept().flat_map(plan::route_keys).collect()
    }

    /// The addresses of local pods, each with the index of its link: what comes from
    /// such a link with such a source is the pod's, whatever the routing says.
    pub fn links(&self, kernel: &Kernel) -> PodLinks {
        Self::links_of(self.kept(), kernel)
    }

    /// Those of pods in the agent's own network.
    pub fn own_links(&self, kernel: &Kernel) -> PodLinks {
        let is_own = |record: &&Record| record.network.as_str() == NETWORK_NAME;
        Self::links_of(self.kept().filter(is_own), kernel)
    }

    fn links_of<'a>(records: impl Iterator<Item = &'a Record>, kernel: &Kernel) -> PodLinks {
        records
            .filter_map(|record| Some((record, plan::link_of(record, kernel.mirror())?.index)))
            .flat_map(|(record, link)| {
                let addresses = record.addresses.iter();
                addresses.map(move |address| (address.ip(), link))
            })
            .collect()
    }

    /// The records that the agent keeps.
    fn kept(&self) -> impl Iterator<Item = &Record> {
        self.stores.values().flat_map(NetworkStore::kept)
    }

    /// The addresses of local pods in the agent's own network, each with its pod, where
    /// the runtime names one: those of pods that are being added or deleted too.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, Option<LocalPod>)> {
        self.owners().pods.into_iter()
    }

    fn owners(&self) -> Owners {
        let own = |(name, _): &(&NetworkName, &NetworkStore)| name.as_str() == NETWORK_NAME;
        let stores = self.stores.iter().filter(own);
        owners(stores.flat_map(|(_, store)| store.records()))
    }

    /// The sysctls that differ on links of local pods.
    pub fn sysctls(&self, kernel: &Kernel) -> Vec<Sysctl> {
        self.kept()
            .filter_map(|record| Some((record, plan::link_of(record, kernel.mirror())?)))
            .flat_map(|(record, link)| {
                let addresses = record.addresses.iter();
                let families = addresses.map(|address| Family::of(address.ip())).collect();
                sysctl::pod_link(link, &families)
            })
            .collect()
    }

    /// Puts back what the records say, deletes links that a DEL left, and takes
    /// back addresses that nobody owns.
    ///
    /// # Errors
    /// When the kernel's socket fails.
    pub fn reconcile(
        &mut self,
        kernel: &mut Kernel,
        planner: &OverlayPlanner,
    ) -> Result<Outcome, Error> {
        let network = planner.network().map(Arc::as_ref);
        if let Some(network) = network {
            self.count_addresses(network, planner.version());
        }
        let none = BTreeMap::new();
        let sources = network.map_or(&none, |network| &network.host_sources);
        let mut outcome = self.delete_leaving_links(kernel)?;
        match self.pod_mtus_due {
            Some(at) if at > Instant::now() => {
                let retry = outcome.retry.poll_by.get_or_insert(at);
                *retry = at.min(*retry);
            }
            Some(_) => self.read_pod_mtus(kernel),
            None => {}
        }
        for store in self.stores.values_mut() {
            outcome.merge(store.repair(kernel, &self.pod_mtus, sources)?);
            outcome.merge(store.sweep(kernel, &self.metrics));
        }
        if let Some(network) = network {
            self.metrics.set_objects("pod", self.kept().count());
            outcome.problems.extend(self.outside(network));
            outcome.problems.extend(self.owners().problems);
            outcome.problems.extend(self.full_ranges.iter().cloned());
        }
        Ok(outcome)
    }

    fn read_pod_mtus(&mut self, kernel: &mut Kernel) {
        let mirror = kernel.mirror();
        let kept = self.kept();
        let of_pods = kept.filter_map(|record| plan::link_of(record, mirror));
        let links: Vec<Link> = of_pods.cloned().collect();
        let mtu = |link: &Link| Some((link.index, kernel.other_end(link)?.mtu));
        self.pod_mtus = links.iter().filter_map(mtu).collect();
        self.pod_mtus_due = None;
    }

    /// Deletes the links that a DEL left and that no other process deletes.
    fn delete_leaving_links(&mut self, kernel: &mut Kernel) -> Result<Outcome, Error> {
        let links = kernel.mirror().leaving_links();
        let mut outcome = Outcome::default();
        let lock = match self.leaving.next_step(&links, Instant::now()) {
            Step::None => return Ok(outcome),
            Step::Wait(until) => {
                outcome.retry.poll_by = Some(until);
                return Ok(outcome);
            }
            Step::DeleteIfUnlocked(next) => match try_lock_cleanup(&self.run_dir) {
                Ok(Some(lock)) => Some(lock),
                other => {
                    tracing::debug!(?other, "another process deletes the leaving links");
                    outcome.retry.poll_by = Some(next);
                    return Ok(outcome);
                }
            },
            Step::Delete => None,
        };
        let outcome = kernel.delete_leaving_links()?;
        drop(lock);
        Ok(outcome)
    }

    /// Pods that have an address outside the node's own CIDRs: they were made
    /// before these changed, and no other node has a route to them.
    fn outside(&self, network: &Network) -> Option<Problem> {
        let mut pods: Vec<String> = self
            .kept()
            .filter(|record| record.network.as_str() == NETWORK_NAME)
            .filter(|record| record.addresses.iter().any(|a| !network.holds(a.ip())))
            .map(name_of)
            .collect();
        pods.sort();
        let more = pods.len().saturating_sub(MAX_NAMED);
        let mut named = pods.get(..pods.len() - more)?.join(", ");
        if named.is_empty() {
            return None;
        }
        if more > 0 {
            named.push_str(&format!(" and {more} more"));
        }
        Some(Problem::new(
            ProblemKind::PodsOutsideCidr,
            NETWORK_NAME,
            format!(
                "pods have addresses outside this node's pod CIDR, so other nodes have no route to them: {named}"
            ),
        ))
    }
}

fn name_of(record: &Record) -> String {
    let name = match &record.pod {
        Some(pod) => format!("{}/{}", pod.namespace, pod.name),
        None => record.container_id.to_string(),
    };
    let addresses: Vec<String> = record
        .addresses
        .iter()
        .map(|address| address.ip().to_string())
        .collect();
    format!("{name} ({})", addresses.join(", "))
}
