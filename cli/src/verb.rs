//! What all verbs have in common: a report, from one node or from each of several.

use std::collections::BTreeMap;
use std::io;

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tweed_core::agent_socket::message::VERSION;

use crate::agents::Agents;
use crate::answered::{Answered, Unanswered};
use crate::exit::Exit;
use crate::node::Node;
use crate::output::{Format, Page};

/// A question with its arguments.
pub trait Verb {
    /// What one node answers: `-o json` prints it, and it is read back from there. A later
    /// version only adds keys that have a default.
    type Report: Serialize + DeserializeOwned;

    /// The report's key, and the word that is typed if [`Verb::arguments`] names no other.
    const NAME: &'static str;

    /// The answer of the node that this program runs on.
    ///
    /// # Errors
    /// It cannot be determined.
    fn local(&self, node: &Node) -> Result<Self::Report, Unanswered>;

    /// What follows `tweedctl` when another one is to ask the same of its node.
    fn arguments(&self) -> Vec<String> {
        vec![Self::NAME.to_owned()]
    }

    /// Has the agents of a cluster answer; of those that were named, or of all.
    ///
    /// # Errors
    /// The cluster cannot be asked at all.
    fn remote(&self, agents: &dyn Agents) -> Result<Vec<Answered<Self::Report>>> {
        ask(self, agents, None)
    }

    /// Prints the answers for people.
    ///
    /// # Errors
    /// They cannot be written.
    fn render(&self, answers: &[Answered<Self::Report>], page: &mut Page<'_>) -> io::Result<()>;

    /// How it ends. That a node has not answered is added to it.
    fn exit(&self, _answers: &[Answered<Self::Report>]) -> Exit {
        Exit::Fine
    }
}

/// Asks the agents of these nodes, of all that were chosen if none are given.
///
/// # Errors
/// The cluster cannot be asked at all.
pub fn ask<V: Verb + ?Sized>(
    verb: &V,
    agents: &dyn Agents,
    nodes: Option<&[String]>,
) -> Result<Vec<Answered<V::Report>>> {
    let printed = agents.ask(nodes, &verb.arguments())?.into_iter();
    let read = |printed: Result<Vec<u8>, Unanswered>| parse(V::NAME, &printed?);
    Ok(printed.map(|(node, one)| (node, read(one))).collect())
}

/// Prints what was answered, and says how it ends.
///
/// # Errors
/// It cannot be written.
pub fn show<V: Verb>(
    verb: &V,
    answers: &[Answered<V::Report>],
    page: &mut Page<'_>,
) -> Result<Exit> {
    if page.format == Format::Json {
        page.json(&document(V::NAME, answers))?;
    } else if let [(node, Err(why))] = answers
        && node.is_empty()
    {
        // The whole answer is an error: it goes to stderr.
        return Err(why.clone().into());
    } else {
        verb.render(answers, page)?;
    }
    let unanswered = answers.iter().any(|(_, answer)| answer.is_err());
    let undetermined = if unanswered {
        Exit::Undetermined
    } else {
        Exit::Fine
    };
    Ok(verb.exit(answers).max(undetermined))
}

/// What one node answers under the verb's name, or its `error`.
type Entry<'a, R> = BTreeMap<&'a str, Value<'a, R>>;

#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a, R> {
    Report(&'a R),
    Error(&'a str),
}

/// The document for programs: `version`, and the report of this node under the verb's name, or
/// `nodes` with that of each.
#[derive(Serialize)]
struct Document<'a, R> {
    version: u32,
    #[serde(flatten)]
    own: Option<Entry<'a, R>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<BTreeMap<&'a str, Entry<'a, R>>>,
}

fn document<'a, R>(name: &'a str, answers: &'a [Answered<R>]) -> Document<'a, R> {
    let entry = |answer: &'a Result<R, Unanswered>| match answer {
        Ok(report) => BTreeMap::from([(name, Value::Report(report))]),
        Err(why) => BTreeMap::from([("error", Value::Error(&why.error))]),
    };
    let (own, nodes) = match answers {
        [(node, answer)] if node.is_empty() => (Some(entry(answer)), None),
        _ => {
            let named = |(node, answer): &'a Answered<R>| (node.as_str(), entry(answer));
            (None, Some(answers.iter().map(named).collect()))
        }
    };
    Document {
        version: VERSION,
        own,
        nodes,
    }
}

/// Reads what another `tweedctl` has printed as JSON about its node.
///
/// # Errors
/// Why it has not answered, or that it is something else.
pub fn parse<R: DeserializeOwned>(name: &str, printed: &[u8]) -> Result<R, Unanswered> {
    let other = |what: String| Unanswered::new(format!("its tweedctl answers {what}"));
    let mut document: serde_json::Value =
        serde_json::from_slice(printed).map_err(|error| other(format!("no JSON: {error}")))?;
    if let Some(error) = document["error"].as_str() {
        return Err(Unanswered::new(error));
    }
    match document["version"].as_u64() {
        Some(version) if version == u64::from(VERSION) => {}
        version => return Err(other(format!("in another version: {version:?}"))),
    }
    serde_json::from_value(document[name].take())
        .map_err(|error| other(format!("something else: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(answers: &[Answered<u8>]) -> String {
        serde_json::to_string(&document("peers", answers)).unwrap()
    }

    #[test]
    fn a_node_prints_its_report_and_a_cluster_one_for_each_node() {
        let own = [(String::new(), Ok(7))];
        assert_eq!(json(&own), r#"{"version":1,"peers":7}"#);
        assert_eq!(parse("peers", json(&own).as_bytes()), Ok(7_u8));
        let refused = [(String::new(), Err(Unanswered::new("no")))];
        assert_eq!(json(&refused), r#"{"version":1,"error":"no"}"#);
        let read = parse::<u8>("peers", json(&refused).as_bytes());
        assert_eq!(read, Err(Unanswered::new("no")));
        let all = [
            ("n1".to_owned(), Ok(7)),
            ("n2".to_owned(), Err(Unanswered::new("no"))),
        ];
        let expected = r#"{"version":1,"nodes":{"n1":{"peers":7},"n2":{"error":"no"}}}"#;
        assert_eq!(json(&all), expected);
    }

    #[test]
    fn what_is_no_report_is_said() {
        for (printed, says) in [
            ("", "no JSON"),
            ("[]", "another version"),
            (r#"{"version":2,"peers":7}"#, "another version: Some(2)"),
            (r#"{"version":1,"others":7}"#, "something else"),
        ] {
            let error = parse::<u8>("peers", printed.as_bytes()).unwrap_err();
            assert!(error.error.contains(says), "{error}");
        }
    }
}
