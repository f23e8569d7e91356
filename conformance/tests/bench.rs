//! The bench at its smallest: it runs to its end, and what it writes is
//! well-formed. How fast anything was is none of a test's business.

use std::process::Command;

use serde_json::Value;
use tweed_lab::Programs;

const SUBJECTS: [&str; 7] = [
    "tweed",
    "ptp + host-local",
    "bridge + host-local",
    "macvlan + host-local",
    "flannel's chain",
    "floor",
    "floor, waiting",
];

#[test]
fn a_smoke_run_measures_every_subject_and_writes_all_three_files() {
    let folder = tempfile::tempdir().unwrap();
    let program = Programs::find().unwrap().own("tweed-bench").unwrap();
    let output = Command::new(program)
        .args(["--smoke", "attach", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();

    let json: Value = serde_json::from_str(&read("attach.json")).unwrap();
    let cells = json["cells"].as_array().unwrap();
    // ADD and DEL, one and two at once, on an empty node and beside two pods.
    assert_eq!(cells.len(), 8, "{json:#}");
    for cell in cells {
        let measured = cell["measured"].as_array().unwrap();
        let names: Vec<&str> = measured
            .iter()
            .map(|one| one["subject"].as_str().unwrap())
            .collect();
        assert_eq!(names, SUBJECTS);
        for one in measured {
            for number in [&one["ms"]["median"], &one["times_tweed"]["median"]] {
                assert!(number.as_f64().unwrap() > 0.0, "{one}");
            }
        }
    }
    assert_eq!(json["churn"].as_array().unwrap().len(), 6);
    assert_eq!(json["footprints"].as_array().unwrap().len(), 5);

    let markdown = read("attach.md");
    for line in markdown.lines().filter(|line| line.starts_with('|')) {
        assert!(line.ends_with('|'), "a row without an end: {line}");
    }
    for subject in SUBJECTS {
        let row = format!("| {subject} | ");
        assert!(markdown.contains(&row), "no {row} in {markdown}");
    }
    let svg = read("attach.svg");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("NaN"), "{svg}");
    assert_eq!(svg.matches("<rect class=").count(), 8 * SUBJECTS.len());
}

/// From node to node, then on one node.
const CARRIERS: [&[&str]; 2] = [
    &[
        "no overlay, node to node",
        "hand-made VXLAN",
        "tweed",
        "tweed, again",
        "tweed, direct routes",
        "tweed, only masquerading",
        "tweed, no table",
        "tweed, no table, no conntrack",
        "tweed, crowded",
        "tweed, crowded, no table",
    ],
    &[
        "tweed",
        "tweed, again",
        "tweed, only masquerading",
        "tweed, no table",
        "tweed, no table, no conntrack",
        "hand-made, its bridge",
        "ptp",
        "bridge, no rules",
    ],
];

#[test]
fn a_smoke_run_carries_every_load_over_every_network() {
    let folder = tempfile::tempdir().unwrap();
    let program = Programs::find().unwrap().own("tweed-bench").unwrap();
    let output = Command::new(program)
        .args(["--smoke", "carry", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();

    let json: Value = serde_json::from_str(&read("carry.json")).unwrap();
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 12, "six loads at two places: {json:#}");
    for (cell, names) in cells
        .iter()
        .zip([[CARRIERS[0]; 6], [CARRIERS[1]; 6]].concat())
    {
        let rows = cell["rows"].as_array().unwrap();
        let subjects: Vec<&str> = rows
            .iter()
            .map(|row| row["subject"].as_str().unwrap())
            .collect();
        assert_eq!(subjects, names);
        for number in rows.iter().flat_map(|row| [&row["rate"], &row["cpu_us"]]) {
            assert!(number["median"].as_f64().unwrap() > 0.0, "{cell:#}");
        }
    }
    // Against the hand-made overlay, a table that only masquerades and none; on
    // one node ptp too.
    assert_eq!(json["aims"].as_array().unwrap().len(), 6 * 3 + 6 * 4);

    let markdown = read("carry.md");
    for name in CARRIERS.concat() {
        assert!(markdown.contains(&format!("| {name} | ")), "no row {name}");
    }
    let svg = read("carry.svg");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("NaN"), "{svg}");
    let bars = 6 * CARRIERS.concat().len();
    assert_eq!(svg.matches("<rect class=").count(), bars);
}

#[test]
fn a_smoke_run_prices_the_table_and_its_hooks() {
    let folder = tempfile::tempdir().unwrap();
    let program = Programs::find().unwrap().own("tweed-bench").unwrap();
    let output = Command::new(program)
        .args(["--smoke", "carry", "--price", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();

    let json: Value = serde_json::from_str(&read("carry-price.json")).unwrap();
    let rows = json.as_array().unwrap();
    assert_eq!(rows.len(), 6, "{json:#}");
    let markdown = read("carry-price.md");
    for row in rows {
        let rules = row["rules"].as_str().unwrap();
        assert!(markdown.contains(&format!("| {rules} | ")), "{markdown}");
        let cells = row["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 6, "three loads at two places: {row:#}");
        for cell in cells {
            assert!(cell["us"]["median"].as_f64().unwrap() > 0.0, "{row:#}");
        }
    }
}

#[test]
fn a_smoke_run_converges_over_every_source() {
    let folder = tempfile::tempdir().unwrap();
    let program = Programs::find().unwrap().own("tweed-bench").unwrap();
    let output = Command::new(program)
        .args(["--smoke", "converge", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();

    let json: Value = serde_json::from_str(&read("converge.json")).unwrap();
    let peer = Programs::find().unwrap().tool("flanneld").is_ok();
    let mut sources = vec!["API server, protobuf", "API server, JSON", "file"];
    sources.extend(peer.then_some("flanneld, API server"));
    let agents = 1 + usize::from(peer);
    let starts = json["starts"].as_array().unwrap();
    let named: Vec<&str> = starts
        .iter()
        .map(|start| start["source"].as_str().unwrap())
        .collect();
    assert_eq!(named, sources);
    for start in starts {
        for number in ["to_last_route_ms", "peak_mib", "route_times_tweed"] {
            assert!(start[number]["median"].as_f64().unwrap() > 0.0, "{start}");
        }
        // flannel's says that it is ready before it makes any route.
        let is_told = start["to_ready_ms"]["median"].as_f64().is_some();
        assert_eq!(is_told, start["who"] == "tweed", "{start}");
    }
    // By hand, and from each source.
    let writes = json["writes"].as_array().unwrap();
    assert_eq!(writes.len(), 1 + sources.len());
    let latencies = json["latencies"].as_array().unwrap();
    // Of each agent, and by hand.
    assert_eq!(latencies.len(), 2 * (agents + 1));
    for latency in latencies {
        assert_eq!(latency["samples"], 3);
        assert!(latency["p50_ms"].as_f64().unwrap() > 0.0, "{latency}");
    }
    for part in ["heartbeats", "idle"] {
        assert_eq!(json[part].as_array().unwrap().len(), agents, "{json:#}");
    }
    assert_eq!(json["heartbeats"][0]["count"], 20);
    assert!(
        json["idle"][0]["wakes_a_second"].as_f64().is_some(),
        "{json:#}"
    );

    let markdown = read("converge.md");
    for line in markdown.lines().filter(|line| line.starts_with('|')) {
        assert!(line.ends_with('|'), "a row without an end: {line}");
    }
    for source in sources {
        assert!(markdown.contains(&format!("| {source} | ")), "{markdown}");
    }
    let svg = read("converge.svg");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("NaN"), "{svg}");
}
