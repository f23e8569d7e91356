//! Removes tweed from a node: what the agent and the plugin have made, and nothing
//! else.
//!
//! The order matters. No agent may run, because it would restore everything. No
//! pod may be left, because it would lose its network. The network's config and
//! the plugins are removed first, so that no new pod starts; then the objects in
//! the kernel, the sysctls and the other files; last the lock that keeps an agent
//! from starting.

mod files;
mod kernel;
mod pods;
mod sysctls;

use clap::{Args, builder::BoolishValueParser};
use tweed_core::{instance_lock::InstanceLock, paths::CONFLIST};

use crate::{displaced, error::InstallError, journal::Journal, places::PlaceArgs};

/// Flags of `uninstall`.
#[derive(Debug, Clone, Args)]
pub struct UninstallArgs {
    /// Also remove the network of pods that still run
    #[arg(long, env = "TWEED_PODS", value_parser = BoolishValueParser::new())]
    pods: bool,

    /// Restore the configs of other networks that --displace-cni has renamed
    #[arg(long, env = "TWEED_RESTORE_CNI", value_parser = BoolishValueParser::new())]
    restore_cni: bool,

    /// Only print what would be removed
    #[arg(long, env = "TWEED_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,

    #[command(flatten)]
    places: PlaceArgs,
}

/// Removes tweed. It can be run again: what does not exist is no failure.
///
/// # Errors
/// What prevents it: an agent that runs, pods that are left. Later failures are in
/// the journal.
pub fn run(asked: &UninstallArgs, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    let places = asked.places.resolve();
    if asked.dry_run {
        journal.rehearse();
    }
    let lock = match InstanceLock::take_existing(&places.run_dir) {
        Ok(lock) => lock,
        Err(error) => journal.refuse(error.into()).map(|()| None)?,
    };
    if !asked.pods {
        let pods = pods::left(&places)?;
        if !pods.is_empty() {
            journal.refuse(InstallError::PodsLeft { pods })?;
        }
    }
    files::remove_conflist(&places.cni_conf_dir, CONFLIST, journal);
    files::remove_plugins(&places.cni_bin_dir, journal);
    kernel::remove(journal);
    let sysctls_are_restored = sysctls::restore(&places, journal);
    files::remove_host_install(&places, journal);
    files::remove_run_dir(&places.run_dir, sysctls_are_restored, journal);
    drop(lock);
    if asked.restore_cni {
        displaced::restore(&places.cni_conf_dir, journal);
    } else {
        for (path, _) in displaced::list(&places.cni_conf_dir)? {
            journal.kept(path.display(), "--restore-cni restores it");
        }
    }
    if journal.is_empty() {
        journal.line("nothing of tweed is on this machine");
    }
    Ok(())
}
