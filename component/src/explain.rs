//! What people ask of a node, and the answer: steps, the same for every component.
//!
//! A component answers with a `Vec<Step>`, in the order in which people read it. [`text`]
//! prints it; for programs it is written as it is.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// Is a flow allowed, and what decides?
    Why(Why),
    /// Where do new connections to a destination go?
    Where(Where),
}

/// Which flow is meant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// Who begins it.
    pub from: End,
    /// Who answers.
    pub to: End,
    /// The number of the protocol (IANA).
    pub protocol: u8,
    /// The destination port; none of a protocol without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// The answer to [`Question::Why`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// What was asked, and whose knowledge it is.
    pub about: String,
    /// One for each address family of both ends; none where no policy exists.
    pub flows: Vec<Flow>,
    /// What else to know.
    pub notes: Vec<Step>,
}

/// What the policies of both ends say of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// The source.
    pub from: IpAddr,
    /// The destination.
    pub to: IpAddr,
    /// The number of the protocol (IANA).
    pub protocol: u8,
    /// The destination port; none of a protocol without ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// What may leave the source.
    pub egress: Side,
    /// What may reach the destination.
    pub ingress: Side,
}

/// What the policies of one end say of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Side {
    /// Whether it passes.
    pub verdict: Verdict,
    /// Why.
    pub steps: Vec<Step>,
}

/// Whether a flow passes at one end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It does.
    Allowed,
    /// It does not.
    Denied,
    /// The end is no pod: no policy is about it.
    NoPod,
    /// The agent of this node decides.
    DecidedBy(String),
}

impl Explained {
    /// The answer as steps.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let flows = self.flows.iter().flat_map(Flow::steps);
        let about = Step::new(self.about.clone());
        let elsewhere = self.flows.iter().flat_map(Flow::elsewhere);
        let hints = elsewhere.map(|(address, node)| {
            Step::note(format!(
                "{address} is a pod of node {node}: ask there, or with a kubeconfig, what its own policies say"
            ))
        });
        let steps = std::iter::once(about).chain(flows).chain(hints);
        steps.chain(self.notes.iter().cloned()).collect()
    }
}

impl Flow {
    /// Whether the flow passes: allowed only if both ends say so; of two that another node
    /// decides the source's.
    #[must_use]
    pub fn verdict(&self) -> &Verdict {
        let both = [&self.egress.verdict, &self.ingress.verdict];
        let find = |is: fn(&&Verdict) -> bool| both.into_iter().find(is);
        find(|one| **one == Verdict::Denied)
            .or_else(|| find(|one| matches!(one, Verdict::DecidedBy(_))))
            .unwrap_or(&Verdict::Allowed)
    }

    /// The ends that other nodes decide, and which.
    pub fn elsewhere(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        let ends = [(self.from, &self.egress), (self.to, &self.ingress)].into_iter();
        ends.filter_map(|(address, side)| match &side.verdict {
            Verdict::DecidedBy(node) => Some((address, node.as_str())),
            _ => None,
        })
    }

    /// The flow as steps.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        let verdict = match self.verdict() {
            Verdict::Denied => "is DENIED",
            Verdict::DecidedBy(_) => "is allowed as far as this node decides",
            Verdict::Allowed | Verdict::NoPod => "is allowed",
        };
        let said = Step::new(format!("{} → {} {verdict}", self.from, self.to));
        let sides = self.egress.steps.iter().chain(&self.ingress.steps);
        std::iter::once(said).chain(sides.cloned()).collect()
    }
}

/// One end of a flow.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// A pod.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// An address: a pod's, a Node's or any other.
    Address(IpAddr),
    /// A Node of this name.
    Node(String),
}

/// Which destination is meant, and who the client is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Where {
    /// The destination.
    pub to: Destination,
    /// The client; none for each kind of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Client>,
    /// Whether as many endpoints are listed as an answer has room for.
    #[serde(default)]
    pub all: bool,
}

/// A destination of connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Destination {
    /// An address with a port, and the number of the protocol (IANA).
    Address(SocketAddr, u8),
    /// A Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// One of its ports; none for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// The number of the protocol of the ports; none for all.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        protocol: Option<u8>,
    },
    /// A node port, at the addresses of the node that have node ports, and the protocol.
    NodePort(u16, u8),
}

/// Who begins a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// A pod of the cluster, whichever.
    Pod,
    /// This node itself.
    Node,
    /// Somebody outside the cluster, or another node.
    Outside,
    /// Whoever has this address.
    Address(IpAddr),
}

/// One step of an answer. Texts may contain names that others have given, so they may hold
/// any character.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// 0, or one more than that of the step before of which this one is a detail.
    #[serde(default)]
    pub depth: u8,
    /// What happens, or what is so.
    pub what: String,
    /// The object that it depends on, with its kind, if there is one; of several of a kind
    /// that decide together, all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// Why it is so, if that is not plain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub because: String,
    /// The endpoint that it is about, if new connections are sent there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SocketAddr>,
    /// What becomes of a client's connections to a Service, if it is about that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Step {
    /// A step of depth 0.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            ..Self::default()
        }
    }

    /// What else to know or to do: a whole sentence.
    pub fn note(sentence: impl Into<String>) -> Self {
        Self::new("note").because(sentence)
    }

    /// The same at this depth.
    #[must_use]
    pub fn depth(self, depth: u8) -> Self {
        Self { depth, ..self }
    }

    /// The same with the object that it depends on.
    #[must_use]
    pub fn object(self, object: impl Into<String>) -> Self {
        let object = object.into();
        Self { object, ..self }
    }

    /// The same with its reason.
    #[must_use]
    pub fn because(self, because: impl Into<String>) -> Self {
        let because = because.into();
        Self { because, ..self }
    }
}

/// An answer for people, each step on a line.
pub fn text(steps: &[Step]) -> String {
    steps.iter().map(|step| format!("{step}\n")).collect()
}

impl fmt::Display for Step {
    /// One line without its end: what others named must not look like lines of ours.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = "  ".repeat(self.depth.into()) + &self.what;
        if !self.object.is_empty() {
            line += &format!(" ({})", self.object);
        }
        if !self.because.is_empty() {
            line += &format!(": {}", self.because);
        }
        f.write_str(&line.replace(char::is_control, "?"))
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod { namespace, name } => write!(f, "{namespace}/{name}"),
            Self::Address(address) => address.fmt(f),
            Self::Node(name) => write!(f, "Node {name}"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(at, protocol) => write!(f, "{at}/{}", protocol_name(*protocol)),
            Self::Service {
                namespace,
                name,
                port,
                protocol,
            } => {
                write!(f, "Service {namespace}/{name}")?;
                if let Some(port) = port {
                    write!(f, " port {port}")?;
                }
                match protocol {
                    Some(protocol) => write!(f, " {}", protocol_name(*protocol)),
                    None => Ok(()),
                }
            }
            Self::NodePort(port, protocol) => {
                write!(f, "node port {port}/{}", protocol_name(*protocol))
            }
        }
    }
}

/// The name of a protocol, or its number.
pub fn protocol_name(number: u8) -> String {
    match number {
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "ICMPv6".to_owned(),
        132 => "SCTP".to_owned(),
        other => format!("protocol {other}"),
    }
}

/// The number of a protocol with ports, as Kubernetes names it.
#[must_use]
pub fn protocol_number(name: &str) -> Option<u8> {
    match name {
        "TCP" => Some(6),
        "UDP" => Some(17),
        "SCTP" => Some(132),
        _ => None,
    }
}

/// The first `most` of these, and how many more there are.
pub fn listed(names: impl ExactSizeIterator<Item = String>, most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let named: Vec<String> = names.take(most).collect();
    match (named.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => named.join(", "),
        (false, more) => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps() -> Vec<Step> {
        vec![
            Step::new("10.0.0.1 → 10.0.0.2 is DENIED"),
            (Step::new("ingress is DENIED").depth(1))
                .object("NetworkPolicy shop/db")
                .because("no rule allows it"),
            Step::note("so\nand so"),
        ]
    }

    #[test]
    fn each_step_is_a_line_whatever_others_have_named() {
        let expected = "\
10.0.0.1 → 10.0.0.2 is DENIED
  ingress is DENIED (NetworkPolicy shop/db): no rule allows it
note: so?and so
";
        assert_eq!(text(&steps()), expected);
    }

    #[test]
    fn programs_get_the_steps_as_they_are() {
        let json = r#"[{"depth":0,"what":"10.0.0.1 → 10.0.0.2 is DENIED"},{"depth":1,"what":"ingress is DENIED","object":"NetworkPolicy shop/db","because":"no rule allows it"},{"depth":0,"what":"note","because":"so\nand so"}]"#;
        assert_eq!(serde_json::to_string(&steps()).unwrap(), json);
        assert_eq!(serde_json::from_str::<Vec<Step>>(json).unwrap(), steps());
    }

    #[test]
    fn a_list_says_how_many_it_leaves_out() {
        let names = |count: usize| (0..count).map(|at| at.to_string());
        assert_eq!(listed(names(0), 2), "none");
        assert_eq!(listed(names(2), 2), "0, 1");
        assert_eq!(listed(names(5), 2), "0, 1 and 3 more");
    }
}
