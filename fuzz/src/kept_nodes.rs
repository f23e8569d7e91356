//! `nodes.jsonl`, in which the agent keeps the Nodes for its next start.

use std::collections::BTreeSet;

use tweed_agent::kept_nodes::format::{FORMAT, Header, parse, write};

/// Nodes that are used are written and read back the same, and the own Node is one of
/// them. What was cut is not used.
pub fn check(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n');
    let first = &input[..end.unwrap_or(input.len())];
    let header = serde_json::from_slice(first).unwrap_or(Header {
        format: FORMAT,
        boot_id: "boot".to_owned(),
        node: "alpha".to_owned(),
        source: "/etc/tweed/nodes.yaml".to_owned(),
        authorities: BTreeSet::new(),
    });
    let expected = Header {
        format: FORMAT,
        ..header
    };
    let Ok(nodes) = parse(input, &expected) else {
        return;
    };
    assert!(nodes.iter().any(|node| node.name == expected.node));
    let mut written = Vec::new();
    let batch = |count| nodes.iter().skip(count).take(2).cloned().collect();
    write(&mut written, &expected, batch).expect("Nodes can be written");
    let read = parse(&written, &expected).expect("what was written is read");
    assert_eq!(read, nodes);
    assert!(parse(&written[..written.len() - 1], &expected).is_err());
}
