//! What the programs count: the enums of `bpf/flow.h`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aya::Pod;
use aya::maps::{Map, MapData, PerCpuArray};

use crate::error::Error;

/// By which way a packet skipped the kernel's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// To a pod of this node.
    Local,
    /// To another node by VXLAN.
    VxlanOut,
    /// From another node by VXLAN.
    VxlanIn,
    /// To another node by a plain route.
    DirectOut,
    /// From another node by a plain route.
    DirectIn,
}

/// Why a packet to a pod or Service was left to the kernel, or its flow not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelPath {
    /// Its flow is not in the map.
    Unknown,
    /// It begins or ends a connection.
    Ends,
    /// Something has changed since the flow was let in.
    Epoch,
    /// The flow has to be seen by conntrack once more.
    Expired,
    /// It is larger than the MTU.
    TooBig,
    /// Its outer header is not as that of the flow.
    Outer,
    /// Not let in: conntrack does not know it.
    NoConntrack,
    /// Not let in: its connection is not established.
    State,
    /// Not let in: the policies in force have not evaluated it.
    Generation,
    /// Not let in: its source is translated.
    SourceNat,
    /// Not let in: one of its ends is no pod.
    NotPod,
    /// Not let in: something else has changed it.
    Other,
}

impl Way {
    /// All of them, with their places in the map.
    pub(crate) const ALL: [(Self, u32); 5] = [
        (Self::Local, 1),
        (Self::VxlanOut, 2),
        (Self::VxlanIn, 3),
        (Self::DirectOut, 4),
        (Self::DirectIn, 5),
    ];

    /// A word for it, for metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::VxlanOut => "vxlan-out",
            Self::VxlanIn => "vxlan-in",
            Self::DirectOut => "direct-out",
            Self::DirectIn => "direct-in",
        }
    }
}

impl KernelPath {
    /// All of them, with their places in the map.
    pub(crate) const ALL: [(Self, u32); 12] = [
        (Self::Unknown, 8),
        (Self::Ends, 9),
        (Self::Epoch, 10),
        (Self::Expired, 11),
        (Self::TooBig, 12),
        (Self::Outer, 13),
        (Self::NoConntrack, 17),
        (Self::State, 18),
        (Self::Generation, 19),
        (Self::SourceNat, 20),
        (Self::NotPod, 21),
        (Self::Other, 22),
    ];

    /// A word for it, for metrics.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Unknown => "unknown-flow",
            Self::Ends => "begins-or-ends",
            Self::Epoch => "something-changed",
            Self::Expired => "expired",
            Self::TooBig => "too-big",
            Self::Outer => "outer-header",
            Self::NoConntrack => "untracked",
            Self::State => "not-established",
            Self::Generation => "not-evaluated",
            Self::SourceNat => "source-nat",
            Self::NotPod => "not-a-pod",
            Self::Other => "changed-by-others",
        }
    }

    /// Whether it is about a flow that was not let in, after the kernel's path.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        Self::ALL
            .iter()
            .any(|(one, at)| *one == self && *at > ADMITTED)
    }
}

/// The place of the number of flows that were let in.
pub(crate) const ADMITTED: u32 = 16;

/// Packets and their bytes, with the Ethernet header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Number of packets; several segments are one.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// What was counted since the maps were made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counters {
    /// What skipped the kernel's path.
    pub fast: BTreeMap<Way, Traffic>,
    /// What did not.
    pub kernel: BTreeMap<KernelPath, u64>,
    /// Directions of flows that were let in.
    pub admitted: u64,
}

/// `struct counter`
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct CounterValue {
    packets: u64,
    bytes: u64,
}

#[expect(unsafe_code, reason = "the trait says that any bytes are valid")]
// SAFETY: both fields are numbers, without padding between or after them.
unsafe impl Pod for CounterValue {}

/// Reads what the programs count.
#[derive(Clone)]
pub struct CounterReader(Arc<PerCpuArray<MapData, CounterValue>>);

impl fmt::Debug for CounterReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CounterReader").finish_non_exhaustive()
    }
}

impl CounterReader {
    pub(crate) fn of(map: Map) -> Result<Self, Error> {
        let map = map.try_into().map_err(failed)?;
        Ok(Self(Arc::new(map)))
    }

    /// All counters.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn read(&self) -> Result<Counters, Error> {
        let read = |index: u32| {
            let values = self.0.get(&index, 0).map_err(failed)?;
            Ok::<_, Error>(values.iter().fold(Traffic::default(), |sum, one| Traffic {
                packets: sum.packets + one.packets,
                bytes: sum.bytes + one.bytes,
            }))
        };
        let fast = Way::ALL.iter().map(|(way, at)| Ok((*way, read(*at)?)));
        let kernel = KernelPath::ALL.iter();
        let kernel = kernel.map(|(why, at)| Ok((*why, read(*at)?.packets)));
        Ok(Counters {
            fast: fast.collect::<Result<_, Error>>()?,
            kernel: kernel.collect::<Result<_, Error>>()?,
            admitted: read(ADMITTED)?.packets,
        })
    }
}

fn failed(error: aya::maps::MapError) -> Error {
    Error::of("the map of counters", &error)
}
