//! A page of a list of Nodes, in protobuf or JSON, read as one of the other kinds too.
//!
//! Input: a byte whose lowest bit says protobuf, and whose others are the size of the
//! pieces in which the rest, the page, arrives.

use tweed_core::object::node::Node;

use crate::kinds::check_page;
use crate::nodes::{answer, runtime, same_in_every_encoding};

/// How a page is cut into pieces makes no difference, and its Nodes written in any
/// encoding are read back the same.
pub fn check(input: &[u8]) {
    let Some((first, bytes)) = input.split_first() else {
        return;
    };
    let protobuf = first & 1 != 0;
    let runtime = runtime();
    let read = |piece| runtime.block_on(answer(protobuf, bytes, piece).page::<Node>());
    let whole = read(0);
    let size = usize::from(first >> 1);
    assert_eq!(read(size), whole, "in pieces of {size} bytes");
    if let Ok(page) = whole {
        same_in_every_encoding(&page.objects);
    }
    check_page(protobuf, bytes, size);
}
