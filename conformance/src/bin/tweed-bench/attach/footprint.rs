//! What it costs to start a plugin at all.

use std::fs;
use std::time::Instant;

use anyhow::Context;
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde::Serialize;
use tweed_lab::Pod;

use super::stage::Stage;
use super::subject::Subject;
use crate::stats::Spread;

/// A plugin's size and its cost without any work.
#[derive(Debug, Serialize)]
pub struct Footprint {
    /// The plugin.
    pub subject: Subject,
    /// Bytes of its program (of the main plugin, where IPAM is another).
    pub bytes: u64,
    /// Milliseconds of a VERSION call.
    pub version_ms: Option<Spread>,
    /// One ADD, its IPAM plugin included.
    pub add: Work,
    /// One DEL.
    pub del: Work,
}

/// What the kernel counted for a process and those that it waited for.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Work {
    /// Page faults.
    pub page_faults: i64,
    /// Milliseconds of CPU, user and system.
    pub cpu_ms: f64,
}

/// The footprint of a stage's plugin, measured with `pod`.
pub fn of(stage: &Stage, pod: &Pod, rounds: usize) -> anyhow::Result<Footprint> {
    let call = stage.subject.version(stage.node());
    let version_ms = stage.node().netns().enter(|| {
        (0..rounds)
            .map(|_| {
                let start = Instant::now();
                call.make().map(|_| start.elapsed().as_secs_f64() * 1e3)
            })
            .collect::<anyhow::Result<Vec<f64>>>()
    })??;
    let before = children()?;
    let added = stage.add(&[pod], stage.crowd())?;
    let between = children()?;
    stage.del(&[pod], stage.crowd(), &added)?;
    let after = children()?;
    stage.settle()?;
    let bytes = fs::metadata(&call.program)
        .with_context(|| call.program.display().to_string())?
        .len();
    Ok(Footprint {
        subject: stage.subject,
        bytes,
        version_ms: Spread::of(&version_ms),
        add: work(&before, &between),
        del: work(&between, &after),
    })
}

fn children() -> anyhow::Result<Usage> {
    getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")
}

fn work(before: &Usage, after: &Usage) -> Work {
    let faults = |usage: &Usage| usage.minor_page_faults() + usage.major_page_faults();
    let cpu = |usage: &Usage| {
        let micros = (usage.user_time() + usage.system_time()).num_microseconds();
        micros as f64 / 1e3
    };
    Work {
        page_faults: faults(after) - faults(before),
        cpu_ms: cpu(after) - cpu(before),
    }
}
