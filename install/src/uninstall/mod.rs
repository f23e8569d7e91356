//! Taking tweed off a node: what the agent and the plugin have made, and
//! nothing else.
//!
//! In this order, each because of the next: no agent may run, which would put
//! everything back; no pod may be left, which would lose its network; the
//! network's config and the plugins go first, so that no pod comes any more;
//! then the kernel's objects, the sysctls, and the other files, at their end
//! the lock that keeps an agent from starting.

mod files;
mod kernel;
mod pods;
mod sysctls;

use clap::Args;
use clap::builder::BoolishValueParser;
use tweed_core::instance_lock::InstanceLock;
use tweed_core::paths::CONFLIST;

use crate::displaced;
use crate::error::InstallError;
use crate::journal::Journal;
use crate::places::PlaceArgs;

/// What `uninstall` is asked to do.
#[derive(Debug, Clone, Args)]
pub struct UninstallArgs {
    /// Take the network from pods that are still there, too
    #[arg(long, env = "TWEED_PODS", value_parser = BoolishValueParser::new())]
    pods: bool,

    /// Put back the configs of other networks that --displace-cni has renamed
    #[arg(long, env = "TWEED_RESTORE_CNI", value_parser = BoolishValueParser::new())]
    restore_cni: bool,

    /// Only say what would be removed
    #[arg(long, env = "TWEED_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,

    #[command(flatten)]
    places: PlaceArgs,
}

/// Removes what there is of tweed. What is not there is no failure, so it can
/// be run again.
///
/// # Errors
/// What keeps it from beginning: an agent that runs, pods that are left. What
/// fails later is in the journal.
pub fn run(asked: &UninstallArgs, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    let places = asked.places.resolve();
    if asked.dry_run {
        journal.rehearse();
    }
    let lock = match InstanceLock::take_existing(&places.run_dir) {
        Ok(lock) => lock,
        Err(error) => refuse(error.into(), journal).map(|()| None)?,
    };
    if !asked.pods {
        let pods = pods::left(&places.run_dir)?;
        if !pods.is_empty() {
            refuse(InstallError::PodsLeft { pods }, journal)?;
        }
    }
    files::remove_conflist(&places.cni_conf_dir, CONFLIST, journal);
    files::remove_plugins(&places.cni_bin_dir, journal);
    kernel::remove(journal);
    let sysctls_are_back = sysctls::put_back(&places, journal);
    files::remove_host_install(&places, journal);
    files::remove_run_dir(&places.run_dir, sysctls_are_back, journal);
    drop(lock);
    if asked.restore_cni {
        displaced::restore(&places.cni_conf_dir, journal);
    } else {
        for (path, _) in displaced::list(&places.cni_conf_dir)? {
            journal.kept(path.display(), "--restore-cni puts it back");
        }
    }
    if journal.is_empty() {
        journal.line("nothing of tweed is on this machine");
    }
    Ok(())
}

/// Ends it here; a rehearsal goes on, and says that it would have ended.
fn refuse(error: InstallError, journal: &mut Journal<'_>) -> Result<(), InstallError> {
    if !journal.is_rehearsal() {
        return Err(error);
    }
    journal.line(format_args!("would refuse: {error}"));
    Ok(())
}
