//! Every shape of a set or map: loaded as text, changed over netlink, and seen alike
//! by `nft -j` and by the own dump.

use std::path::Path;
use std::sync::{Arc, Mutex};

use ipnetwork::IpNetwork;
use tempfile::TempDir;
use tweed_netlink::nf::FAMILY_INET;
use tweed_netlink::nf::object::TableKey;
use tweed_netlink::nf::verdict::Verdict;
use tweed_nft::element::{Change, Contents, Data, Element, Elements, ElementsDelta, Field, Key};
use tweed_nft::keeper::Keeper;
use tweed_nft::provider::Provider;
use tweed_nft::table::{Chain, DataType, KeptBy, Set, Skeleton};
use tweed_nft::value::{Type, Value};
use tweed_nft::{Connection, Outcome};

use crate::lab::Host;
use crate::node::NOTHING;

const TABLE: TableKey<'static> = TableKey {
    family: FAMILY_INET,
    name: "shapes",
};

fn skeleton() -> Skeleton {
    let set = |name: &str, key: &[Type], data: Option<DataType>, interval| Set {
        name: name.to_owned(),
        key: key.to_vec(),
        data,
        interval,
        kept_by: KeptBy::Keeper,
    };
    let tuple = [Type::Ipv4, Type::Protocol, Type::Port];
    let values = |types: &[Type]| Some(DataType::Values(types.to_vec()));
    let sets = vec![
        set("single", &[Type::Ipv6], None, false),
        set("ranges", &[Type::Ipv4], None, true),
        set("port_ranges", &[Type::Port], None, true),
        set("concatenated", &tuple, None, false),
        set("area", &tuple, None, true),
        set("targets", &tuple, values(&[Type::Ipv4, Type::Port]), false),
        set("numbers", &[Type::Ipv4], values(&[Type::Class]), true),
        set(
            "verdicts",
            &[Type::Protocol],
            Some(DataType::Verdict),
            false,
        ),
        set(
            "area_verdicts",
            &[Type::Ipv4, Type::Port],
            Some(DataType::Verdict),
            true,
        ),
        set(
            "range_verdicts",
            &[Type::Ipv6],
            Some(DataType::Verdict),
            true,
        ),
    ];
    let chain = |name: &'static str| Chain {
        name: name.into(),
        hook: None,
        rules: Vec::new(),
    };
    let mut chains = vec![chain("one"), chain("two"), chain("user")];
    chains[2].rules = vec![
        "meta l4proto vmap @verdicts".to_owned(),
        // Without the protocol, as Linux 7.2 refuses it in a key of ranges.
        "ip saddr . th dport vmap @area_verdicts".to_owned(),
        "meta priority set ip saddr map @numbers".to_owned(),
    ];
    Skeleton::new(TABLE, 1, sets, Vec::new(), chains)
}

fn address(text: &str) -> Field {
    Value::Address(text.parse().unwrap()).into()
}

fn network(text: &str) -> Field {
    text.parse::<IpNetwork>().unwrap().into()
}

fn ports(first: u16, last: u16) -> Field {
    Field {
        first: Value::Port(first),
        last: Value::Port(last),
    }
}

fn protocol(number: u8) -> Field {
    Value::Protocol(number).into()
}

fn tuple<const N: usize>(fields: [Field; N]) -> Key {
    fields.into_iter().collect()
}

fn data(values: &[Value]) -> Option<Box<Data>> {
    Some(Box::new(Data::from(values.to_vec())))
}

fn verdict(verdict: Verdict) -> Option<Box<Data>> {
    Some(Box::new(Data::Verdict(verdict)))
}

/// Elements of every shape; `n` makes others.
fn contents(n: u8) -> Contents {
    let ip = |last: u8| address(&format!("192.0.2.{last}"));
    let target = |port| data(&[ip(n).first, Value::Port(port)]);
    let chain = |name: &str| name.to_owned();
    let sets: [(&str, Elements); 10] = [
        (
            "single",
            [(address(&format!("fd00::{n}")).into(), None)].into(),
        ),
        (
            "ranges",
            [
                (network(&format!("10.{n}.0.0/16")).into(), None),
                (network("255.255.255.0/24").into(), None),
                (address("0.0.0.0").into(), None),
            ]
            .into(),
        ),
        (
            "port_ranges",
            [
                (ports(1, 80).into(), None),
                (ports(1000 + u16::from(n), u16::MAX).into(), None),
            ]
            .into(),
        ),
        (
            "concatenated",
            [(tuple([ip(1), protocol(6), ports(80, 80)]), None)].into(),
        ),
        (
            "area",
            [
                (
                    tuple([network("10.0.0.0/8"), protocol(17), ports(1, 99)]),
                    None,
                ),
                (tuple([ip(n), protocol(6), ports(443, 443)]), None),
            ]
            .into(),
        ),
        (
            "targets",
            [
                (tuple([ip(1), protocol(6), ports(80, 80)]), target(8080)),
                (tuple([ip(2), protocol(17), ports(53, 53)]), target(5353)),
            ]
            .into(),
        ),
        (
            "numbers",
            [
                (
                    network("10.1.0.0/16").into(),
                    data(&[Value::Class(0x100 + u32::from(n))]),
                ),
                (network("10.2.0.0/16").into(), data(&[Value::Class(7)])),
            ]
            .into(),
        ),
        (
            "verdicts",
            [
                (protocol(1).into(), verdict(Verdict::Accept)),
                (protocol(6).into(), verdict(Verdict::Jump(chain("one")))),
                (protocol(17).into(), verdict(Verdict::Goto(chain("two")))),
                (protocol(100 + n).into(), verdict(Verdict::Drop)),
            ]
            .into(),
        ),
        (
            "area_verdicts",
            [(
                tuple([network(&format!("10.{n}.0.0/16")), ports(1, 1023)]),
                verdict(Verdict::Goto(chain(["one", "two"][usize::from(n % 2)]))),
            )]
            .into(),
        ),
        (
            "range_verdicts",
            [
                (network("fd00::/64").into(), verdict(Verdict::Return)),
                (network("ff00::/8").into(), verdict(Verdict::Drop)),
            ]
            .into(),
        ),
    ];
    sets.map(|(name, elements)| (name.to_owned(), elements))
        .into()
}

fn nothing() -> Contents {
    let sets = skeleton();
    let names = sets.sets.iter().map(|set| set.name.clone());
    names.map(|name| (name, Elements::new())).collect()
}

/// A host with the table.
struct Node {
    host: Host,
    run_dir: TempDir,
    keeper: Arc<Mutex<Option<(Keeper, Connection)>>>,
}

impl Node {
    fn new() -> Self {
        let node = Self {
            host: Host::new(),
            run_dir: tempfile::tempdir().unwrap(),
            keeper: Arc::default(),
        };
        node.restart();
        node
    }

    fn restart(&self) {
        let keeper = Arc::clone(&self.keeper);
        let run_dir = self.run_dir.path().to_owned();
        self.host.run(move || {
            let nft = Connection::open(&run_dir, Path::new("nft")).unwrap();
            let new = Keeper::new(TABLE, &run_dir.join("baseline"));
            *keeper.lock().unwrap() = Some((new, nft));
        });
    }

    /// Runs `action` with the keeper, in the host.
    fn with<T: Send + 'static>(
        &self,
        action: impl FnOnce(&mut Keeper, &mut Connection) -> T + Send + 'static,
    ) -> T {
        let keeper = Arc::clone(&self.keeper);
        self.host.run(move || {
            let mut keeper = keeper.lock().unwrap();
            let (keeper, nft) = keeper.as_mut().unwrap();
            action(keeper, nft)
        })
    }

    fn reconcile(&self, contents: &Contents) -> Outcome {
        let contents = contents.clone();
        self.with(|keeper, nft| keeper.reconcile(nft, &skeleton(), contents, None, false))
            .unwrap()
    }

    /// As `nft -j` sees it, without the kernel's numbers for objects.
    fn listing(&self) -> String {
        self.host
            .sh("nft -j list table inet shapes | sed 's/\"handle\": [0-9]*//g'")
    }
}

#[test]
fn elements_of_every_shape_are_written_and_read_as_nft_does() {
    let node = Node::new();
    node.reconcile(&nothing());
    let rules = node.host.sh("nft -a list chain inet shapes user");

    for n in [1, 2] {
        let desired = contents(n);
        let outcome = node.reconcile(&desired);
        assert!(outcome.changed > 0 && outcome.repaired == 0, "{outcome:?}");
        let rules_now = node.host.sh("nft -a list chain inet shapes user");
        assert_eq!(rules_now, rules, "the table was not replaced");
        assert_eq!(node.reconcile(&desired), NOTHING);

        // `nft` itself makes the same of the same elements as text.
        let twin = Node::new();
        twin.reconcile(&desired);
        assert_eq!(node.listing(), twin.listing());

        // The own dump of what netlink wrote, and of what `nft` wrote.
        for node in [&node, &twin] {
            node.restart();
            assert_eq!(node.reconcile(&desired), NOTHING);
        }
    }

    let text = node.host.sh("nft list table inet shapes");
    for element in [
        "fd00::2",
        "10.2.0.0/16",
        "192.0.2.1 . tcp . 80",
        "10.0.0.0/8 . udp . 1-99",
        "192.0.2.2 . udp . 53 : 192.0.2.2 . 5353",
        "10.1.0.0/16 : 0:102",
        "tcp : jump one",
        "udp : goto two",
        "10.2.0.0/16 . 1-1023 : goto one",
        "ff00::/8 : drop",
    ] {
        assert!(text.contains(element), "{element} in {text}");
    }

    let outcome = node.reconcile(&nothing());
    assert!(outcome.changed > 0, "{outcome:?}");
    assert!(!node.listing().contains("\"elem\""), "{}", node.listing());
}

/// Provides no set of the table.
struct NoProvider;

impl Provider for NoProvider {
    fn elements<'a>(&'a self, _: &str) -> Box<dyn Iterator<Item = Element> + 'a> {
        Box::new(std::iter::empty())
    }
}

/// After the refusal it is not known what the sets hold.
#[test]
fn a_table_that_is_renewed_after_a_refusal_keeps_the_elements_that_nobody_provides() {
    let node = Node::new();
    node.reconcile(&contents(1));
    let whole = node.listing();
    let absent = Change {
        set: "single".to_owned(),
        delta: ElementsDelta {
            removed: vec![(address("fd00::99").into(), None)],
            added: Vec::new(),
        },
    };
    let renewed = node.with(|keeper, nft| {
        let refused = keeper.follow(nft, &skeleton().sets, [vec![absent]]);
        assert!(refused.is_err(), "{refused:?}");
        keeper.renew(nft, &skeleton(), None, &NoProvider)
    });
    assert_eq!(renewed.unwrap().repaired, 1);
    assert_eq!(node.listing(), whole);
    assert_eq!(node.reconcile(&contents(1)), NOTHING);
}

#[test]
fn what_others_do_to_a_map_is_put_back() {
    let node = Node::new();
    let desired = contents(1);
    node.reconcile(&desired);
    let whole = node.listing();
    for tampering in [
        "delete element inet shapes verdicts { tcp }",
        "delete element inet shapes numbers { 10.1.0.0/16 }; add element inet shapes numbers { 10.1.0.0/16 : 0:9 }",
        "add element inet shapes area_verdicts { 10.9.0.0/16 . 1-9 : accept }",
        "add element inet shapes range_verdicts { fd00:0:0:1::/64 : drop }",
        "flush map inet shapes targets",
    ] {
        node.host.sh(format!("nft '{tampering}'"));
        assert_ne!(node.listing(), whole, "{tampering}");
        assert!(node.reconcile(&desired).repaired > 0, "{tampering}");
        assert_eq!(node.listing(), whole, "{tampering}");
    }
}
