//! The rulesets of others, as nf_tables dumps them, and the walk through them.
//!
//! Input: the family of the packets, 4 or 6, then the messages of a dump: tables, chains,
//! rules and elements. With 128 added to the first byte the rest is a program from which
//! [`made`] makes a ruleset, as few changes of real messages are messages again.

use std::collections::BTreeSet;
use std::convert::Infallible;

use tweed_core::family::Family;
use tweed_diagnosis::{Flow, FlowLink, Packets, Vxlan, nf_tables};
use tweed_netlink::answer::{decode_object, messages};
use tweed_netlink::nf::object::{
    CHAIN_NAME, NEW_CHAIN, NEW_ELEMENTS, NEW_RULE, NEW_TABLE, RULE_CHAIN, SET_NAME, TABLE_NAME,
    TableKey,
};
use tweed_netlink::nf::{Message, NfTables};

mod made;

/// Most chains that a walk reads the rules of, how often each where chains lead to each
/// other in a circle, and packets that a chain is asked about.
const MAX_CHAINS: usize = 256;
const DEEPEST: usize = 17;
const PACKETS: usize = 3;
/// What the first byte of a program has besides the family.
const PROGRAM: u8 = 128;

/// The walk ends within its bound of chains; each problem names a chain of the ruleset;
/// what is found twice is the same.
pub fn check(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    let family = match first & !PROGRAM {
        6 => Family::V6,
        _ => Family::V4,
    };
    let mut dump = match first & PROGRAM {
        0 => Dump::read(rest),
        _ => Dump::of(made::ruleset(rest)),
    };
    let packets = Packets {
        pods: [family].into(),
        direct: [family].into(),
        vxlan: Some(Vxlan { port: 8472, family }),
        flows: flows(family),
    };
    let Ok(problems) = nf_tables::drops(&mut dump, &packets);
    let bound = dump.chains.len() * PACKETS * MAX_CHAINS * DEEPEST;
    assert!(dump.reads <= bound, "{} reads of rules", dump.reads);
    for problem in &problems {
        let names = |chain: &Message| {
            let name = chain.text(CHAIN_NAME).unwrap_or_default();
            problem.object.ends_with(name)
        };
        assert!(dump.chains.iter().any(names), "{problem}");
        assert!(!problem.cure.is_empty());
    }
    let Ok(again) = nf_tables::drops(&mut dump, &packets);
    assert_eq!(again, problems);
}

/// What pods here send to one of another node over a direct route, and it to them.
pub(crate) fn flows(family: Family) -> Vec<Flow> {
    let ranges = match family {
        Family::V4 => ["10.244.1.0/24", "10.244.2.0/24"],
        Family::V6 => ["fd00:0:0:1::/64", "fd00:0:0:2::/64"],
    };
    let parsed = ranges.iter().filter_map(|range| range.parse().ok());
    let ends: Vec<_> = parsed
        .zip([FlowLink::Pod, FlowLink::other("eth0", 2)])
        .collect();
    let [here, there] = ends[..] else {
        return Vec::new();
    };
    [(here, there), (there, here)]
        .map(|(from, to)| Flow::between(from, to, &BTreeSet::new()))
        .into()
}

/// A ruleset in memory.
#[derive(Default)]
struct Dump {
    tables: Vec<Message>,
    chains: Vec<Message>,
    rules: Vec<Message>,
    elements: Vec<Message>,
    /// How often the rules of a chain were read.
    reads: usize,
}

impl Dump {
    fn read(datagram: &[u8]) -> Self {
        let messages = messages(datagram).map_while(Result::ok);
        Self::of(messages.filter_map(|message| decode_object::<NfTables>(message).ok()))
    }

    fn of(messages: impl IntoIterator<Item = Message>) -> Self {
        let mut dump = Self::default();
        for message in messages {
            match message.number() {
                Some(NEW_TABLE) => dump.tables.push(message),
                Some(NEW_CHAIN) => dump.chains.push(message),
                Some(NEW_RULE) => dump.rules.push(message),
                Some(NEW_ELEMENTS) => dump.elements.push(message),
                _ => {}
            }
        }
        dump
    }
}

/// Those of the objects in `table` whose attribute `kind` is `name`.
fn find(objects: &[Message], table: TableKey<'_>, kind: u16, name: &str) -> Vec<Message> {
    let is_one = |object: &&Message| {
        object.family == table.family
            && object.text(TABLE_NAME) == Some(table.name)
            && object.text(kind) == Some(name)
    };
    objects.iter().filter(is_one).cloned().collect()
}

impl nf_tables::Ruleset for Dump {
    type Error = Infallible;

    fn tables(&mut self) -> Result<Vec<Message>, Infallible> {
        Ok(self.tables.clone())
    }

    fn chains(&mut self) -> Result<Vec<Message>, Infallible> {
        Ok(self.chains.clone())
    }

    fn rules(&mut self, table: TableKey<'_>, chain: &str) -> Result<Vec<Message>, Infallible> {
        self.reads += 1;
        Ok(find(&self.rules, table, RULE_CHAIN, chain))
    }

    fn elements(&mut self, table: TableKey<'_>, set: &str) -> Result<Vec<Message>, Infallible> {
        Ok(find(&self.elements, table, SET_NAME, set))
    }
}
