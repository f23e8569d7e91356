//! The settings of the programs, in memory that they share with the agent.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::Duration;

use nix::libc::c_void;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::layout::{Shared, WAYS_DIRECT, WAYS_LOCAL, WAYS_VXLAN, range};
use crate::plan::Plan;

/// How long an entry is used: then the flow passes the kernel's path once more, by which
/// conntrack sees that it is alive. Also the longest time for which the rules of others, or
/// the policies while no agent runs, have no effect on a flow.
const LIFE: Duration = Duration::from_secs(5);

/// How long flows are let in while no agent says that it is there. A restart takes less. The
/// next agent may be one that knows of no fast path, or may not touch it, and then nobody tells
/// the programs what changes.
const LEASE: Duration = Duration::from_secs(60);

/// The settings of the programs that are loaded. Copies are of the same memory.
#[derive(Debug, Clone)]
pub struct Settings(Arc<Mapped>);

#[derive(Debug)]
struct Mapped(NonNull<Shared>);

#[expect(unsafe_code, reason = "memory that is shared with the kernel")]
// SAFETY: every field is an atomic, so any thread may use the memory at any time.
unsafe impl Send for Mapped {}
#[expect(unsafe_code, reason = "memory that is shared with the kernel")]
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "munmap(2) takes memory away")]
        // SAFETY: it was mapped with this size, and nobody has the address any more.
        let unmapped = unsafe { munmap(self.0.cast::<c_void>(), size_of::<Shared>()) };
        if let Err(error) = unmapped {
            tracing::debug!(%error, "the settings of the fast path stay mapped");
        }
    }
}

impl Settings {
    /// Those in the array `map`.
    pub(crate) fn map(map: impl AsFd) -> Result<Self, Error> {
        let length = NonZeroUsize::MIN.saturating_add(size_of::<Shared>() - 1);
        let (access, flags) = (
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_SHARED,
        );
        #[expect(
            unsafe_code,
            reason = "mmap(2) of a file that others may shorten is unsafe"
        )]
        // SAFETY: the kernel chooses the address; an array of BPF keeps its size.
        let mapped = unsafe { mmap(None, length, access, flags, map, 0) }
            .map_err(|error| Error::of("the map of settings", &error))?;
        Ok(Self(Arc::new(Mapped(mapped.cast()))))
    }

    pub(crate) fn shared(&self) -> &Shared {
        #[expect(unsafe_code, reason = "memory that is shared with the kernel")]
        // SAFETY: the map's value has this type and a page is aligned for it; it is mapped as
        // long as `self` lives, and all its fields are atomics.
        unsafe {
            self.0.0.as_ref()
        }
    }

    /// The number of the epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.shared().epoch.load(Relaxed)
    }

    /// From now on all flows have to pass the kernel's path again. Call it after the kernel
    /// has committed what is to be in force for them.
    pub fn invalidate(&self) {
        self.shared().epoch.fetch_add(1, SeqCst);
    }

    /// From now on flows are let in that the policies have let pass whose generation is `mark`,
    /// in the bits `mask` of the conntrack mark, and all of those before are not used any more.
    /// Without policies both are 0, and while it is not known which are in force the mark is.
    pub fn set_generation(&self, mark: u32, mask: u32) {
        let shared = self.shared();
        // In between nothing is let in that should not: no generation has no bits.
        shared.mark.store(0, Release);
        shared.mark_mask.store(mask, Release);
        shared.mark.store(mark, Release);
        self.invalidate();
    }

    /// The agent is there: flows are let in for another [`LEASE`].
    pub(crate) fn renew(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from);
        let until = now.unwrap_or_default().saturating_add(LEASE).as_nanos();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        self.shared().lease.store(until, Release);
    }

    /// Writes what `plan` says, without the epoch. Whether it differed.
    pub(crate) fn set(&self, plan: &Plan) -> bool {
        let shared = self.shared();
        let vxlan = plan.vxlan.as_ref();
        let ways = [
            (WAYS_LOCAL, true),
            (WAYS_VXLAN, vxlan.is_some()),
            (WAYS_DIRECT, !plan.direct.is_empty()),
        ];
        let used = ways.iter().filter(|(_, is_on)| *is_on);
        let words = [
            (&shared.ways, used.map(|(bit, _)| bit).sum()),
            (
                &shared.vni,
                vxlan.map_or(0, |vxlan| (vxlan.vni << 8).to_be()),
            ),
            (
                &shared.node,
                vxlan.map_or(0, |vxlan| u32::from_ne_bytes(vxlan.node.octets())),
            ),
            (
                &shared.underlay_link,
                vxlan.and_then(|vxlan| vxlan.underlay).unwrap_or(0),
            ),
            (&shared.vxlan_link, vxlan.map_or(0, |vxlan| vxlan.link)),
            (
                &shared.port_min,
                vxlan.map_or(0, |vxlan| u32::from(vxlan.source_ports.0)),
            ),
            (
                &shared.port_max,
                vxlan.map_or(0, |vxlan| u32::from(vxlan.source_ports.1)),
            ),
        ];
        let mut differed = false;
        for (word, value) in words {
            differed |= word.swap(value, Release) != value;
        }
        let port = vxlan.map_or(0, |vxlan| vxlan.port.to_be());
        differed |= shared.vxlan_port.swap(port, Release) != port;
        let ranges = plan.few_ranges();
        for (words, range) in shared
            .ranges
            .iter()
            .zip(ranges.iter().map(|one| range(*one)))
        {
            for (word, value) in words.iter().zip(range) {
                differed |= word.swap(value, Release) != value;
            }
        }
        let count = u16::try_from(ranges.len()).unwrap_or(0);
        differed |= shared.range_count.swap(count, Release) != count;
        let life = u64::try_from(LIFE.as_nanos()).unwrap_or(0);
        differed |= shared.life.swap(life, Release) != life;
        differed
    }
}
