//! The result of an ADD.

use tweed_cni::{AddResult, Interface, IpConfig, Route};

use crate::ipam::Reservation;

/// The result: that of the plugins before, and the interfaces, addresses and routes. The
/// last interface is the pod's.
pub(super) fn result(
    before: AddResult,
    interfaces: Vec<Interface>,
    routes: &[Route],
    reservation: &Reservation,
    configured: &tweed_cni::Dns,
) -> AddResult {
    let mut result = before;
    result.interfaces.extend(interfaces);
    let pod_end = result.interfaces.len().checked_sub(1);
    let ips = reservation.gateways.iter().map(|(ip, gateway)| IpConfig {
        address: (*ip).into(),
        gateway: Some(*gateway),
        interface: pod_end,
    });
    result.ips.extend(ips);
    result.routes.extend(routes.iter().cloned());
    let dns = [configured, &reservation.dns]
        .into_iter()
        .find(|dns| !dns.is_empty());
    result.dns = dns.cloned().unwrap_or(result.dns);
    result
}
