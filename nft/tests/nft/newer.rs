//! Beside a table that a newer `nft` has made, the own table is loaded, observed and
//! repaired, although Debian's nft 1.0.6 cannot list such a table
//! (kubernetes/kubernetes#136786).

use tweed_netlink::nf::object::{
    CHAIN_NAME, EXPRESSION_DATA, EXPRESSION_NAME, NEW_CHAIN, NEW_RULE, RULE_CHAIN,
    RULE_EXPRESSIONS, TableKey,
};
use tweed_netlink::nf::{Attributes, FAMILY_INET, Socket, Transaction};

use crate::lab::Host;
use crate::node::{NOTHING, Node, cluster};

const FOREIGN: TableKey<'static> = TableKey {
    family: FAMILY_INET,
    name: "newer",
};
/// `NFT_MSG_NEWTABLE`.
const NEW_TABLE: u8 = 0;

/// An expression with its attributes.
fn expression(name: &str, data: &Attributes) -> Attributes {
    /// `NFTA_LIST_ELEM`.
    const ITEM: u16 = 1;
    let expression = Attributes::new()
        .text(EXPRESSION_NAME, name)
        .nested(EXPRESSION_DATA, data);
    Attributes::new().nested(ITEM, &expression)
}

/// A table with a rule that has one of the bitwise operations that Linux 6.13 has
/// learnt.
fn make_newer_rule(host: &Host) {
    // NFTA_META_DREG, NFTA_META_KEY: the packet's mark into register 1.
    let mark = Attributes::new().number(1, 1).number(2, 3);
    // NFTA_BITWISE_SREG, _DREG, _LEN, _OP, _DATA: NFT_BITWISE_AND with a value.
    let value = Attributes::new().bytes(1, &[0xff, 0, 0, 0]);
    let and = Attributes::new()
        .number(1, 1)
        .number(2, 1)
        .number(3, 4)
        .number(6, 3)
        .nested(7, &value);
    let mut expressions = expression("meta", &mark).as_bytes().to_vec();
    expressions.extend(expression("bitwise", &and).as_bytes());
    let rule = Attributes::new()
        .text(RULE_CHAIN, "c")
        .nested(RULE_EXPRESSIONS, &expressions.into());
    host.run(|| {
        let mut transaction = Transaction::new("the foreign table");
        transaction.create(FOREIGN.message(NEW_TABLE, Attributes::new()));
        let chain = Attributes::new().text(CHAIN_NAME, "c");
        transaction.create(FOREIGN.message(NEW_CHAIN, chain));
        transaction.create(FOREIGN.message(NEW_RULE, rule));
        Socket::open().unwrap().commit(&transaction).unwrap();
    });
}

#[test]
fn a_table_that_nft_cannot_list_does_not_disturb_the_own_one() {
    let node = Node::new();
    make_newer_rule(&node.host);
    let is_listed = "nft list ruleset >/dev/null 2>&1 && echo listed || echo failed";
    assert_eq!(
        node.host.sh(is_listed).trim(),
        "failed",
        "this nft can list the foreign table, so the test shows nothing: give it a newer one"
    );

    assert_eq!(node.reconcile(&cluster(3)).messages, 1, "loads");
    assert_eq!(node.reconcile(&cluster(5)).changed, 3 * 2, "elements");
    node.restart();
    assert_eq!(node.reconcile(&cluster(5)), NOTHING, "is observed");
    let whole = node.listing();
    for tampering in [
        "nft flush chain inet tweed from_pod",
        "nft flush set inet tweed vxlan_ipv4_24_sources4",
        "nft delete table inet tweed",
    ] {
        node.host.sh(tampering);
        assert!(node.due(), "{tampering}");
        assert!(node.reconcile(&cluster(5)).repaired > 0, "{tampering}");
        assert_eq!(node.listing(), whole, "{tampering}");
    }
    assert_eq!(node.host.sh(is_listed).trim(), "failed");
}
