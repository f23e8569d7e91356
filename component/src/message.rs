//! What people ask an agent on its socket, and what it answers, besides the answers to the
//! plugin: agent and `tweedctl` have these messages in common.

use serde::{Deserialize, Serialize};
use tweed_core::agent_socket::message::{Judge, MAX_ANSWER, MAX_REQUEST, Message};
use tweed_core::agent_state::FastPathState;
use tweed_core::problem::{Effect, Problem};

use crate::drops::Dropped;
use crate::explain::{Explained, Question, Step};
use crate::peers::PeerStatus;

/// All that an agent can be asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// The plugin's: [`tweed_core::agent_socket::message::Request::Judge`].
    Judge(Judge),
    /// A question of people.
    Explain(Question),
    /// Which version answers? The key `version` of each message is the protocol's.
    #[serde(rename = "agent-version")]
    Version {},
    /// What does the agent say of itself?
    Status {},
    /// Its metrics.
    Metrics {},
    /// Are the other nodes reached?
    Peers {},
    /// What was dropped?
    Drops {},
    /// How is it with the fast path, after it was switched?
    FastPath {
        /// What it is to be switched to; none to leave it as it is.
        switch: Option<FastPathSwitch>,
    },
}

/// What the fast path is switched to until the agent is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FastPathSwitch {
    /// As the agent's flags say.
    On {},
    /// Off.
    Off {
        /// For so many seconds; none until it is switched on.
        seconds: Option<u64>,
    },
}

/// What an agent answers to people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Question::Why`].
    Why(Explained),
    /// To [`Question::Where`].
    Where(Vec<Step>),
    /// To [`Request::Version`]: the agent's version, with its commit.
    #[serde(rename = "agent-version")]
    Version(String),
    /// To [`Request::Status`].
    Status(AgentStatus),
    /// To [`Request::Metrics`]: in the text format of Prometheus.
    Metrics(String),
    /// To [`Request::Peers`]: a row for each way to another node.
    Peers(Vec<PeerStatus>),
    /// To [`Request::Drops`]: one for each reason that the tables count.
    Drops(Vec<Dropped>),
    /// To [`Request::FastPath`].
    FastPath(FastPathState),
    /// The question cannot be answered.
    Error {
        /// Why.
        message: String,
    },
}

/// What an agent says of itself, besides what its files say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AgentStatus {
    /// Its version, with its commit.
    pub version: String,
    /// Its problems, the worst first.
    pub problems: Vec<Found>,
    /// How many more there are.
    pub more_problems: usize,
    /// What else a person should know, a sentence each.
    pub notes: Vec<String>,
    /// What was put back since it started, the most often first.
    pub drift: Vec<Drift>,
    /// How full the node's pod CIDRs are.
    pub ranges: Vec<RangeUse>,
}

/// A problem whose kind another version may not know.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Found {
    /// The word of its kind; empty if it is not known.
    #[serde(default)]
    pub kind: String,
    /// Its object.
    #[serde(default)]
    pub object: String,
    /// What it does.
    pub effect: Effect,
    /// What is wrong.
    pub message: String,
    /// What to do.
    #[serde(default)]
    pub cure: String,
}

impl From<Problem> for Found {
    fn from(problem: Problem) -> Self {
        Self {
            kind: problem.kind.to_string(),
            object: problem.object,
            effect: problem.effect,
            message: problem.message,
            cure: problem.cure,
        }
    }
}

/// How often an object was put back that something else had changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drift {
    /// Its kind, as metrics name it.
    pub kind: String,
    /// Its name; `others` for those without one.
    pub object: String,
    /// How often.
    pub count: u64,
}

/// How full a range of pods is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeUse {
    /// The range.
    pub range: String,
    /// Addresses that are in use.
    pub used: u64,
    /// Addresses that are free.
    pub free: u64,
}

impl Message for Request {
    const MAX_LENGTH: usize = MAX_REQUEST;
}

impl Message for Answer {
    /// Of [`Answer::Peers`] ten thousand have room.
    const MAX_LENGTH: usize = 16 * MAX_ANSWER;

    fn is_of_every_version(&self) -> bool {
        matches!(self, Self::Error { .. })
    }
}

#[cfg(test)]
mod tests {
    use tweed_core::agent_socket::message as plugin;
    use tweed_core::attachment::{ContainerId, IfName, NetworkName};

    use super::*;

    #[test]
    fn what_the_plugin_writes_is_read_and_what_it_is_answered_are_its_words() {
        let judge = Judge {
            network: NetworkName::new("tweed").unwrap(),
            container_id: ContainerId::new("4f").unwrap(),
            ifname: IfName::new("eth0").unwrap(),
            pod: None,
            addresses: vec!["10.244.1.5".parse().unwrap()],
            wait_ms: 2000,
        };
        let line = plugin::Request::Judge(judge.clone()).to_line().unwrap();
        let read = Request::from_received(&line).unwrap();
        assert_eq!(read, Some(Request::Judge(judge)));
        let message = "no".to_owned();
        let error = Answer::Error { message }.to_line().unwrap();
        let message = "no".to_owned();
        let expected = plugin::Answer::Error { message };
        assert_eq!(
            plugin::Answer::from_received(&error).unwrap(),
            Some(expected)
        );
    }

    #[test]
    fn every_question_without_arguments_is_read_as_it_was_written() {
        for request in [Request::Version {}, Request::Status {}, Request::Metrics {}] {
            let line = request.to_line().unwrap();
            assert_eq!(Request::from_received(&line).unwrap(), Some(request));
        }
        for answer in [
            Answer::Version("0.1.0".to_owned()),
            Answer::Status(AgentStatus::default()),
            Answer::Metrics(String::new()),
        ] {
            let line = answer.to_line().unwrap();
            assert_eq!(Answer::from_received(&line).unwrap(), Some(answer));
        }
    }

    #[test]
    fn a_question_and_its_answer_are_one_line_each() {
        for line in [
            r#"{"version":1,"explain":{"why":{"from":{"pod":{"namespace":"default","name":"web-0"}},"to":{"address":"192.0.2.1"},"protocol":6,"port":443}}}"#,
            r#"{"version":1,"explain":{"where":{"to":{"address":["10.96.0.10:443",6]},"from":"outside","all":false}}}"#,
        ] {
            let line = format!("{line}\n");
            let request = Request::from_received(line.as_bytes()).unwrap().unwrap();
            assert_eq!(request.to_line().unwrap(), line.as_bytes());
        }
        let answer = Answer::Where(vec![Step::note("a\nb")]);
        let line = answer.to_line().unwrap();
        let expected = r#"{"version":1,"where":[{"depth":0,"what":"note","because":"a\nb"}]}"#;
        assert_eq!(line, format!("{expected}\n").as_bytes());
        assert_eq!(Answer::from_received(&line).unwrap(), Some(answer));
    }
}
