//! The time of an ADD and a DEL in the store, by size of the range and how full it
//! is. A /16 must be as fast as a /24.
//!
//! `cargo bench -p tweed-ipam`. Times are of a whole cycle: lock, reserve, mark
//! live, unlock, lock, free. "On the way" is the time of most ADDs; "before the
//! block" is that of the one ADD that has to skip all taken addresses.

use std::error::Error;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};
use tweed_ipam::ranges::{Range, RangeSet, RangeSets};
use tweed_ipam::record::{Owner, Process, Record};
use tweed_ipam::store::{LOCK_WAIT, Store};

type Outcome<T> = Result<T, Box<dyn Error>>;

const CYCLES: usize = 2000;

/// A subnet and how many of its addresses are taken.
const CASES: [(&str, usize); 6] = [
    ("10.1.0.0/24", 0),
    ("10.1.0.0/24", 250),
    ("10.0.0.0/16", 0),
    ("10.0.0.0/16", 250),
    ("10.0.0.0/16", 60_000),
    ("fd00::/64", 60_000),
];

#[expect(clippy::print_stdout, reason = "a benchmark is there to print")]
fn main() -> Outcome<()> {
    // `cargo test --benches` runs this too, and then needs it only once.
    let cycles = if std::env::args().any(|arg| arg == "--bench") {
        CYCLES
    } else {
        1
    };
    println!("subnet        taken   on the way      before the block");
    let mut base = None;
    for (subnet, taken) in CASES {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        let case = Case::fill(folder.path(), subnet, taken)?;
        let way = case.median(cycles, |_| Ok(()))?;
        let block = case.median(cycles.div_ceil(20), |case| case.rewind())?;
        let base = *base.get_or_insert(way);
        let ratio = |time: Duration| time.as_secs_f64() / base.as_secs_f64();
        println!(
            "{subnet:12} {taken:6}  {way:9.1?} {:4.2}  {block:9.1?} {:6.2}",
            ratio(way),
            ratio(block)
        );
    }
    println!("the second number is the ratio to the first line's");
    Ok(())
}

struct Case {
    store: Store,
    ranges: RangeSets,
    by: Process,
}

impl Case {
    fn fill(folder: &Path, subnet: &str, taken: usize) -> Outcome<Self> {
        let range = Range::new(subnet.parse()?, None, None, None)?;
        let case = Self {
            store: Store::open(folder, &NetworkName::new("bench")?),
            ranges: RangeSets::new(vec![RangeSet::new(vec![range])?])?,
            by: Process::current()?,
        };
        for n in 0..taken {
            case.add(&case.attachment(&format!("taken{n}"))?)?;
        }
        Ok(case)
    }

    fn attachment(&self, container_id: &str) -> Outcome<Attachment> {
        Ok(Attachment {
            network: self.store.network().clone(),
            container_id: ContainerId::new(container_id)?,
            ifname: IfName::new("eth0")?,
        })
    }

    fn add(&self, attachment: &Attachment) -> Outcome<IpAddr> {
        let seed = Record::adding(attachment.clone(), Owner::Other, self.by);
        let mut locked = self.store.lock(LOCK_WAIT)?;
        let record = locked.reserve(&seed, &self.ranges, &[])?;
        let record = locked.mark_live(&record)?;
        let first = record.addresses.first().ok_or("no address")?;
        Ok(first.ip())
    }

    fn del(&self, attachment: &Attachment) -> Outcome<()> {
        self.store.lock(LOCK_WAIT)?.free(attachment)?;
        Ok(())
    }

    /// Sets the cursor to the first address, which is taken if any is.
    fn rewind(&self) -> Outcome<()> {
        std::fs::remove_file(self.store.folder().join("last_reserved_ip.0"))?;
        Ok(())
    }

    fn median(&self, cycles: usize, before: impl Fn(&Self) -> Outcome<()>) -> Outcome<Duration> {
        let attachment = self.attachment("measured")?;
        let mut times = Vec::with_capacity(cycles);
        for _ in 0..cycles {
            before(self)?;
            let begin = Instant::now();
            self.add(&attachment)?;
            self.del(&attachment)?;
            times.push(begin.elapsed());
        }
        times.sort_unstable();
        Ok(times[times.len() / 2])
    }
}
