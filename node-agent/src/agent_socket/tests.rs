//! The server over a real socket; in place of the kernel thread, the tests answer.

use std::os::fd::AsFd as _;
use std::path::Path;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::task::spawn_blocking;
use tweed_component::explain::{Destination, End};
use tweed_core::agent_socket::client::{ClientError, Connection};
use tweed_core::agent_socket::path::AGENT_SOCKET;
use tweed_core::attachment::{ContainerId, IfName, NetworkName};

use super::*;
use crate::config;
use crate::serve::{metrics::Metrics, status::StatusBoard};
use tweed_component::message::Drift;

/// For a wait that a test expects to be ended by something else.
const LONG: Duration = Duration::from_secs(60);

struct Agent {
    run_dir: tempfile::TempDir,
    state: Arc<State>,
    server: tokio::task::JoinHandle<()>,
}

impl Agent {
    fn start() -> Self {
        let run_dir = tempfile::tempdir().unwrap();
        let config = config::of_line("--node-name alpha");
        let state = Arc::new(State::new(&config, Vec::new()).unwrap());
        let socket = AgentSocket::open(run_dir.path()).unwrap();
        let (registry, metrics) = Metrics::register();
        let route = ("10.244.2.0/24 dev tweed.1".to_owned(), 2);
        metrics.drift_repaired("route", &[route].into(), 2);
        let served = Arc::new(http::Sources {
            board: Arc::new(StatusBoard::new(Instant::now())),
            metrics,
            registries: vec![registry],
        });
        let server = tokio::spawn(run(socket, Arc::clone(&state), served));
        Self {
            run_dir,
            state,
            server,
        }
    }

    fn path(&self) -> &Path {
        self.run_dir.path()
    }

    /// What the client gets, which waits in a thread of its own.
    fn ask(&self, judge: Judge) -> tokio::task::JoinHandle<Result<plugin::Answer, ClientError>> {
        let run_dir = self.path().to_owned();
        spawn_blocking(move || {
            let connection = Connection::ask(&run_dir, &plugin::Request::Judge(judge))?;
            connection.answer(Instant::now() + LONG)
        })
    }

    /// Waits until the kernel thread would be woken, as it waits.
    async fn woken(&self) {
        let state = Arc::clone(&self.state);
        let woken = spawn_blocking(move || {
            let mut fds = [PollFd::new(state.as_fd(), PollFlags::POLLIN)];
            let woken = poll(&mut fds, PollTimeout::from(10_000_u16)).unwrap();
            state.acknowledge();
            woken
        });
        assert_eq!(woken.await.unwrap(), 1, "nobody woke the kernel thread");
    }

    /// Sends these bytes, and reads until the connection is closed.
    async fn raw(&self, bytes: &[u8]) -> String {
        let path = self.path().join(AGENT_SOCKET);
        let mut stream = UnixStream::connect(path).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut received = Vec::new();
        // A connection that is closed with unread bytes ends with an error.
        let _ = stream.read_to_end(&mut received).await;
        String::from_utf8(received).unwrap()
    }
}

fn judge(wait: Duration) -> Judge {
    Judge {
        network: NetworkName::new("tweed").unwrap(),
        container_id: ContainerId::new("c1").unwrap(),
        ifname: IfName::new("eth0").unwrap(),
        pod: None,
        addresses: vec!["10.244.1.5".parse().unwrap()],
        wait_ms: wait.as_millis().try_into().unwrap(),
    }
}

#[tokio::test]
async fn a_pod_is_answered_for_once_it_is_enforced() {
    let agent = Agent::start();
    for (verdict, expected) in [
        (Verdict::Enforced, plugin::Answer::Judged {}),
        (Verdict::NotInForce, plugin::Answer::NotInForce {}),
    ] {
        let answer = agent.ask(judge(LONG));
        agent.woken().await;
        agent.state.waiting_pods().take_up();
        let pending = Verdict::Pending("Pod default/a is not known".to_owned());
        agent.state.waiting_pods().answer(|_| pending.clone());
        agent.state.waiting_pods().answer(|_| verdict.clone());
        assert_eq!(answer.await.unwrap().unwrap(), expected);
    }
}

#[tokio::test]
async fn at_the_end_of_the_wait_the_reason_is_told() {
    let agent = Agent::start();
    let answer = agent.ask(judge(Duration::from_secs(2)));
    agent.woken().await;
    agent.state.waiting_pods().take_up();
    let reason = "Pod default/a is not known".to_owned();
    let pending = Verdict::Pending(reason.clone());
    agent.state.waiting_pods().answer(|_| pending.clone());
    assert_eq!(
        answer.await.unwrap().unwrap(),
        plugin::Answer::Pending { reason }
    );
}

#[tokio::test]
async fn a_kernel_thread_that_hangs_holds_nobody_longer_than_asked() {
    let agent = Agent::start();
    let asked = agent.ask(judge(Duration::from_millis(1)));
    let answer = asked.await.unwrap().unwrap();
    assert!(
        matches!(answer, plugin::Answer::Pending { .. }),
        "{answer:?}"
    );
}

#[tokio::test]
async fn many_pods_at_once_are_all_answered_for() {
    let agent = Agent::start();
    let answers: Vec<_> = (0..110).map(|_| agent.ask(judge(LONG))).collect();
    let settling = async {
        loop {
            agent.woken().await;
            agent.state.waiting_pods().take_up();
            agent.state.waiting_pods().answer(|_| Verdict::Enforced);
        }
    };
    let all = async {
        for answer in answers {
            assert_eq!(answer.await.unwrap().unwrap(), plugin::Answer::Judged {});
        }
    };
    tokio::select! {
        () = settling => unreachable!(),
        () = all => {}
    }
    // The thread that waits to be woken would hold up the end of the test.
    agent.state.stop();
}

fn why() -> Request {
    Request::Explain(Question::Why(Why {
        from: End::Address("10.244.1.5".parse().unwrap()),
        to: End::Address("10.244.1.6".parse().unwrap()),
        protocol: 6,
        port: Some(80),
    }))
}

/// While the kernel thread plans, questions wait: a bounded number, and no pod with them.
#[tokio::test]
async fn questions_are_bounded_and_no_pod_waits_for_them() {
    let agent = Agent::start();
    let (planning, plans) = tokio::sync::oneshot::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let kernel_thread = std::thread::spawn({
        let state = Arc::clone(&agent.state);
        move || {
            let _index = state.policy();
            planning.send(()).unwrap();
            ended.recv().unwrap();
        }
    });
    plans.await.unwrap();
    let line = why().to_line().unwrap();
    let too_many = "16 others ask at this moment: ask again";
    let mut asked: JoinSet<String> = JoinSet::new();
    let path = agent.path().join(AGENT_SOCKET);
    let connections = Shares::of_process().agent_socket_connections;
    for _ in 0..connections {
        let (path, line) = (path.clone(), line.clone());
        asked.spawn(async move {
            let mut stream = UnixStream::connect(path).await.unwrap();
            stream.write_all(&line).await.unwrap();
            let mut received = String::new();
            stream.read_to_string(&mut received).await.unwrap();
            received
        });
    }
    for _ in MAX_QUESTIONS..connections {
        let next = timeout(LONG, asked.join_next()).await.unwrap();
        let answer = next.unwrap().unwrap();
        assert!(answer.contains(too_many), "{answer}");
    }
    let answer = agent.ask(judge(LONG));
    agent.woken().await;
    agent.state.waiting_pods().take_up();
    agent.state.waiting_pods().answer(|_| Verdict::Enforced);
    assert_eq!(answer.await.unwrap().unwrap(), plugin::Answer::Judged {});
    assert_eq!(asked.len(), MAX_QUESTIONS);
    assert!(asked.try_join_next().is_none(), "they wait for the plan");
    end.send(()).unwrap();
    while let Some(answer) = asked.join_next().await {
        let answer = answer.unwrap();
        assert!(answer.contains("it is not known yet"), "{answer}");
    }
    kernel_thread.join().unwrap();
}

#[tokio::test]
async fn a_question_about_services_that_are_off_says_what_to_do() {
    let agent = Agent::start();
    let question = Request::Explain(Question::Where(Where {
        to: Destination::NodePort(30080, 6),
        from: None,
        all: false,
    }));
    let run_dir = agent.path().to_owned();
    let asked = spawn_blocking(move || {
        let connection = Connection::ask(&run_dir, &question)?;
        connection.answer(Instant::now() + LONG)
    });
    let Answer::Error { message } = asked.await.unwrap().unwrap() else {
        panic!("no error");
    };
    assert!(message.contains("--services on"), "{message}");
}

#[tokio::test]
async fn what_is_no_request_gets_an_error_that_says_why() {
    let agent = Agent::start();
    for (bytes, says) in [
        (b"GET / HTTP/1.1\r\n".to_vec(), "cannot be understood"),
        (
            b"{\"version\":1,\"later\":{}}\n".to_vec(),
            "cannot be understood",
        ),
        (b"{\"version\":2,\"judge\":{}}\n".to_vec(), "version 2"),
        (vec![b' '; 20_000], "more than 16384 bytes"),
    ] {
        let answer = agent.raw(&bytes).await;
        let error = Answer::from_received(answer.as_bytes()).unwrap();
        let Some(Answer::Error { message }) = error else {
            panic!("{answer}");
        };
        assert!(message.contains(says), "{message}");
    }
}

#[tokio::test]
async fn a_client_that_goes_is_forgotten_and_others_are_served() {
    let agent = Agent::start();
    let path = agent.path().join(AGENT_SOCKET);
    let idle = UnixStream::connect(&path).await.unwrap();
    let mut half = UnixStream::connect(&path).await.unwrap();
    half.write_all(b"{\"version\":1,").await.unwrap();
    let connection = Connection::ask(agent.path(), &Request::Judge(judge(LONG))).unwrap();
    agent.woken().await;
    drop(connection);
    let answer = agent.ask(judge(LONG));
    agent.woken().await;
    agent.state.waiting_pods().take_up();
    agent.state.waiting_pods().answer(|_| Verdict::Enforced);
    assert_eq!(answer.await.unwrap().unwrap(), plugin::Answer::Judged {});
    drop((idle, half));
}

#[tokio::test]
async fn a_socket_that_others_remove_or_replace_comes_back() {
    let agent = Agent::start();
    let path = agent.path().join(AGENT_SOCKET);
    let remove: fn(&Path) = |_| {};
    let replace: fn(&Path) = |path| std::fs::write(path, "").unwrap();
    let replace_by_socket: fn(&Path) =
        |path| drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    for harm in [remove, replace, replace_by_socket] {
        std::fs::remove_file(&path).unwrap();
        harm(&path);
        let answered = async {
            loop {
                let ask = agent.ask(judge(Duration::ZERO));
                match ask.await.unwrap() {
                    Ok(answer) => break answer,
                    Err(_) => sleep(Duration::from_millis(50)).await,
                }
            }
        };
        let answer = timeout(LONG, answered).await.unwrap();
        assert!(
            matches!(answer, plugin::Answer::Pending { .. }),
            "{answer:?}"
        );
    }
    agent.server.abort();
    assert!(agent.server.await.unwrap_err().is_cancelled());
    assert!(!path.exists());
}

#[tokio::test]
async fn it_stops_and_takes_its_socket_with_it() {
    let agent = Agent::start();
    agent.server.abort();
    assert!(agent.server.await.unwrap_err().is_cancelled());
    let refused = Connection::ask(agent.run_dir.path(), &Request::Judge(judge(LONG)));
    assert!(matches!(refused, Err(ClientError::NotRunning { .. })));
}

#[tokio::test]
async fn the_agent_says_what_is_wrong_and_what_it_put_back() {
    let agent = Agent::start();
    let told = agent.raw(b"{\"version\":1,\"status\":{}}\n").await;
    let read = Answer::from_received(told.as_bytes()).unwrap();
    let Some(Answer::Status(status)) = read else {
        panic!("{told}");
    };
    assert_eq!(status.version, VERSION);
    let kinds = status.problems.iter().map(|problem| problem.kind.as_str());
    assert_eq!(kinds.collect::<Vec<_>>(), ["starting"]);
    let drift = Drift {
        kind: "route".to_owned(),
        object: "10.244.2.0/24 dev tweed.1".to_owned(),
        count: 2,
    };
    assert_eq!(status.drift, [drift]);
    let told = agent.raw(b"{\"version\":1,\"metrics\":{}}\n").await;
    assert!(told.contains("tweed_drift_repaired_total"), "{told}");
}
