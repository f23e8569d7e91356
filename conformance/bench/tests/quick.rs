//! The bench at its smallest: it runs to its end, and its tables are well-formed and
//! whole. How fast anything was is not a test's business.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tweed_lab::{Programs, existing_labs, wait_until};

fn bench() -> Command {
    Command::new(Programs::find().unwrap().own("tweed-bench").unwrap())
}

/// Runs a verb with `arguments`, and gives its tables as rows of cells, each with
/// the heading that it stands under.
fn tables(verb: &str, arguments: &[&str]) -> Vec<(String, Vec<String>)> {
    let folder = tempfile::tempdir().unwrap();
    let output = bench()
        .args([verb, "--quick", "--out"])
        .arg(folder.path())
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let file = folder.path().join(format!("{verb}.md"));
    let text = std::fs::read_to_string(file).unwrap();
    assert!(!text.contains("NaN"), "{text}");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&text));
    let mut heading = String::new();
    let mut rows = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.clone_into(&mut heading);
        } else if let Some(cells) = line.strip_prefix('|') {
            let cells = cells.strip_suffix('|').unwrap_or_else(|| panic!("{line}"));
            let cells: Vec<String> = cells
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect();
            if cells.get(1).is_some_and(|cell| cell.starts_with("--")) {
                continue;
            }
            rows.push((heading.clone(), cells));
        }
    }
    rows
}

/// The rows under a heading, the first of which names the columns.
fn rows<'a>(tables: &'a [(String, Vec<String>)], heading: &str) -> Vec<&'a [String]> {
    let rows: Vec<&[String]> = tables
        .iter()
        .filter(|(own, _)| own == heading)
        .map(|(_, cells)| cells.as_slice())
        .collect();
    let columns = rows
        .first()
        .unwrap_or_else(|| panic!("no {heading} in {tables:?}"));
    for row in &rows {
        assert_eq!(row.len(), columns.len(), "{row:?}");
    }
    rows
}

/// The number that a cell begins with.
fn number(cell: &str) -> f64 {
    let end = cell.find([' ', ',']).unwrap_or(cell.len());
    cell[..end].parse().unwrap_or_else(|_| panic!("{cell}"))
}

/// Whether the cells of the row `what` are numbers. A time may be so short that it is
/// rounded to 0, for one of the processor counts in ticks; an amount may not.
fn are_measured(what: &str, cells: &[String]) -> bool {
    let is_amount = [", KiB", ", MiB", "/s", " a second"]
        .iter()
        .any(|unit| what.ends_with(unit));
    let mut numbers = cells.iter().map(|cell| number(cell));
    numbers.all(|number| number.is_finite() && (number > 0.0 || !is_amount))
}

/// The folder of the programs under test: another build of tweed, that is the same.
fn before() -> String {
    let agent = Programs::find().unwrap().own("tweed-agent").unwrap();
    agent.parent().unwrap().display().to_string()
}

#[test]
fn attach_measures_every_subject_and_now_beside_before() {
    let tables = tables("attach", &["--before", &before()]);
    let calls = rows(&tables, "ADD and DEL");
    let subjects = [
        "",
        "tweed",
        "before",
        "ptp + host-local",
        "flannel's chain",
        "floor",
    ];
    assert_eq!(
        calls[0]
            .iter()
            .map(|cell| cell.trim_matches('|').trim())
            .collect::<Vec<_>>(),
        subjects
    );
    // ADD and DEL, one and two at once, on an empty node and beside two pods.
    assert_eq!(calls.len(), 1 + 8);
    for row in &calls[1..] {
        assert!(are_measured(&row[0], &row[1..]), "{row:?}");
    }
    let footprint = rows(
        &tables,
        "Size and start of the plugin, and what a DEL leaves",
    );
    assert_eq!(footprint.len(), 1 + 4 + 2);
    for row in &footprint[1..] {
        // The floor is no plugin.
        assert!(are_measured(&row[0], &row[1..5]), "{row:?}");
        assert_eq!(row[5], "–", "{row:?}");
    }
    let pairs = rows(&tables, "Now beside before");
    assert_eq!(pairs.len(), 1 + 8 + 4 + 2);
    let size = pairs
        .iter()
        .find(|row| row[0] == "the program, KiB")
        .unwrap();
    assert_eq!(size[3], "1.00", "the same program");
}

#[test]
fn carry_measures_every_load_over_every_network_and_with_every_rule() {
    let tables = tables("carry", &[]);
    for (heading, columns) in [("From node to node", 7), ("On one node", 6)] {
        let loads = rows(&tables, heading);
        assert_eq!(loads[0].len(), columns);
        assert_eq!(loads.len(), 1 + 6, "rate and CPU of three loads");
        for row in &loads[1..] {
            // Requests take seconds, and are sent over one network only.
            let all = if row[0].contains("request") {
                2
            } else {
                columns
            };
            assert!(are_measured(&row[0], &row[1..all]), "{row:?}");
        }
    }
}

#[test]
fn converge_measures_every_agent_and_now_beside_before() {
    let tables = tables("converge", &["--before", &before()]);
    let nodes = rows(&tables, "40 Nodes");
    let has_peer = Programs::find().unwrap().tool("flanneld").is_ok();
    assert_eq!(nodes[0].len(), 4 + usize::from(has_peer));
    let named = |name: &str| {
        let row = nodes.iter().find(|row| row[0] == name);
        *row.unwrap_or_else(|| panic!("no {name} in {nodes:?}"))
    };
    for name in [
        "start to the last route, ms",
        "one Node's route, p50, ms",
        "one Node's route, p99, ms",
    ] {
        let row = named(name);
        assert!(are_measured(&row[0], &row[1..]), "{row:?}");
    }
    // By hand there is no agent.
    for name in [
        "CPU of the start, ms",
        "peak memory of the start, MiB",
        "CPU for a Node that joins and leaves, ms",
        "CPU of a heartbeat, ms",
    ] {
        let (hand, agents) = named(name).split_last().unwrap();
        assert_eq!(hand, "–", "{name}");
        assert!(are_measured(name, &agents[1..]), "{agents:?}");
    }
    // tweed alone.
    for name in [
        "start to the last route, JSON, ms",
        "peak memory of the start, JSON, MiB",
    ] {
        let row = named(name);
        assert!(are_measured(&row[0], &row[1..3]), "{row:?}");
    }
    assert_eq!(rows(&tables, "Now beside before").len(), nodes.len());
}

#[test]
fn scale_measures_every_size_and_counts_requests() {
    let tables = tables("scale", &[]);
    let sizes = ["", "3", "6", "9", "12", "15"];
    let work = rows(&tables, "By the number of Nodes");
    assert_eq!(work[0], sizes);
    assert_eq!(work.len(), 1 + 13);
    for row in &work[1..] {
        assert!(are_measured(&row[0], &row[1..]), "{row:?}");
    }
    let asked = rows(&tables, "What one agent asks its API server for");
    assert_eq!(asked[0], sizes);
    let named = |name: &str| {
        let row = asked.iter().find(|row| row[0] == name);
        *row.unwrap_or_else(|| panic!("no {name} in {asked:?}"))
    };
    // Fewer Nodes than a page holds, so everything is asked for once.
    for name in [
        "start: pages of the list of Nodes",
        "start: watches of Nodes",
    ] {
        assert!(
            named(name)[1..].iter().all(|cell| number(cell) == 1.0),
            "{asked:?}"
        );
    }
    for name in [
        "start: bytes of all answers, MB",
        "a minute: bytes of these, MB",
    ] {
        assert!(
            named(name)[1..].iter().all(|cell| number(cell) > 0.0),
            "{asked:?}"
        );
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (arguments, words) in [
        (
            ["carry", "--before", "/nowhere"],
            "the others measure one build",
        ),
        (
            ["attach", "--before", "/nowhere"],
            "--before: /nowhere/tweed",
        ),
    ] {
        let output = bench().args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(words), "{said}");
    }
}

/// What is left of the labs of a process: they have its number in their names.
fn left_by(pid: u32) -> Vec<String> {
    let start = format!("t{pid}-");
    let labs = existing_labs().unwrap().into_iter().map(|lab| lab.name);
    let namespaces = std::fs::read_dir("/run/netns").unwrap();
    let namespaces = namespaces.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    labs.chain(namespaces)
        .filter(|name| name.starts_with(&start))
        .chain(mounts_of(pid))
        .collect()
}

fn mounts_of(pid: u32) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = mounts
        .lines()
        .filter(|line| line.contains(&format!("/t{pid}-")));
    own.map(str::to_owned).collect()
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let mut child = bench().arg("attach").stderr(Stdio::null()).spawn().unwrap();
    let pid = child.id();
    // It keeps the plugins' state on a file system of its own.
    let limit = Duration::from_secs(60);
    let mounted = wait_until("the first node to be made", limit, || {
        match mounts_of(pid).is_empty() {
            true => Err("no mount".to_owned()),
            false => Ok(()),
        }
    });
    mounted.unwrap();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(left_by(pid), Vec::<String>::new());
}

#[test]
fn policies_are_loaded_changed_and_paid_for() {
    let tables = tables("policies", &[]);
    let mut engines = vec!["tweed"];
    if Programs::find().unwrap().tool("kube-router").is_ok() {
        engines.push("kube-router");
    }
    let everyone = [&engines[..], &["without policies"]].concat();
    for size in [
        "2 policies, 5 pods",
        "4 policies, 10 pods",
        "6 policies, 20 pods",
    ] {
        let rows = rows(&tables, size);
        let subjects = ["", "tweed", "kube-router", "without policies"];
        assert_eq!(rows[0], subjects);
        for (name, measured) in [
            ("start to in force, ms", &engines[..]),
            ("a peer goes, event to packet, p99, ms", &engines[..]),
            ("a policy comes, event to packet, p50, ms", &engines[..]),
            ("a new pod is open to all for, p50, ms", &engines[..]),
            ("peak memory, MiB", &engines[..]),
            ("packet of a new flow, ns", &everyone[..]),
            ("packet of a new flow ÷ without policies", &engines[..]),
            ("ADD, p99, ms", &["tweed", "without policies"]),
            ("ADD, p99 ÷ without policies", &["tweed"]),
        ] {
            let row = rows.iter().find(|row| row[0] == name);
            let row = row.unwrap_or_else(|| panic!("no {name} in {rows:?}"));
            for (subject, cell) in subjects.iter().zip(*row).skip(1) {
                match measured.contains(subject) {
                    true => assert!(are_measured(name, std::slice::from_ref(cell)), "{row:?}"),
                    false => assert_eq!(cell, "–", "{row:?}"),
                }
            }
        }
        // The rest is noise at this size, but it is there.
        let row = rows.iter().find(|row| row[0] == "kernel memory of it, MiB");
        assert!(number(&row.unwrap()[1]).is_finite());
    }
}

#[test]
fn services_are_loaded_changed_and_paid_for() {
    let tables = tables("services", &[]);
    let rows = rows(&tables, "1 Services");
    let column = |name: &str| {
        let column = rows[0].iter().position(|subject| subject == name);
        column.unwrap_or_else(|| panic!("no {name} in {:?}", rows[0]))
    };
    // kube-proxy is there only if the end-to-end tests have built it.
    let proxies = [column("tweed")];
    let everyone = ["tweed", "one DNAT rule", "without Services"].map(column);
    for (name, columns) in [
        ("start to the first packet, ms", &proxies[..]),
        ("an endpoint comes, event to packet, p50, ms", &proxies[..]),
        ("an endpoint goes, event to packet, p50, ms", &proxies[..]),
        (
            "an endpoint goes, with its UDP flows, event to packet, p50, ms",
            &proxies[..],
        ),
        ("packet of a new flow, ns", &everyone[..]),
        ("connections a second", &everyone[..]),
    ] {
        let row = rows.iter().find(|row| row[0] == name);
        let row = row.unwrap_or_else(|| panic!("no {name} in {rows:?}"));
        let cells: Vec<String> = columns.iter().map(|column| row[*column].clone()).collect();
        assert!(are_measured(name, &cells), "{row:?}");
    }
}
