//! STATUS: whether an ADD could be served now.

use std::{net::IpAddr, path::Path};

use tweed_cni::{CniError, Code, Command, Request};
use tweed_core::agent_state::{AGENT_STATE_FILE, Readiness};
use tweed_core::{limits, regular_file};
use tweed_ipam::plugin::ipam_config_without_attachment;
use tweed_ipam::{ranges::Range, store::LOCK_WAIT};

use crate::config::{Ipam, Settings};
use crate::datapath::Datapath;
use crate::ready::is_ready;
use crate::{Tweed, delegate::Delegate};

/// Returns whether an ADD could be served: whether its config is one that ADD takes, the
/// store can be used and the agent is ready. The agent's state counts only if the config has
/// `readyFile`. An exhausted range never counts: the node would become
/// NotReady, and its pods would be evicted, because it is full.
///
/// # Errors
/// Code 50, or 51 when running pods are affected too; 7 for the config, 5 for a file that
/// it names; the error of a delegated IPAM plugin.
pub fn status<P: Datapath, D: Delegate>(
    tweed: &mut Tweed<P, D>,
    request: &Request<'_>,
) -> Result<(), CniError> {
    let settings = Settings::read(&request.config)?;
    if settings.place.ipam == Ipam::BuiltIn {
        check_built_in(&tweed.datapath, &settings, request)?;
    }
    if let Some(ready_file) = &settings.ready_file {
        let agent = read_agent(&settings.place.run_dir.join(AGENT_STATE_FILE), request);
        judge(ready_file, is_ready(ready_file), agent.as_ref())?;
    }
    // The store must be usable too.
    let store = settings.place.store.lock(LOCK_WAIT);
    store.map_err(|error| CniError::new(Code::NotAvailable, error.to_string()))?;
    tweed.forward(Command::Status, &settings.place.ipam, request)
}

/// Checks what every ADD would refuse of the `ipam` object of the built-in plugin.
fn check_built_in(
    datapath: &impl Datapath,
    settings: &Settings,
    request: &Request<'_>,
) -> Result<(), CniError> {
    let Some(config) = ipam_config_without_attachment(request)? else {
        return Ok(());
    };
    let ranges = || config.ranges.iter().flat_map(|set| set.ranges());
    let gateways: Vec<IpAddr> = ranges().map(Range::gateway).collect();
    datapath.accepts(settings.mtu, &config.routes, &gateways)
}

fn judge(ready_file: &Path, exists: bool, agent: Option<&Readiness>) -> Result<(), CniError> {
    let not_ready = agent.filter(|agent| !agent.ready);
    if exists && not_ready.is_none() {
        return Ok(());
    }
    let code = if not_ready.is_some_and(|agent| agent.affects_running) {
        Code::NotAvailableLimited
    } else {
        Code::NotAvailable
    };
    let mut reasons = not_ready
        .map(|agent| agent.reasons.clone())
        .unwrap_or_default();
    if !exists {
        reasons.push(format!(
            "{} is missing or of an earlier boot",
            ready_file.display()
        ));
    }
    Err(CniError::new(code, "the node's network is not ready").details(reasons.join("; ")))
}

/// The agent's state; none if there is no such file, or it cannot be read.
fn read_agent(path: &Path, request: &Request<'_>) -> Option<Readiness> {
    let problem: String = match regular_file::read(path, limits::STATE) {
        Ok(bytes) => match serde_json::from_slice(&bytes) {
            Ok(state) => return Some(state),
            Err(error) => error.to_string(),
        },
        Err(error) if error.is_missing() => return None,
        Err(error) => error.to_string(),
    };
    request.log(format_args!(
        "warning: cannot read {}: {problem}",
        path.display()
    ));
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(exists: bool, agent: Option<(bool, bool)>) -> u32 {
        let state = agent.map(|(ready, affects_running)| Readiness {
            ready,
            affects_running,
            reasons: vec!["no pod CIDR".to_owned()],
        });
        judge(Path::new("/run/tweed/ready"), exists, state.as_ref()).map_or_else(|e| e.code, |()| 0)
    }

    #[test]
    fn the_file_and_the_agent_must_both_say_ready() {
        assert_eq!(code(true, None), 0);
        assert_eq!(code(true, Some((true, false))), 0);
        assert_eq!(code(false, None), 50);
        assert_eq!(code(false, Some((true, false))), 50);
        assert_eq!(code(true, Some((false, false))), 50);
        assert_eq!(code(true, Some((false, true))), 51);
        assert_eq!(code(false, Some((false, true))), 51);
        assert_eq!(code(true, Some((true, true))), 0);
    }

    #[test]
    fn all_reasons_are_in_the_error() {
        let agent = Readiness {
            ready: false,
            affects_running: false,
            reasons: vec!["a".to_owned(), "b".to_owned()],
        };
        let error = judge(Path::new("/r"), false, Some(&agent)).unwrap_err();
        assert_eq!(error.details, "a; b; /r is missing or of an earlier boot");
    }
}
