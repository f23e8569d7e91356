//! The scenarios, in the order in which they run.

pub mod bootstrap;
mod conditions;
mod crash;
mod endpoints;
mod install;
mod kubelet;
mod names;
mod nodes;
mod outage;
mod paths;
mod policy;
mod policy_suite;
mod rights;
mod scale;
mod services;
mod tweedctl;
mod uninstall;
mod upgrade;

use anyhow::bail;

use crate::fixture::Fixture;
use crate::tier::Tier;

/// An end-to-end test.
pub struct Scenario {
    /// Its name, as `--only` takes it; part of a Kubernetes namespace's name.
    pub name: &'static str,
    /// What it shows, in one line.
    pub shows: &'static str,
    /// The state of the cluster before it.
    pub precondition: Precondition,
    /// Runs it. It must restore what it changes in the cluster; its own namespace is
    /// deleted by the caller.
    pub run: fn(&mut Fixture<'_>) -> anyhow::Result<()>,
}

/// The state of the cluster before a scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Without a network.
    NoNetwork,
    /// With tweed installed and all nodes Ready.
    Ready,
}

/// All scenarios.
pub const ALL: &[Scenario] = &[
    install::SCENARIO,
    paths::SCENARIO,
    names::SCENARIO,
    services::SCENARIO,
    endpoints::SCENARIO,
    policy::SCENARIO,
    bootstrap::SCENARIO,
    kubelet::SCENARIO,
    rights::SCENARIO,
    tweedctl::SCENARIO,
    scale::SCENARIO,
    crash::SCENARIO,
    nodes::SCENARIO,
    outage::SCENARIO,
    conditions::SCENARIO,
    upgrade::SCENARIO,
    uninstall::SCENARIO,
];

/// Scenarios that run only at full size, or where they are named.
pub const FULL_SIZE: &[Scenario] = &[policy_suite::SCENARIO];

/// The scenarios with these names; all of this tier if no name is given.
///
/// # Errors
/// A name of no scenario.
pub fn choose(names: &[String], tier: Tier) -> anyhow::Result<Vec<&'static Scenario>> {
    let every = || ALL.iter().chain(FULL_SIZE);
    if let Some(unknown) = names
        .iter()
        .find(|name| every().all(|scenario| scenario.name != name.as_str()))
    {
        bail!("there is no scenario {unknown}; --list --full lists all");
    }
    if names.is_empty() {
        return Ok(match tier {
            Tier::Ci => ALL.iter().collect(),
            Tier::Full => every().collect(),
        });
    }
    let is_chosen = |scenario: &&Scenario| names.iter().any(|name| name == scenario.name);
    Ok(every().filter(is_chosen).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_fit_into_a_namespace() {
        let every = ALL.iter().chain(FULL_SIZE);
        let names: BTreeSet<&str> = every.map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len() + FULL_SIZE.len());
        for name in names {
            let is_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.len() <= 50 && name.chars().all(is_label), "{name}");
        }
    }

    #[test]
    fn only_the_first_one_starts_without_a_network() {
        assert_eq!(ALL[0].precondition, Precondition::NoNetwork);
        assert!(
            ALL[1..]
                .iter()
                .all(|one| one.precondition == Precondition::Ready)
        );
    }

    #[test]
    fn all_are_chosen_unless_some_are_named_and_unknown_names_are_refused() {
        for name in ["install", "policy-suite"] {
            assert_eq!(choose(&[name.to_owned()], Tier::Ci).unwrap().len(), 1);
        }
        assert_eq!(choose(&[], Tier::Ci).unwrap().len(), ALL.len());
        let full = ALL.len() + FULL_SIZE.len();
        assert_eq!(choose(&[], Tier::Full).unwrap().len(), full);
        let error = choose(&["instal".to_owned()], Tier::Ci).err().unwrap();
        assert!(error.to_string().contains("instal;"), "{error}");
    }
}
