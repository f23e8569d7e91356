//! `/etc/tweed/agent.env`: the shipped example, with the given values filled in.

use std::str::FromStr;

use clap::Args;

const EXAMPLE: &str = include_str!("../../systemd/agent.env");
const NODES: Line = Line {
    variable: "TWEED_NODES=",
    example: "TWEED_NODES=/etc/tweed/nodes.yaml",
};
const NODE_NAME: Line = Line {
    variable: "TWEED_NODE_NAME=",
    example: "#TWEED_NODE_NAME=alpha",
};

/// A variable, and its line in the example.
struct Line {
    variable: &'static str,
    example: &'static str,
}

/// A value that systemd reads literally from an environment file: no blank, no
/// quote, nothing that needs quoting. Whether it is a valid node name is checked
/// by the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word(String);

/// A value that would need quoting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not allowed in an environment file; allowed are letters, digits and _ - . : / @ +")]
pub struct NotAWord;

impl Word {
    /// The value.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Word {
    type Err = NotAWord;

    fn from_str(text: &str) -> Result<Self, NotAWord> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/@+".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAWord)
        }
    }
}

/// The values to fill in, as flags of `host`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Args)]
pub struct Environment {
    /// Name of this machine's Node; if not given, the host name in lower case
    #[arg(long, env = "TWEED_NODE_NAME", value_name = "NAME")]
    pub node_name: Option<Word>,

    /// File of Node manifests; if not given, /etc/tweed/nodes.yaml, which is
    /// created as an example if it does not exist
    #[arg(long, env = "TWEED_NODES", value_name = "FILE")]
    pub nodes: Option<Word>,
}

impl Environment {
    /// The content of the file.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = EXAMPLE.to_owned();
        for (line, value) in [(NODES, &self.nodes), (NODE_NAME, &self.node_name)] {
            if let Some(value) = value {
                text = text.replace(line.example, &format!("{}{}", line.variable, value.0));
            }
        }
        text
    }

    /// The values in a file.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let value = |line: Line| {
            let mut values = text.lines().filter_map(|l| l.strip_prefix(line.variable));
            values.next_back().and_then(|value| value.parse().ok())
        };
        Self {
            node_name: value(NODE_NAME),
            nodes: value(NODES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_has_the_lines_that_are_filled_in() {
        for line in [NODES, NODE_NAME] {
            assert!(EXAMPLE.contains(line.example), "{}", line.example);
        }
        assert_eq!(Environment::default().render(), EXAMPLE);
    }

    #[test]
    fn what_is_filled_in_is_read_back() {
        let asked = Environment {
            node_name: Some("alpha-1.example".parse().unwrap()),
            nodes: Some("/srv/nodes.yaml".parse().unwrap()),
        };
        let text = asked.render();
        assert!(
            text.contains("\nTWEED_NODE_NAME=alpha-1.example\n"),
            "{text}"
        );
        assert!(text.contains("\nTWEED_NODES=/srv/nodes.yaml\n"), "{text}");
        assert_eq!(Environment::of(&text), asked);
        assert_eq!(Environment::of(&text).render(), text);
    }

    #[test]
    fn an_edited_file_is_not_what_would_be_rendered() {
        let edited = format!("{EXAMPLE}TWEED_BACKEND=direct\n");
        assert_ne!(Environment::of(&edited).render(), edited);
    }

    #[test]
    fn what_systemd_would_read_otherwise_is_refused() {
        for text in ["", "a b", "a\nTWEED_MTU=1", "\"a\"", "a#b", "$a"] {
            assert_eq!(Word::from_str(text), Err(NotAWord), "{text:?}");
        }
    }
}
