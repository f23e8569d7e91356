//! Whether a kube-proxy makes its rules again after they were removed.
//!
//! One that has not got its metrics port, because somebody else listens there, runs
//! without it and cannot be asked; but its rules come back.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tweed_diagnosis::service_proxy::kube_proxy::Trace;
use tweed_diagnosis::service_proxy::{find, kube_proxy_mode};
use tweed_netlink::nf::idle::Idle;

use crate::error::InstallError;
use crate::journal::Journal;

/// Time from one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// Looks for rules other than those that were `kept`, and for a kube-proxy that can be
/// asked, now and then for this time.
pub(super) fn watch(
    kept: &BTreeSet<String>,
    time: Duration,
    journal: &mut Journal<'_>,
) -> Result<(), InstallError> {
    if !time.is_zero() {
        let seconds = time.as_secs();
        journal.line(format_args!(
            "watching for {seconds} s whether a kube-proxy makes its rules again"
        ));
    }
    let begin = Instant::now();
    let nf_tables = Idle::default();
    loop {
        if let Some(mode) = kube_proxy_mode() {
            return Err(InstallError::KubeProxyRuns { mode });
        }
        let found = find(&nf_tables)?.kube_proxy;
        let returned: Vec<String> = (found.iter())
            .filter(|trace| !is_kept(trace, kept))
            .map(Trace::to_string)
            .collect();
        if !returned.is_empty() {
            let rules = returned.join(", ");
            return Err(InstallError::Other(format!(
                "kube-proxy's rules are there again: {rules}. A kube-proxy runs on this node, \
                 although it does not answer at 127.0.0.1:10249: take it off this node, and find \
                 out what has started it"
            )));
        }
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        sleep(INTERVAL.min(left));
    }
}

fn is_kept(trace: &Trace, kept: &BTreeSet<String>) -> bool {
    match trace {
        Trace::Chains { names, .. } => names.iter().all(|name| kept.contains(name)),
        Trace::Table { .. } | Trace::IpvsLink => false,
    }
}
