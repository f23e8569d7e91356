//! Removes tweed from a node: what the agent and the plugin have made, and nothing
//! else.
//!
//! The order matters. No agent may run, because it would restore everything. No
//! pod may be left, because it would lose its network. The network's config is
//! removed first, so that no new pod starts, and it is looked for pods once more;
//! then the plugins; then the fast path, which relies on what follows: the objects in the
//! kernel, and the sysctls; then the other files; then
//! the lock that keeps an agent from starting; last the file that says which folders it
//! had.

mod fast_path;
mod files;
mod kernel;
mod others;
mod pods;
pub(crate) mod sysctls;

use clap::{Args, builder::BoolishValueParser};
use tweed_core::{atomic_file, instance_lock::InstanceLock, paths::CONFLIST};
use tweed_core::{limits, regular_file};

use crate::places::{PlaceArgs, Places};
use crate::{displaced, error::InstallError, journal::Journal};

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
    let places = asked.places.resolve()?;
    if asked.dry_run {
        journal.rehearse();
    }
    let lock = match InstanceLock::take_existing(&places.run_dir) {
        Ok(lock) => lock,
        Err(error) => journal.refuse(error.into()).map(|()| None)?,
    };
    let has_files = files::any(&places);
    let left = || {
        if asked.pods {
            Ok(Vec::new())
        } else {
            pods::left(&places)
        }
    };
    remove_conflist(&places, journal, left)?;
    files::remove_plugins(&places.cni_bin_dir, journal);
    fast_path::remove(&places.bpf_dir, journal);
    let had_objects = kernel::remove(journal);
    let values = sysctls::restore(&places, asked.restore_cni, journal);
    files::remove_host_install(&places, journal);
    files::remove_run_dir(&places.run_dir, values, journal);
    drop(lock);
    files::remove_environment(&places, journal);
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
    if had_objects && !has_files {
        journal.line(format_args!(
            "no file of tweed was in {}, {} and {}: if the agent had other folders, run this again \
             with --cni-conf-dir, --cni-bin-dir and --run-dir",
            places.cni_conf_dir.display(),
            places.cni_bin_dir.display(),
            places.run_dir.display()
        ));
    }
    Ok(())
}

/// Removes the network's config, so that no new pod starts, unless pods are left. One may
/// start after it was looked for them: then the config is put back, and that pod lives on.
fn remove_conflist(
    places: &Places,
    journal: &mut Journal<'_>,
    left: impl Fn() -> Result<Vec<String>, InstallError>,
) -> Result<(), InstallError> {
    let pods = left()?;
    if !pods.is_empty() {
        journal.refuse(InstallError::PodsLeft { pods })?;
    }
    let path = places.cni_conf_dir.join(CONFLIST);
    let text = regular_file::read(&path, limits::CNI_CONFIG).ok();
    files::remove_conflist(&places.cni_conf_dir, journal);
    if journal.is_rehearsal() {
        return Ok(());
    }
    let refused = match left() {
        Ok(pods) if pods.is_empty() => return Ok(()),
        Ok(pods) => InstallError::PodsLeft { pods },
        Err(error) => error,
    };
    if let Some(text) = text {
        atomic_file::update(&path, &text, atomic_file::SHARED)?;
        journal.line(format_args!("restored {}", path.display()));
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use std::fs;

    use super::*;

    #[test]
    fn a_pod_that_starts_while_its_config_is_removed_keeps_its_network() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::below(folder.path());
        fs::create_dir_all(&places.cni_conf_dir).unwrap();
        let path = places.cni_conf_dir.join(CONFLIST);
        fs::write(&path, "{}").unwrap();
        let looks = Cell::new(0);
        let left = || {
            looks.set(looks.get() + 1);
            let started = looks.get() > 1;
            Ok(started
                .then(|| "shop/cart-0".to_owned())
                .into_iter()
                .collect())
        };
        let mut out = Vec::new();
        let refused = remove_conflist(&places, &mut Journal::new(&mut out), left);
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("shop/cart-0"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{}");

        let nobody = || Ok(Vec::new());
        remove_conflist(&places, &mut Journal::new(&mut out), nobody).unwrap();
        assert!(!path.exists());
    }
}
