//! The agent's flags, as the chart has them.

use clap::CommandFactory as _;
use clap::builder::Command;
use serde_json::{Value, json};
use tweed_agent::config::Flags;

use crate::shapes::Shape;

/// Flags that the pod decides: they have no value in the chart.
const OF_THE_POD: [&str; 8] = [
    // spec.nodeName
    "node-name",
    // The pod's own service account, at --api-server or the Service.
    "kubeconfig",
    // Nodes come from the API.
    "nodes",
    // Where the host's folder is mounted.
    "sysctl-dir",
    // Where the host's bpffs is mounted.
    "bpf-dir",
    // Where the node's file is mounted.
    "boot-id-file",
    // The image's own.
    "nft",
    // A DaemonSet's pods do not end.
    "once",
];

/// What the pod sets in place of the agent's default.
const SET_BY_THE_POD: [(&str, &str); 1] = [("metrics-addr", "$(NODE_IP):9116")];

/// A flag.
pub struct Flag {
    /// As on the command line: `cluster-cidr`.
    pub long: String,
    /// As in the chart: `clusterCidr`.
    pub key: String,
    /// Its help, in one line.
    help: String,
    /// As text; of a flag that has one.
    default: Option<String>,
    /// What its words mean, where it may be one of a few.
    words: Vec<(String, String)>,
    /// What a value looks like.
    shape: Shape,
    /// In place of the default.
    set: Option<&'static str>,
}

/// The flags that are values of the chart, in the order of `--help`.
pub fn all() -> Vec<Flag> {
    let command: Command = Flags::command();
    let mut flags = Vec::new();
    for argument in command.get_arguments() {
        let Some(long) = argument.get_long() else {
            continue;
        };
        if OF_THE_POD.contains(&long) || ["help", "version"].contains(&long) {
            continue;
        }
        let defaults = argument.get_default_values().iter();
        let words = argument.get_possible_values().into_iter().map(|word| {
            let help = word.get_help().map(ToString::to_string);
            (word.get_name().to_owned(), help.unwrap_or_default())
        });
        flags.push(Flag {
            long: long.to_owned(),
            key: camel_case(long),
            help: argument.get_help().unwrap().to_string(),
            default: defaults.map(|value| value.display().to_string()).next(),
            words: words.collect(),
            shape: Shape::of(argument),
            set: SET_BY_THE_POD
                .iter()
                .find_map(|(name, value)| (*name == long).then_some(*value)),
        });
    }
    flags
}

/// The variables of all flags.
pub fn variables() -> Vec<String> {
    let variable = |argument: &clap::Arg| Some(argument.get_env()?.display().to_string());
    Flags::command()
        .get_arguments()
        .filter_map(variable)
        .collect()
}

impl Flag {
    /// Its lines in `values.yaml`, below `agent:`.
    pub fn lines(&self) -> String {
        let mut text = self.help.clone();
        for (word, meaning) in &self.words {
            text += &format!("\n  {word}: {meaning}");
        }
        let mut lines: String = text
            .lines()
            .flat_map(|line| wrapped(line, 76))
            .map(|line| format!("  # {line}\n"))
            .collect();
        let key = &self.key;
        lines += &match (self.set, &self.default) {
            (Some(set), _) => format!("  {key}: {set}\n"),
            (None, Some(default)) => format!("  # {key}: {}\n", self.as_yaml(default)),
            (None, None) if self.shape == Shape::Cidrs => format!("  # {key}: []\n"),
            (None, None) => format!("  # {key}:\n"),
        };
        lines
    }

    /// The default as it stands in YAML: in quotation marks if it would be read as something
    /// else without them. Helm reads `on` and `off` as booleans, which YAML 1.2 does not.
    fn as_yaml(&self, default: &str) -> String {
        let read: Result<Value, _> = serde_saphyr::from_str(default);
        let is_read = read.is_ok_and(|read| Some(&read) == self.schema().get("default"));
        if is_read && !["on", "off"].contains(&default) {
            default.to_owned()
        } else {
            json!(default).to_string()
        }
    }

    /// Its part of `values.schema.json`.
    pub fn schema(&self) -> Value {
        let mut schema = self.shape.schema();
        schema["description"] = json!(self.help);
        if let Some(default) = &self.default {
            schema["default"] = match self.shape {
                Shape::Number { .. } => default.parse().unwrap(),
                _ => json!(default),
            };
        }
        schema
    }

    /// A value other than the default.
    pub fn another(&self) -> Value {
        self.shape.another()
    }

    /// `TWEED_CLUSTER_CIDR`.
    pub fn variable(&self) -> String {
        let mut name = String::from("TWEED_");
        for letter in self.key.chars() {
            if letter.is_ascii_uppercase() {
                name.push('_');
            }
            name.push(letter.to_ascii_uppercase());
        }
        name
    }
}

fn camel_case(long: &str) -> String {
    let mut words = long.split('-');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (head, tail) = word.split_at(1);
        name + &head.to_uppercase() + tail
    })
}

/// Lines of at most `width`, with the indent of the first.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let indent = &line[..line.len() - line.trim_start().len()];
    let mut lines = vec![indent.to_owned()];
    for word in line.split_whitespace() {
        let last = lines.last_mut().unwrap();
        if last.len() > indent.len() && last.len() + 1 + word.len() > width {
            lines.push(format!("{indent}{word}"));
        } else {
            if last.len() > indent.len() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

/// As somebody reads them who takes the comment's mark away.
#[test]
fn each_default_that_values_yaml_shows_can_be_used() {
    for flag in all().into_iter().filter(|flag| flag.default.is_some()) {
        let marked = format!("  # {}: ", flag.key);
        let lines = flag.lines();
        let Some(shown) = lines.lines().find_map(|line| line.strip_prefix(&*marked)) else {
            assert!(flag.set.is_some(), "{}", flag.key);
            continue;
        };
        let read: Value = serde_saphyr::from_str(shown).unwrap();
        assert_eq!(Some(&read), flag.schema().get("default"), "{}", flag.key);
    }
}

#[test]
fn what_the_pod_decides_are_flags() {
    let command = Flags::command();
    let longs: Vec<&str> = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .collect();
    let names = OF_THE_POD
        .iter()
        .chain(SET_BY_THE_POD.iter().map(|(name, _)| name));
    for name in names {
        assert!(longs.contains(name), "the agent has no --{name}");
    }
}

#[test]
fn a_flags_key_leads_back_to_its_variable() {
    let variables = variables();
    for flag in all() {
        assert!(variables.contains(&flag.variable()), "{}", flag.variable());
    }
}
