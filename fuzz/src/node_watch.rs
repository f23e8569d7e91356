//! The frames or lines of a watch of Nodes, read as one of the other kinds too.
//!
//! Input: as of [`crate::node_list`].

use crate::answer::Change;
use tweed_core::object::node::Node;

use crate::kinds::check_watch;
use crate::nodes::{answer, runtime, same_in_every_encoding};

/// How a watch is cut into pieces makes no difference: neither to what is read nor to
/// where it fails. Its Nodes written in any encoding are read back the same.
pub fn check(input: &[u8]) {
    let Some((first, body)) = input.split_first() else {
        return;
    };
    let protobuf = first & 1 != 0;
    let runtime = runtime();
    let read = |piece| runtime.block_on(answer(protobuf, body, piece).watch::<Node>());
    let whole = read(0);
    let size = usize::from(first >> 1);
    assert_eq!(read(size), whole, "in pieces of {size} bytes");
    assert_ne!(whole.version.as_deref(), Some(""));
    let nodes: Vec<Node> = whole
        .changes
        .into_iter()
        .filter_map(|change| match change {
            Change::Apply(node) => Some(node),
            Change::Delete(_) => None,
        })
        .collect();
    same_in_every_encoding(&nodes);
    check_watch(protobuf, body, size);
}
