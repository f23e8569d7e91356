//! The content of the file in which the Nodes are kept: a [`Header`], then a line for
//! each change. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use serde::{Deserialize, Serialize};
use tweed_core::object::node::Node;

/// Version of the file's format. A key that comes to mean something else, or that must
/// not be ignored, needs another one.
pub const FORMAT: u32 = 1;

/// What the Nodes in the file belong to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`FORMAT`] of the program that wrote it.
    pub format: u32,
    /// The boot in which they were listed.
    pub boot_id: String,
    /// The name of the own Node.
    pub node: String,
    /// The API server or the file that described the Nodes.
    pub source: String,
    /// Which certificates that API server's may be signed with: the URL may be the same in
    /// another cluster. Empty where none are given, and in files of older versions.
    #[serde(default)]
    pub authorities: BTreeSet<String>,
}

/// A line after the header.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// This Node is there, as it says.
    Node(Node),
    /// The list is complete; what follows has changed since.
    Listed,
    /// The Node of this name is gone.
    Deleted(String),
}

/// Why the Nodes in a file are not used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It is not known from where the Nodes come now.
    #[error("{0}")]
    NoSource(String),
    /// The file cannot be read.
    #[error("the file cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A line is not understood.
    #[error("line {line} is damaged: {why}")]
    Damaged {
        /// Its number, from 1 on.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// It was cut, or the list in it has no end.
    #[error("the file is incomplete")]
    Incomplete,
    /// The kernel has been started since.
    #[error("they are of another boot")]
    OtherBoot,
    /// It belongs to another node.
    #[error("they are of the Node {0}")]
    OtherNode(String),
    /// Its Nodes came from another API server or file.
    #[error("they came from {0}")]
    OtherSource(String),
    /// Its Nodes came from an API server of another cluster.
    #[error("they are of another cluster, whose API server {0} had another certificate authority")]
    OtherCluster(String),
    /// The own Node is not among its Nodes.
    #[error("the own Node is not among them")]
    NoOwnNode,
}

/// Appends a line.
pub(super) fn push(text: &mut Vec<u8>, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}

/// Writes a whole file, and returns its size. `batch` gives the Nodes that follow the
/// first so many, and none at the end: thousands of them are not held a second time.
///
/// # Errors
/// Those of `out`; a Node cannot be written as JSON.
pub fn write(
    out: &mut impl io::Write,
    header: &Header,
    mut batch: impl FnMut(usize) -> Vec<Node>,
) -> io::Result<u64> {
    let (mut text, mut size, mut count) = (Vec::new(), 0, 0);
    push(&mut text, header)?;
    loop {
        let nodes = batch(count);
        count += nodes.len();
        let is_end = nodes.is_empty();
        for node in nodes {
            push(&mut text, &Line::Node(node))?;
        }
        if is_end {
            push(&mut text, &Line::Listed)?;
        }
        out.write_all(&text)?;
        size += text.len() as u64;
        if is_end {
            return Ok(size);
        }
        text.clear();
    }
}

/// Reads the Nodes in such a content, which must be `expected`'s.
///
/// # Errors
/// Why they are not used.
pub fn parse(text: &[u8], expected: &Header) -> Result<Vec<Node>, Unusable> {
    let complete = text.strip_suffix(b"\n").ok_or(Unusable::Incomplete)?;
    let damaged = |line, error: serde_json::Error| Unusable::Damaged {
        line: line + 1,
        why: error.to_string(),
    };
    let mut lines = complete.split(|byte| *byte == b'\n').enumerate();
    let (_, header) = lines.next().ok_or(Unusable::Incomplete)?;
    let header = serde_json::from_slice(header).map_err(|error| damaged(0, error))?;
    check(header, expected)?;
    let mut nodes = BTreeMap::new();
    let mut listed = false;
    for (number, line) in lines {
        match serde_json::from_slice(line).map_err(|error| damaged(number, error))? {
            Line::Node(node) => drop(nodes.insert(node.name.clone(), node)),
            Line::Deleted(name) => drop(nodes.remove(&name)),
            Line::Listed => listed = true,
        }
    }
    match (listed, nodes.contains_key(&expected.node)) {
        (false, _) => Err(Unusable::Incomplete),
        (true, false) => Err(Unusable::NoOwnNode),
        (true, true) => Ok(nodes.into_values().collect()),
    }
}

fn check(header: Header, expected: &Header) -> Result<(), Unusable> {
    if header.format != expected.format {
        return Err(Unusable::Damaged {
            line: 1,
            why: format!("format {} is not known", header.format),
        });
    }
    if header.boot_id != expected.boot_id {
        return Err(Unusable::OtherBoot);
    }
    if header.node != expected.node {
        return Err(Unusable::OtherNode(header.node));
    }
    if header.source != expected.source {
        return Err(Unusable::OtherSource(header.source));
    }
    let known = !header.authorities.is_empty() && !expected.authorities.is_empty();
    if known && header.authorities.is_disjoint(&expected.authorities) {
        return Err(Unusable::OtherCluster(header.source));
    }
    Ok(())
}
