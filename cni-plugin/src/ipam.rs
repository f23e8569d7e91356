//! Where addresses come from: the own store, or another plugin and the own store
//! as the record of it.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_cni::{AddResult, CniError, Code, Command, Dns, IpConfig, Request, Route};
use tweed_ipam::plugin::ipam_config;
use tweed_ipam::ranges::IpamConfig;
use tweed_ipam::record::Record;
use tweed_ipam::resolv_conf;
use tweed_ipam::store::{Held, LOCK_WAIT, Seed, Store};

use crate::config::Ipam;
use crate::delegate::Delegate;
use crate::identity::gateway_of;

/// What an attachment was given.
#[derive(Debug, Clone)]
pub struct Reservation {
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

/// What the config says of the own store's reservations.
#[derive(Debug)]
pub struct Own {
    /// The `ipam` object.
    pub config: IpamConfig,
    dns: Dns,
}

impl Own {
    /// Reads it, and the file that it names for name resolution.
    ///
    /// # Errors
    /// Code 7 for the config, code 5 for the file.
    pub fn read(request: &Request<'_>) -> Result<Self, CniError> {
        let config = ipam_config(request)?;
        let dns = match &config.resolv_conf {
            Some(path) => resolv_conf::read(path)?,
            None => Dns::default(),
        };
        Ok(Self { config, dns })
    }

    /// What an attachment of this record was given.
    pub fn reservation(self, record: &Record) -> Reservation {
        let addresses = record.addresses.iter().map(IpNetwork::ip);
        Reservation {
            gateways: addresses.map(|ip| (ip, gateway_of(ip))).collect(),
            routes: self.config.routes,
            dns: self.dns,
        }
    }
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
) -> Result<(Held, Reservation), CniError> {
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
    let held = store.lock(LOCK_WAIT)?.track(seed, addresses)?;
    let gateway = |ip: &IpConfig| ip.gateway.unwrap_or(gateway_of(ip.address.ip()));
    let reservation = Reservation {
        gateways: given
            .ips
            .iter()
            .map(|ip| (ip.address.ip(), gateway(ip)))
            .collect(),
        routes: given.routes,
        dns: given.dns,
    };
    Ok((held, reservation))
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
