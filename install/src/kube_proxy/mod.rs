//! Removes what kube-proxy has left on a node: tables, chains and links by the names that
//! only it gives, in every mode, and nothing else. Nobody does that for it when its
//! DaemonSet goes.
//!
//! Open connections to Services stay: conntrack has their translation. That needs a chain
//! of the type nat at the same hooks, which tweed has while its agent serves Services;
//! so this is refused where it does not, and where a kube-proxy would only make its rules
//! again. Only in the mode `ipvs` conntrack does not have it: see [`ipvs`].

mod ipvs;
mod nf_tables;
mod plan;
mod returned;

use std::{path::Path, time::Duration};

use clap::{Args, builder::BoolishValueParser};
use tweed_core::agent_state::{AGENT_STATE_FILE, LastState};
use tweed_core::{limits, regular_file};
use tweed_diagnosis::service_proxy::kube_proxy::{Trace, of_legacy, saved_lines};
use tweed_diagnosis::service_proxy::kube_proxy_mode;
use tweed_nft::Connection;
use tweed_nft::services::ServicesTable;

use crate::error::InstallError;
use crate::journal::Journal;
use crate::places::{PlaceArgs, Places};
use plan::Removal;

/// Flags of `remove-kube-proxy`.
#[derive(Debug, Clone, Args)]
pub struct RemoveKubeProxyArgs {
    /// Also where the agent does not serve Services, a kube-proxy still runs, or open
    /// connections of IPVS are cut by it
    #[arg(long, env = "TWEED_FORCE", value_parser = BoolishValueParser::new())]
    force: bool,

    /// How long to watch afterwards whether a kube-proxy makes its rules again, which is a
    /// failure. One in its mode iptables does so within a sync period, 30 s by default.
    /// Not with --force
    #[arg(
        long,
        env = "TWEED_WATCH_SECONDS",
        value_name = "SECONDS",
        default_value_t = 60
    )]
    watch_seconds: u32,

    /// Only print what would be removed
    #[arg(long, env = "TWEED_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,

    #[command(flatten)]
    places: PlaceArgs,
}

/// Removes it. It can be run again: what does not exist is no failure.
///
/// # Errors
/// What prevents it: an agent or a kernel that does not serve Services, a kube-proxy that
/// runs.
/// Later failures are in the journal.
pub fn run(asked: &RemoveKubeProxyArgs, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    if asked.dry_run {
        journal.rehearse();
    }
    if !asked.force {
        let places = asked.places.resolve()?;
        if !serves_services(&places)? {
            journal.refuse(InstallError::ServicesNotServed)?;
        } else if !kernel_has_services(&places)? {
            journal.refuse(InstallError::ServicesNotInKernel)?;
        }
        if let Some(mode) = kube_proxy_mode() {
            journal.refuse(InstallError::KubeProxyRuns { mode })?;
        }
    }
    let removed = nf_tables::remove(journal);
    let kept = journal.checked(removed);
    let removed = ipvs::remove_link(asked.force, journal);
    journal.checked(removed);
    name_legacy(journal);
    ipvs::name_virtual_services(journal);
    if journal.is_empty() {
        journal.line("nothing of kube-proxy is on this machine");
    }
    match kept {
        Some(kept) if !asked.force && !asked.dry_run && journal.failures() == 0 => {
            let time = Duration::from_secs(asked.watch_seconds.into());
            returned::watch(&kept, time, journal)
        }
        _ => Ok(()),
    }
}

/// Whether the agent of this node says that its rules serve Services.
///
/// # Errors
/// Its file cannot be read.
pub(crate) fn serves_services(places: &Places) -> Result<bool, InstallError> {
    let path = places.run_dir.join(AGENT_STATE_FILE);
    let read = regular_file::read(&path, limits::STATE);
    let read = InstallError::if_exists("read", &path, read)?;
    let state = read.map(|text| serde_json::from_slice::<LastState>(&text));
    match state.transpose() {
        Ok(state) => Ok(state.is_some_and(|state| state.services)),
        Err(error) => Err(InstallError::Content {
            path,
            why: error.to_string(),
        }),
    }
}

/// Whether the kernel has the agent's rules of Services: an agent that has ended says
/// nothing new in its file.
///
/// # Errors
/// The kernel cannot be asked.
fn kernel_has_services(places: &Places) -> Result<bool, InstallError> {
    match Connection::open(&places.run_dir, Path::new("nft")) {
        Ok(mut nft) => Ok(ServicesTable::new(&places.run_dir, false).is_there(&mut nft)?),
        Err(tweed_nft::Error::NoNfTables(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The old iptables replaces whole tables, those of others with them.
fn name_legacy(journal: &mut Journal<'_>) {
    let found = of_legacy().map_err(InstallError::from);
    for trace in journal.checked(found).unwrap_or_default() {
        let Trace::Chains {
            program,
            table,
            names,
        } = &trace
        else {
            continue;
        };
        let lines = saved_lines(table, names);
        journal.failed(format_args!(
            "cannot remove {trace}: the old iptables has no way to remove them alone. Run \
             `{program}-save -t {table} | grep -vE '{lines}' | {program}-restore` on the node, \
             which leaves what is not kube-proxy's, and KUBE-MARK-MASQ and KUBE-POSTROUTING, \
             which others may use"
        ));
    }
}

/// What goes of a table, for people: not each of thousands of chains.
fn object(program: &str, table: &str, removal: &Removal) -> String {
    let named: Vec<&str> = (removal.chains.iter())
        .filter(|chain| !is_of_service(chain))
        .map(String::as_str)
        .collect();
    let others = removal.chains.len() - named.len();
    let mut text = format!("from {program} table {table}: {}", named.join(" "));
    if others > 0 {
        text += &format!(" and {others} chains of Services and endpoints");
    }
    for rule in &removal.jumps {
        let to = rule.to.as_deref().unwrap_or_default();
        text += &format!("; {} -j {to}", rule.chain);
    }
    text
}

/// Whether a chain of kube-proxy is that of a Service port or an endpoint.
fn is_of_service(chain: &str) -> bool {
    // `KUBE-SVC-` and a hash.
    chain
        .rsplit('-')
        .next()
        .is_some_and(|hash| hash.len() == 16)
}
