//! The agent as a whole: two threads and what they share.
//!
//! The first thread runs tokio: the sources of objects, signals, HTTP, the files
//! that are published; none of it may wait for the kernel. The second, the
//! kernel thread ([`run_loop`]), owns the sockets to the kernel and reconciles.
//! Events of the sources go into the shared [`State`], which wakes the kernel
//! thread; it hands back its [`Progress`] after each reconcile, and what has to be
//! watched for policies, of which only the latest counts.
//!
//! Stopping leaves everything in the kernel as it is. If one of the two threads, or
//! a task of the first, ends by itself, the whole agent ends ([`crate::tasks`]).

use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::agent_socket::{self, AgentSocket};
use crate::config::Config;
use crate::reconcile::{EarlierRun, Outlets, Progress, Reconcilers};
use crate::serve::services::proxy_health::{self, KubeProxyRules};
use crate::serve::{http, services::health_checks};
use crate::sources::policy::PolicyWatches;
use crate::sources::{MAX_EVENTS, Sources, count::SourceCount};
use crate::tasks::Tasks;
use crate::{drop_log, other_agent, probe};
use crate::{kept_nodes::KeptNodes, publish::Publisher};
use crate::{run_loop, serve::metrics::Metrics, serve::status::StatusBoard, sources, state::State};
use tweed_core::atomic_file::make_folder;
use tweed_core::object::{Event, Object as _, node::Node};
use tweed_core::problem::Problem;
use tweed_core::{limits, regular_file};
use tweed_planner::policy::Wants;
use tweed_watch::{Scope, Source as _};

const THREAD_ENDED: &str =
    "the kernel thread has ended: please report what the log says before this";

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// `stop` was cancelled.
    Stopped,
    /// `--once`: everything is as planned.
    Converged,
    /// `--once`: not everything is as planned, because of these problems.
    NotConverged(Vec<Problem>),
}

/// Keeps this node's network as planned until `stop` is cancelled or, with
/// `--once`, makes it so once. `tasks` are those of the caller that must not end
/// before.
///
/// # Errors
/// The agent cannot run at all. What can be repaired while it runs is a [`Problem`] instead.
pub async fn run(
    config: Arc<Config>,
    sources: impl Sources,
    served: Arc<http::Sources>,
    mut tasks: Tasks,
    stop: CancellationToken,
) -> Result<Ending> {
    let (board, metrics) = (Arc::clone(&served.board), served.metrics.clone());
    let boot_id = regular_file::read_text(&config.boot_id_file, limits::LOCK)
        .with_context(|| format!("cannot read {}", config.boot_id_file.display()))?;
    make_folder(&config.run_dir)
        .with_context(|| format!("cannot make the folder {}", config.run_dir.display()))?;
    let boot_id = boot_id.trim();
    let mut publisher = Publisher::new(&config, boot_id.to_owned());
    Publisher::begin(&board);
    // A single run promises that the node converged to what the source says now,
    // and may run beside the node's agent, whose file it is.
    let kept = (!config.once).then(|| KeptNodes::new(&config, boot_id));
    let nodes = match &kept {
        Some(kept) => kept.load().await,
        None => Vec::new(),
    };
    let opened = State::new(&config, nodes).map(Arc::new);
    let state = opened.context("cannot open an event file descriptor")?;
    let earlier = EarlierRun {
        boot_id: boot_id.to_owned(),
        pod_mtu: publisher.last().mtu,
        // What a single run finds in force is not what it promises.
        was_ready: publisher.was_ready() && !config.once,
        served_services: publisher.has_served() && config.services.is_some() && !config.once,
    };
    let (wants, wanted) = watch::channel(Wants::default());
    let (health_checks, latest_checks) = watch::channel(Arc::default());
    let (kube_proxy, rules) = watch::channel(KubeProxyRules::default());
    let outlets = Outlets {
        wants,
        health_checks,
        kube_proxy,
    };
    if !config.once {
        take_sockets(&mut tasks, &config, &state, &served)?;
    }
    let checks = health_checks::Sources::new(latest_checks, &metrics, &board);
    serve_services(&mut tasks, &config, &state, checks, rules);
    let reconcilers = Reconcilers::open(
        &config,
        &state,
        &board,
        metrics.clone(),
        &earlier,
        outlets,
        stop.clone(),
    )
    .map_err(|error| anyhow!("{error}: the agent needs CAP_NET_ADMIN and Linux 5.10 or later"))?;

    let (sender, mut progress) = watch::channel(Progress::default());
    let thread = run_loop::start(reconcilers, Arc::clone(&state), Arc::clone(&board), sender)
        .context("cannot start the kernel thread")?;
    let (events, received) = mpsc::channel(MAX_EVENTS);
    let source = sources.source::<Node>(Scope::All);
    let _listening = metrics.listen_to(Node::KINDS, source.last_contact());
    tasks.spawn("the source of Nodes", source.run(events));
    let updating = update(received, Arc::clone(&state), kept, metrics.clone());
    tasks.spawn("the task that applies changes of Nodes", updating);
    watch_packets(&mut tasks, &config, &state, &served);
    watch_components(&mut tasks, sources, &config, &state, &metrics, wanted);

    let mut too_late = std::pin::pin!(too_late(&config));
    let ending = loop {
        tokio::select! {
            // The task that waits for signals ends too: that is no error.
            biased;
            () = stop.cancelled() => break Ok(Ending::Stopped),
            ended = tasks.ended() => break Err(anyhow!(
                "{ended}: the agent cannot go on without it; please report what the log says before this"
            )),
            () = &mut too_late => break Ok(not_converged(&board)),
            changed = progress.changed() => if changed.is_err() {
                break Err(anyhow!(THREAD_ENDED));
            },
        }
        let latest = progress.borrow_and_update().clone();
        publisher.set_services(latest.services);
        publisher.set_fast_path(latest.fast_path);
        let (network, nodes_known) = (latest.network.as_ref(), latest.nodes_known);
        let publish = publisher.publish(network, nodes_known, &board, &metrics);
        // A plugin that hangs is not waited for either.
        if stop.run_until_cancelled(publish).await.is_none() {
            continue;
        }
        if config.once && latest.sources_reported {
            let is_ready = board.status(Instant::now()).ready();
            let converged = is_ready.then_some(Ending::Converged);
            break Ok(converged.unwrap_or_else(|| not_converged(&board)));
        }
    };
    if !matches!(ending, Ok(Ending::Converged)) {
        // Nobody else will: a program `nft` that hangs is not waited for.
        stop.cancel();
    }
    state.stop();
    tasks.end().await;
    // The thread ends after the reconcile that it is in, and reports to the board
    // until then.
    let ended = tokio::task::spawn_blocking(move || thread.join()).await;
    match ended {
        Ok(Ok(())) => ending,
        _ => Err(anyhow!(THREAD_ENDED)),
    }
}

/// Ends when `--once` has had its time.
async fn too_late(config: &Config) {
    if !config.once {
        pending::<()>().await;
    }
    tokio::time::sleep(config.once_limit).await;
}

fn not_converged(board: &StatusBoard) -> Ending {
    Ending::NotConverged(board.status(Instant::now()).problems)
}

/// Opens the sockets that one agent of a node has: `agent.sock`, on which it is asked, and the
/// one by which others notice it.
fn take_sockets(
    tasks: &mut Tasks,
    config: &Config,
    state: &Arc<State>,
    served: &Arc<http::Sources>,
) -> Result<()> {
    let socket = AgentSocket::open(&config.run_dir)
        .with_context(|| format!("cannot make agent.sock in {}", config.run_dir.display()))?;
    let server = agent_socket::run(socket, Arc::clone(state), Arc::clone(served));
    tasks.spawn("the server of agent.sock", server);
    let watch = other_agent::watch(Arc::clone(&served.board));
    tasks.spawn("the watch for another agent", watch);
    Ok(())
}

/// Has `tasks` watch what the components of the table besides the overlay need.
fn watch_components(
    tasks: &mut Tasks,
    sources: impl Sources,
    config: &Config,
    state: &Arc<State>,
    metrics: &Metrics,
    wanted: watch::Receiver<Wants>,
) {
    if config.services.is_some() {
        sources::services::spawn(tasks, &sources, state, metrics);
    }
    if config.policy {
        let name = &config.overlay.node_name;
        let watches = PolicyWatches::new(sources, name, Arc::clone(state), metrics.clone());
        let watching = watches.run(wanted);
        tasks.spawn("the task that watches what policies need", watching);
    }
}

/// Has `tasks` log dropped packets and probe the other nodes, where that is wanted.
fn watch_packets(tasks: &mut Tasks, config: &Config, state: &Arc<State>, served: &http::Sources) {
    let (board, metrics) = (&served.board, &served.metrics);
    if config.policy_log && !config.once {
        let log = drop_log::run(Arc::clone(state), Arc::clone(board), metrics.clone());
        tasks.spawn("the task that logs dropped packets", log);
    }
    if config.probe_peers {
        let probing = probe::run(Arc::clone(state), Arc::clone(board), metrics.clone());
        tasks.spawn("the task that probes other nodes", probing);
    }
}

/// Has `tasks` answer load balancers and dashboards, if Services are served.
fn serve_services(
    tasks: &mut Tasks,
    config: &Config,
    state: &Arc<State>,
    health_checks: health_checks::Sources,
    kube_proxy: watch::Receiver<KubeProxyRules>,
) {
    if config.once || config.services.is_none() {
        return;
    }
    let addresses = http::Addresses {
        health: config.services_health_addr,
        metrics: config.services_metrics_addr,
    };
    let state = Arc::clone(state);
    let stays = move || {
        let nodes = &state.read().nodes;
        // One that is deleted is held, but no list has it. Before the first list the Node
        // counts as an earlier run knew it.
        let is_there = nodes.is_current() || !nodes.is_listed();
        is_there && nodes.own().is_some_and(|node| !node.leaving)
    };
    let sources = proxy_health::Sources {
        sync: Arc::clone(&health_checks.sync),
        board: Arc::clone(&health_checks.board),
        eligible: Box::new(stays),
        kube_proxy,
    };
    let server = proxy_health::run(addresses, sources);
    tasks.spawn("the server of kube-proxy's pages", server);
    let servers = health_checks::run(health_checks);
    tasks.spawn("the servers of health checks of Services", servers);
}

/// Applies the events of the source of Nodes.
async fn update(
    mut events: mpsc::Receiver<Event<Node>>,
    state: Arc<State>,
    mut kept: Option<KeptNodes>,
    metrics: Metrics,
) {
    let mut count = SourceCount::new(metrics);
    while let Some(event) = events.recv().await {
        count.note(&event);
        match &mut kept {
            Some(kept) => kept.update(&state, event).await,
            None => drop(state.update(event)),
        }
    }
}
