//! What people see of nodes in every state.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;

use tweed_core::agent_socket::message::Message as _;
use tweed_core::agent_socket::path::AGENT_SOCKET;

use super::*;

fn problem(kind: &str, effect: Effect, message: &str) -> Found {
    Found {
        kind: kind.to_owned(),
        object: "tweed.1".to_owned(),
        effect,
        message: message.to_owned(),
        cure: format!("mend {kind}"),
    }
}

fn report(node: &str, problems: Vec<Found>) -> Answered<Report> {
    let effect = problems.iter().map(|problem| problem.effect).max();
    let report = Report {
        node: node.to_owned(),
        ready: effect < Some(Effect::NewPods),
        affects_running: effect == Some(Effect::RunningPods),
        agent: Some("0.1.0 (abc)".to_owned()),
        mtu: Some(1450),
        pod_cidrs: vec!["10.244.1.0/24".to_owned()],
        ranges: vec![
            RangeUse {
                range: "10.244.1.0/24".to_owned(),
                used: 3,
                free: 250,
            },
            RangeUse {
                range: "fd00::/64".to_owned(),
                used: 3,
                free: u64::MAX,
            },
        ],
        peers: Some(Reached { answer: 2, all: 3 }),
        problems,
        more_problems: 0,
        notes: Vec::new(),
        drift: Vec::new(),
    };
    (node.to_owned(), Ok(report))
}

fn shown(answers: &[Answered<Report>], format: Format) -> String {
    let mut out = Vec::new();
    let mut page = Page::new(&mut out, format);
    Status { watch: false }.render(answers, &mut page).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn what_is_wrong_comes_first_and_each_problem_once() {
    let lost = || problem("vxlan-refused", Effect::RunningPods, "the kernel says no");
    let warning = problem("range-full", Effect::Warning, "all are in use");
    let gone = ("gone".to_owned(), Err(Unanswered::new("its agent is down")));
    let answers = [
        report("a", Vec::new()),
        report("b", vec![lost()]),
        report("c", vec![lost(), warning]),
        gone,
    ];
    let expected = "\
NODE  READY    AGENT        ADDRESSES  MTU   PEERS  PROBLEMS
gone  unknown  -            -          -     -      no answer
b     NO       0.1.0 (abc)  3/253,3    1450  2/3    1
c     NO       0.1.0 (abc)  3/253,3    1450  2/3    2
a     yes      0.1.0 (abc)  3/253,3    1450  2/3    -

no answer: its agent is down
  on gone

vxlan-refused: running pods are affected
  on b, c: the kernel says no (tweed.1)
  → mend vxlan-refused

range-full: warning
  on c: all are in use (tweed.1)
  → mend range-full
";
    assert_eq!(shown(&answers, Format::Table), expected);
    let status = Status { watch: false };
    assert_eq!(status.exit(&answers), Exit::Findings);
    assert_eq!(status.exit(&answers[..1]), Exit::Fine);
    let warning = problem("peer-silent", Effect::Warning, "it does not answer");
    assert_eq!(status.exit(&[report("d", vec![warning])]), Exit::Findings);
}

#[test]
fn a_note_is_shown_once_and_that_a_kind_is_absent_with_more_columns() {
    let mut answers = [report("a", Vec::new()), report("b", Vec::new())];
    for (_, report) in &mut answers {
        let notes = &mut report.as_mut().unwrap().notes;
        notes.push("it lacks it: there are no policies".to_owned());
        notes.push("loopback does not exist".to_owned());
    }
    let absent = "note on a, b: it lacks it: there are no policies\n";
    let other = "note on a, b: loopback does not exist\n";
    let table = shown(&answers, Format::Table);
    assert!(table.ends_with(other) && !table.contains(absent), "{table}");
    let wide = shown(&answers, Format::Wide);
    assert!(wide.contains(absent) && wide.ends_with(other), "{wide}");
}

/// What a node says whose agent does not run.
#[test]
fn an_agent_that_is_gone_has_left_its_last_word() {
    let run_dir = tempfile::tempdir().unwrap();
    let node = Node {
        run_dir: run_dir.path().to_owned(),
    };
    let error = Report::of(&node).unwrap_err().to_string();
    assert!(error.contains("agent.json"), "{error}");
    let text = r#"{"version":"0.1.0","node":"n1","ready":true,"affectsRunning":false,"reasons":[],
        "warnings":["the range is full"],"services":true,"mtu":1450,"podCIDRs":["10.244.1.0/24"]}"#;
    std::fs::write(run_dir.path().join(AGENT_STATE_FILE), text).unwrap();
    let report = Report::of(&node).unwrap();
    assert_eq!(
        (report.node.as_str(), report.agent, report.mtu),
        ("n1", None, Some(1450))
    );
    assert!(!report.ready);
    let texts: Vec<&str> = report
        .problems
        .iter()
        .map(|one| one.message.as_str())
        .collect();
    assert!(texts[0].contains("tweed-agent is not running"), "{texts:?}");
    assert_eq!(texts[1..], ["the range is full"]);
}

/// An agent of another version, or one that this user may not ask, runs all the same.
#[test]
fn an_agent_that_refuses_to_answer_is_not_silent() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"node":"n1","ready":true,"affectsRunning":false,"reasons":[]}"#;
    std::fs::write(folder.path().join(AGENT_STATE_FILE), text).unwrap();
    let listener = UnixListener::bind(folder.path().join(AGENT_SOCKET)).unwrap();
    let agent = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // What is closed with a request unread is reset, with the answer in it.
        BufReader::new(&stream)
            .read_line(&mut String::new())
            .unwrap();
        let message = "tweed-agent 0.0.9 does not understand the question".to_owned();
        let line = Answer::Error { message }.to_line().unwrap();
        stream.write_all(&line).unwrap();
    });
    let run_dir = folder.path().to_owned();
    let answer = Report::of(&Node { run_dir });
    agent.join().unwrap();
    let why = answer.clone().unwrap_err().to_string();
    assert!(why.contains("tweed-agent 0.0.9"), "{why}");
    let status = Status { watch: false };
    assert_eq!(status.exit(&[("n1".to_owned(), answer)]), Exit::Fine);
}
