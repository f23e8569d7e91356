//! CHECK: compares the result of ADD with the actual state.
//!
//! Everything that ADD has created must be as it created it. Addresses, routes and
//! neighbours that other plugins of the chain have added are ignored, and what they
//! have changed must be as they have put it into `prevResult`.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_cni::{CniError, Code, Command, IpConfig, Request, Target};
use tweed_ipam::record::State;

use crate::config::{Ipam, Settings};
use crate::datapath::{Datapath, Expected};
use crate::{Tweed, delegate::Delegate};

/// Compares an attachment with the result of its ADD.
///
/// # Errors
/// Code 104, naming all that differs; 7 without `prevResult`; the error of a
/// delegated IPAM plugin.
pub fn check<P: Datapath, D: Delegate>(
    tweed: &mut Tweed<P, D>,
    request: &Request<'_>,
    target: &Target,
) -> Result<(), CniError> {
    let settings = Settings::read(&request.config)?;
    let Some(result) = request.config.prev_result()? else {
        return Err(CniError::config(
            "prevResult is missing: CHECK needs the result of ADD",
        ));
    };
    let observed = tweed.datapath.observe(target)?;
    let attachment = &target.attachment;
    let store = &settings.place.store;
    let record = store.read(attachment)?;
    let unclaimed = match (&record, &settings.place.ipam) {
        (Some(record), Ipam::BuiltIn) => store.unclaimed(record)?,
        _ => Vec::new(),
    };
    let expected = Expected {
        attachment,
        netns: &target.netns,
        // The config's MTU may be newer than the pod: the underlay's may have changed.
        mtu: record
            .as_ref()
            .and_then(|record| record.mtu)
            .unwrap_or(settings.mtu),
        host_source: &settings.host_source,
        result: &result,
        record: record.as_ref(),
    };
    let differences = differences(&tweed.datapath, &expected, &unclaimed, &observed);
    if !differences.is_empty() {
        let count = differences.len();
        let msg = format!("{attachment} is not as ADD left it: {count} differences");
        return Err(CniError::new(Code::CheckDiffers, msg).details(differences.join("; ")));
    }
    tweed.forward(Command::Check, &settings.place.ipam, request)
}

/// All that differs. `unclaimed` are addresses of the record that the store may give to
/// another attachment.
pub(crate) fn differences<P: Datapath>(
    datapath: &P,
    expected: &Expected<'_>,
    unclaimed: &[IpAddr],
    observed: &P::Observed,
) -> Vec<String> {
    let mut found = Vec::new();
    let addresses = addresses(datapath, expected, unclaimed, &mut found);
    found.extend(datapath.check(expected, &addresses, observed));
    found
}

/// The addresses that ADD gave: those of the store, which must be those of
/// `prevResult`.
fn addresses(
    datapath: &impl Datapath,
    expected: &Expected<'_>,
    unclaimed: &[IpAddr],
    found: &mut Vec<String>,
) -> Vec<IpAddr> {
    let in_result: Vec<&IpConfig> = result_ips(expected).collect();
    // An address with another gateway may be one that another plugin added.
    let surely_ours = in_result
        .iter()
        .filter(|ip| ip.gateway == Some(datapath.gateway_of(ip.address.ip())))
        .map(|ip| ip.address.ip());
    let Some(record) = expected.record else {
        found.push("the store has no reservation for it".to_owned());
        return surely_ours.collect();
    };
    if record.state != State::Live {
        found.push("its reservation is not live: an ADD or a DEL was interrupted".to_owned());
    }
    for ip in unclaimed {
        found.push(format!("address {ip} is no longer reserved"));
    }
    let reserved: Vec<IpAddr> = record.addresses.iter().map(IpNetwork::ip).collect();
    for ip in surely_ours.filter(|ip| !reserved.contains(ip)) {
        found.push(format!("address {ip} of prevResult is not reserved"));
    }
    for ip in &reserved {
        if !in_result.iter().any(|result| result.address.ip() == *ip) {
            found.push(format!("reserved address {ip} is not in prevResult"));
        }
    }
    reserved
}

/// Addresses of the pod's end in `prevResult`.
fn result_ips<'a>(expected: &Expected<'a>) -> impl Iterator<Item = &'a IpConfig> {
    let pod_end = expected.pod_interface().map(|(index, _)| index);
    let ips = expected.result.ips.iter();
    ips.filter(move |ip| ip.interface.is_none() || ip.interface == pod_end)
}
