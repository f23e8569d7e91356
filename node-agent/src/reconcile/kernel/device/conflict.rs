//! Conflicts of the VXLAN device with others: its name, VNI or UDP port is taken.

use std::collections::BTreeMap;

use nix::errno::Errno;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_netlink::Error;
use tweed_netlink::link::{Link, Vxlan};
use tweed_planner::overlay::desired::VxlanDevice;

/// That a device of another kind has the name of tweed's.
pub(super) fn name_taken(link: &Link) -> Problem {
    let kind = link.kind.as_deref().unwrap_or("plain");
    Problem::new(
        ProblemKind::VxlanNameTaken,
        &link.name,
        format!("a {kind} device has the name of tweed's VXLAN device"),
    )
    .with_cure(format!(
        "rename or delete it: ip link delete {}; tweed then makes its own",
        link.name
    ))
}

/// What it means that the kernel refused to create the device or to set it up,
/// and which device is in conflict. A VNI that is taken is refused at creation
/// (`EEXIST`), a UDP port that is taken when the device is set up
/// (`EADDRINUSE`).
pub(super) fn refused(links: &BTreeMap<u32, Link>, want: &VxlanDevice, error: &Error) -> Problem {
    let other = |same: fn(&Vxlan, &VxlanDevice) -> bool| {
        links
            .values()
            .find(|link| {
                link.name != want.name && link.vxlan.as_ref().is_some_and(|v| same(v, want))
            })
            .map(|link| link.name.as_str())
    };
    let (vni, port) = (want.vni, want.port);
    let problem = |kind, holder: Option<&str>, message, cure: String| {
        Problem::new(kind, holder.unwrap_or(&want.name), message).with_cure(cure)
    };
    match error.errno() {
        Some(Errno::EEXIST) => {
            let holder = other(|vxlan, want| vxlan.vni == want.vni && vxlan.port == want.port)
                .or_else(|| other(|vxlan, want| vxlan.port == want.port && vxlan.external));
            let (message, cure) = match holder {
                Some(name) => (
                    format!("the VXLAN device {name} has VNI {vni} on UDP port {port} already"),
                    format!("delete it (ip link delete {name})"),
                ),
                None => (
                    format!(
                        "the kernel says that VNI {vni} on UDP port {port} is taken ({})",
                        error.cause
                    ),
                    "delete the device that has it (ip -d link show type vxlan)".to_owned(),
                ),
            };
            let cure = format!("{cure}, or give every node another --vni or --vxlan-port");
            problem(ProblemKind::VxlanVniTaken, holder, message, cure)
        }
        Some(Errno::EADDRINUSE) => {
            let holder = other(|vxlan, want| vxlan.port == want.port);
            let (message, cure) = match holder {
                Some(name) => (
                    format!("the VXLAN device {name} holds UDP port {port} and does not share it"),
                    format!("delete it (ip link delete {name})"),
                ),
                None => (
                    format!("a program holds UDP port {port}"),
                    format!("stop it (ss -ulpn 'sport = :{port}' names it)"),
                ),
            };
            let cure = format!("{cure}, or give every node another --vxlan-port");
            problem(ProblemKind::VxlanPortTaken, holder, message, cure)
        }
        _ => Problem::new(
            ProblemKind::VxlanRefused,
            &want.name,
            format!("the VXLAN device cannot be set up: {error}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use tweed_netlink::Cause;

    use super::super::plan::options_of;
    use super::super::plan::tests::{device, want};
    use super::*;

    fn error(errno: Errno) -> Error {
        Error {
            operation: "create VXLAN device",
            object: "tweed.1".to_owned(),
            cause: Cause::Kernel {
                errno,
                message: None,
            },
        }
    }

    #[test]
    fn who_has_the_vni_or_the_port_is_named() {
        let flannel = device(4, "flannel.1", Some(options_of(&want())));
        let links = [flannel].into();
        for (errno, kind) in [
            (Errno::EEXIST, ProblemKind::VxlanVniTaken),
            (Errno::EADDRINUSE, ProblemKind::VxlanPortTaken),
        ] {
            let problem = refused(&links, &want(), &error(errno));
            assert_eq!((problem.kind, &*problem.object), (kind, "flannel.1"));
            assert!(problem.cure.contains("ip link delete flannel.1"));
        }
        let problem = refused(&BTreeMap::new(), &want(), &error(Errno::EADDRINUSE));
        assert!(problem.cure.contains("ss -ulpn 'sport = :8472'"));
        let problem = refused(&links, &want(), &error(Errno::EPERM));
        assert_eq!(problem.kind, ProblemKind::VxlanRefused);
    }
}
