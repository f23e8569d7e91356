//! What the programs count: the enums of `bpf/flow.h`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use aya::Pod;
use aya::maps::{Map, MapData, PerCpuArray};

use crate::error::Error;

macro_rules! counted {
    ($(#[doc = $help:literal])+ $name:ident {
        $($(#[doc = $meaning:literal])+ $kind:ident, $at:literal, $word:literal;)+
    }) => {
        $(#[doc = $help])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[doc = $meaning])+ $kind,)+
        }

        impl $name {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$kind),+];

            /// Its place in the map.
            pub(crate) fn at(self) -> u32 {
                match self {
                    $(Self::$kind => $at,)+
                }
            }

            /// A word for it, for metrics.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)+
                }
            }
        }
    };
}

// What it is, its place in the map, and the word for it.
counted! {
    /// By which way a packet skipped the kernel's path.
    Way {
        /// To a pod of this node.
        Local, 1, "local";
        /// To another node by VXLAN.
        VxlanOut, 2, "vxlan-out";
        /// From another node by VXLAN.
        VxlanIn, 3, "vxlan-in";
        /// To another node by a plain route.
        DirectOut, 4, "direct-out";
        /// From another node by a plain route.
        DirectIn, 5, "direct-in";
    }
}
counted! {
    /// Why a packet to a pod or Service was left to the kernel, or its flow not let in.
    KernelPath {
        /// Its flow is not in the map.
        Unknown, 8, "unknown-flow";
        /// It begins or ends a connection.
        Ends, 9, "begins-or-ends";
        /// Something has changed since the flow was let in.
        Epoch, 10, "something-changed";
        /// The flow has to be seen by conntrack once more.
        Expired, 11, "expired";
        /// It is larger than the MTU.
        TooBig, 12, "too-big";
        /// Its outer header is not as that of the flow, or is one of several datagrams.
        Outer, 13, "outer-header";
        /// Not let in: conntrack does not know it.
        NoConntrack, 17, "untracked";
        /// Not let in: its connection is not established.
        State, 18, "not-established";
        /// Not let in: the policies in force have not evaluated it.
        Generation, 19, "not-evaluated";
        /// Not let in: its source is translated.
        SourceNat, 20, "source-nat";
        /// Not let in: one of its ends is no pod.
        NotPod, 21, "not-a-pod";
        /// Not let in: something else has changed it.
        Other, 22, "changed-by-others";
    }
}

impl KernelPath {
    /// Whether it is about a flow that was not let in, after the kernel's path.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        self.at() > ADMITTED
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
        Ok(Self(Arc::new(map.try_into().map_err(failed)?)))
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
        let fast = Way::ALL.iter().map(|way| Ok((*way, read(way.at())?)));
        let paths = KernelPath::ALL.iter();
        let kernel = paths.map(|why| Ok((*why, read(why.at())?.packets)));
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
