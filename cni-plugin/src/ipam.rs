//! Where addresses come from: the own store, or another plugin and the own store
//! as the record of it.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_ipam::plugin::ipam_config;
use tweed_ipam::protocol::{AddResult, CniError, Code, Command, Dns, IpConfig, Request, Route};
use tweed_ipam::record::{Record, State};
use tweed_ipam::resolv_conf;
use tweed_ipam::store::{LOCK_WAIT, Seed, Store};

use crate::config::Ipam;
use crate::delegate::Delegate;
use crate::identity::gateway_of;

/// What an attachment was given.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// The record, in state adding.
    pub record: Record,
    /// The next hops to answer with: that of another plugin where it named one,
    /// as it may want to see it again in CHECK.
    pub gateways: Vec<(IpAddr, IpAddr)>,
    /// Routes that the pod is to have.
    pub routes: Vec<Route>,
    /// Name resolution for the pod.
    pub dns: Dns,
}

impl Reservation {
    /// The addresses without their subnets' prefix lengths.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.gateways.iter().map(|(ip, _)| *ip).collect()
    }
}

/// Whether an earlier ADD or DEL of the attachment was cut off: then what it
/// left in the kernel, and with another plugin, must go before the store lets
/// its record be replaced.
pub fn is_leftover(record: &Record) -> bool {
    match record.state {
        State::Adding { by } => by.is_provably_gone(),
        State::Deleting => true,
        State::Live => false,
    }
}

/// Reserves in the own store.
///
/// # Errors
/// The store's, or code 7 for the config; nothing is reserved then.
pub fn reserve(
    store: &Store,
    seed: &Seed,
    request: &Request<'_>,
    asked: &[IpAddr],
) -> Result<Reservation, CniError> {
    let config = ipam_config(request)?;
    let dns = match &config.resolv_conf {
        Some(path) => resolv_conf::read(path)?,
        None => Dns::default(),
    };
    let record = store
        .lock(LOCK_WAIT)?
        .reserve(seed, &config.ranges, asked)?;
    let addresses = record.addresses.iter().map(IpNetwork::ip);
    Ok(Reservation {
        gateways: addresses.map(|ip| (ip, gateway_of(ip))).collect(),
        record,
        routes: config.routes,
        dns,
    })
}

/// Asks another plugin, and writes down what it gave. The attachment has a record
/// by then, so that after a kill in between something leads to it.
///
/// # Errors
/// The plugin's own, or code 106. The caller undoes: the plugin may have given
/// something.
pub fn delegate(
    store: &Store,
    seed: &Seed,
    plugin: &str,
    delegate: &mut impl Delegate,
    request: &Request<'_>,
) -> Result<Reservation, CniError> {
    let stdout = delegate.call(
        Command::Add,
        plugin,
        &request.cni_path,
        request.config.bytes(),
    )?;
    let failed = |problem: String| {
        CniError::new(
            Code::DelegateFailed,
            format!("the IPAM plugin {plugin} {problem}"),
        )
    };
    let given = AddResult::from_document(&stdout)
        .map_err(|problem| failed(format!("gave no result: {problem}")))?;
    if given.ips.is_empty() {
        return Err(failed("gave no address".to_owned()));
    }
    let addresses = given.ips.iter().map(|ip| ip.address).collect();
    let record = store.lock(LOCK_WAIT)?.track(seed, addresses)?;
    let gateway = |ip: &IpConfig| ip.gateway.unwrap_or(gateway_of(ip.address.ip()));
    Ok(Reservation {
        gateways: given
            .ips
            .iter()
            .map(|ip| (ip.address.ip(), gateway(ip)))
            .collect(),
        record,
        routes: given.routes,
        dns: given.dns,
    })
}

/// Passes a verb without a result on to another plugin; the own store has none
/// to pass it to.
///
/// # Errors
/// The plugin's own, or code 106.
pub fn pass_on(
    command: Command,
    ipam: &Ipam,
    delegate: &mut impl Delegate,
    request: &Request<'_>,
) -> Result<(), CniError> {
    match ipam {
        Ipam::Own => Ok(()),
        Ipam::Delegated(plugin) => delegate
            .call(command, plugin, &request.cni_path, request.config.bytes())
            .map(|_| ()),
    }
}
