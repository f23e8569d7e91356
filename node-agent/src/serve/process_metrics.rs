//! What monitoring expects of every process, under the names that client libraries of
//! Prometheus give it.

use std::fmt::Error;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, io};

use nix::unistd::{SysconfVar, sysconf};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

/// A registry with the metrics of this process, which was started then.
pub fn registry(started: SystemTime) -> Registry {
    let mut registry = Registry::with_prefix("process");
    let start_time: Gauge<f64, AtomicU64> = Gauge::default();
    let since = started.duration_since(UNIX_EPOCH).unwrap_or_default();
    start_time.set(since.as_secs_f64());
    registry.register(
        "start_time_seconds",
        "When the process was started, in seconds since 1970",
        start_time,
    );
    registry.register_collector(Box::new(Resources));
    registry
}

/// What this process uses, read at each scrape. What cannot be read is left out.
#[derive(Debug)]
struct Resources;

impl Collector for Resources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let folder = Path::new("/proc/self");
        let usage = Units::of_kernel().and_then(|units| usage(&read(folder, "stat").ok()?, &units));
        if let Some(usage) = usage {
            let cpu = ConstCounter::new(usage.cpu_seconds);
            let help = "CPU time of all threads in user and system mode, in seconds";
            metric(&mut encoder, "cpu", help, Some(&Unit::Seconds), &cpu)?;
            for (name, help, bytes) in [
                ("resident_memory_bytes", "Resident memory", usage.resident),
                ("virtual_memory_bytes", "Virtual memory", usage.virtual_size),
            ] {
                metric(&mut encoder, name, help, None, &gauge(bytes))?;
            }
        }
        if let Ok(files) = fs::read_dir(folder.join("fd")) {
            // One of them is that folder.
            let open = files.count().saturating_sub(1) as u64;
            let help = "Open file descriptors";
            metric(&mut encoder, "open_fds", help, None, &gauge(open))?;
        }
        let limit = read(folder, "limits").ok();
        if let Some(limit) = limit.and_then(|limits| open_files_limit(&limits)) {
            let help = "Limit of open file descriptors";
            metric(&mut encoder, "max_fds", help, None, &gauge(limit))?;
        }
        Ok(())
    }
}

fn read(folder: &Path, name: &str) -> io::Result<String> {
    fs::read_to_string(folder.join(name))
}

fn gauge(value: u64) -> ConstGauge<f64> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sample is a float, and what is lost is less than one in 2^52"
    )]
    ConstGauge::new(value as f64)
}

fn metric(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    value: &impl EncodeMetric,
) -> Result<(), Error> {
    value.encode(encoder.encode_descriptor(name, help, unit, value.metric_type())?)
}

/// What the numbers in `/proc/<pid>/stat` count.
struct Units {
    ticks_a_second: f64,
    page: u64,
}

impl Units {
    fn of_kernel() -> Option<Self> {
        let ask = |what| sysconf(what).ok().flatten();
        let ticks = u32::try_from(ask(SysconfVar::CLK_TCK)?).ok()?;
        Some(Self {
            ticks_a_second: ticks.into(),
            page: ask(SysconfVar::PAGE_SIZE)?.try_into().ok()?,
        })
    }
}

#[derive(Debug, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    /// In bytes.
    virtual_size: u64,
    /// In bytes.
    resident: u64,
}

/// By proc_pid_stat(5). The second field, the program's name, may have blanks and brackets.
fn usage(stat: &str, units: &Units) -> Option<Usage> {
    let (_, rest) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The first one behind the name is the third of all.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    #[expect(
        clippy::cast_precision_loss,
        reason = "hundredths of a second since the process was started"
    )]
    let ticks = (field(14)? + field(15)?) as f64;
    Some(Usage {
        cpu_seconds: ticks / units.ticks_a_second,
        virtual_size: field(23)?,
        resident: field(24)? * units.page,
    })
}

/// The limit that is in force, by proc_pid_limits(5); none if there is none.
fn open_files_limit(limits: &str) -> Option<u64> {
    let mut lines = limits.lines();
    let limit = lines.find_map(|line| line.strip_prefix("Max open files"))?;
    limit.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::serve::exposition;

    #[test]
    fn a_restart_is_another_time_under_the_usual_name() {
        let started = UNIX_EPOCH + Duration::from_millis(1_790_000_000_500);
        let text = exposition::text(&[registry(started)]).unwrap();
        let series = "process_start_time_seconds 1790000000.5";
        assert!(text.lines().any(|line| line == series), "{text}");
    }

    #[test]
    fn what_the_process_uses_is_told() {
        let _file = fs::File::open("/proc/self/stat").unwrap();
        let text = exposition::text(&[registry(UNIX_EPOCH)]).unwrap();
        let value = |name: &str| -> f64 {
            let mut lines = text.lines();
            let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let value = found.unwrap_or_else(|| panic!("no {name} in {text}"));
            value.parse().unwrap()
        };
        assert!(value("process_cpu_seconds_total") >= 0.0);
        let resident = value("process_resident_memory_bytes");
        assert!(resident > 100_000.0, "{text}");
        assert!(value("process_virtual_memory_bytes") >= resident, "{text}");
        let open = value("process_open_fds");
        assert!(open >= 4.0 && open <= value("process_max_fds"), "{text}");
    }

    #[test]
    fn the_fields_behind_any_name_are_read() {
        let stat = "7 (a ) (b) S 1 7 7 0 -1 4194560 95 0 0 0 150 25 9 9 20 0 9 0 12345 8192000 \
             1500 18446744073709551615 1 1 0";
        let units = Units {
            ticks_a_second: 100.0,
            page: 4096,
        };
        let expected = Usage {
            cpu_seconds: 1.75,
            virtual_size: 8_192_000,
            resident: 1500 * 4096,
        };
        assert_eq!(usage(stat, &units), Some(expected));
        assert_eq!(usage("7 (x) S 1", &units), None);
    }

    #[test]
    fn the_limit_of_open_files_is_the_one_in_force() {
        let limits = |of_files: &str| {
            format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max processes             95000                95000                processes \n\
                 Max open files            {of_files} files     \n"
            )
        };
        assert_eq!(open_files_limit(&limits("1024   524288")), Some(1024));
        assert_eq!(open_files_limit(&limits("unlimited unlimited")), None);
        assert_eq!(open_files_limit(""), None);
    }
}
