//! The file of `--nodes`: manifests of all kinds in YAML or JSON.

use std::collections::BTreeSet;

use tweed_core::object::node::Node;
use tweed_watch::manifests::parse;

use crate::kinds::check_file;
use crate::nodes::same_in_every_encoding;

/// Nodes that are read have names of their own, and written in any encoding they are
/// read back the same.
pub fn check(input: &[u8]) {
    check_file(input);
    let Ok(nodes) = parse::<Node>(input) else {
        return;
    };
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names.len(), nodes.len());
    same_in_every_encoding(&nodes);
}
