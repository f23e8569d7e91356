//! Conflicts of the VXLAN device with others: its name, VNI or UDP port is taken.

use std::collections::BTreeMap;

use nix::errno::Errno;
use tweed_core::problem::{Problem, ProblemKind};
use tweed_netlink::Error;
use tweed_netlink::link::{Link, Vxlan};
use tweed_planner::overlay::desired::VxlanDevice;

/// Shows the VXLAN devices of all network namespaces that a process is in.
const SEARCH: &str =
    "for pid in $(lsns -t net -n -o PID); do nsenter -t $pid -n ip -d link show type vxlan; done";

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

/// That somebody takes the device's carrier away again and again.
pub(super) fn no_carrier(link: &Link) -> Problem {
    let name = &link.name;
    Problem::new(
        ProblemKind::VxlanNoCarrier,
        name,
        "a program sets protodown on the VXLAN device again and again, and so takes its carrier away",
    )
    .with_cure(format!(
        "have that program leave {name} alone: a routing daemon, mostly (`ip -d link show {name}` \
         may name its reason); then run `ip link set {name} protodown off`"
    ))
}

/// That the name of tweed's device is another name of a link of others.
fn altname_taken(link: &Link, name: &str) -> Problem {
    Problem::new(
        ProblemKind::VxlanNameTaken,
        &link.name,
        format!(
            "the link {} has the name of tweed's VXLAN device, {name}, as an altname",
            link.name
        ),
    )
    .with_cure(format!(
        "take it away: ip link property del dev {} altname {name}; tweed then makes its device",
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
    let is_other_name = |link: &&Link| link.altnames.contains(&want.name);
    if let (true, Some(link)) = (error.is_present(), links.values().find(is_other_name)) {
        return altname_taken(link, &want.name);
    }
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
                        "VNI {vni} on UDP port {port} is taken ({}), and no device here has it: one \
                         that was made here was moved to another network namespace, and keeps it",
                        error.cause
                    ),
                    format!(
                        "find that device (`{SEARCH}`; with `ip netns`, `ip -all netns exec ip -d \
                         link show type vxlan`) and delete it there"
                    ),
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

    #[test]
    fn a_link_that_has_the_name_as_another_one_is_named() {
        let (index, mut nic) = device(2, "eth0", None);
        nic.altnames = vec!["enp1s0".to_owned(), want().name];
        let problem = refused(&[(index, nic)].into(), &want(), &error(Errno::EEXIST));
        assert_eq!(problem.kind, ProblemKind::VxlanNameTaken);
        assert!(
            problem
                .cure
                .contains("property del dev eth0 altname tweed.1")
        );
    }

    #[test]
    fn a_device_that_is_not_here_is_looked_for_where_it_may_be() {
        let problem = refused(&BTreeMap::new(), &want(), &error(Errno::EEXIST));
        assert_eq!(problem.kind, ProblemKind::VxlanVniTaken);
        assert!(problem.message.contains("another network namespace"));
        assert!(problem.cure.contains("nsenter"), "{}", problem.cure);
    }
}
