//! What doctors say of nodes that do not fit together.

use serde_json::json;

use super::*;
use crate::cluster::Place;
use crate::output::Format;

fn place(node: &str, cidrs: &[&str]) -> Place {
    Place {
        node: node.to_owned(),
        unready: None,
        agent: None,
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).to_owned()).collect(),
    }
}

fn report(version: &str, time_ms: u64) -> Report {
    Report {
        agent: Some(version.to_owned()),
        time_ms,
        ..Report::default()
    }
}

fn answers(reports: Vec<(&str, Report)>) -> Vec<Answered<Report>> {
    reports
        .into_iter()
        .map(|(node, report)| (node.to_owned(), Ok(report)))
        .collect()
}

fn shown(answers: &[Answered<Report>]) -> String {
    let mut out = Vec::new();
    let mut page = Page::new(&mut out, Format::Table);
    Doctor {}.render(answers, &mut page).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn nodes_that_do_not_fit_together_are_named() {
    let places = [
        place("a", &["10.244.0.0/23", "fd00:0:0:1::/64"]),
        place("b", &["10.244.2.0/24", "fd00:0:0:2::/64"]),
        place("c", &["10.244.1.0/24", "fd00:0:0:2::/64"]),
    ];
    let answers = answers(vec![
        ("a", report("0.1.0 (x)", 10_500)),
        ("b", report("0.1.0 (y)", 5000)),
        ("c", report("0.1.0 (x)", 14_000)),
    ]);
    let found = compare::findings(&places, &answers, 10_000..=11_000);
    let texts: Vec<&str> = found
        .iter()
        .map(|finding| finding.message.as_str())
        .collect();
    let expected = [
        "pod CIDRs overlap: 10.244.0.0/23 of Node a, and 10.244.1.0/24 of Node c",
        "pod CIDRs overlap: fd00:0:0:2::/64 of Node b, and fd00:0:0:2::/64 of Node c",
        "agents are of different versions: 0.1.0 (x) on a, c; 0.1.0 (y) on b",
        "clocks differ from this machine's: b is 5 s behind, c is 3 s ahead",
    ];
    assert_eq!(texts, expected);
    assert_eq!(
        compare::findings(&places[..2], &answers[..1], 10_000..=11_000),
        []
    );
}

#[test]
fn each_finding_is_shown_once_and_what_was_not_checked_is_told() {
    let checked = json!({ "result": "warning", "findings": [
        { "check": "kernel", "level": "ok", "message": "Linux 6.18" },
        { "check": "mtu", "kind": "mtu-too-big", "level": "warning", "message": "eth0 is small", "cure": "mend it" },
        { "check": "kernel", "kind": "check-incomplete", "level": "warning", "message": "no namespace", "cure": "run it as root" },
        { "check": "manager", "level": "ok", "message": "none runs" },
    ] });
    let Checked { findings } = serde_json::from_value(checked).unwrap();
    let mut one = report("0.1.0", 0);
    one.add(findings, true);
    let mut other = one.clone();
    other.drift = vec![Drift {
        kind: "route".to_owned(),
        object: "10.244.2.0/24 dev tweed.1".to_owned(),
        count: 7,
    }];
    other.findings.extend(of_others(
        ["lo", "flannel.1", "cni0"]
            .map(ToOwned::to_owned)
            .into_iter(),
    ));
    let answers = answers(vec![("a", one), ("b", other)]);
    let expected = "\
warning: leftover on b: another network has links here: cni0 and 1 more
  → if that network is gone, delete them (ip link delete NAME), or reboot the node
warning: mtu on a, b: eth0 is small
  → mend it
warning: drift on b: route 10.244.2.0/24 dev tweed.1: something else changed it, put back 7 times
not checked on a, b: kernel: no namespace
not checked on a, b: manager: a container does not see the host's files and programs
errors: 0, warnings: 3, not checked: 2
";
    assert_eq!(shown(&answers), expected);
    assert_eq!(Doctor {}.exit(&answers), Exit::Findings);
    assert_eq!(
        Doctor {}.exit(&[(String::new(), Ok(report("1", 0)))]),
        Exit::Fine
    );
}

#[test]
fn what_could_not_be_looked_at_is_never_fine() {
    let run_dir = tempfile::tempdir().unwrap();
    let node = Node {
        run_dir: run_dir.path().to_owned(),
    };
    let mut here = Doctor {}.local(&node).unwrap();
    here.findings.clear();
    let agent = |text: &String| text.starts_with("the agent: ");
    assert!(here.not_checked.iter().any(agent), "{:?}", here.not_checked);
    let exit = Doctor {}.exit(&[(String::new(), Ok(here))]);
    assert_eq!(exit, Exit::Undetermined);
    // What a container never sees is known beforehand.
    let manager = Finding {
        level: Level::Ok,
        ..Finding::warning("manager", "none runs".to_owned(), "")
    };
    let mut inside = report("1", 0);
    inside.add(vec![manager], true);
    assert_eq!(inside.not_checked.len(), 1);
    assert_eq!(Doctor {}.exit(&[("a".to_owned(), Ok(inside))]), Exit::Fine);
}
