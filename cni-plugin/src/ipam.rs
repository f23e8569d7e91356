//! Where addresses come from: the built-in store, or another IPAM plugin, of whose
//! addresses the store keeps a record.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_cni::{AddResult, CniError, Code, Command, Dns, IpConfig, Request, Route};
use tweed_ipam::record::Record;
use tweed_ipam::store::{Held, LOCK_WAIT, Seed, Store};

use crate::{datapath::veth::plan::gateway_of, delegate::Delegate};

/// What IPAM gave to an attachment.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// Each address with the gateway for the result: that of the delegated plugin
    /// where it named one, as its CHECK may look for it.
    pub gateways: Vec<(IpAddr, IpAddr)>,
    /// Routes that IPAM requests for the pod.
    pub routes: Vec<Route>,
    /// Name resolution for the pod.
    pub dns: Dns,
}

impl Reservation {
    /// What the attachment of this record got from the built-in store.
    pub fn built_in(record: &Record, routes: Vec<Route>, dns: Dns) -> Self {
        let addresses = record.addresses.iter().map(IpNetwork::ip);
        Self {
            gateways: addresses.map(|ip| (ip, gateway_of(ip))).collect(),
            routes,
            dns,
        }
    }

    /// The addresses without their subnets' prefix lengths.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.gateways.iter().map(|(ip, _)| *ip).collect()
    }
}

/// Calls another plugin for addresses, and records them. The attachment has a
/// record before the call, so that after a kill something leads to the addresses.
///
/// # Errors
/// The plugin's own, or code 106. The caller must undo it, as the plugin may have
/// reserved something.
pub fn delegate(
    store: &Store,
    seed: &Seed,
    plugin: &str,
    delegate: &mut impl Delegate,
    request: &Request<'_>,
) -> Result<(Held, Reservation), CniError> {
    let config = request.config.bytes();
    let stdout = delegate.call(Command::Add, plugin, &request.cni_path, config)?;
    let failed = |problem: String| {
        let problem = format!("the IPAM plugin {plugin} {problem}");
        CniError::new(Code::DelegateFailed, problem)
    };
    let given = AddResult::from_document(&stdout)
        .map_err(|problem| failed(format!("returned no result: {problem}")))?;
    if given.ips.is_empty() {
        return Err(failed("returned no address".to_owned()));
    }
    let addresses = given.ips.iter().map(|ip| ip.address).collect();
    let held = store.lock(LOCK_WAIT)?.track(seed, addresses)?;
    let with_gateway = |given: &IpConfig| {
        let ip = given.address.ip();
        (ip, given.gateway.unwrap_or(gateway_of(ip)))
    };
    let reservation = Reservation {
        gateways: given.ips.iter().map(with_gateway).collect(),
        routes: given.routes,
        dns: given.dns,
    };
    Ok((held, reservation))
}
