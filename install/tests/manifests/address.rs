//! The address of the project, `repository` in the workspace's `Cargo.toml`: the files that
//! ship it have that one.

use crate::files::{holds, read};

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");

const CHART: &str = "install/chart/Chart.yaml";
pub const RULES: &str = "install/monitoring/rules.yaml";

/// Before the name of each document where a file leads to one.
const DOCUMENT: &str = "/docs/";

/// The address of the folder that has `docs/`, of the tag of this version where the forge's
/// addresses are known.
pub fn documents_base() -> String {
    base_of(REPOSITORY, env!("CARGO_PKG_VERSION"))
}

fn base_of(repository: &str, version: &str) -> String {
    let repository = repository.trim_end_matches('/');
    let host = repository.split('/').nth(2).unwrap_or_default();
    match host {
        "github.com" => format!("{repository}/blob/v{version}/"),
        "gitlab.com" => format!("{repository}/-/blob/v{version}/"),
        "codeberg.org" => format!("{repository}/src/tag/v{version}/"),
        _ => format!("{repository}/"),
    }
}

/// The alerts as they are to be: while files are written, theirs may still be the old one.
pub fn rules() -> String {
    with_address(&read(RULES), "runbook_url: ", &documents_base())
}

/// The values of the chart with the address of the documents.
pub fn with_runbook_base(values: &str) -> String {
    with_address(values, "runbookBase: ", &documents_base())
}

/// The text with `address` behind each `key`. Where a document follows (`…/docs/NAME.md`),
/// its name stays.
fn with_address(text: &str, key: &str, address: &str) -> String {
    let lines = text.lines().map(|line| {
        let Some((indent, value)) = line.split_once(key) else {
            return format!("{line}\n");
        };
        if !indent.trim().is_empty() {
            return format!("{line}\n");
        }
        let document = value
            .rsplit_once(DOCUMENT)
            .map_or(String::new(), |(_, name)| format!("docs/{name}"));
        format!("{indent}{key}{address}{document}\n")
    });
    lines.collect()
}

#[test]
fn documents_are_those_of_the_version_where_the_forge_is_known() {
    let bases = [
        ("https://tweed.example", "https://tweed.example/"),
        ("https://tweed.example/", "https://tweed.example/"),
        (
            "https://github.com/o/tweed",
            "https://github.com/o/tweed/blob/v1.2.3/",
        ),
        (
            "https://gitlab.com/o/tweed/",
            "https://gitlab.com/o/tweed/-/blob/v1.2.3/",
        ),
        (
            "https://codeberg.org/o/tweed",
            "https://codeberg.org/o/tweed/src/tag/v1.2.3/",
        ),
    ];
    for (repository, base) in bases {
        assert_eq!(base_of(repository, "1.2.3"), base);
    }
}

#[test]
fn an_address_replaces_another_and_keeps_the_document() {
    let text = "home: https://a.test\n# home: here\n  home: https://a.test/docs/b.md#c\n";
    let changed = "home: https://b.test/\n# home: here\n  home: https://b.test/docs/b.md#c\n";
    assert_eq!(with_address(text, "home: ", "https://b.test/"), changed);
}

#[test]
fn what_is_shipped_has_the_address_of_the_project() {
    let chart = with_address(&read(CHART), "home: ", REPOSITORY);
    assert!(
        chart.contains(&format!("\nhome: {REPOSITORY}\n")),
        "{chart}"
    );
    holds(CHART, &chart);
    holds(RULES, &rules());
}
