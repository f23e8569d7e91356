//! The imaginary packets that are sent through the rules of others, and how it is
//! said that they are dropped or rewritten.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use tweed_core::family::Family;
use tweed_core::ownership::LINK_PREFIX;
use tweed_core::problem::{Problem, ProblemKind};

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

/// A packet, by what is known of it. It stands for all such packets: what some rule accepts
/// of them does not help the others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Probe {
    /// In a sentence.
    what: String,
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
    /// Whether rules with a condition of which nothing is known may be meant to let it be: it
    /// is not known which addresses pods of other nodes have, nor where the packets of other
    /// nodes come from.
    pub(crate) may_be_meant: bool,
    /// Of one from pod to pod, which nobody is to translate, the widest known ranges. Any
    /// other one nobody is to drop.
    ranges: Option<(IpNetwork, IpNetwork)>,
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
    /// A packet of the overlay, `which` of them. Conntrack does not track it.
    fn of_overlay(which: &str, vxlan: Vxlan) -> Self {
        let Vxlan { port, family } = vxlan;
        Self {
            what: format!(
                "the VXLAN packets {which} other nodes (UDP port {port}, untracked by conntrack)"
            ),
            family: Some(family),
            protocol: Some(UDP),
            port: Some(port),
            state: State::Untracked,
            may_be_meant: true,
            ..Self::default()
        }
    }

    /// The packet that opens a flow from pod to pod.
    fn of_flow(flow: &Flow) -> Self {
        let Flow {
            incoming, outgoing, ..
        } = *flow;
        let by = |link: FlowLink| {
            let name = link.name().copied().unwrap_or_default();
            String::from_utf8_lossy(&name)
                .trim_end_matches('\0')
                .to_owned()
        };
        let what = match (incoming, outgoing) {
            (FlowLink::Pod, FlowLink::Pod) => "what pods here send to each other".to_owned(),
            (_, FlowLink::Pod) => {
                let by = by(incoming);
                format!("what pods of other nodes send to pods here by {by}")
            }
            _ => format!("what pods send to those of other nodes by {}", by(outgoing)),
        };
        Self {
            what,
            incoming,
            outgoing,
            family: Some(flow.family()),
            protocol: Some(TCP),
            addresses: Some((flow.source, flow.destination)),
            types: (Some(UNICAST), Some(UNICAST)),
            may_be_meant: true,
            ranges: Some(flow.ranges),
            ..Self::default()
        }
    }

    /// Whether what may become of it is wrong for certain, in a chain whose policy drops or
    /// accepts what leaves at the end.
    pub(crate) fn is_harmed(&self, outcomes: &Outcomes, policy_drops: bool) -> bool {
        if self.is_of_pods() {
            is_rewritten(outcomes)
        } else {
            is_dropped(outcomes, policy_drops)
        }
    }

    /// Whether it opens a flow from pod to pod.
    pub(crate) fn is_of_pods(&self) -> bool {
        self.ranges.is_some()
    }

    /// Whether it comes from a pod of another node by a direct route.
    pub(crate) fn is_from_peer(&self) -> bool {
        self.incoming == FlowLink::Uplink && self.outgoing == FlowLink::Pod
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
        if self == Self::Postrouting {
            "nat"
        } else {
            "filter"
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

    /// That a chain there does wrong to these packets; `drops` says by what it drops them.
    pub(crate) fn problem(
        self,
        object: String,
        chain: &str,
        packets: &str,
        drops: &str,
    ) -> Problem {
        let (kind, harm, how) = match self {
            Self::Input => (ProblemKind::InboundDrop, "drops", drops),
            Self::Forward => (ProblemKind::ForwardDrop, "drops", drops),
            Self::Output => (ProblemKind::OutboundDrop, "drops", drops),
            Self::Postrouting => (
                ProblemKind::PodsMasqueraded,
                "replaces the source of",
                "a rule translates them, and none before lets them be",
            ),
        };
        let message = format!("chain {chain} {harm} {packets}: {how}");
        Problem::new(kind, object, message)
    }

    /// Those of `packets` that have to pass the chains of `family` there; of both families
    /// where none is given.
    pub(crate) fn probes(self, packets: &Packets, family: Option<Family>) -> Vec<Probe> {
        let is_met = |of: &Family| family.is_none_or(|family| family == *of);
        let vxlan = packets.vxlan.filter(|vxlan| is_met(&vxlan.family));
        let mut probes = Vec::new();
        match self {
            Self::Input => probes.extend(vxlan.map(|vxlan| Probe {
                incoming: FlowLink::Uplink,
                types: (None, Some(LOCAL)),
                ..Probe::of_overlay("of", vxlan)
            })),
            Self::Forward => {
                if packets.pods.iter().any(is_met) {
                    probes.push(Probe {
                        what: "what pods send".to_owned(),
                        incoming: FlowLink::Pod,
                        ..Probe::default()
                    });
                    probes.push(Probe {
                        what: "the answers to pods".to_owned(),
                        outgoing: FlowLink::Pod,
                        state: State::Established,
                        ..Probe::default()
                    });
                }
                if packets.direct.iter().any(is_met) {
                    probes.push(Probe {
                        what: "what pods of other nodes send to pods here".to_owned(),
                        incoming: FlowLink::Uplink,
                        outgoing: FlowLink::Pod,
                        may_be_meant: true,
                        ..Probe::default()
                    });
                }
            }
            Self::Output => probes.extend(vxlan.map(|vxlan| Probe {
                outgoing: FlowLink::Uplink,
                ..Probe::of_overlay("to", vxlan)
            })),
            Self::Postrouting => {
                let flows = packets.flows.iter().filter(|flow| is_met(&flow.family()));
                probes.extend(flows.map(Probe::of_flow));
            }
        }
        probes
    }
}

/// Names those of `probes` that `is_dropped` is true for; none if it is for none.
pub(crate) fn dropped<E>(
    probes: &[Probe],
    mut is_dropped: impl FnMut(&Probe) -> Result<bool, E>,
) -> Result<Option<String>, E> {
    let mut words = Vec::new();
    for probe in probes {
        if is_dropped(probe)? {
            words.push(probe.what.as_str());
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
    let flow = |probe: &Probe| Some((probe.family?, probe.ranges?));
    let distinct: BTreeSet<String> = { probes.iter().filter_map(flow) }
        .map(|(family, (from, to))| command(family, from, to))
        .collect();
    let commands: Vec<String> = distinct.into_iter().collect();
    format!(
        "have its rules leave packets between pods alone; or run `{}`, and after each reboot",
        commands.join(" && ")
    )
}

/// The cure for a chain of iptables: `chain` accepts what `program` puts there.
pub(crate) fn iptables_cure(program: &str, chain: &str, probes: &[Probe]) -> String {
    if probes.iter().any(Probe::is_of_pods) {
        return translation_cure(probes, |_, from, to| {
            format!(
                "{program} -t nat -I {chain} -s {from} -d {to} -m mark ! --mark 0x4000/0x4000 \
                 -j ACCEPT"
            )
        });
    }
    let commands = match probes.iter().find_map(|probe| probe.port) {
        Some(port) => {
            format!("{program} -I {chain} -p udp --dport {port} -j ACCEPT")
        }
        None => format!(
            "{program} -I {chain} -i tw+ -j ACCEPT && {program} -I {chain} -o tw+ -j ACCEPT"
        ),
    };
    format!("run `{commands}`, and after each reboot")
}
