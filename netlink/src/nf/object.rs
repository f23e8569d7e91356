//! Tables, chains, rules and sets: their attributes, and the requests about them
//! (`linux/netfilter/nf_tables.h`).

use std::fmt;

use nix::errno::Errno;

use super::attributes::{find, number, text};
use super::{Attributes, FAMILY_ANY, Message, Request, Socket, family_word};
use crate::error::Error;

// enum nf_tables_msg_types
/// `NFT_MSG_NEWTABLE`.
pub const NEW_TABLE: u8 = 0;
/// `NFT_MSG_GETTABLE`.
pub const GET_TABLE: u8 = 1;
/// `NFT_MSG_DELTABLE`.
pub const DELETE_TABLE: u8 = 2;
/// `NFT_MSG_NEWCHAIN`.
pub const NEW_CHAIN: u8 = 3;
/// `NFT_MSG_GETCHAIN`.
pub const GET_CHAIN: u8 = 4;
/// `NFT_MSG_DELCHAIN`.
pub const DELETE_CHAIN: u8 = 5;
/// `NFT_MSG_NEWRULE`.
pub const NEW_RULE: u8 = 6;
/// `NFT_MSG_GETRULE`.
pub const GET_RULE: u8 = 7;
/// `NFT_MSG_DELRULE`.
pub const DELETE_RULE: u8 = 8;
/// `NFT_MSG_GETSET`.
pub const GET_SET: u8 = 10;
/// `NFT_MSG_NEWSETELEM`.
pub const NEW_ELEMENTS: u8 = 12;
/// `NFT_MSG_GETSETELEM`.
pub const GET_ELEMENTS: u8 = 13;
/// `NFT_MSG_DELSETELEM`.
pub const DELETE_ELEMENTS: u8 = 14;
/// `NFT_MSG_NEWGEN`: the end of a transaction.
pub const NEW_GENERATION: u8 = 15;
/// `NFT_MSG_GETGEN`.
const GET_GENERATION: u8 = 16;
/// `NFT_MSG_GETOBJ`.
const GET_OBJECT: u8 = 19;

/// The table's name is the first attribute of every kind of object:
/// `NFTA_TABLE_NAME`, `NFTA_CHAIN_TABLE`, `NFTA_RULE_TABLE`, …
pub const TABLE_NAME: u16 = 1;
/// `NFTA_TABLE_FLAGS`.
pub const TABLE_FLAGS: u16 = 2;
/// `NFT_TABLE_F_DORMANT`: no packet passes through the table's chains.
pub const TABLE_FLAG_DORMANT: u32 = 0x1;
/// `NFTA_TABLE_USE`: how many chains, sets, objects and flow tables it has.
pub const TABLE_USE: u16 = 3;
/// `NFTA_CHAIN_NAME`.
pub const CHAIN_NAME: u16 = 3;
/// `NFTA_CHAIN_HOOK`.
const CHAIN_HOOK: u16 = 4;
/// `NFTA_CHAIN_POLICY`.
pub const CHAIN_POLICY: u16 = 5;
/// `NFTA_CHAIN_TYPE`.
pub const CHAIN_TYPE: u16 = 7;
/// `NFTA_HOOK_HOOKNUM`.
const HOOK_NUMBER: u16 = 1;
/// `NFTA_HOOK_PRIORITY`: a signed number.
const HOOK_PRIORITY: u16 = 2;
/// `NFTA_RULE_CHAIN`.
pub const RULE_CHAIN: u16 = 2;
/// `NFTA_RULE_HANDLE`: a number of 64 bits by which a rule is named.
pub const RULE_HANDLE: u16 = 3;
/// `NFTA_RULE_EXPRESSIONS`.
pub const RULE_EXPRESSIONS: u16 = 4;
/// `NFTA_RULE_USERDATA`: the comment.
pub const RULE_USERDATA: u16 = 7;
/// `NFTA_EXPR_NAME`.
pub const EXPRESSION_NAME: u16 = 1;
/// `NFTA_EXPR_DATA`.
pub const EXPRESSION_DATA: u16 = 2;
/// `NFTA_SET_NAME` and `NFTA_SET_ELEM_LIST_SET`.
pub const SET_NAME: u16 = 2;
/// `NFTA_SET_FLAGS`.
pub const SET_FLAGS: u16 = 3;
/// `NFT_SET_ANONYMOUS`: a set without a name, in one rule.
pub const SET_FLAG_ANONYMOUS: u32 = 0x1;
/// `NFT_SET_MAP`.
pub const SET_FLAG_MAP: u32 = 0x8;
/// `NFTA_SET_DATA_TYPE`.
pub const SET_DATA_TYPE: u16 = 6;
/// `NFT_DATA_VERDICT`: the type of the data of a verdict map.
pub const DATA_TYPE_VERDICT: u32 = 0xffff_ff00;
/// `NFTA_SET_ELEM_LIST_ELEMENTS`.
pub const ELEMENTS: u16 = 3;
/// `NFTA_OBJ_NAME`.
pub const OBJECT_NAME: u16 = 2;
/// `NFTA_OBJ_TYPE`.
const OBJECT_TYPE: u16 = 3;
/// `NFTA_OBJ_DATA`.
const OBJECT_DATA: u16 = 4;
/// `NFT_OBJECT_COUNTER`.
const COUNTER: u32 = 1;
/// `NFTA_COUNTER_BYTES`.
const COUNTER_BYTES: u16 = 1;
/// `NFTA_COUNTER_PACKETS`.
const COUNTER_PACKETS: u16 = 2;

/// What a counter that rules name has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    /// The counter's name.
    pub name: String,
    /// Number of packets.
    pub packets: u64,
    /// Their length.
    pub bytes: u64,
}

/// A table by family and name; methods ask for what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableKey<'a> {
    /// `NFPROTO_…`.
    pub family: u8,
    /// Its name.
    pub name: &'a str,
}

impl fmt::Display for TableKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", family_word(self.family), self.name)
    }
}

impl TableKey<'_> {
    /// A message about the table, or about an object in it with these attributes.
    pub fn message(&self, number: u8, attributes: Attributes) -> Message {
        Message::new(number, self.family, attributes.text(TABLE_NAME, self.name))
    }

    /// The table itself; none if there is none.
    ///
    /// # Errors
    /// When the kernel cannot be asked; likewise the others.
    pub fn get(&self, socket: &mut Socket) -> Result<Option<Message>, Error> {
        let object = format!("table {self}");
        get(socket, object, self.message(GET_TABLE, Attributes::new()))
    }

    /// One chain; none if there is none.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn chain(&self, socket: &mut Socket, name: &str) -> Result<Option<Message>, Error> {
        let key = Attributes::new().text(CHAIN_NAME, name);
        let object = format!("chain {name} of table {self}");
        get(socket, object, self.message(GET_CHAIN, key))
    }

    /// The rules of all chains, or of one.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn rules(&self, socket: &mut Socket, chain: Option<&str>) -> Result<Vec<Message>, Error> {
        let (key, object) = match chain {
            Some(chain) => (
                Attributes::new().text(RULE_CHAIN, chain),
                format!("the rules of chain {chain} of table {self}"),
            ),
            None => (Attributes::new(), format!("the rules of table {self}")),
        };
        dump(socket, object, self.message(GET_RULE, key))
    }

    /// The sets and maps, without their elements.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn sets(&self, socket: &mut Socket) -> Result<Vec<Message>, Error> {
        let object = format!("the sets of table {self}");
        dump(socket, object, self.message(GET_SET, Attributes::new()))
    }

    /// What the counters that rules name have counted.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn counted(&self, socket: &mut Socket) -> Result<Vec<Counted>, Error> {
        let counters = self.counters(socket)?;
        let counted = counters.iter().filter_map(|counter| {
            let data = counter.attribute(OBJECT_DATA)?;
            let number = |kind| Some(u64::from_be_bytes(find(data, kind)?.try_into().ok()?));
            Some(Counted {
                name: counter.text(OBJECT_NAME)?.to_owned(),
                packets: number(COUNTER_PACKETS)?,
                bytes: number(COUNTER_BYTES)?,
            })
        });
        Ok(counted.collect())
    }

    /// The counters that rules name.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn counters(&self, socket: &mut Socket) -> Result<Vec<Message>, Error> {
        let kind = Attributes::new().number(OBJECT_TYPE, COUNTER);
        let object = format!("the counters of table {self}");
        dump(socket, object, self.message(GET_OBJECT, kind))
    }

    /// One element of a set or map without intervals, by a list with its key alone; none if
    /// there is no such element or set.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn element(
        &self,
        socket: &mut Socket,
        set: &str,
        key: &Attributes,
    ) -> Result<Option<Message>, Error> {
        let attributes = Attributes::new().text(SET_NAME, set).nested(ELEMENTS, key);
        let object = format!("an element of set {set} of table {self}");
        get(socket, object, self.message(GET_ELEMENTS, attributes))
    }

    /// The elements of a set or map, in several messages.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn elements(&self, socket: &mut Socket, set: &str) -> Result<Vec<Message>, Error> {
        let key = Attributes::new().text(SET_NAME, set);
        let object = format!("the elements of set {set} of table {self}");
        dump(socket, object, self.message(GET_ELEMENTS, key))
    }
}

/// The tables of all families.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn tables(socket: &mut Socket) -> Result<Vec<Message>, Error> {
    let message = Message::new(GET_TABLE, FAMILY_ANY, Attributes::new());
    dump(socket, "all tables".to_owned(), message)
}

/// The chains of all tables and families.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn chains(socket: &mut Socket) -> Result<Vec<Message>, Error> {
    let message = Message::new(GET_CHAIN, FAMILY_ANY, Attributes::new());
    dump(socket, "the chains of all tables".to_owned(), message)
}

/// Number of transactions that the namespace's nf_tables has seen, modulo 2³².
///
/// # Errors
/// When the kernel cannot be asked.
pub fn generation(socket: &mut Socket) -> Result<Option<u32>, Error> {
    /// `NFTA_GEN_ID`.
    const ID: u16 = 1;
    let message = Message::new(GET_GENERATION, FAMILY_ANY, Attributes::new());
    let answer = get(socket, "the ruleset's generation".to_owned(), message)?;
    Ok(answer.and_then(|answer| answer.attribute(ID).and_then(number)))
}

fn get(socket: &mut Socket, object: String, message: Message) -> Result<Option<Message>, Error> {
    match socket.get(&Request::get("read", object, message)) {
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(None),
        answer => answer.map(Some),
    }
}

/// No object where the table, chain or set is missing.
fn dump(socket: &mut Socket, object: String, message: Message) -> Result<Vec<Message>, Error> {
    match socket.dump(&Request::dump("dump", object, message)) {
        Err(error) if error.errno() == Some(Errno::ENOENT) => Ok(Vec::new()),
        answer => answer,
    }
}

impl Message {
    /// An attribute as text.
    pub fn text(&self, kind: u16) -> Option<&str> {
        self.attribute(kind).and_then(text)
    }

    /// The hook that a chain is at: `enum nf_inet_hooks`.
    pub fn hook(&self) -> Option<u32> {
        find(self.attribute(CHAIN_HOOK)?, HOOK_NUMBER).and_then(number)
    }

    /// The place of a chain among those at its hook, lowest first.
    pub fn priority(&self) -> Option<i32> {
        let priority = find(self.attribute(CHAIN_HOOK)?, HOOK_PRIORITY).and_then(number)?;
        Some(priority.cast_signed())
    }
}
