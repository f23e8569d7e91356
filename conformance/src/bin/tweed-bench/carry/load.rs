//! What is sent, and how fast it went.
//!
//! Every load is one or more threads at each end, blocking as plain programs
//! do. A socket belongs to the namespace that it was opened in, so the threads
//! themselves need not be there. The server's threads are pinned to the first
//! CPU and the client's to the second, where there are two. [`Awake`] keeps
//! idle CPUs from sleeping meanwhile.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::time::TimeValLike;
use nix::time::ClockId;
use nix::unistd::Pid;
use serde::Serialize;
use tweed_lab::Netns;

use super::traffic;

/// How long the first unit may take.
const STARVED: Duration = Duration::from_secs(10);

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// One TCP stream.
    TcpStream,
    /// Four TCP streams at once.
    TcpStreams,
    /// UDP packets with 64 bytes in them, as fast as the sender can.
    UdpPackets,
    /// A byte there and a byte back on one TCP connection.
    TcpPing,
    /// A byte there and a byte back by UDP.
    UdpPing,
    /// A new TCP connection, a byte there and back, closed.
    Connections,
}

impl Load {
    /// All, in the order in which they are measured.
    pub const ALL: [Self; 6] = [
        Self::TcpStream,
        Self::TcpStreams,
        Self::UdpPackets,
        Self::TcpPing,
        Self::UdpPing,
        Self::Connections,
    ];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpStream => "TCP, one stream",
            Self::TcpStreams => "TCP, four streams",
            Self::UdpPackets => "UDP packets of 64 bytes",
            Self::TcpPing => "TCP request and response",
            Self::UdpPing => "UDP request and response",
            Self::Connections => "TCP connections",
        }
    }

    /// What a rate is given in, and how many units (bytes, packets, round
    /// trips, connections) a second that is.
    pub fn scale(self) -> (&'static str, f64) {
        match self {
            Self::TcpStream | Self::TcpStreams => ("Gbit/s", 1e9 / 8.0),
            Self::UdpPackets | Self::TcpPing | Self::UdpPing | Self::Connections => {
                ("1,000 a second", 1e3)
            }
        }
    }

    /// What CPU time is given for, and how many units that is.
    pub fn portion(self) -> (&'static str, f64) {
        match self {
            Self::TcpStream | Self::TcpStreams => ("MiB", f64::from(1 << 20)),
            Self::UdpPackets => ("packet", 1.0),
            Self::TcpPing | Self::UdpPing => ("round trip", 1.0),
            Self::Connections => ("connection", 1.0),
        }
    }

    /// Puts this load on `path` and measures it.
    pub fn measure(self, path: &Path<'_>, timing: Timing) -> anyhow::Result<Sample> {
        let trial = Trial::new(path, timing);
        match self {
            Self::TcpStream => traffic::tcp_streams(&trial, 1),
            Self::TcpStreams => traffic::tcp_streams(&trial, 4),
            Self::UdpPackets => traffic::udp_packets(&trial),
            Self::TcpPing => traffic::tcp_ping(&trial),
            Self::UdpPing => traffic::udp_ping(&trial),
            Self::Connections => traffic::connections(&trial),
        }
        .with_context(|| format!("{} from {}", self.name(), path.client.name()))
        .map(|sample| Sample {
            rate: sample.rate / self.scale().1,
            cpu_us: sample.cpu_us * self.portion().1,
        })
    }
}

/// Keeps idle CPUs from sleeping while it lives. Waking a sleeping one takes as
/// long as a round trip, in a virtual machine even longer, and whether it sleeps
/// between two packets is a matter of luck.
pub struct Awake(Option<File>);

impl Awake {
    /// Asks the kernel for it: `Documentation/power/pm_qos_interface.rst`.
    /// A kernel without power management has no such file, and nothing to ask.
    pub fn begin() -> Self {
        let ask = || {
            let mut file = OpenOptions::new()
                .write(true)
                .open("/dev/cpu_dma_latency")?;
            file.write_all(&0_i32.to_ne_bytes())?;
            Ok::<_, io::Error>(file)
        };
        Self(ask().ok())
    }

    /// Whether the kernel agreed.
    pub fn is_kept(&self) -> bool {
        self.0.is_some()
    }
}

/// Two ends.
pub struct Path<'a> {
    /// Who connects and sends.
    pub client: &'a Netns,
    /// Who listens.
    pub server: &'a Netns,
    /// The server's address.
    pub address: Ipv4Addr,
}

/// For how long.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Before it counts.
    pub warm_up: Duration,
    /// While it counts.
    pub window: Duration,
}

/// What came out, in the load's own units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// In a second of the clock.
    pub rate: f64,
    /// Microseconds of CPU for each: both programs, and what the kernel did in
    /// their name, which is nearly all of the path. Stands a busy machine much
    /// better than the rate does.
    pub cpu_us: f64,
}

/// Which CPU a thread runs on.
#[derive(Debug, Clone, Copy)]
pub enum End {
    /// The first.
    Server,
    /// The second.
    Client,
}

/// A thread of a load.
pub struct Task<'a> {
    end: End,
    work: Box<dyn FnOnce() -> io::Result<()> + Send + 'a>,
}

impl<'a> Task<'a> {
    /// Runs `work` at this end.
    pub fn new(end: End, work: impl FnOnce() -> io::Result<()> + Send + 'a) -> Self {
        Self {
            end,
            work: Box::new(work),
        }
    }
}

/// One measurement: its ends, its clock, its counter.
pub struct Trial<'a> {
    /// The ends.
    pub path: &'a Path<'a>,
    timing: Timing,
    done: AtomicU64,
    over: AtomicBool,
}

impl<'a> Trial<'a> {
    fn new(path: &'a Path<'a>, timing: Timing) -> Self {
        Self {
            path,
            timing,
            done: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Counts `more` units.
    pub fn count(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }

    /// Whether threads are to end.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Runs the threads and looks at the counter at both ends of the window.
    pub fn run(&self, tasks: Vec<Task<'_>>) -> anyhow::Result<Sample> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = tasks
                .into_iter()
                .map(|task| {
                    scope.spawn(move || {
                        pin(task.end)?;
                        (task.work)()
                    })
                })
                .collect();
            let sample = self.look();
            self.over.store(true, Ordering::Relaxed);
            for thread in threads {
                match thread.join() {
                    Ok(ended) => ended?,
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            sample
        })
    }

    fn look(&self) -> anyhow::Result<Sample> {
        std::thread::sleep(self.timing.warm_up);
        let threads = threads()?;
        let cpu = cpu_us(&threads)?;
        let (start, before) = (Instant::now(), self.done.load(Ordering::Relaxed));
        let after = loop {
            std::thread::sleep(self.timing.window);
            let after = self.done.load(Ordering::Relaxed);
            // Where others keep the CPUs busy, a thread may not have run at all.
            if after > before || start.elapsed() > STARVED {
                break after;
            }
        };
        let (took, cpu) = (start.elapsed(), cpu_us(&threads)? - cpu);
        let units = (after - before) as f64;
        anyhow::ensure!(after > before, "nothing arrived in {took:?}");
        Ok(Sample {
            rate: units / took.as_secs_f64(),
            cpu_us: cpu / units,
        })
    }
}

/// All threads of this process, by the kernel's number.
fn threads() -> anyhow::Result<Vec<i32>> {
    let folder = "/proc/self/task";
    let names = fs::read_dir(folder).context(folder)?;
    names
        .map(|entry| {
            let name = entry.context(folder)?.file_name();
            let number = name.to_string_lossy().parse();
            number.with_context(|| format!("{folder}: {}", name.display()))
        })
        .collect()
}

/// Microseconds of CPU that these threads have had. Each is asked by itself:
/// what the kernel tells of a whole process leaves out what its running threads
/// have had since the last tick, which may be a tenth of a short window.
fn cpu_us(threads: &[i32]) -> anyhow::Result<f64> {
    // `MAKE_THREAD_CPUCLOCK` of the kernel's `posix-timers_types.h`: per thread
    // (4), by the scheduler's count (2).
    let clock = |thread: &i32| ClockId::from_raw((!thread << 3) | 4 | 2);
    threads.iter().try_fold(0.0, |sum, thread| {
        let time = clock(thread).now();
        let time = time.with_context(|| format!("the CPU clock of thread {thread}"))?;
        Ok(sum + time.num_nanoseconds() as f64 / 1e3)
    })
}

/// Keeps the calling thread on this end's CPU, where there is a second one.
pub fn pin(end: End) -> io::Result<()> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let cpu = match end {
        End::Server => 0,
        End::Client => 1,
    };
    if cpu >= cpus {
        return Ok(());
    }
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(())
}
