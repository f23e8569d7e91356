//! The server of `agent.sock`: what programs on the node ask this agent
//! ([`tweed_core::agent_socket`]).
//!
//! [`AgentSocket::open`] makes the socket, [`run`] answers on it. Each connection is a task,
//! with one request and one answer; their number and the time of each are bounded. The
//! runtime's thread does not wait for the kernel here: a request for the kernel thread goes
//! into the shared [`State`], which wakes that thread.
//! Questions of people, which need what the kernel thread plans with, are answered one at a
//! time in a thread of their own ([`Questions`]): a pod that is added does not wait for them.
//! What they ask of the kernel, they ask while the kernel thread can plan.

mod listener;
mod services;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tweed_component::explain::{Explained, Question, Step, Where, Why};
use tweed_component::message::{AgentStatus, Answer, FastPathSwitch, Found, Request};
use tweed_core::agent_socket::message::{self as plugin, Judge, MAX_WAIT, Message, MessageError};
use tweed_core::object::node::Node;

use crate::VERSION;
use crate::descriptors::Shares;
use crate::enforce::Verdict;
use crate::serve::http;
use crate::state::State;

pub use listener::AgentSocket;

/// Maximum time until a client has sent its request, and has taken its answer: they
/// are on this machine.
const TRANSFER_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of questions of people that are being answered or wait for that.
const MAX_QUESTIONS: usize = 16;
/// Maximum number of problems in an answer: each of 5,000 Nodes may have one.
const MAX_PROBLEMS: usize = 100;
/// How often it is looked whether the socket is still in its place. Without it every ADD
/// would leave its pod isolated until the agent is started again.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long the kernel thread may take to switch the fast path until its state of before is
/// the answer, and how often it is looked for.
const SWITCH_LIMIT: Duration = Duration::from_secs(5);
const SWITCH_POLL: Duration = Duration::from_millis(20);
/// Pause after the kernel gave no connection: mostly it has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// The answer to a question about policies that are switched off.
const POLICY_OFF: &str = "policies are not enforced on this node: --policy off";
/// The same about probes.
const PROBES_OFF: &str = "other nodes are not asked whether they are reached: --probe-peers off";
/// The same about the fast path.
const FAST_PATH_OFF: &str = "this agent has no fast path: --fast-path off (docs/fast-path.md)";
/// The same about Services.
const SERVICES_OFF: &str = "Services are not served by this agent: --services off. Ask whoever \
    serves them, such as kube-proxy, or set --services on and take kube-proxy away";

/// Answers requests, for ever; dropped, it removes the socket. One that others have removed
/// or replaced is made anew.
pub async fn run(mut socket: AgentSocket, state: Arc<State>, served: Arc<http::Sources>) {
    // Others wait in the kernel's queue until one ends. A node has fewer pods that are
    // added at once, unless it has few descriptors.
    let connections = Shares::of_process().agent_socket_connections;
    let permits = Arc::new(Semaphore::new(connections));
    let questions = Questions::of(served);
    let mut not_made = None;
    let mut tasks = JoinSet::new();
    let mut checks = interval(CHECK_INTERVAL);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let accepted = async {
            // The semaphore is never closed.
            let permit = Arc::clone(&permits).acquire_owned().await.ok();
            (socket.accept().await, permit)
        };
        tokio::select! {
            _ = checks.tick() => put_back(&mut socket, &mut not_made),
            // Without this the set would grow with each connection.
            Some(_) = tasks.join_next() => {}
            (accepted, permit) = accepted => match accepted {
                Ok(stream) => {
                    let (state, questions) = (Arc::clone(&state), questions.clone());
                    tasks.spawn(async move {
                        serve(stream, &state, &questions).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection to agent.sock");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
}

/// Makes the socket anew if its path no longer leads to it. `not_made` is why that failed
/// the last time: it is logged once.
fn put_back(socket: &mut AgentSocket, not_made: &mut Option<String>) {
    if socket.is_in_place() {
        *not_made = None;
        return;
    }
    match socket.reopen() {
        Ok(new) => {
            tracing::warn!("agent.sock was removed or replaced: made anew");
            *socket = new;
            *not_made = None;
        }
        Err(error) => {
            let error = error.to_string();
            if not_made.as_ref() != Some(&error) {
                tracing::warn!(
                    error,
                    "agent.sock is gone and cannot be made anew: each new pod is isolated until the agent enforces the policies for it unasked; it is tried again every second"
                );
                *not_made = Some(error);
            }
        }
    }
}

/// What questions of people need: what the agent says of itself, and places.
#[derive(Debug, Clone)]
struct Questions {
    /// What the agent says of itself.
    served: Arc<http::Sources>,
    /// For each that is answered or waits.
    places: Arc<Semaphore>,
    /// For the one that is answered: it takes a thread of the runtime, and what the
    /// kernel thread plans with.
    turn: Arc<Semaphore>,
}

impl Questions {
    fn of(served: Arc<http::Sources>) -> Self {
        Self {
            served,
            places: Arc::new(Semaphore::new(MAX_QUESTIONS)),
            turn: Arc::new(Semaphore::new(1)),
        }
    }
}

/// Answers one request. A client that is gone needs no answer.
async fn serve(mut stream: UnixStream, state: &Arc<State>, questions: &Questions) {
    let request = timeout(TRANSFER_LIMIT, read(&mut stream)).await;
    let line = match request {
        Ok(Ok(Some(request))) => {
            tokio::select! {
                line = answer(request, state, questions) => line,
                () = closed(&mut stream) => return,
            }
        }
        Ok(Err(error)) => line(&failed(format!(
            "tweed-agent {VERSION} does not understand the question: {error}"
        ))),
        // It has closed the connection, or sends nothing.
        Ok(Ok(None)) | Err(_) => return,
    };
    let _ = timeout(TRANSFER_LIMIT, stream.write_all(&line)).await;
}

/// An answer as a line; empty if not even an error can be written.
fn line(answer: &impl Message) -> Vec<u8> {
    answer
        .to_line()
        .or_else(|error| failed(format!("the answer is {error}")).to_line())
        .unwrap_or_default()
}

/// Reads a request; none if the client has closed the connection before its end.
async fn read(stream: &mut UnixStream) -> Result<Option<Request>, MessageError> {
    let mut received = Vec::new();
    let mut piece = [0; 1024];
    loop {
        let length = match stream.read(&mut piece).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(length) => length,
        };
        received.extend(piece.iter().take(length));
        if let Some(request) = Request::from_received(&received)? {
            return Ok(Some(request));
        }
    }
}

/// Waits until the client closes the connection. What it sends meanwhile is ignored.
async fn closed(stream: &mut UnixStream) {
    let mut piece = [0; 256];
    while !matches!(stream.read(&mut piece).await, Ok(0) | Err(_)) {}
}

/// The answer to a request, as a line.
async fn answer(request: Request, state: &Arc<State>, questions: &Questions) -> Vec<u8> {
    match request {
        Request::Judge(judge) => line(&enforced(judge, state).await),
        Request::Explain(question) => line(&ask(state, questions, question).await),
        Request::Version {} => line(&Answer::Version(VERSION.to_owned())),
        Request::Peers {} => line(&peers(state)),
        Request::Drops {} => line(&drops(state).await),
        Request::FastPath { switch } => line(&fast_path(state, switch).await),
        Request::Status {} => line(&Answer::Status(status(&questions.served))),
        Request::Metrics {} => line(&match questions.served.metrics_text() {
            Ok(text) => Answer::Metrics(text),
            Err(error) => failed(error),
        }),
    }
}

/// What the agent says of itself.
fn status(served: &http::Sources) -> AgentStatus {
    let status = served.board.status(Instant::now());
    let details = &served.metrics.details;
    let more_problems = status.problems.len().saturating_sub(MAX_PROBLEMS);
    let problems = status.problems.into_iter().take(MAX_PROBLEMS);
    AgentStatus {
        version: VERSION.to_owned(),
        problems: problems.map(Found::from).collect(),
        more_problems,
        notes: status.notes,
        drift: details.drift(),
        ranges: details.ranges(),
    }
}

/// Answers a question of people. It waits for other questions, and for a plan that is being
/// made.
async fn ask(state: &Arc<State>, questions: &Questions, question: Question) -> Answer {
    let Ok(place) = Arc::clone(&questions.places).try_acquire_owned() else {
        return failed(format!(
            "{MAX_QUESTIONS} others ask at this moment: ask again"
        ));
    };
    // The semaphore is never closed.
    let turn = Arc::clone(&questions.turn).acquire_owned().await.ok();
    let explained = state.in_thread(move |state| {
        // Kept until the thread has ended, even if the client has gone meanwhile.
        let _places = (place, turn);
        match question {
            Question::Why(why) => explain_policy(state, &why).map(Answer::Why),
            Question::Where(asked) => explain_services(state, &asked).map(Answer::Where),
        }
    });
    explained.await.unwrap_or_else(failed)
}

/// What other nodes answer to probes.
fn peers(state: &State) -> Answer {
    let peers = state.peers().map(Answer::Peers);
    peers.unwrap_or_else(|| failed(PROBES_OFF))
}

/// What the tables have counted: the kernel is asked, in a thread that may wait.
async fn drops(state: &Arc<State>) -> Answer {
    let dropped = state.in_thread(|_| tweed_nft::dropped()).await;
    dropped.map_or_else(failed, Answer::Drops)
}

/// Switches the fast path, and gives how it is when the kernel thread has done so.
async fn fast_path(state: &State, switch: Option<FastPathSwitch>) -> Answer {
    let switches = state.fast_path();
    if switches.state().is_none() {
        return failed(FAST_PATH_OFF);
    }
    if let Some(switch) = switch {
        switches.switch(switch, Instant::now());
        state.wake();
    }
    let is_done = || {
        let is_paused = switches.pause(Instant::now()).is_some();
        let now = switches.state().is_some_and(|state| state.paused);
        switch.is_none() || is_paused == now
    };
    let until = Instant::now() + SWITCH_LIMIT;
    while !is_done() && Instant::now() < until {
        sleep(SWITCH_POLL).await;
    }
    switches
        .state()
        .map_or_else(|| failed(FAST_PATH_OFF), Answer::FastPath)
}

fn failed(message: impl ToString) -> Answer {
    let message = message.to_string();
    Answer::Error { message }
}

/// Why policies allow or deny a flow; or why that cannot be said.
fn explain_policy(state: &State, why: &Why) -> Result<Explained, String> {
    let index = state.policy().ok_or(POLICY_OFF)?;
    let mut explained = { index.planner.explain(why) }.map_err(|error| error.to_string())?;
    let unreadable = index.unreadable();
    let notes = unreadable.map(|(_, problem)| Step::note(problem.message));
    explained.notes.extend(notes);
    Ok(explained)
}

/// Where new connections to a destination go; or why that cannot be said.
fn explain_services(state: &State, asked: &Where) -> Result<Vec<Step>, String> {
    let nodes: Vec<Node> = state.read().nodes.nodes().cloned().collect();
    let answer = services::answer(state, &nodes, asked);
    let steps = answer.map_err(|error| error.to_string())?;
    Ok(steps.ok_or(SERVICES_OFF)?)
}

/// Waits until the kernel thread has enforced the pod, at most as long as the client does.
async fn enforced(judge: Judge, state: &State) -> plugin::Answer {
    let wait = Duration::from_millis(judge.wait_ms).min(MAX_WAIT);
    let mut verdict = state.enforce(judge);
    let settled = verdict.wait_for(|verdict| !matches!(verdict, Verdict::Pending(_)));
    // At the end of the time, or if the kernel thread has ended, the last one counts.
    let _ = timeout(wait, settled).await;
    match verdict.borrow().clone() {
        Verdict::Enforced => plugin::Answer::Judged {},
        Verdict::NotInForce => plugin::Answer::NotInForce {},
        Verdict::Pending(reason) => plugin::Answer::Pending { reason },
    }
}

#[cfg(test)]
mod tests;
