//! The imaginary packets that are sent through the rules of others, and how it is
//! said that they are dropped or rewritten.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::ownership::LINK_PREFIX;
use tweed_core::{family::Family, problem::ProblemKind};

use crate::ranges::{inside, widest};
use crate::walk::{Outcomes, is_dropped, is_rewritten};

/// The name of some pod's link. No real one has it: rules for a single pod must
/// not count.
pub(crate) const POD_LINK: &[u8; 16] = b"tw------------\0\0";

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
    /// Flows from pod to pod, which nobody is to translate.
    pub flows: Vec<Flow>,
}

/// A flow of TCP from one pod to another, which this node forwards. Its addresses stand for
/// those of all pods of two pod CIDRs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) incoming: FlowLink,
    pub(crate) outgoing: FlowLink,
    /// The widest known ranges of pods with these addresses.
    ranges: (IpNetwork, IpNetwork),
}

/// What is known of a link that a packet comes in or goes out by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlowLink {
    /// Nothing.
    #[default]
    Unknown,
    /// That of a local pod.
    Pod,
    /// Neither `lo` nor tweed's.
    Uplink,
    /// The VXLAN device or an uplink.
    Other {
        /// Its name, with zeros behind it.
        name: [u8; 16],
        /// Its index.
        index: u32,
    },
}

impl Flow {
    /// From the first pod CIDR, by the first link, to the second; `ranges` hold pods of the
    /// cluster.
    #[must_use]
    pub fn between(
        (from, incoming): (IpNetwork, FlowLink),
        (to, outgoing): (IpNetwork, FlowLink),
        ranges: &BTreeSet<IpNetwork>,
    ) -> Self {
        let (source, destination) = (inside(from, None), inside(to, None));
        Self {
            source,
            destination,
            incoming,
            outgoing,
            ranges: (widest(ranges, source), widest(ranges, destination)),
        }
    }

    pub(crate) fn family(&self) -> Family {
        Family::of(self.source)
    }
}

impl FlowLink {
    /// The link with this name and index.
    #[must_use]
    pub fn other(name: &str, index: u32) -> Self {
        let mut bytes = [0; 16];
        // The kernel's names are shorter.
        bytes
            .iter_mut()
            .zip(name.bytes())
            .for_each(|(to, byte)| *to = byte);
        Self::Other { name: bytes, index }
    }

    /// Its name, where it is known.
    pub(crate) fn name(&self) -> Option<&[u8; 16]> {
        match self {
            Self::Pod => Some(POD_LINK),
            Self::Other { name, .. } => Some(name),
            Self::Unknown | Self::Uplink => None,
        }
    }
}

/// The VXLAN packets of other nodes, as far as they are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vxlan {
    /// UDP port that they go to.
    pub port: u16,
    /// Family of the nodes' addresses.
    pub family: Family,
}

/// A packet, by what it stands for.
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
    /// Opens a flow from pod to pod. Rules with a condition of which nothing is known may be
    /// meant to keep it as it is.
    PodToPod(Flow),
}

/// What is known of a packet.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Facts {
    pub(crate) incoming: FlowLink,
    pub(crate) outgoing: FlowLink,
    pub(crate) family: Option<Family>,
    /// `IPPROTO_…`
    pub(crate) protocol: Option<u8>,
    /// The port that it goes to.
    pub(crate) port: Option<u16>,
    /// Its source and destination.
    pub(crate) addresses: Option<(IpAddr, IpAddr)>,
    /// `RTN_…` of these two.
    pub(crate) types: (Option<u32>, Option<u32>),
    pub(crate) state: State,
}

/// Conntrack's view of a packet, by the bit of nf_tables (`NF_CT_STATE_BIT`) and of the match
/// `state` of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// It belongs to a flow that is open, in the direction of replies.
    Established = 1 << 1,
    /// It opens a flow.
    #[default]
    New = 1 << 3,
    Untracked = 1 << 6,
}

/// `IPPROTO_TCP` and `IPPROTO_UDP`
const TCP: u8 = 6;
const UDP: u8 = 17;
/// `RTN_UNICAST` and `RTN_LOCAL`
const UNICAST: u32 = 1;
const LOCAL: u32 = 2;

impl Probe {
    pub(crate) fn facts(self) -> Facts {
        let of_overlay = |vxlan: Vxlan| Facts {
            family: Some(vxlan.family),
            protocol: Some(UDP),
            port: Some(vxlan.port),
            state: State::Untracked,
            ..Facts::default()
        };
        match self {
            Self::FromPod => Facts {
                incoming: FlowLink::Pod,
                ..Facts::default()
            },
            Self::ToPod => Facts {
                outgoing: FlowLink::Pod,
                state: State::Established,
                ..Facts::default()
            },
            Self::FromPeer => Facts {
                incoming: FlowLink::Uplink,
                outgoing: FlowLink::Pod,
                ..Facts::default()
            },
            Self::VxlanIn(vxlan) => Facts {
                incoming: FlowLink::Uplink,
                types: (None, Some(LOCAL)),
                ..of_overlay(vxlan)
            },
            Self::VxlanOut(vxlan) => Facts {
                outgoing: FlowLink::Uplink,
                ..of_overlay(vxlan)
            },
            Self::PodToPod(flow) => Facts {
                incoming: flow.incoming,
                outgoing: flow.outgoing,
                family: Some(flow.family()),
                protocol: Some(TCP),
                addresses: Some((flow.source, flow.destination)),
                types: (Some(UNICAST), Some(UNICAST)),
                ..Facts::default()
            },
        }
    }

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
            Self::PodToPod(Flow {
                incoming, outgoing, ..
            }) => {
                let by = |link: FlowLink| {
                    let name = link
                        .name()
                        .map(|name| String::from_utf8_lossy(name).into_owned());
                    name.unwrap_or_default().trim_end_matches('\0').to_owned()
                };
                match (incoming, outgoing) {
                    (FlowLink::Pod, FlowLink::Pod) => {
                        "what pods here send to each other".to_owned()
                    }
                    (_, FlowLink::Pod) => {
                        format!(
                            "what pods of other nodes send to pods here by {}",
                            by(incoming)
                        )
                    }
                    _ => format!("what pods send to those of other nodes by {}", by(outgoing)),
                }
            }
        }
    }

    /// Whether what may become of it is wrong for certain, in a chain whose policy drops or
    /// accepts what leaves at the end.
    pub(crate) fn is_harmed(self, outcomes: &Outcomes, policy_drops: bool) -> bool {
        match self {
            Self::PodToPod(_) => is_rewritten(outcomes),
            _ => is_dropped(outcomes, policy_drops),
        }
    }

    /// Whether a rule with a condition of which nothing is known may be meant for
    /// the packet.
    pub(crate) fn may_be_meant(self) -> bool {
        !matches!(self, Self::FromPod | Self::ToPod)
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
    /// Packets that leave, where their sources are translated.
    Postrouting,
}

impl Hook {
    pub(crate) const ALL: [Self; 4] = [Self::Forward, Self::Input, Self::Output, Self::Postrouting];

    /// `enum nf_inet_hooks`.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Input => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }

    /// The table of iptables with the chains that are looked at.
    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::Input | Self::Forward | Self::Output => "filter",
            Self::Postrouting => "nat",
        }
    }

    /// The chain of iptables.
    pub(crate) fn chain(self) -> &'static str {
        match self {
            Self::Input => "INPUT",
            Self::Forward => "FORWARD",
            Self::Output => "OUTPUT",
            Self::Postrouting => "POSTROUTING",
        }
    }

    /// What a chain there does to packets.
    pub(crate) fn harm(self) -> &'static str {
        match self {
            Self::Input | Self::Forward | Self::Output => "drops",
            Self::Postrouting => "replaces the source of",
        }
    }

    /// What it is to do that there.
    pub(crate) fn problem(self) -> ProblemKind {
        match self {
            Self::Input => ProblemKind::InboundDrop,
            Self::Forward => ProblemKind::ForwardDrop,
            Self::Output => ProblemKind::OutboundDrop,
            Self::Postrouting => ProblemKind::PodsMasqueraded,
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
            Self::Postrouting => {
                let flows = packets.flows.iter().filter(|flow| is_met(&flow.family()));
                probes.extend(flows.copied().map(Probe::PodToPod));
            }
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

/// The commands that have a chain leave the flows of `probes` alone, of which `command` gives
/// each for packets from one range to another of a family. They leave those alone that
/// kube-proxy has marked, as it masquerades a pod's flow to itself.
pub(crate) fn translation_cure(
    probes: &[Probe],
    command: impl Fn(Family, IpNetwork, IpNetwork) -> String,
) -> String {
    let flow = |probe: &Probe| match probe {
        Probe::PodToPod(flow) => Some((flow.family(), flow.ranges)),
        _ => None,
    };
    let commands: BTreeSet<String> = { probes.iter().filter_map(flow) }
        .map(|(family, (from, to))| command(family, from, to))
        .collect();
    let commands: Vec<String> = commands.into_iter().collect();
    format!(
        "have its rules leave packets between pods alone; or run `{}`, and after each reboot",
        commands.join(" && ")
    )
}

/// The cure for a chain of iptables: `chain` accepts what `program` puts there.
pub(crate) fn iptables_cure(program: &str, chain: &str, probes: &[Probe]) -> String {
    if let Some(Probe::PodToPod(_)) = probes.first() {
        return translation_cure(probes, |_, from, to| {
            format!(
                "{program} -t nat -I {chain} -s {from} -d {to} -m mark ! --mark 0x4000/0x4000 \
                 -j ACCEPT"
            )
        });
    }
    let commands = match probes.iter().find_map(|probe| probe.facts().port) {
        Some(port) => {
            format!("{program} -I {chain} -p udp --dport {port} -j ACCEPT")
        }
        None => format!(
            "{program} -I {chain} -i tw+ -j ACCEPT && {program} -I {chain} -o tw+ -j ACCEPT"
        ),
    };
    format!("run `{commands}`, and after each reboot")
}
