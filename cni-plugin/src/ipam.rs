//! Where addresses come from: the built-in store, or another IPAM plugin, of whose
//! addresses the store keeps a record.

use std::{collections::BTreeSet, net::IpAddr};

use ipnetwork::IpNetwork;
use tweed_cni::{AddResult, CniError, Code, Dns, IpConfig, Route};
use tweed_ipam::ranges::{IpamConfig, Range};
use tweed_ipam::record::Record;
use tweed_ipam::store::{Held, LOCK_WAIT, Store};

use crate::datapath::Datapath;

/// What IPAM gave to an attachment.
#[derive(Debug, Clone)]
pub struct Reservation {
    /// Each address with the gateway for the result: that of the delegated plugin
    /// where it named one, as its CHECK may look for it.
    pub gateways: Vec<(IpAddr, IpAddr)>,
    /// The gateways of the addresses' subnets. A route through one of them means the
    /// node, which is the gateway of everything here.
    pub node: Vec<IpAddr>,
    /// Routes that IPAM requests for the pod.
    pub routes: Vec<Route>,
    /// Name resolution for the pod.
    pub dns: Dns,
}

impl Reservation {
    /// What the attachment of this record got from the built-in store.
    pub fn built_in(
        datapath: &impl Datapath,
        record: &Record,
        config: IpamConfig,
        dns: Dns,
    ) -> Self {
        let addresses = || record.addresses.iter().map(IpNetwork::ip);
        let range_of = |ip| config.ranges.range_of(ip);
        Self {
            gateways: addresses()
                .map(|ip| (ip, datapath.gateway_of(ip)))
                .collect(),
            node: addresses()
                .filter_map(range_of)
                .map(Range::gateway)
                .collect(),
            routes: config.routes,
            dns,
        }
    }

    /// The addresses without their subnets' prefix lengths.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.gateways.iter().map(|(ip, _)| *ip).collect()
    }
}

/// Records the addresses that another plugin has given, by what it wrote to stdout. The
/// attachment has a record already.
///
/// # Errors
/// Code 106 where that is no result with an address; those of the store.
pub fn record_given(
    datapath: &impl Datapath,
    store: &Store,
    seed: &Record,
    plugin: &str,
    stdout: &[u8],
) -> Result<(Held, Reservation), CniError> {
    let failed = |problem: String| {
        let problem = format!("the IPAM plugin {plugin} {problem}");
        CniError::new(Code::DelegateFailed, problem)
    };
    let given = AddResult::from_document(stdout)
        .map_err(|problem| failed(format!("returned no result: {problem}")))?;
    if given.ips.is_empty() {
        return Err(failed("returned no address".to_owned()));
    }
    // Some plugins name one address twice.
    let mut seen = BTreeSet::new();
    let is_new = |ip: &&IpConfig| seen.insert(ip.address.ip());
    let ips: Vec<&IpConfig> = given.ips.iter().filter(is_new).collect();
    let addresses = ips.iter().map(|ip| ip.address).collect();
    let held = store.lock(LOCK_WAIT)?.track(seed, addresses)?;
    let with_gateway = |given: &&IpConfig| {
        let ip = given.address.ip();
        (ip, given.gateway.unwrap_or(datapath.gateway_of(ip)))
    };
    let reservation = Reservation {
        gateways: ips.iter().map(with_gateway).collect(),
        node: ips.iter().filter_map(|ip| ip.gateway).collect(),
        routes: given.routes,
        dns: given.dns,
    };
    Ok((held, reservation))
}
