//! What the documents say of flags, metrics, problems, error codes and units
//! is what the code says.
//!
//! The flag table is written by this test: `TWEED_UPDATE_DOCS=1 cargo test -p
//! tweed-agent --test docs` puts it into `docs/flags.md`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::CommandFactory as _;
use prometheus_client::encoding::text::encode;
use tweed_agent::config::Flags;
use tweed_agent::report::{CONDITION_TYPE, REASON_UP};
use tweed_agent::serve::{metrics::Metrics, process_metrics};
use tweed_component::drops::DropReason;
use tweed_core::problem::{ProblemKind, Scope};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A row for each flag, as `--help` has it.
fn flag_table() -> String {
    let command = Flags::command();
    let mut table = String::new();
    let mut group = None;
    for flag in command.get_arguments() {
        let (Some(long), Some(env)) = (flag.get_long(), flag.get_env()) else {
            continue;
        };
        if group != flag.get_help_heading() {
            group = flag.get_help_heading();
            let title = group.unwrap_or_default();
            let head = "| flag | variable | default | |\n|---|---|---|---|";
            write!(table, "\n## {title}\n\n{head}\n").unwrap();
        }
        let defaults = flag.get_default_values().iter();
        let quoted = defaults.map(|value| format!("`{}`", value.display()));
        // A switch that is off by default has no default worth a cell.
        let default = quoted.filter(|text| text != "`false`").collect::<String>();
        let mut what = flag.get_help().unwrap().to_string();
        let values: Vec<String> = flag
            .get_possible_values()
            .iter()
            .filter(|_| flag.get_action().takes_values())
            .map(|value| format!("`{}`: {}", value.get_name(), value.get_help().unwrap()))
            .collect();
        if !values.is_empty() {
            write!(what, ".<br>{}", values.join("<br>")).unwrap();
        }
        let name = match flag.get_value_names() {
            Some(names) if flag.get_action().takes_values() => {
                format!("--{long} {}", names[0].replace('|', "\\|"))
            }
            _ => format!("--{long}"),
        };
        let env = env.display();
        writeln!(table, "| `{name}` | `{env}` | {default} | {what} |").unwrap();
    }
    table
}

#[test]
fn the_flag_table_is_what_help_says() {
    const BEGIN: &str = "<!-- flags: written by node-agent/tests/docs.rs -->\n";
    const END: &str = "\n<!-- end of flags -->";
    let text = read("docs/flags.md");
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    let expected = flag_table();
    if std::env::var_os("TWEED_UPDATE_DOCS").is_some() {
        let text = format!("{before}{BEGIN}{expected}{END}{after}");
        fs::write(root().join("docs/flags.md"), text).unwrap();
    } else {
        assert_eq!(table, expected, "run the test with TWEED_UPDATE_DOCS=1");
    }
}

#[test]
fn every_flag_has_a_variable_of_its_name() {
    for flag in Flags::command().get_arguments() {
        let Some(long) = flag
            .get_long()
            .filter(|long| !["help", "version"].contains(long))
        else {
            continue;
        };
        let expected = format!("TWEED_{}", long.replace('-', "_").to_uppercase());
        assert_eq!(flag.get_env().unwrap().to_str(), Some(expected.as_str()));
    }
}

#[test]
fn every_metric_is_described() {
    let (registry, metrics) = Metrics::register();
    let mut text = String::new();
    let process = process_metrics::registry(SystemTime::now());
    for registry in [registry, metrics.service_sync.registry(), process] {
        encode(&mut text, &registry).unwrap();
    }
    let docs = read("docs/agent.md");
    let metrics = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names: BTreeSet<&str> = metrics.filter_map(|line| line.split(' ').next()).collect();
    for one in ["tweed_nodes", "kubeproxy_sync_proxy_rules_duration_seconds"] {
        assert!(names.contains(one), "{names:?}");
    }
    for name in names {
        assert!(
            docs.contains(&format!("`{name}")),
            "docs/agent.md lacks {name}"
        );
    }
}

#[test]
fn every_reason_of_a_drop_is_explained() {
    let docs = read("docs/troubleshooting.md");
    for reason in DropReason::ALL {
        let row = format!("| `{reason}` | {} |", reason.text().trim_end_matches('.'));
        assert!(docs.contains(&row), "no {row}");
    }
}

/// Kinds that only `tweed-install check` finds; it does not print their words.
const OF_CHECK_ONLY: [ProblemKind; 6] = [
    ProblemKind::CheckIncomplete,
    ProblemKind::CniConfigInvalid,
    ProblemKind::KernelFeatureMissing,
    ProblemKind::KernelUnsupported,
    ProblemKind::LinkManager,
    ProblemKind::VariableUnknown,
];

#[test]
fn every_problem_has_its_place_in_troubleshooting() {
    let docs = read("docs/troubleshooting.md");
    let (_, table) = docs.split_once("## By kind").unwrap();
    let first_cells = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    let in_docs: BTreeSet<&str> = first_cells
        .flat_map(|cell| cell.split(", "))
        .map(|kind| kind.trim_matches('`'))
        .collect();
    let is_of_agent = |kind: &&ProblemKind| !OF_CHECK_ONLY.contains(kind);
    let of_agent = ProblemKind::ALL.iter().filter(is_of_agent);
    let in_code: BTreeSet<&str> = of_agent.map(|kind| kind.word()).collect();
    assert_eq!(in_docs, in_code);
}

#[test]
fn what_kubernetes_is_told_is_what_the_code_reports() {
    let docs = read("docs/agent.md");
    let (_, from_title) = docs.split_once("## Reports to Kubernetes").unwrap();
    let section = from_title.split("\n## ").next().unwrap();
    let (_, untold) = section.split_once("Not reported are").unwrap();
    let named: BTreeSet<&str> = untold.split('`').skip(1).step_by(2).collect();
    for kind in ProblemKind::ALL {
        let word = kind.word();
        let is_named = match kind.scope() {
            Scope::Source => section.contains(&format!("`{word}`")),
            Scope::AnyNode | Scope::Reports | Scope::Service => named.contains(word),
            Scope::OwnNode | Scope::Rights | Scope::Host | Scope::Policy => true,
        };
        assert!(is_named, "{word} is not reported, and not listed");
    }
    for word in [CONDITION_TYPE, REASON_UP, ProblemKind::NoPodCidr.reason()] {
        assert!(section.contains(&format!("`{word}`")), "no {word}");
    }
}

#[test]
fn the_table_of_error_codes_is_that_of_the_code() {
    let code = read("cni/src/error.rs");
    let (_, from_enum) = code.split_once("pub enum Code {").unwrap();
    let body = from_enum.split('}').next().unwrap();
    let in_code: BTreeSet<u32> = body
        .lines()
        .filter_map(|line| line.split_once(" = ")?.1.strip_suffix(',')?.parse().ok())
        .collect();
    let docs = read("docs/cni-config.md");
    let (_, from_title) = docs.split_once("## Error codes").unwrap();
    let table = from_title.split("\n## ").next().unwrap();
    let in_docs: BTreeSet<u32> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(' ').next()?.parse().ok())
        .collect();
    assert!(in_code.contains(&100), "{in_code:?}");
    assert_eq!(in_docs, in_code);
}

#[test]
fn the_install_guide_shows_the_list_of_nodes_that_is_shipped() {
    let docs = read("docs/install.md");
    let shipped = read("install/systemd/nodes.yaml");
    assert!(docs.contains(&shipped));
    assert!(read("install/systemd/agent.env").contains("\nTWEED_CLUSTER_CIDR="));
}
