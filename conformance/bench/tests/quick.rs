//! The bench at its smallest: it runs to its end, and its tables are well-formed and
//! whole. How fast anything was is not a test's business.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::collections::BTreeMap;
use std::process::Command;

use tweed_lab::Programs;

fn bench() -> Command {
    Command::new(Programs::find().unwrap().own("tweed-bench").unwrap())
}

/// A table of Markdown: the names of its columns, and each row's name and cells.
struct Table {
    columns: Vec<String>,
    rows: Vec<(String, Vec<String>)>,
}

/// Runs a verb with `arguments`, and gives its tables by their headings.
fn tables(verb: &str, arguments: &[&str]) -> BTreeMap<String, Table> {
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
    let parts = text.split("\n## ").skip(1);
    let table = |part: &str| {
        let (heading, table) = part.split_once('\n').unwrap();
        (heading.to_owned(), Table::read(table))
    };
    parts.map(table).collect()
}

impl Table {
    fn read(text: &str) -> Self {
        let lines = text.lines().filter_map(|line| line.strip_prefix("| "));
        let mut read = lines.map(|line| {
            let padded = line.strip_suffix(" |").unwrap().split(" | ");
            let mut cells = padded.map(|cell| cell.trim_matches(['|', ' ']).to_owned());
            (cells.next().unwrap(), cells.collect::<Vec<_>>())
        });
        // The first cell of the head is empty: `| | tweed | …`.
        let (first, others) = read.next().unwrap();
        let columns = [vec![first], others].concat();
        let rows: Vec<_> = read.collect();
        for (name, cells) in &rows {
            assert_eq!(cells.len(), columns.len(), "{name}: {cells:?}");
        }
        Self { columns, rows }
    }

    /// The cells of a row, in the order of the columns.
    fn row(&self, name: &str) -> &[String] {
        let row = self.rows.iter().find(|(own, _)| own == name);
        let (_, cells) = row.unwrap_or_else(|| panic!("no {name} in {:?}", self.rows));
        cells
    }

    /// Asserts that these rows have numbers in these columns and in no other ones. A time may
    /// be so short that it is rounded to 0, for one of the processor counts in ticks; an amount
    /// may not.
    #[track_caller]
    fn assert_measured(&self, rows: &[&str], columns: &[&str]) {
        for name in rows {
            let is_amount = name.ends_with(", KiB") || name.ends_with(", MiB");
            for (column, cell) in self.columns.iter().zip(self.row(name)) {
                if columns.contains(&column.as_str()) {
                    let number = number(cell);
                    assert!(number.is_finite(), "{name}, {column}: {cell}");
                    assert!(number > 0.0 || !is_amount, "{name}, {column}: {cell}");
                } else {
                    assert_eq!(cell, "–", "{name}, {column}");
                }
            }
        }
    }

    /// Asserts that every row has numbers in every column.
    #[track_caller]
    fn assert_whole(&self, rows: usize, columns: &[&str]) {
        assert_eq!(self.columns, columns);
        assert_eq!(self.rows.len(), rows, "{:?}", self.rows);
        let names: Vec<&str> = self.rows.iter().map(|(name, _)| name.as_str()).collect();
        self.assert_measured(&names, columns);
    }
}

/// The number that a cell begins with.
fn number(cell: &str) -> f64 {
    let end = cell.find([' ', ',']).unwrap_or(cell.len());
    cell[..end].parse().unwrap_or_else(|_| panic!("{cell}"))
}

/// The folder of the programs under test: another build of tweed, that is the same.
fn before() -> String {
    let agent = Programs::find().unwrap().own("tweed-agent").unwrap();
    agent.parent().unwrap().display().to_string()
}

#[test]
fn attach_measures_every_subject_and_another_build() {
    let tables = tables("attach", &["--before", &before()]);
    let subjects = ["tweed", "before", "ptp + host-local", "flannel's chain"];
    // ADD and DEL, one and two at once, on an empty node and beside two pods.
    tables["ADD and DEL"].assert_whole(8, &subjects);
    let footprint = &tables["Size and start of the plugin, and what a DEL leaves"];
    footprint.assert_whole(4 + 2, &subjects);
    let size = &footprint.row("the program, KiB")[1];
    assert!(size.ends_with("× 1.00"), "the same program: {size}");
}

#[test]
fn carry_measures_every_load_over_every_network() {
    let tables = tables("carry", &[]);
    let across = ["tweed", "VXLAN made by hand", "no overlay, node to node"];
    for (heading, columns) in [
        ("From node to node", &across[..]),
        ("On one node", &["tweed", "ptp, no rules"]),
    ] {
        let loads = &tables[heading];
        assert_eq!(loads.columns, columns);
        assert_eq!(loads.rows.len(), 3, "loads");
        for (name, _) in &loads.rows {
            // Requests take seconds, and are sent over one network only.
            let is_request = name.contains("request");
            loads.assert_measured(&[name], if is_request { &columns[..1] } else { columns });
        }
    }
}

#[test]
fn converge_measures_every_agent_and_memory_grows_little_with_nodes() {
    let tables = tables("converge", &["--before", &before()]);
    let mut agents = vec!["tweed", "before"];
    if Programs::find().unwrap().tool("flanneld").is_ok() {
        agents.push("flanneld");
    }
    for heading in ["40 Nodes", "1000 Nodes"] {
        let nodes = &tables[heading];
        assert_eq!(nodes.columns, agents);
        let of_all = [
            "start to the last route, ms",
            "CPU of the start, ms",
            "peak memory of the start, MiB",
            "one Node's route, p50, ms",
            "one Node's route, p99, ms",
            "CPU for a Node that joins and leaves, ms",
            "CPU of a heartbeat, ms",
            "peak memory of a restart, MiB",
        ];
        nodes.assert_measured(&of_all, &agents);
        let of_tweed = [
            "start to the last route, JSON, ms",
            "peak memory of the start, JSON, MiB",
        ];
        nodes.assert_measured(&of_tweed, &agents[..2]);
        assert_eq!(nodes.rows.len(), of_all.len() + of_tweed.len());
    }
    // Unlike times it depends neither on the machine nor on what else runs. The programs
    // themselves are in both. Labels of Nodes kept as maps would be too much.
    for (name, limit) in [
        ("peak memory of the start, MiB", 8.0),
        ("peak memory of a restart, MiB", 11.0),
    ] {
        let [few, many] = ["40 Nodes", "1000 Nodes"].map(|of| number(&tables[of].row(name)[0]));
        let grown = many - few;
        assert!(grown < limit, "{name}: {grown} more with 1,000 Nodes");
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

#[test]
fn policies_are_loaded_changed_and_paid_for() {
    let tables = tables("policies", &[]);
    let mut engines = vec!["tweed"];
    if Programs::find().unwrap().tool("kube-router").is_ok() {
        engines.push("kube-router");
    }
    let everyone = [&engines[..], &["without policies"]].concat();
    assert_eq!(tables.len(), 3, "sizes");
    for table in tables.values() {
        assert_eq!(table.columns, ["tweed", "kube-router", "without policies"]);
        let of_engines = [
            "start to in force, ms",
            "a peer comes, event to packet, p99, ms",
            "a policy comes, event to packet, p50, ms",
            "a new pod is open to all for, p50, ms",
            "peak memory, MiB",
        ];
        table.assert_measured(&of_engines, &engines);
        table.assert_measured(&["packet of a new flow, ns"], &everyone);
        let adds = ["ADD, p99, ms", "ADD of a new workload, p50, ms"];
        table.assert_measured(&adds, &["tweed", "without policies"]);
    }
}

#[test]
fn services_are_loaded_changed_and_paid_for() {
    let tables = tables("services", &[]);
    let table = &tables["2 Services"];
    // kube-proxy is left out above the smallest size.
    let of_tweed = [
        "start to the first packet, ms",
        "an endpoint comes, event to packet, p50, ms",
        "an endpoint goes, event to packet, p50, ms",
        "an endpoint goes, with its UDP flows, event to packet, p50, ms",
        "peak memory, MiB",
    ];
    table.assert_measured(&of_tweed, &["tweed"]);
    let packets = [
        "packet of a new flow, ns",
        "packet of an established flow, ns",
    ];
    table.assert_measured(&packets, &["tweed", "without Services"]);
}

#[test]
fn waits_for_a_tenant_are_measured_and_what_it_had_is_given_back() {
    let tables = tables("fairness", &[]);
    assert_eq!(tables.len(), 2, "tenants");
    for table in tables.values() {
        // Two of each wait, elements, and memory.
        table.assert_whole(4 * 2 + 4, &["tweed"]);
    }
}
