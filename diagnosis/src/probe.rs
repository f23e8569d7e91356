//! The imaginary packets that are sent through the rules of others, and how it is
//! said that they are dropped.

use std::collections::BTreeSet;

use tweed_core::ownership::LINK_PREFIX;
use tweed_core::{family::Family, problem::ProblemKind};

/// The packets that the rules of others have to let pass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Packets {
    /// The families of pods' addresses: what drops packets of another one harms no pod.
    pub pods: BTreeSet<Family>,
    /// Those of them in which pods of other nodes are reached by direct routes: what these
    /// send comes in by an uplink.
    pub direct: BTreeSet<Family>,
    /// Those of the overlay, where there is one.
    pub vxlan: Option<Vxlan>,
}

/// The VXLAN packets of other nodes, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan {
    /// UDP port that they go to.
    pub port: u16,
    /// Family of the nodes' addresses.
    pub family: Family,
}

/// A packet, by what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Comes from a pod, goes anywhere, opens a flow. It stands for all such packets:
    /// what some rule accepts of them does not help the others.
    FromPod,
    /// Comes from anywhere, goes to a pod, belongs to a flow that is open and that the
    /// pod has opened. It stands for all such packets too.
    ToPod,
    /// Comes from a pod of another node by a direct route, so by a link that is neither `lo`
    /// nor tweed's; goes to a pod here, and opens a flow. Which addresses such pods have is not
    /// known: rules that accept it from or to somewhere may be meant for them.
    FromPeer,
    /// Comes from another node, by a link that is neither `lo` nor tweed's, and goes to
    /// this node; conntrack does not track it. Where it comes from is not known: rules
    /// that accept it from somewhere may be meant for the nodes.
    VxlanIn(Vxlan),
    /// The same on its way to another node.
    VxlanOut(Vxlan),
}

impl Probe {
    /// In a sentence.
    fn what(self) -> String {
        match self {
            Self::FromPod => "what pods send".to_owned(),
            Self::ToPod => "the answers to pods".to_owned(),
            Self::FromPeer => "what pods of other nodes send to pods here".to_owned(),
            Self::VxlanIn(Vxlan { port, .. }) => format!(
                "the VXLAN packets of other nodes (UDP port {port}, untracked by conntrack)"
            ),
            Self::VxlanOut(Vxlan { port, .. }) => format!(
                "the VXLAN packets to other nodes (UDP port {port}, untracked by conntrack)"
            ),
        }
    }

    /// What is known of a packet of the overlay; none for a pod's.
    pub(crate) fn vxlan(self) -> Option<Vxlan> {
        match self {
            Self::FromPod | Self::ToPod | Self::FromPeer => None,
            Self::VxlanIn(vxlan) | Self::VxlanOut(vxlan) => Some(vxlan),
        }
    }

    /// Whether a rule with a condition of which nothing is known may be meant for
    /// the packet.
    pub(crate) fn may_be_meant(self) -> bool {
        self == Self::FromPeer || self.vxlan().is_some()
    }
}

/// Whether no link that other nodes are reached by has this name, or, without a zero
/// at its end, a name that begins so.
pub(crate) fn is_no_uplink(name: &[u8]) -> bool {
    name == b"lo" || name.starts_with(b"lo\0") || name.starts_with(LINK_PREFIX.as_bytes())
}

/// A hook whose chains are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Packets to this node.
    Input,
    /// Packets that this node passes on.
    Forward,
    /// Packets that this node sends, among them those that carry packets of pods.
    Output,
}

impl Hook {
    pub(crate) const ALL: [Self; 3] = [Self::Forward, Self::Input, Self::Output];

    /// `enum nf_inet_hooks`.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
        }
    }

    /// The chain of iptables.
    pub(crate) fn chain(self) -> &'static str {
        match self {
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
            Self::Output => "OUTPUT",
        }
    }

    /// What it is to drop packets there.
    pub(crate) fn problem(self) -> ProblemKind {
        match self {
            Self::Input => ProblemKind::InboundDrop,
            Self::Forward => ProblemKind::ForwardDrop,
            Self::Output => ProblemKind::OutboundDrop,
        }
    }

    /// Those of `packets` that have to pass the chains of `family` there; of both families
    /// where none is given.
    pub(crate) fn probes(self, packets: &Packets, family: Option<Family>) -> Vec<Probe> {
        let is_met = |of: &Family| family.is_none_or(|family| family == *of);
        let vxlan = packets.vxlan.filter(|vxlan| is_met(&vxlan.family));
        let mut probes = Vec::new();
        match self {
            Self::Input => probes.extend(vxlan.map(Probe::VxlanIn)),
            Self::Forward => {
                if packets.pods.iter().any(is_met) {
                    probes.extend([Probe::FromPod, Probe::ToPod]);
                }
                if packets.direct.iter().any(is_met) {
                    probes.push(Probe::FromPeer);
                }
            }
            Self::Output => probes.extend(vxlan.map(Probe::VxlanOut)),
        }
        probes
    }
}

/// Names those of `probes` that `is_dropped` is true for; none if it is for none.
pub(crate) fn dropped<E>(
    probes: &[Probe],
    mut is_dropped: impl FnMut(Probe) -> Result<bool, E>,
) -> Result<Option<String>, E> {
    let mut words = Vec::new();
    for probe in probes {
        if is_dropped(*probe)? {
            words.push(probe.what());
        }
    }
    Ok((!words.is_empty()).then(|| words.join(" and ")))
}

/// The cure for a chain of iptables: `chain` accepts what `program` puts there.
pub(crate) fn iptables_cure(program: &str, chain: &str, probes: &[Probe]) -> String {
    let commands = match probes.iter().find_map(|probe| probe.vxlan()) {
        Some(Vxlan { port, .. }) => {
            format!("{program} -I {chain} -p udp --dport {port} -j ACCEPT")
        }
        None => format!(
            "{program} -I {chain} -i tw+ -j ACCEPT && {program} -I {chain} -o tw+ -j ACCEPT"
        ),
    };
    format!("run `{commands}`, and after each reboot")
}
