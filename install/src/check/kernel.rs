//! The version of the kernel, and its features: they are tried, not concluded from
//! the version or the loaded modules.

use std::net::{IpAddr, Ipv4Addr};
use std::{error::Error, fs::File, io, os::fd::AsFd as _, path::Path, thread};

use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;
use tweed_core::mac::Mac;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_diagnosis::kernel_version;
use tweed_netlink::Socket;
use tweed_netlink::link::{self, Change, VethEnd, Vxlan};
use tweed_netlink::nf::conntrack::{Conntrack, MarkFilter};
use tweed_nft::overlay::OverlayTable;
use tweed_nft::policy::PolicyTable;
use tweed_nft::services::ServicesTable;
use tweed_nft::{Connection, Table};
use tweed_planner::config::Masquerade;
use tweed_planner::overlay::desired::{Ruleset, VxlanMatch};
use tweed_planner::policy::desired::Desired;
use tweed_planner::services::desired::{Desired as Services, FIRST_AFFINITY};

use super::{Outcome, ok, vxlan::Wanted};

/// How to get what tweed's rules use. Without `-a`, modprobe takes all names but the first as
/// parameters of that module.
const NF_TABLES: &str = "run `modprobe -a nf_tables nft_fib_inet nft_masq nft_ct`, and have nft \
                         1.0.6 or later (apt-get install nftables)";
/// The same for those of Services.
const FOR_SERVICES: &str = "run `modprobe -a nft_nat nft_numgen nft_hash nft_reject_inet`, or \
                            leave Services to kube-proxy";
/// How to get the program.
const NFT: &str = "install nft 1.0.6 or later (apt-get install nftables), or name it with --nft; \
                   then run this again";
/// What every container has.
const SHARED_MEMORY: &str = "/dev/shm";
/// Name and MTU of the device that is made for the trial.
const DEVICE: &str = "tweed.1";
const MTU: u32 = 1450;

/// The version of the running kernel, judged as the agent does at its start.
pub(super) fn version() -> Outcome {
    match kernel_version::running() {
        Ok(release) => judge(&release),
        Err(error) => {
            let message = format!("the kernel's version cannot be read: {error}");
            let cure = "mount /proc: the agent reads it too, and does not start without it";
            Err(Problem::new(ProblemKind::KernelUnsupported, "Linux", message).with_cure(cure))
        }
    }
}

fn judge(release: &str) -> Outcome {
    let (major, minor) = kernel_version::LEAST;
    match kernel_version::require("tweed", kernel_version::LEAST, release) {
        Ok(()) => ok(format!(
            "Linux {release}: {major}.{minor} or later is needed"
        )),
        Err(old) => {
            let kind = ProblemKind::KernelUnsupported;
            Err(Problem::new(kind, "Linux", old.to_string()))
        }
    }
}

/// Makes what tweed makes in a network namespace that ends with its thread.
/// Without `vxlan` there is to be no VXLAN device.
pub(super) fn features(nft: &Path, run_dir: &Path, vxlan: Option<Wanted>) -> Vec<Outcome> {
    let (nft, run_dir) = (nft.to_owned(), run_dir.to_owned());
    let trial = thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).map(|()| {
            let mut findings = vec![tried("veth links", "run `modprobe veth`", try_veth())];
            findings.extend(vxlan.map(|vxlan| {
                let cure = "run `modprobe vxlan`; a minimal or cloud kernel may keep it in a \
                            package of its own (linux-modules-extra, kernel-modules-core)";
                tried("VXLAN devices", cure, try_vxlan(vxlan))
            }));
            let try_rules = |services| try_nf_tables(&nft, &run_dir, vxlan, services);
            let rules = tried(
                "nf_tables with all that rules of overlay and policies use",
                NF_TABLES,
                try_rules(false),
            );
            let of_services = rules.is_ok().then(|| {
                let what = "nf_tables with all that rules of Services use";
                let tried = tried(what, FOR_SERVICES, try_rules(true));
                tried.map_err(|problem| problem.with_effect(Effect::Warning))
            });
            findings.push(rules);
            findings.extend(of_services);
            findings.push(conntrack(try_conntrack()));
            findings
        })
    });
    match trial.join() {
        Ok(Ok(findings)) => findings,
        Ok(Err(errno)) => vec![untried(errno.desc())],
        Err(_) => vec![untried("the trial panicked")],
    }
}

fn untried(why: &str) -> Outcome {
    let message =
        format!("what the kernel can do was not tried: no network namespace can be made ({why})");
    let cure = "run it as root (in a container, with the capability SYS_ADMIN)";
    Err(Problem::new(ProblemKind::CheckIncomplete, "Linux", message).with_cure(cure))
}

fn tried(what: &str, cure: &str, outcome: Result<(), Box<dyn Error>>) -> Outcome {
    match outcome {
        Ok(()) => ok(format!("it has {what}")),
        // Of the kernel it says nothing.
        Err(why) if is_without_nft(&*why) => {
            let message = format!("{what} were not tried: {why}");
            let problem = Problem::new(ProblemKind::Nftables, "nft", message);
            Err(problem.with_effect(Effect::NewPods).with_cure(NFT))
        }
        Err(why) => {
            let message = format!("it has no {what}: {why}");
            let problem = Problem::new(ProblemKind::KernelFeatureMissing, what, message);
            Err(problem.with_cure(cure))
        }
    }
}

fn is_without_nft(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(tweed_nft::Error::NftMissing(_)))
}

/// Where there is no policy, and without Services, nobody needs it.
fn conntrack(outcome: Result<(), Box<dyn Error>>) -> Outcome {
    let what = "conntrack over netlink";
    let cure = "run `modprobe nf_conntrack_netlink`, or set --policy and --services to off";
    tried(what, cure, outcome).map_err(|mut problem| {
        problem.message += "; without it no policy comes into force, and flows of UDP to \
                            Services stay at endpoints that are gone";
        problem.with_effect(Effect::Warning)
    })
}

fn try_conntrack() -> Result<(), Box<dyn Error>> {
    Ok(Conntrack::open()?.list(MarkFilter::ALL, |_| ())?)
}

fn try_veth() -> Result<(), Box<dyn Error>> {
    let end = |name: &str, last: u8| VethEnd {
        name: name.to_owned(),
        mac: Mac([2, 0, 0, 0, 0, last]),
        mtu: MTU,
        group: 0,
        noarp: true,
    };
    let here = File::open("/proc/thread-self/ns/net")?;
    let request = link::create_veth(&end("tw0", 1), &end("tw1", 2), here.as_fd());
    Ok(Socket::open()?.execute(&request)?)
}

fn try_vxlan(wanted: Wanted) -> Result<(), Box<dyn Error>> {
    let vxlan = Vxlan::nolearning(wanted.vni, wanted.port, Ipv4Addr::LOCALHOST.into());
    let requests = [
        link::create_vxlan(DEVICE, Mac([2, 0, 0, 0, 0, 3]), MTU, &vxlan),
        // The kernel opens the UDP socket at this point.
        Change::of_name(DEVICE).up().request(),
    ];
    let mut socket = Socket::open()?;
    for request in requests {
        socket.execute(&request)?;
    }
    Ok(())
}

/// A folder in the first of these in which one can be made. A container of the image has none
/// for temporary files, and the run folder is made by the first installation.
fn scratch<const N: usize>(places: [&Path; N]) -> io::Result<TempDir> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for place in places {
        match tempfile::tempdir_in(place) {
            Ok(folder) => return Ok(folder),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn try_nf_tables(
    nft: &Path,
    run_dir: &Path,
    wanted: Option<Wanted>,
    with_services: bool,
) -> Result<(), Box<dyn Error>> {
    let created = scratch([&std::env::temp_dir(), run_dir, Path::new(SHARED_MEMORY)]);
    let folder = created.map_err(|error| {
        format!("no temporary file for nft can be created ({error}): set TMPDIR")
    })?;
    let mut nft = Connection::open(folder.path(), nft)?;
    if !with_services {
        let mut desired = Desired::default();
        desired.verdicts.active = true;
        OverlayTable::new(folder.path(), false).reconcile(&mut nft, &every_rule(wanted), true)?;
        PolicyTable::new(folder.path(), false, Box::new(drop))
            .reconcile(&mut nft, &desired, true)?;
        return Ok(());
    }
    // There are rules for each timeout of session affinity.
    let services = Services {
        affinities: [(FIRST_AFFINITY, 10_800)].into(),
        ..Services::default()
    };
    ServicesTable::new(folder.path(), false).reconcile(&mut nft, &services, true)?;
    Ok(())
}

/// A ruleset with all the rules that the overlay can have.
fn every_rule(wanted: Option<Wanted>) -> Ruleset {
    let address: IpAddr = Ipv4Addr::new(192, 0, 2, 1).into();
    Ruleset {
        masquerade: Some(Masquerade::RandomFully),
        masquerade_ipv6: true,
        masquerade_nodes: true,
        vxlan: wanted.map(|wanted| VxlanMatch {
            device: DEVICE.to_owned(),
            vni: wanted.vni,
            port: wanted.port,
        }),
        node_addresses: [address].into(),
        underlay_addresses: [address].into(),
        vxlan_sources: [(address, address.into())].into(),
        pod_links: [(address, 1)].into(),
        ..Ruleset::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn without_a_folder_for_temporary_files_another_place_is_taken() {
        let there = tempfile::tempdir().unwrap();
        let none = there.path().join("none");
        let folder = scratch([&none, &none.join("run"), there.path()]).unwrap();
        assert_eq!(folder.path().parent(), Some(there.path()));
        let error = scratch([&none, &none]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn modules_are_loaded_by_a_command_that_takes_several() {
        let command = NF_TABLES.split('`').nth(1).unwrap();
        assert!(command.starts_with("modprobe -a "), "{command}");
    }

    #[test]
    fn what_only_policies_and_services_need_is_a_warning() {
        let missing = conntrack(Err("Invalid argument".into()));
        assert_eq!(Level::of(&missing), Level::Warning);
        let said = missing.unwrap_err();
        assert!(
            said.message
                .contains("Invalid argument; without it no policy")
        );
        assert!(said.cure.contains("modprobe nf_conntrack_netlink"));
    }

    #[test]
    fn a_kernel_that_the_agent_would_refuse_is_an_error() {
        for (release, level) in [
            ("6.18.5-arch1-1", Level::Ok),
            ("5.9.16", Level::Error),
            // The agent takes it too: the kernel itself will refuse what it cannot do.
            ("unheard-of", Level::Ok),
        ] {
            let agent = kernel_version::require("tweed-agent", kernel_version::LEAST, release);
            assert_eq!(Level::of(&judge(release)), level, "{release}");
            assert_eq!(agent.is_err(), level == Level::Error, "{release}");
        }
    }
}
