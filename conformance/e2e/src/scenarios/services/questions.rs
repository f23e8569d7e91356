//! Who asks what, who is to answer, and whom the servers are to see.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use tweed_lab::Transport;

use super::cast::{Cast, Door, Server};
use crate::ask::{TRANSPORTS, ask, stays_silent};
use crate::node::Node;
use crate::place::Place;

/// Questions until two servers have both been met, at most: by chance alone they
/// are not enough once in 2^63.
const MOST: usize = 64;

/// Questions of which the same server has to answer each.
const STICKY: usize = 16;

/// A way into a Service, from somewhere.
struct Question<'a> {
    what: &'static str,
    from: &'a Place,
    door: Door,
    /// All of them have to answer, and no other.
    by: &'a [Server],
    source: Source<'a>,
}

/// Whom a server sees.
enum Source<'a> {
    Address(IpAddr),
    /// A node that has put itself in the client's place.
    Node(&'a Node),
}

/// Asks all questions by TCP and UDP, and gives how many answers came.
///
/// # Errors
/// All that was wrong, a line each.
pub fn ask_all(cast: &Cast) -> Result<usize> {
    let mut count = 0;
    let mut wrong = Vec::new();
    let mut note = |what: &str, outcome: Result<usize>| match outcome {
        Ok(answers) => count += answers,
        Err(error) => wrong.push(format!("{what}: {error:#}")),
    };
    for transport in TRANSPORTS {
        for question in questions(cast) {
            note(question.what, question.ask(transport));
        }
        for from in [&cast.neighbour, &cast.stranger] {
            note("session affinity", stays_with_one(cast, from, transport));
        }
        let closed = cast.local.on(&cast.bare).by(transport);
        let silence = stays_silent(&cast.outside, transport, closed);
        note("policy Local, no server on the node", silence.map(|()| 0));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(count)
}

/// What Kubernetes promises, and tweed for pods that ask another node: over VXLAN
/// as their own node.
fn questions(cast: &Cast) -> Vec<Question<'_>> {
    let all = cast.servers.as_slice();
    let (first_alone, second_alone) = all.split_at(1);
    let [first, second] = &cast.servers;
    let question = |what, from, door, by, source| Question {
        what,
        from,
        door,
        by,
        source,
    };
    let itself = |place: &Place| Source::Address(place.address);
    let Cast {
        neighbour,
        stranger,
        bare,
        outside,
        web,
        local,
        ..
    } = cast;
    vec![
        question(
            "a pod beside a server",
            neighbour,
            web.cluster(),
            all,
            itself(neighbour),
        ),
        question(
            "a pod on another node",
            stranger,
            web.cluster(),
            all,
            itself(stranger),
        ),
        question(
            "a server itself",
            &first.place,
            web.cluster(),
            all,
            itself(&first.place),
        ),
        question(
            "a server's node",
            &first.node.place,
            web.cluster(),
            all,
            Source::Node(&first.node),
        ),
        question(
            "another node",
            &bare.place,
            web.cluster(),
            all,
            Source::Node(bare),
        ),
        question(
            "node port of a server's node",
            outside,
            web.on(&first.node),
            all,
            Source::Node(&first.node),
        ),
        question(
            "node port of another node",
            outside,
            web.on(bare),
            all,
            Source::Node(bare),
        ),
        question(
            "node port of the pod's own node",
            neighbour,
            web.on(&first.node),
            all,
            Source::Node(&first.node),
        ),
        question(
            "node port, by a pod on another node",
            stranger,
            web.on(&first.node),
            all,
            Source::Node(&first.node),
        ),
        question(
            "policy Local, first node",
            outside,
            local.on(&first.node),
            first_alone,
            itself(outside),
        ),
        question(
            "policy Local, second node",
            outside,
            local.on(&second.node),
            second_alone,
            itself(outside),
        ),
        question(
            "policy Local, by a pod on another node",
            stranger,
            local.on(&first.node),
            first_alone,
            itself(&bare.place),
        ),
    ]
}

impl Question<'_> {
    /// Asks until each of the servers has answered.
    fn ask(&self, transport: Transport) -> Result<usize> {
        let mut missing: BTreeSet<&str> = self.by.iter().map(Server::name).collect();
        for count in 1..=MOST {
            let server = self.ask_once(transport)?;
            missing.remove(server.name());
            if missing.is_empty() {
                return Ok(count);
            }
        }
        bail!("of {MOST} answers by {transport:?} none came from {missing:?}")
    }

    /// Asks once, and looks at the answer.
    fn ask_once(&self, transport: Transport) -> Result<&Server> {
        let to = self.door.by(transport);
        let answer = ask(self.from, transport, to)?;
        let told = || format!("{to} by {transport:?} from {}: {answer:?}", self.from.name);
        let mut servers = self.by.iter();
        let server = servers
            .find(|server| server.name() == answer.server)
            .with_context(|| format!("{} was not to answer", told()))?;
        let expected = self.source_for(server);
        ensure!(answer.seen == expected, "{}, and not {expected}", told());
        Ok(server)
    }

    fn source_for(&self, server: &Server) -> IpAddr {
        match self.source {
            // Its answer would otherwise not come back through the Service.
            _ if self.from.name == server.name() => server.node.place.address,
            Source::Address(address) => address,
            Source::Node(node) => node.seen_on(&server.node),
        }
    }
}

/// Asks the Service with session affinity, which is to stay with one server.
fn stays_with_one(cast: &Cast, from: &Place, transport: Transport) -> Result<usize> {
    let question = Question {
        what: "session affinity",
        from,
        door: cast.sticky.cluster(),
        by: &cast.servers,
        source: Source::Address(from.address),
    };
    let servers = (0..STICKY)
        .map(|_| question.ask_once(transport).map(Server::name))
        .collect::<Result<BTreeSet<_>>>()?;
    ensure!(
        servers.len() == 1,
        "{servers:?} answered {} by {transport:?}",
        from.name
    );
    Ok(STICKY)
}
