//! What is shown, in the order in which it runs.

mod bootstrap;
mod conditions;
mod crash;
mod install;
mod kubelet;
mod names;
mod nodes;
mod outage;
mod paths;
mod rights;
mod scale;
mod services;
mod uninstall;
mod upgrade;

use anyhow::bail;

use crate::stage::Stage;

/// One thing that is shown.
pub struct Scenario {
    /// Its name, as `--only` takes it; part of a Kubernetes namespace's name.
    pub name: &'static str,
    /// What it shows, as half a sentence.
    pub shows: &'static str,
    /// The cluster that it begins with.
    pub begins: Begins,
    /// Shows it. What it changes in the cluster it changes back; its own
    /// namespace goes by itself.
    pub run: fn(&mut Stage<'_>) -> anyhow::Result<()>,
}

/// At which size scenarios run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// As suits every change: in minutes.
    Ci,
    /// As large and as long as they can be.
    Full,
}

impl Tier {
    /// As it stands in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ci => "ci",
            Self::Full => "full",
        }
    }
}

/// The cluster that a scenario begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begins {
    /// Whatever is there.
    Bare,
    /// With tweed installed, and all nodes Ready.
    Ready,
}

/// All of them.
pub const ALL: &[Scenario] = &[
    install::SCENARIO,
    paths::SCENARIO,
    names::SCENARIO,
    services::SCENARIO,
    bootstrap::SCENARIO,
    kubelet::SCENARIO,
    rights::SCENARIO,
    scale::SCENARIO,
    crash::SCENARIO,
    nodes::SCENARIO,
    outage::SCENARIO,
    conditions::SCENARIO,
    upgrade::SCENARIO,
    uninstall::SCENARIO,
];

/// Those that are asked for by name, or else all.
///
/// # Errors
/// A name that none has.
pub fn choose(names: &[String]) -> anyhow::Result<Vec<&'static Scenario>> {
    if let Some(unknown) = names
        .iter()
        .find(|name| ALL.iter().all(|scenario| scenario.name != name.as_str()))
    {
        bail!("there is no scenario {unknown}; --list tells which there are");
    }
    let is_chosen =
        |scenario: &&Scenario| names.is_empty() || names.iter().any(|name| name == scenario.name);
    Ok(ALL.iter().filter(is_chosen).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_name_is_its_own_and_fits_into_a_namespace() {
        let names: BTreeSet<&str> = ALL.iter().map(|scenario| scenario.name).collect();
        assert_eq!(names.len(), ALL.len());
        for name in names {
            let is_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(name.len() <= 50 && name.chars().all(is_label), "{name}");
        }
    }

    #[test]
    fn the_first_one_finds_a_cluster_without_a_network() {
        assert_eq!(ALL[0].begins, Begins::Bare);
        assert!(ALL[1..].iter().all(|one| one.begins == Begins::Ready));
    }

    #[test]
    fn all_run_unless_some_are_named_and_unknown_ones_are_refused() {
        let chosen = choose(&["install".to_owned()]).unwrap();
        assert_eq!(chosen.len(), 1);
        assert_eq!(choose(&[]).unwrap().len(), ALL.len());
        let error = choose(&["instal".to_owned()]).err().unwrap();
        assert!(error.to_string().contains("instal;"), "{error}");
    }
}
