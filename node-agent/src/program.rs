//! The program `tweed-agent`: from its flags to its exit.

use std::time::{Duration, Instant, SystemTime};
use std::{fmt::Write as _, io, path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};
use clap::CommandFactory as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tweed_core::atomic_file;
use tweed_core::instance_lock::{InstanceLock, InstanceLockError};
use tweed_core::problem::Effect;
use tweed_diagnosis::kernel_version as version;
use tweed_watch::client::ApiClient;

use crate::VERSION;
use crate::agent::{self, Ending};
use crate::config::{Config, Flags, MetricsAuth, SourceConfig, host_name, variables};
use crate::serve::{http, metrics::Metrics, process_metrics, review::Reviewer};
use crate::serve::{status::StatusBoard, tls::Identity, watchdog::Watchdog};
use crate::sources::{ManifestFile, Sources};
use crate::{descriptors, logging, memory, report::Recorder, tasks::Tasks};

/// How long to wait for an agent that is about to end: an upgrade may start the
/// new one before the old one has ended.
const HANDOVER: Duration = Duration::from_secs(10);
/// Maximum time for what threads of the runtime are still doing at the end: what waits
/// for the policies may do so for longer.
const LAST_WORK: Duration = Duration::from_secs(2);
/// Time between two looks whether the loop of the agent runs.
const LOOP_CHECK: Duration = Duration::from_secs(10);
/// Time between two attempts to take the lock of the instance.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// Runs until a signal or, with `--once`, until the node has converged.
///
/// # Errors
/// Flags that contradict each other; something that the agent needs is missing;
/// with `--once`, what kept the node from converging.
pub fn run(flags: Flags) -> Result<()> {
    memory::share_heap();
    let config = flags.resolve(host_name)?;
    let release = version::running().context("cannot read the kernel's version")?;
    version::require("tweed-agent", version::LEAST, &release)?;
    logging::start(config.log_format, &config.log_level)?;
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let variables: Vec<String> = names.collect();
    let known = variables::read_by(&Flags::command());
    for sentence in variables::unknown(variables.iter().map(String::as_str), &known) {
        tracing::warn!("{sentence}");
    }
    if let Err(error) = descriptors::raise_limit() {
        tracing::warn!(%error, "cannot raise the limit of open files; it stays as it is");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let ended = runtime.block_on(run_with(config));
    runtime.shutdown_timeout(LAST_WORK);
    ended
}

/// `error` and its causes on one line. A cause that an error already contains in
/// its own text is not repeated.
pub fn on_one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            // Writing to a String cannot fail.
            let _ = write!(line, ": {cause}");
        }
    }
    line
}

async fn run_with(config: Config) -> Result<()> {
    let mut tasks = Tasks::default();
    let stop = stopped_by_signals(&mut tasks).context("cannot listen to signals")?;
    tracing::info!(
        version = VERSION,
        node = config.overlay.node_name,
        "started"
    );
    let config = Arc::new(config);
    let ending = match &config.source {
        SourceConfig::File(path) => {
            let file = ManifestFile {
                path: path.clone(),
                own_node: config.overlay.node_name.clone(),
            };
            run_over(&config, file, None, tasks, stop).await?
        }
        SourceConfig::Kubernetes(access) => {
            let client = ApiClient::new(access.clone());
            run_over(&config, client.clone(), Some(client), tasks, stop).await?
        }
    };
    match ending {
        Ending::Stopped => tracing::info!("stopped; the network stays as it is"),
        Ending::Converged => tracing::info!("converged"),
        Ending::NotConverged(problems) => {
            // Without anything worse, what it waits for is a warning.
            let worst = problems
                .first()
                .map(|worst| worst.effect.min(Effect::NewPods));
            let decisive = problems
                .iter()
                .filter(|problem| Some(problem.effect) >= worst);
            let reasons: Vec<String> = decisive.map(ToString::to_string).collect();
            bail!("not converged: {}", reasons.join("; "));
        }
    }
    Ok(())
}

async fn run_over(
    config: &Arc<Config>,
    sources: impl Sources,
    client: Option<ApiClient>,
    mut tasks: Tasks,
    stop: CancellationToken,
) -> Result<Ending> {
    let board = Arc::new(StatusBoard::new(Instant::now()));
    // With --once it may run beside the agent of the node: both do the same, and
    // only that one listens on the ports.
    let _lock = if config.once {
        None
    } else {
        tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(Ending::Stopped),
            lock = take_lock(&config.run_dir, HANDOVER) => Some(lock?),
        }
    };
    let (registry, metrics) = Metrics::register();
    let of_services = config
        .services
        .as_ref()
        .map(|_| metrics.service_sync.registry());
    let served = Arc::new(http::Sources {
        board: Arc::clone(&board),
        registries: [registry, process_metrics::registry(SystemTime::now())]
            .into_iter()
            .chain(of_services)
            .collect(),
        metrics,
    });
    if !config.once {
        remove_drafts(config);
        let addresses = http::Addresses {
            metrics: config.metrics_addr,
            health: config.health_addr,
        };
        let guard = guard(config, client.as_ref(), &board)?;
        let server = http::run(addresses, Arc::clone(&served), guard);
        tasks.spawn("the HTTP server", server);
        let noticing = notice_loop(Arc::clone(&board));
        tasks.spawn("the task that notices a loop that has stopped", noticing);
        tasks.spawn("the task that gives memory back", memory::give_back());
        match Watchdog::asked_for(|name| std::env::var_os(name), std::process::id()) {
            Ok(None) => {}
            Ok(Some(watchdog)) => {
                let telling = watchdog.run(Arc::clone(&board));
                tasks.spawn("the task that tells systemd's watchdog", telling);
            }
            Err(error) => {
                tracing::warn!(%error, "NOTIFY_SOCKET cannot be used for systemd's watchdog");
            }
        }
        if let Some(client) = client {
            let recorder = Recorder::new(&config.overlay.node_name, client, Arc::clone(&board));
            tasks.spawn("the task that reports to Kubernetes", recorder.run());
        }
    }
    agent::run(Arc::clone(config), sources, served, tasks, stop).await
}

/// Has the board notice whether the agent's loop runs.
async fn notice_loop(board: Arc<StatusBoard>) {
    let mut looks = tokio::time::interval(LOOP_CHECK);
    loop {
        looks.tick().await;
        board.notice_loop(Instant::now());
    }
}

/// Removes what killed agents were writing: one that is killed again and again would
/// fill the folders. What cannot be removed does no harm, so that is only logged.
fn remove_drafts(config: &Config) {
    for folder in [&config.run_dir, &config.cni_conf_dir] {
        match atomic_file::remove_drafts(folder) {
            Ok(removed) => removed.iter().for_each(
                |draft| tracing::info!(path = %draft.display(), "draft of a killed agent removed"),
            ),
            Err(error) => tracing::warn!(
                folder = %folder.display(),
                %error,
                "cannot remove the drafts of killed agents"
            ),
        }
    }
}

/// What `--metrics-auth` asks for.
fn guard(
    config: &Config,
    client: Option<&ApiClient>,
    board: &Arc<StatusBoard>,
) -> Result<Option<http::Guard>> {
    let (MetricsAuth::TokenReview, Some(client)) = (config.metrics_auth, client) else {
        return Ok(None);
    };
    Ok(Some(http::Guard {
        identity: Identity::self_signed(&config.overlay.node_name)?,
        reviewer: Arc::new(Reviewer::new(client.clone(), Arc::clone(board))),
    }))
}

/// Takes the lock of the node's agent, and waits for an agent that is about to
/// end.
async fn take_lock(run_dir: &Path, patience: Duration) -> Result<InstanceLock> {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        match InstanceLock::take(run_dir) {
            Err(InstanceLockError::Taken { .. }) if tokio::time::Instant::now() < deadline => {
                tokio::time::sleep(LOCK_POLL).await;
            }
            Err(error @ InstanceLockError::Taken { .. }) => bail!(
                "{error}: stop it, or give this agent another --run-dir if it serves another node"
            ),
            other => return Ok(other?),
        }
    }
}

/// A token that SIGTERM or SIGINT cancels.
fn stopped_by_signals(tasks: &mut Tasks) -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let cancelled = stop.clone();
    tasks.spawn("the task that waits for signals", async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        cancelled.cancel();
    });
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the file: {0}")]
    struct NamesItsCause(#[source] io::Error);

    #[tokio::test]
    async fn a_second_agent_is_refused_and_one_that_ends_is_waited_for() {
        let run_dir = tempfile::tempdir().unwrap();
        let first = InstanceLock::take(run_dir.path()).unwrap();
        let second = take_lock(run_dir.path(), Duration::ZERO).await;
        let error = second.unwrap_err().to_string();
        assert!(error.contains("--run-dir"), "{error}");
        let (second, ()) = tokio::join!(take_lock(run_dir.path(), HANDOVER), async {
            tokio::task::yield_now().await;
            drop(first);
        });
        second.unwrap();
    }

    #[tokio::test]
    async fn a_signal_ends_the_wait_for_another_agent() {
        let run_dir = tempfile::tempdir().unwrap();
        let _other = InstanceLock::take(run_dir.path()).unwrap();
        let folder = run_dir.path().display();
        let line = format!("--node-name a --nodes /x --run-dir {folder}");
        let config = Arc::new(crate::config::of_line(&line));
        let file = ManifestFile {
            path: "/x".into(),
            own_node: "a".to_owned(),
        };
        let stop = CancellationToken::new();
        let run = run_over(&config, file, None, Tasks::default(), stop.clone());
        let (ending, ()) = tokio::join!(run, async {
            tokio::task::yield_now().await;
            stop.cancel();
        });
        assert_eq!(ending.unwrap(), Ending::Stopped);
    }

    #[test]
    fn each_cause_is_printed_once() {
        let cause = anyhow::Error::new(NamesItsCause(io::Error::other("disk on fire")));
        let error = cause.context("cannot start");
        let line = "cannot start: cannot read the file: disk on fire";
        assert_eq!(on_one_line(&error), line);
    }
}
