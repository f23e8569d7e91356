//! What becomes of packets of one kind, however often they are sent.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use crate::prober::{Probe, ProbeOutcome, Prober};

/// How many packets of a kind are sent: of up to four endpoints none is then left out but
/// once in a hundred million times.
const DRAWS: usize = 64;

/// What becomes of packets of one kind, and which of them were masqueraded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Untouched,
    Rejected,
    Dropped,
    Sent(BTreeMap<SocketAddr, BTreeSet<bool>>),
    Mixed(Vec<ProbeOutcome>),
}

impl Outcome {
    /// That all these endpoints get some, which are masqueraded or are not.
    pub fn sent(endpoints: impl IntoIterator<Item = SocketAddr>, masqueraded: bool) -> Self {
        let sent = endpoints.into_iter();
        Self::Sent(sent.map(|at| (at, [masqueraded].into())).collect())
    }

    /// Sends such packets.
    pub fn seen(prober: &mut Prober, probe: Probe) -> Self {
        Self::of(&probe, prober.send(&[probe; DRAWS]))
    }

    fn of(probe: &Probe, outcomes: Vec<ProbeOutcome>) -> Self {
        let mut sent = BTreeMap::<SocketAddr, BTreeSet<bool>>::new();
        for outcome in &outcomes {
            match outcome {
                ProbeOutcome::Out {
                    destination,
                    masqueraded,
                    ..
                } => {
                    sent.entry(*destination).or_default().insert(*masqueraded);
                }
                other if outcomes.iter().all(|one| one == other) => {
                    return match other {
                        ProbeOutcome::Rejected => Self::Rejected,
                        _ => Self::Dropped,
                    };
                }
                _ => return Self::Mixed(outcomes),
            }
        }
        // At the node, an IPv6 packet does not tell its address.
        let own = SocketAddr::new([0; 16].into(), probe.destination.port());
        match sent.keys().collect::<Vec<_>>()[..] {
            [one] if *one == probe.destination || *one == own => Self::Untouched,
            _ => Self::Sent(sent),
        }
    }
}
