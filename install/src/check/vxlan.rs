//! Other users of the VXLAN port or the network identifier.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use tweed_core::family::Family;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_diagnosis::Vxlan;
use tweed_netlink::link::{self, Link};
use tweed_netlink::{Error, Socket, owned, route};

use super::{Outcome, or_ok, unreadable};

/// What the agent's device will use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) vni: u32,
    pub(super) port: u16,
}

impl Wanted {
    /// The packets of other nodes. Their family is that of the own device's address,
    /// or else that of a default route; IPv4 if there are both, or none.
    pub(super) fn packets(self) -> Vxlan {
        Vxlan {
            port: self.port,
            family: self.family().unwrap_or(Family::V4),
        }
    }

    fn family(self) -> Option<Family> {
        let is_own = |link: &&Link| owned::is_device(link);
        let links = devices().ok()?;
        let own = links
            .iter()
            .find(is_own)
            .and_then(|link| link.vxlan.as_ref());
        let local = own.and_then(|vxlan| vxlan.local).map(Family::of);
        local.or_else(|| {
            let routes = route::list(&mut Socket::open().ok()?, None).ok()?;
            let defaults = routes
                .iter()
                .filter(|route| route.destination.prefix() == 0);
            defaults
                .map(|route| Family::of(route.destination.ip()))
                .min()
        })
    }
}

pub(super) fn find(wanted: Wanted) -> Vec<Outcome> {
    let links = match devices() {
        Ok(links) => links,
        Err(error) => return vec![unreadable(&error)],
    };
    let mut findings = judge_devices(&links, wanted);
    if !a_device_holds_the_port(&links, wanted.port) {
        findings.extend(judge_port(wanted.port));
    }
    or_ok(findings, || nothing_in_the_way(&links, wanted))
}

fn devices() -> Result<Vec<Link>, Error> {
    link::list(&mut Socket::open()?)
}

fn judge_devices(links: &[Link], wanted: Wanted) -> Vec<Outcome> {
    let in_the_way = links.iter().filter(|link| {
        !owned::is_device(link)
            && link.vxlan.as_ref().is_some_and(|vxlan| {
                // An external device (metadata mode) receives every VNI.
                vxlan.port == wanted.port && (vxlan.vni == wanted.vni || vxlan.external)
            })
    });
    let finding = |link: &Link| {
        let name = &link.name;
        let message = format!(
            "the VXLAN device {name} has VNI {} on UDP port {}, and so tweed's cannot be made",
            wanted.vni, wanted.port
        );
        let problem = Problem::new(ProblemKind::VxlanVniTaken, name, message).with_cure(format!(
            "uninstall the network that it belongs to, and run `ip link del {name}`; or give all \
             nodes another --vxlan-port"
        ));
        Err(problem)
    };
    in_the_way.map(finding).collect()
}

/// Whether the socket with the port belongs to a VXLAN device, which has one while
/// it is up. Devices share the port among themselves, but no program can share it with
/// them.
fn a_device_holds_the_port(links: &[Link], port: u16) -> bool {
    let holds = |link: &Link| link.up && link.vxlan.as_ref().is_some_and(|v| v.port == port);
    links.iter().any(holds)
}

fn nothing_in_the_way(links: &[Link], wanted: Wanted) -> String {
    let Wanted { vni, port } = wanted;
    let is_own = |link: &&Link| {
        let options = link.vxlan.as_ref();
        owned::is_device(link) && options.is_some_and(|v| (v.vni, v.port) == (vni, port))
    };
    match links.iter().find(is_own) {
        Some(own) => format!(
            "tweed's own device {} has VNI {vni} on UDP port {port}",
            own.name
        ),
        None => format!("tweed can have VNI {vni} on UDP port {port}"),
    }
}

/// A problem if a program has the port.
fn judge_port(port: u16) -> Option<Outcome> {
    let addresses: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let is_taken = |ip| {
        let bound = UdpSocket::bind((ip, port));
        // A kernel without IPv6 refuses its address otherwise.
        bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    };
    addresses.into_iter().any(is_taken).then(|| {
        let message = format!("a program holds UDP port {port}");
        let problem = Problem::new(ProblemKind::VxlanPortTaken, port.to_string(), message);
        Err(problem.with_cure(format!(
            "`ss -ulpn 'sport = :{port}'` names it: stop it, or give all nodes another \
                 --vxlan-port"
        )))
    })
}

#[cfg(test)]
mod tests {
    use tweed_netlink::link::Vxlan;

    use super::*;

    const WANTED: Wanted = Wanted { vni: 1, port: 8472 };

    fn device(name: &str, vni: u32, port: u16, external: bool) -> Link {
        Link {
            name: name.to_owned(),
            vxlan: Some(Vxlan {
                external,
                ..Vxlan::nolearning(vni, port, Ipv4Addr::LOCALHOST.into())
            }),
            ..Link::default()
        }
    }

    #[test]
    fn a_device_is_in_the_way_if_it_takes_the_same_packets() {
        let links = [
            device("flannel.1", 1, 8472, false),
            device("cilium_vxlan", 0, 8472, true),
            device("tweed.1", 1, 8472, false),
            device("vxlan.calico", 4096, 4789, false),
            device("other", 2, 8472, false),
        ];
        let findings = judge_devices(&links, WANTED);
        let cure =
            |outcome: &'_ Outcome| outcome.as_ref().err().map(|problem| problem.cure.clone());
        let cures: Vec<String> = findings.iter().filter_map(cure).collect();
        assert_eq!(cures.len(), 2, "{cures:?}");
        assert!(cures[0].contains("ip link del flannel.1"), "{cures:?}");
        assert!(cures[1].contains("ip link del cilium_vxlan"), "{cures:?}");
    }

    #[test]
    fn a_device_that_is_up_has_the_socket_and_tweed_s_own_is_said_so() {
        let mut links = [
            device("tweed.1", 1, 8472, false),
            device("other", 2, 4789, false),
        ];
        assert!(!a_device_holds_the_port(&links, 8472));
        links[0].up = true;
        assert!(a_device_holds_the_port(&links, 8472));
        assert!(!a_device_holds_the_port(&links, 4789));
        let said = |wanted| nothing_in_the_way(&links, wanted);
        assert_eq!(
            said(WANTED),
            "tweed's own device tweed.1 has VNI 1 on UDP port 8472"
        );
        let free = "tweed can have VNI 7 on UDP port 8472";
        assert_eq!(said(Wanted { vni: 7, ..WANTED }), free);
    }

    #[test]
    fn a_port_is_taken_as_long_as_a_program_has_it() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let program = UdpSocket::bind(address).unwrap();
            let port = program.local_addr().unwrap().port();
            let taken = judge_port(port).unwrap().unwrap_err();
            assert_eq!(taken.kind, ProblemKind::VxlanPortTaken);
            drop(program);
            assert!(judge_port(port).is_none());
        }
    }
}
