//! The guide has every verb and every flag.

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;
use tweed_agent::config::Flags;
use tweed_install::cli::Cli;

#[test]
fn every_verb_and_flag_is_in_the_guide() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/install.md");
    let guide = fs::read_to_string(path).unwrap();
    let command = Cli::command();
    let mut missing = Vec::new();
    for verb in command.get_subcommands() {
        let name = verb.get_name();
        let written = [format!("`{name}`"), format!("tweed-install {name}")];
        if !written.iter().any(|written| guide.contains(written)) {
            missing.push(name.to_owned());
        }
        let names = verb.get_arguments().filter_map(|flag| flag.get_long());
        let flags = names
            .filter(|flag| *flag != "help")
            .map(|f| format!("--{f}"));
        missing.extend(flags.filter(|flag| !guide.contains(flag.as_str())));
    }
    assert!(missing.is_empty(), "docs/install.md lacks {missing:?}");
}

#[test]
fn every_flag_has_a_variable_of_its_name() {
    let command = Cli::command();
    let flags = command
        .get_subcommands()
        .flat_map(|verb| verb.get_arguments());
    for flag in flags {
        let Some(long) = flag.get_long().filter(|long| *long != "help") else {
            continue;
        };
        let expected = format!("TWEED_{}", long.replace('-', "_").to_uppercase());
        assert_eq!(flag.get_env().unwrap().to_str(), Some(expected.as_str()));
    }
}

/// Where a flag of both is not given, both have to use the same.
#[test]
fn what_check_takes_of_the_agent_has_the_agent_s_variables_and_defaults() {
    let agent = Flags::command();
    let command = Cli::command();
    let check = command.find_subcommand("check").unwrap();
    let mut of_both = 0;
    for flag in check.get_arguments() {
        let of_agent = |other: &&clap::Arg| other.get_long() == flag.get_long();
        let Some(other) = agent.get_arguments().find(of_agent) else {
            continue;
        };
        assert_eq!(flag.get_env(), other.get_env());
        let [default] = other.get_default_values() else {
            continue;
        };
        of_both += 1;
        let help = flag.get_help().unwrap().to_string();
        let told = help.ends_with(&format!("or {}", default.to_str().unwrap()));
        assert!(
            told || flag.get_default_values() == other.get_default_values(),
            "{help}"
        );
    }
    assert!(of_both > 5, "{of_both}");
}
