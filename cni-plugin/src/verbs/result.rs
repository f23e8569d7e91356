//! The result of an ADD.

use tweed_cni::{AddResult, Interface, IpConfig, Target};
use tweed_core::{attachment::Attachment, mac::Mac};
use tweed_ipam::record::Made;

use crate::{config::Settings, ipam::Reservation};

/// The result: that of the plugins before, and the pair, its addresses and routes.
pub(super) fn result(
    before: AddResult,
    target: &Target,
    pod_mac: Mac,
    settings: &Settings,
    reservation: &Reservation,
    made: &Made,
    configured: &tweed_cni::Dns,
) -> AddResult {
    let mut result = before;
    let attachment: &Attachment = &target.attachment;
    result.interfaces.push(Interface {
        name: attachment.link_name(),
        mac: Some(attachment.host_mac().to_string()),
        mtu: Some(settings.mtu),
        ..Interface::default()
    });
    let pod_end = result.interfaces.len();
    result.interfaces.push(Interface {
        name: attachment.ifname.to_string(),
        mac: Some(pod_mac.to_string()),
        mtu: Some(settings.mtu),
        sandbox: Some(target.netns.clone()),
        ..Interface::default()
    });
    let ips = reservation.gateways.iter().map(|(ip, gateway)| IpConfig {
        address: (*ip).into(),
        gateway: Some(*gateway),
        interface: Some(pod_end),
    });
    result.ips.extend(ips);
    result.routes.extend(made.routes.iter().cloned());
    let dns = [configured, &reservation.dns]
        .into_iter()
        .find(|dns| !dns.is_empty());
    result.dns = dns.cloned().unwrap_or(result.dns);
    result
}
