//! Variables of the environment that nobody reads, as misspelt ones. Pure.

use std::collections::BTreeSet;

use clap::Command;

/// How the names of all variables begin.
const PREFIX: &str = "TWEED_";
/// Maximum number of edits between a name and the one that was meant.
const NEAR: usize = 2;

/// The variables that a program reads, with all its commands.
pub fn read_by(command: &Command) -> BTreeSet<String> {
    let own = command
        .get_arguments()
        .filter_map(|flag| flag.get_env()?.to_str());
    let of_commands = command.get_subcommands().flat_map(read_by);
    own.map(str::to_owned).chain(of_commands).collect()
}

/// A sentence on each of these variables that is named as one of tweed's and not `known`.
pub fn unknown<'a>(
    names: impl IntoIterator<Item = &'a str>,
    known: &BTreeSet<String>,
) -> Vec<String> {
    let is_unknown = |name: &&str| name.starts_with(PREFIX) && !known.contains(*name);
    let unknown = names.into_iter().filter(is_unknown);
    let texts = unknown.filter_map(|name| {
        let distance = |known: &&String| strsim::osa_distance(name, known);
        let near = known.iter().min_by_key(distance);
        match near.filter(|known| distance(known) <= NEAR) {
            Some(meant) => Some(format!(
                "nobody reads the variable {name}; was {meant} meant?"
            )),
            None if is_of_service(name) => None,
            None => Some(format!("nobody reads the variable {name}")),
        }
    });
    texts.collect()
}

/// Whether kubelet sets it in the pods of a namespace that has a Service `tweed…`.
fn is_of_service(name: &str) -> bool {
    name.ends_with("_PORT")
        || ["_SERVICE_", "_PORT_"]
            .iter()
            .any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::config::Flags;

    #[test]
    fn a_misspelt_variable_names_the_one_that_was_meant() {
        let known = read_by(&Flags::command());
        let texts = |name| unknown([name], &known);
        assert_eq!(
            texts("TWEED_CLUSTER_CIDER"),
            ["nobody reads the variable TWEED_CLUSTER_CIDER; was TWEED_CLUSTER_CIDR meant?"]
        );
        assert_eq!(
            texts("TWEED_COLOUR"),
            ["nobody reads the variable TWEED_COLOUR"]
        );
        for silent in [
            "TWEED_CLUSTER_CIDR",
            "PATH",
            "TWEED_METRICS_SERVICE_HOST",
            "TWEED_METRICS_PORT_9116_TCP",
        ] {
            assert_eq!(texts(silent), [""; 0], "{silent}");
        }
    }
}
