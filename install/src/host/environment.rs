//! `/etc/tweed/agent.env`: the shipped example, with the given values filled in.

use std::path::Path;

use clap::Args;
use tweed_core::paths::{
    DEFAULT_BPF_DIR, DEFAULT_CNI_BIN_DIR, DEFAULT_CNI_CONF_DIR, DEFAULT_RUN_DIR,
};

use super::unit;
use crate::environment_file::value;
use crate::places::{BPF_DIR, CNI_BIN_DIR, CNI_CONF_DIR, Folders, RUN_DIR, folder};

pub(super) const EXAMPLE: &str = include_str!("../../systemd/agent.env");
/// The variables, in the order of the file.
const VARIABLES: [&str; 6] = [
    NODES,
    NODE_NAME,
    CNI_CONF_DIR,
    CNI_BIN_DIR,
    RUN_DIR,
    BPF_DIR,
];
const NODES: &str = "TWEED_NODES";
const NODE_NAME: &str = "TWEED_NODE_NAME";
const DEFAULT_FOLDERS: [&str; 4] = [
    DEFAULT_CNI_CONF_DIR,
    DEFAULT_CNI_BIN_DIR,
    DEFAULT_RUN_DIR,
    DEFAULT_BPF_DIR,
];
/// The lines of the example that are replaced. A folder is appended.
const LINES: [(&str, &str); 2] = [
    (NODES, "TWEED_NODES=/etc/tweed/nodes.yaml"),
    (NODE_NAME, "#TWEED_NODE_NAME=alpha"),
];

/// A value that systemd reads literally from an environment file: no blank, no
/// quote, nothing that needs quoting. Whether it is a valid node name is checked
/// by the agent.
///
/// # Errors
/// What is allowed.
pub(super) fn word(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@+".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        Ok(text.to_owned())
    } else {
        Err(
            "not allowed in an environment file; allowed are letters, digits and _ - . : / @ +"
                .to_owned(),
        )
    }
}

/// The path of a file that the agent reads: absolute, and one that the unit does not hide.
fn nodes(text: &str) -> Result<String, String> {
    let path = folder(text)?;
    match unit::hides(&path) {
        Some(why) => Err(why),
        None => word(text),
    }
}

/// The values to fill in, as flags of `host`.
#[derive(Debug, Clone, Args)]
pub struct EnvironmentArgs {
    /// Name of this machine's Node; if not given, the host name in lower case
    #[arg(long, env = NODE_NAME, value_name = "NAME", value_parser = word)]
    node_name: Option<String>,

    /// File of Node manifests; if not given, /etc/tweed/nodes.yaml, which is
    /// created as an example if it does not exist
    #[arg(long, env = NODES, value_name = "FILE", value_parser = nodes)]
    nodes: Option<String>,
}

/// What the file says of these variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment([Option<String>; 6]);

impl Environment {
    /// The values in a file. A folder that is the default is none.
    pub fn of(text: &str) -> Self {
        let is_default = |value: &&str| DEFAULT_FOLDERS.contains(value);
        let given = |variable| value(text, variable).filter(|value| !is_default(value));
        Self(VARIABLES.map(|variable| word(given(variable)?).ok()))
    }

    /// The same with what is given by flags, and with these folders.
    #[must_use]
    pub fn with(self, asked: &EnvironmentArgs, folders: &Folders) -> Self {
        let Self([nodes, node_name, ..]) = self;
        let default = Folders::default();
        let other = |folder: &Path, default: &Path| {
            (folder != default).then(|| folder.display().to_string())
        };
        Self([
            asked.nodes.clone().or(nodes),
            asked.node_name.clone().or(node_name),
            other(&folders.cni_conf_dir, &default.cni_conf_dir),
            other(&folders.cni_bin_dir, &default.cni_bin_dir),
            other(&folders.run_dir, &default.run_dir),
            other(&folders.bpf_dir, &default.bpf_dir),
        ])
    }

    /// The content of the file.
    pub fn render(&self) -> String {
        let mut text = EXAMPLE.to_owned();
        for (variable, value) in VARIABLES.iter().zip(&self.0) {
            let Some(value) = value else { continue };
            let line = format!("{variable}={value}");
            match LINES.iter().find(|(name, _)| name == variable) {
                Some((_, example)) => text = text.replace(example, &line),
                None => text.extend([line.as_str(), "\n"]),
            }
        }
        text
    }

    /// The file of Nodes.
    pub fn nodes(&self) -> Option<&str> {
        self.0[0].as_deref()
    }

    /// The lines that `other` has to get so that it says the same; empty if it does.
    pub fn lacking_in(&self, other: &Self) -> String {
        let values = VARIABLES.iter().zip(&self.0).zip(&other.0);
        let differing = values.filter(|((_, own), other)| own != other);
        let lines = differing.map(|((variable, own), _)| match own {
            Some(value) => format!("{variable}={value}"),
            None => format!("no line {variable}="),
        });
        lines.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(node_name: &str, nodes: &str) -> EnvironmentArgs {
        EnvironmentArgs {
            node_name: Some(node_name.to_owned()),
            nodes: Some(nodes.to_owned()),
        }
    }

    fn folders() -> Folders {
        Folders {
            run_dir: "/srv/tweed".into(),
            ..Folders::default()
        }
    }

    #[test]
    fn the_example_has_the_lines_that_are_filled_in() {
        for (_, line) in LINES {
            assert!(EXAMPLE.contains(line), "{line}");
        }
        assert_eq!(Environment::of(EXAMPLE).render(), EXAMPLE);
        assert!(!EXAMPLE.contains("_DIR"), "a folder is appended");
    }

    #[test]
    fn what_is_filled_in_is_read_back() {
        let asked = asked("alpha-1.example", "/srv/nodes.yaml");
        let environment = Environment::of(EXAMPLE).with(&asked, &folders());
        let text = environment.render();
        assert!(
            text.contains("\nTWEED_NODE_NAME=alpha-1.example\n"),
            "{text}"
        );
        assert!(text.contains("\nTWEED_NODES=/srv/nodes.yaml\n"), "{text}");
        assert!(text.ends_with("\nTWEED_RUN_DIR=/srv/tweed\n"), "{text}");
        assert_eq!(Environment::of(&text), environment);
        assert_eq!(Environment::of(&text).render(), text);
    }

    #[test]
    fn what_no_flag_names_stays_and_the_default_goes() {
        let first = Environment::of(EXAMPLE).with(&asked("alpha", "/srv/a"), &folders());
        let none = EnvironmentArgs {
            node_name: None,
            nodes: None,
        };
        assert_eq!(first.clone().with(&none, &folders()), first);
        let back = first.clone().with(&none, &Folders::default());
        assert_eq!(back.nodes(), Some("/srv/a"));
        assert_eq!(back.lacking_in(&first), "no line TWEED_RUN_DIR=");
        assert_eq!(first.lacking_in(&back), "TWEED_RUN_DIR=/srv/tweed");
        assert_eq!(first.lacking_in(&first), "");
    }

    #[test]
    fn an_edited_file_is_not_what_would_be_rendered() {
        let edited = format!("{EXAMPLE}TWEED_BACKEND=direct\n");
        assert_ne!(Environment::of(&edited).render(), edited);
    }

    #[test]
    fn what_systemd_would_read_otherwise_is_refused() {
        for text in ["", "a b", "a\nTWEED_MTU=1", "\"a\"", "a#b", "$a"] {
            assert!(word(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn nodes_that_the_agent_does_not_see_are_refused() {
        for text in ["nodes.yaml", "/root/nodes.yaml", "/tmp/x/nodes.yaml"] {
            assert!(nodes(text).is_err(), "{text}");
        }
        assert_eq!(nodes("/srv/nodes.yaml").unwrap(), "/srv/nodes.yaml");
    }
}
