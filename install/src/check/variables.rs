//! Variables that nobody reads, in the agent's environment file and in the environment.

use std::collections::BTreeSet;

use clap::CommandFactory as _;
use tweed_agent::config::variables;
use tweed_core::problem::{Problem, ProblemKind};

use super::Outcome;
use crate::environment_file;

/// Those of the file with this text, and those of this process, which may be meant for the
/// agent or for this program, which reads `own`.
pub(super) fn find(environment: &str, own: &BTreeSet<String>) -> Vec<Outcome> {
    let mut known = variables::read_by(&tweed_agent::config::Flags::command());
    known.extend(own.iter().cloned());
    let readable = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let set: Vec<String> = readable.collect();
    let names = environment_file::names(environment).chain(set.iter().map(String::as_str));
    let texts = variables::unknown(names, &known).into_iter();
    let problem = |text| Problem::new(ProblemKind::VariableUnknown, "environment", text);
    texts.map(|text| Err(problem(text))).collect()
}
