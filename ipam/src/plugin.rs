//! The program `tweed-ipam`: the store as a CNI IPAM plugin, for `ptp`, `bridge`,
//! `macvlan` or any other main plugin.
//!
//! Unlike host-local, an interrupted ADD leaks no address, a reboot leaves nothing,
//! and GC and STATUS are supported. Its records have owner `other`: the links belong
//! to another plugin, so only DEL and GC free the records.

use std::path::{Path, PathBuf};

use crate::ranges::IpamConfig;
use crate::ranges::config::{data_dir, names_ranges};
use crate::record::{Owner, Process, Record, State};
use crate::resolv_conf;
use crate::store::{LOCK_WAIT, Store};
use crate::sweep::{self, Cause, Reason, Swept};
use tweed_cni::{
    AddResult, CniError, Code, Config, Failures, IpConfig, Plugin, Request, Target, ValidAttachment,
};
use tweed_core::attachment::{Attachment, ContainerId, IfName};
use tweed_core::paths::DEFAULT_RUN_DIR;

/// `dataDir` of host-local where its config names none.
const HOST_LOCAL_DATA_DIR: &str = "/var/lib/cni/networks";

/// The folder of all state, `runDir`.
///
/// # Errors
/// Code 7 when the key is no absolute path.
pub fn run_dir(config: &Config) -> Result<PathBuf, CniError> {
    Ok(config.path("runDir")?.unwrap_or(DEFAULT_RUN_DIR.into()))
}

/// The store that the config names: `ipam.dataDir`, by default
/// `<runDir>/ipam`. A config without the key may have been host-local's, whose default
/// is another folder. It reads nothing else of the config, so that a DEL or GC does not
/// fail over a key that it does not need.
///
/// # Errors
/// Code 7 when one of the keys is no absolute path.
pub fn open_store(config: &Config) -> Result<Store, CniError> {
    let ipam = config.ipam()?;
    let run_dir = run_dir(config)?;
    Ok(match data_dir(&ipam).map_err(CniError::config)? {
        Some(data_dir) => Store::open(&data_dir, &config.network),
        None => Store::open(&run_dir.join("ipam"), &config.network)
            .after_host_local(Path::new(HOST_LOCAL_DATA_DIR)),
    })
}

/// What an ADD needs of the `ipam` object. Keys without effect are logged.
///
/// # Errors
/// Code 7 with the path and value of the key that is wrong.
pub fn ipam_config(request: &Request<'_>) -> Result<IpamConfig, CniError> {
    let ipam = request.config.ipam()?;
    let ip_ranges = request.config.runtime_config()?.ip_ranges;
    let parsed = IpamConfig::parse(&ipam, ip_ranges.as_ref()).map_err(CniError::config)?;
    for key in &parsed.ignored {
        request.log(format_args!("{key} is unknown and has no effect"));
    }
    Ok(parsed)
}

/// Reads of the `ipam` object what [`ipam_config`] does and what else an ADD reads, for
/// STATUS, to which the runtime gives no ranges of its own: none where all of them come by
/// the capability `ipRanges`.
///
/// # Errors
/// As [`ipam_config`] and [`resolv_conf::read`].
pub fn ipam_config_without_attachment(
    request: &Request<'_>,
) -> Result<Option<IpamConfig>, CniError> {
    let config = &request.config;
    let capabilities = config.key("capabilities");
    let ranges_are_requested = capabilities.and_then(|all| all.get("ipRanges")?.as_bool());
    if ranges_are_requested == Some(true)
        && !names_ranges(&config.ipam()?)
        && config.runtime_config()?.ip_ranges.is_none()
    {
        return Ok(None);
    }
    let parsed = ipam_config(request)?;
    resolv_conf::read(&parsed)?;
    Ok(Some(parsed))
}

/// The attachments of a GC list. An entry with a name that no ADD accepts is left
/// out, as the store cannot have a record of it.
pub fn listed(config: &Config, valid: Vec<ValidAttachment>) -> Vec<Attachment> {
    let attachment = |valid: ValidAttachment| {
        Some(Attachment {
            network: config.network.clone(),
            container_id: ContainerId::new(valid.container_id).ok()?,
            ifname: IfName::new(valid.ifname).ok()?,
        })
    };
    valid.into_iter().filter_map(attachment).collect()
}

/// The IPAM plugin.
#[derive(Debug, Clone, Copy, Default)]
pub struct TweedIpam;

impl Plugin for TweedIpam {
    fn add(&mut self, request: &Request<'_>, target: &Target) -> Result<AddResult, CniError> {
        let config = ipam_config(request)?;
        let requested = request.config.requested_ips(&target.args)?;
        let dns = resolv_conf::read(&config)?;
        let seed = Record {
            netns: Some(target.netns.clone()),
            pod: target.args.pod.clone(),
            pod_uid: target.args.pod_uid.clone(),
            ..Record::adding(target.attachment.clone(), Owner::Other, Process::current()?)
        };
        let store = open_store(&request.config)?;
        let mut locked = store.lock(LOCK_WAIT)?;
        let held = locked.reserve(&seed, &config.ranges, &requested)?;
        let live = locked.mark_live(&held);
        let record = live.inspect_err(|_| {
            // If this fails too, a record remains whose owner is about to end.
            if let Err(error) = locked.free(&target.attachment) {
                request.log(format_args!(
                    "error: cannot undo the ADD of {}: {error}; the next DEL or GC will",
                    target.attachment
                ));
            }
        })?;
        drop(locked);
        let ips = record.addresses.iter().map(|address| IpConfig {
            address: *address,
            gateway: config.ranges.range_of(address.ip()).map(|r| r.gateway()),
            interface: None,
        });
        Ok(AddResult {
            interfaces: Vec::new(),
            ips: ips.collect(),
            routes: config.routes,
            dns,
        })
    }

    fn del(&mut self, request: &Request<'_>, target: &Target) -> Result<(), CniError> {
        let store = open_store(&request.config)?;
        let freed = match store.lock_existing(LOCK_WAIT)? {
            Some(mut locked) => locked.free(&target.attachment)?,
            None => None,
        };
        if freed.is_none_or(|freed| !freed.is_complete()) {
            store.free_host_local(&target.attachment, LOCK_WAIT)?;
        }
        Ok(())
    }

    fn check(&mut self, request: &Request<'_>, target: &Target) -> Result<(), CniError> {
        let store = open_store(&request.config)?;
        let attachment = &target.attachment;
        let differs = |what: String| CniError::new(Code::CheckDiffers, what);
        let Some(record) = store.read(attachment)? else {
            return Err(differs(format!("no address is reserved for {attachment}")));
        };
        if record.state != State::Live {
            return Err(differs(format!(
                "{attachment} is not live: its ADD or DEL was interrupted"
            )));
        }
        if let Some(address) = store.unclaimed(&record)?.first() {
            let problem = format!("{address} of {attachment} is no longer reserved");
            return Err(differs(problem));
        }
        if let Some(result) = request.config.prev_result()? {
            let shown = |address| result.ips.iter().any(|ip| ip.address.ip() == address);
            if let Some(address) = record.addresses.iter().find(|a| !shown(a.ip())) {
                return Err(differs(format!(
                    "{address} is reserved for {attachment}, but prevResult does not have it"
                )));
            }
        }
        Ok(())
    }

    fn status(&mut self, request: &Request<'_>) -> Result<(), CniError> {
        ipam_config_without_attachment(request)?;
        // A full range is no error: the node would become NotReady, and its pods
        // would be evicted, because it is full.
        open_store(&request.config)?
            .lock(LOCK_WAIT)
            .map_err(|error| CniError::new(Code::NotAvailable, error.to_string()))?;
        Ok(())
    }

    fn gc(&mut self, request: &Request<'_>) -> Result<(), CniError> {
        let store = open_store(&request.config)?;
        // The links belong to the main plugin, which deletes them in its own GC.
        let detach = |_: &_| Ok::<(), CniError>(());
        let swept = match request.config.valid_attachments()? {
            Some(valid) => {
                let valid = listed(&request.config, valid);
                sweep::gc(&store, LOCK_WAIT, &valid, detach)?
            }
            None => sweep::sweep(&store, LOCK_WAIT, |_| false, detach)?,
        };
        let mut failures = Failures::default();
        report(request, swept, &mut failures);
        failures.into_result()
    }
}

/// Logs what a GC has freed, and adds what it could not free to `failures`.
pub fn report(request: &Request<'_>, swept: Swept<CniError>, failures: &mut Failures) {
    for (freed, reason) in &swept.freed {
        let texts: Vec<String> = freed.addresses.iter().map(ToString::to_string).collect();
        let addresses = texts.join(" and ");
        request.log(format_args!("freed {addresses} of {freed}: {reason}"));
    }
    for path in &swept.host_local {
        request.log(format_args!(
            "removed {}, by which host-local gave an address: {}",
            path.display(),
            Reason::NotListed
        ));
    }
    for failed in swept.failed {
        let mut error = match failed.cause {
            Cause::Store(error) => CniError::from(error),
            Cause::Removal(error) => error,
        };
        error.msg = format!("{}: {}", failed.attachment, error.msg);
        failures.push(error);
    }
    if let Some(stopped) = swept.stopped {
        failures.push(stopped.into());
    }
}
