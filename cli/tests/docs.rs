//! `docs/cli.md` says what `--help` says; `TWEED_UPDATE_DOCS=1` writes it anew.
#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use tweed_ctl::args::Cli;

const BEGIN: &str = "<!-- verbs: written by cli/tests/docs.rs -->\n";
const END: &str = "<!-- end of verbs -->";

/// What `--help` prints on a terminal of this width.
fn help(command: Command) -> String {
    let text = command.term_width(96).render_help().to_string();
    let lines = text.lines().map(str::trim_end);
    lines.collect::<Vec<_>>().join("\n")
}

/// A section for each verb, without the flags that all have, which come first.
fn sections() -> String {
    let program = Cli::command().disable_help_subcommand(true);
    let mut text = String::new();
    let mut section = |title: &str, help: &str| {
        writeln!(text, "\n### {title}\n\n```text\n{help}\n```").unwrap();
    };
    section("tweedctl", &help(program.clone()));
    for verb in program.get_subcommands() {
        let name = verb.get_name();
        let shown = verb.clone().disable_help_flag(true);
        section(name, &help(shown.bin_name(format!("tweedctl {name}"))));
    }
    text + "\n"
}

#[test]
fn the_verbs_are_what_help_says() {
    // clap shows what a variable holds beside its name.
    assert!(std::env::var_os("TWEED_RUN_DIR").is_none());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (written, after) = rest.split_once(END).unwrap();
    let expected = sections();
    if std::env::var_os("TWEED_UPDATE_DOCS").is_some() {
        fs::write(path, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
    } else {
        assert_eq!(written, expected, "run the test with TWEED_UPDATE_DOCS=1");
    }
}

#[test]
fn the_schema_names_every_report() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/cli.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, schema) = text.split_once("## JSON").unwrap();
    for verb in Cli::command().get_subcommands() {
        let name = verb.get_name();
        if !["completion", "man", "help"].contains(&name) {
            assert!(schema.contains(&format!("| `{name}` |")), "no {name}");
        }
    }
}
