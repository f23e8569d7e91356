//! Which sysctls there should be, and which ones of others lose packets of pods: pure.

use std::{collections::BTreeSet, net::IpAddr};

use tweed_core::family::Family;
use tweed_core::problem::{Effect, Problem, ProblemKind};
use tweed_core::sysctl::{
    ACCEPT_RA, ACCEPT_RA_ALWAYS, ACCEPT_RA_DEFAULT, FORWARDING_DEFAULT_V4, FORWARDING_V6,
    IP_FORWARD, name,
};
use tweed_netlink::{link::Link, owned};
use tweed_planner::overlay::Network;

use crate::reconcile::kernel::mirror::Mirror;

/// `addr_gen_mode`: the kernel makes no link-local address.
const ADDR_GEN_MODE_NONE: i32 = 1;

/// A sysctl and the value that it should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sysctl {
    /// Path below `/proc/sys`.
    pub path: String,
    /// The value that it should have.
    pub value: i32,
    /// Which other values will do.
    pub rule: Rule,
    /// Whether the value found before is kept for the uninstallation.
    pub remembered: bool,
}

/// Which values a sysctl may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// This one.
    Exactly,
    /// This one or a larger one. It is a limit of the whole machine, which only its first
    /// network namespace can set.
    AtLeast,
}

impl Sysctl {
    pub(super) fn machine(path: impl Into<String>, value: i32) -> Self {
        Self {
            path: path.into(),
            value,
            rule: Rule::Exactly,
            remembered: true,
        }
    }

    /// One of a link that tweed made: it ends with the link.
    fn own_link(link: &Link, family: &str, key: &str, value: i32) -> Self {
        Self {
            path: format!("net/{family}/conf/{}/{key}", link.name),
            value,
            rule: Rule::Exactly,
            remembered: false,
        }
    }

    /// Whether it is one of the two without which no packet is forwarded.
    pub(super) fn is_switch(&self) -> bool {
        matches!(self.path.as_str(), IP_FORWARD | FORWARDING_V6)
    }

    /// Whether it needs no change where it is found with this value.
    pub(super) fn is_met(&self, found: &str) -> bool {
        match self.rule {
            Rule::Exactly => found == self.value.to_string(),
            Rule::AtLeast => found
                .parse()
                .is_ok_and(|found: i64| found >= self.value.into()),
        }
    }

    /// Its name as sysctl(8) writes it.
    pub fn name(&self) -> String {
        name(&self.path)
    }
}

/// What new links take, and who forwards IPv6. None for what the kernel does not have,
/// or what cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Defaults {
    pub(super) ipv4_forwarding: Option<i32>,
    pub(super) ipv6_forwarding: Option<i32>,
    pub(super) accept_ra: Option<i32>,
    /// Whether IPv6 forwarding is off and never was on before: tweed is about to switch it
    /// on for the first time.
    pub(super) ipv6_off: bool,
    /// Whether IPv6 forwarding was off before tweed: it was tweed that switched it on.
    pub(super) switched: bool,
}

/// The sysctls that differ on a pod's link, going by the link's dump. `families` are
/// those of the pod's addresses.
pub fn pod_link(link: &Link, families: &BTreeSet<Family>) -> Vec<Sysctl> {
    let mut wanted = Vec::new();
    if let Some(v4) = link.ipv4 {
        wanted.push(("ipv4", "accept_redirects", v4.accept_redirects, 0));
        wanted.push(("ipv4", "send_redirects", v4.send_redirects, 0));
        if families.contains(&Family::V4) {
            wanted.push(("ipv4", "forwarding", v4.forwarding, 1));
        }
    }
    if let Some(v6) = link.ipv6 {
        wanted.push(("ipv6", "accept_ra", v6.accept_ra, 0));
        wanted.push(("ipv6", "autoconf", v6.autoconf, 0));
        wanted.push(("ipv6", "accept_redirects", v6.accept_redirects, 0));
        let mode = v6.addr_gen_mode;
        wanted.push(("ipv6", "addr_gen_mode", mode, ADDR_GEN_MODE_NONE));
        // After the one before, which decides on addresses when IPv6 is enabled.
        if families.contains(&Family::V6) {
            wanted.push(("ipv6", "disable_ipv6", v6.disable_ipv6, 0));
        }
    }
    differing(link, wanted).collect()
}

/// Those of a link of tweed that differ: family, key, actual and desired value.
fn differing(
    link: &Link,
    wanted: Vec<(&'static str, &'static str, i32, i32)>,
) -> impl Iterator<Item = Sysctl> {
    wanted
        .into_iter()
        .filter(|(_, _, have, want)| have != want)
        .map(|(family, key, _, want)| Sysctl::own_link(link, family, key, want))
}

/// The machine-wide sysctls, in the order in which they have to be written.
pub(super) fn machine(
    mirror: &Mirror,
    families: &BTreeSet<Family>,
    defaults: &Defaults,
) -> Vec<Sysctl> {
    let mut wanted = Vec::new();
    if families.contains(&Family::V4) {
        wanted.push(Sysctl::machine(IP_FORWARD, 1));
    }
    if families.contains(&Family::V6) {
        wanted.extend(accept_advertisements(mirror, defaults));
        wanted.push(Sysctl::machine(FORWARDING_V6, 1));
    }
    wanted
}

/// The sysctls that differ on the VXLAN device, with pods of these families.
pub(super) fn device(mirror: &Mirror, families: &BTreeSet<Family>) -> Vec<Sysctl> {
    let mut sysctls = Vec::new();
    for device in mirror.links.values().filter(|link| owned::is_device(link)) {
        let mut wanted = Vec::new();
        if let Some(v4) = device.ipv4.filter(|_| families.contains(&Family::V4)) {
            wanted.push(("ipv4", "forwarding", v4.forwarding, 1));
        }
        if let Some(v6) = device.ipv6.filter(|_| families.contains(&Family::V6)) {
            wanted.push(("ipv6", "accept_ra", v6.accept_ra, 0));
            wanted.push(("ipv6", "disable_ipv6", v6.disable_ipv6, 0));
        }
        sysctls.extend(differing(device, wanted));
    }
    sysctls
}

/// A link that accepts router advertisements only while it does not forward would get
/// none any more, whether or not one has come yet. Where somebody else had switched
/// forwarding on, it accepts none already, and that is left as it is.
fn accept_advertisements(mirror: &Mirror, defaults: &Defaults) -> Vec<Sysctl> {
    let would_lose = |accept_ra: i32, forwarding: i32| {
        accept_ra == ACCEPT_RA && (defaults.switched || (defaults.ipv6_off && forwarding == 0))
    };
    let links = mirror.links.values().filter(|link| {
        let is_of_others = !mirror.is_device(link) && !owned::is_any_pod_link(link);
        let v6 = link.ipv6.filter(|_| is_of_others && !link.loopback);
        v6.is_some_and(|v6| would_lose(v6.accept_ra, v6.forwarding))
    });
    let paths = links.map(|link| format!("net/ipv6/conf/{}/accept_ra", link.name));
    let default = defaults.accept_ra.zip(defaults.ipv6_forwarding);
    let of_new_links = default.filter(|(accept_ra, on)| would_lose(*accept_ra, *on));
    paths
        .chain(of_new_links.map(|_| ACCEPT_RA_DEFAULT.to_owned()))
        .map(|path| Sysctl::machine(path, ACCEPT_RA_ALWAYS))
        .collect()
}

/// The links by which packets for pods arrive from other machines: those that have an
/// own address which others send to, and the one that leads to the other nodes.
pub(super) fn uplinks(mirror: &Mirror, network: &Network) -> BTreeSet<u32> {
    let sources = network.host_sources.values();
    let own: BTreeSet<&IpAddr> = sources.chain([&network.underlay.address]).collect();
    let addresses = mirror.addresses.keys();
    let with_own = addresses.filter(|key| own.contains(&key.network.ip()));
    let path = network.underlay.path.as_ref();
    let way = path.and_then(|path| Some(mirror.link(&path.link)?.index));
    with_own.map(|key| key.device).chain(way).collect()
}

/// The sysctls of others by which the kernel drops IPv4 packets of pods: it forwards a
/// packet only if the link by which it comes in forwards. IPv6 has no such setting for
/// each link. With `direct` routes packets of pods on other nodes come in by an uplink
/// too; otherwise only those of other machines do.
pub(super) fn forwarding_off(
    mirror: &Mirror,
    uplinks: &BTreeSet<u32>,
    direct: impl Fn() -> bool,
    defaults: &Defaults,
) -> Vec<Problem> {
    let mut problems: Vec<Problem> = uplinks
        .iter()
        .filter_map(|index| mirror.links.get(index))
        .filter(|link| !link.loopback && !mirror.is_device(link))
        .filter(|link| link.ipv4.is_some_and(|v4| v4.forwarding == 0))
        .map(|link| {
            let problem = off(
                &format!("net/ipv4/conf/{}/forwarding", link.name),
                &format!("what arrives on {} for pods is dropped", link.name),
            );
            if direct() {
                problem.with_effect(Effect::RunningPods)
            } else {
                problem
            }
        })
        .collect();
    if defaults.ipv4_forwarding == Some(0) {
        let what = "links of others that are made from now on drop what arrives for pods";
        problems.push(off(FORWARDING_DEFAULT_V4, what));
    }
    problems
}

fn off(path: &str, what: &str) -> Problem {
    let name = name(path);
    let message = format!("it is 0 and not tweed's to change: {what}");
    Problem::new(ProblemKind::ForwardingOff, &name, message).with_cure(format!(
        "run `sysctl -w {name}=1`, and correct what sets it to 0 (/etc/sysctl.d, a network manager)"
    ))
}
