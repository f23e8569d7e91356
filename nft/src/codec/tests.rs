use super::*;
use crate::element::ElementsDelta;

use crate::table::KeptBy;

fn address(text: &str) -> Value {
    Value::Address(text.parse().unwrap())
}

fn range(first: &str, last: &str) -> Field {
    Field {
        first: address(first),
        last: address(last),
    }
}

fn ports(first: u16, last: u16) -> Field {
    Field {
        first: Value::Port(first),
        last: Value::Port(last),
    }
}

fn set(key: &[Type], data: Option<DataType>, interval: bool) -> Set {
    Set {
        name: "s".to_owned(),
        key: key.to_vec(),
        data,
        interval,
        kept_by: KeptBy::Keeper,
    }
}

fn without_data(keys: impl IntoIterator<Item = Key>) -> Elements {
    keys.into_iter().map(|key| (key, None)).collect()
}

fn assert_round_trip(set: &Set, elements: Elements) {
    let given = elements.iter();
    let lists = lists(set, given.map(|(key, data)| (key, data.as_deref())));
    let decoded = decode(set, lists.iter().map(Attributes::as_bytes));
    let foreign = vec![];
    assert_eq!(decoded, Decoded { elements, foreign });
}

#[test]
fn elements_come_back_as_they_went() {
    let single = ["10.0.0.1", "0.0.0.0"].map(|ip| Field::from(address(ip)).into());
    assert_round_trip(&set(&[Type::Ipv4], None, false), without_data(single));
    let ranges = [
        range("0.0.0.0", "0.0.0.0"),
        range("10.244.0.0", "10.244.0.255"),
        range("10.244.1.0", "10.244.1.255"),
        range("255.255.255.0", "255.255.255.255"),
    ]
    .map(Key::from);
    assert_round_trip(&set(&[Type::Ipv4], None, true), without_data(ranges));
    let ranges6 = [
        range("fd00::", "fd00::ff"),
        range("fd00::100", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ]
    .map(Key::from);
    assert_round_trip(&set(&[Type::Ipv6], None, true), without_data(ranges6));
    let ports = [ports(0, 79), ports(80, 80), ports(81, u16::MAX)].map(Key::from);
    assert_round_trip(&set(&[Type::Port], None, true), without_data(ports));
}

#[test]
fn concatenated_keys_come_back_as_they_went() {
    let types = [Type::Ipv6, Type::Protocol, Type::Port];
    let key = |ip: Field, port: Field| Key::from_iter([ip, Value::Protocol(6).into(), port]);
    let one = key(range("fd00::1", "fd00::1"), ports(80, 80));
    assert_round_trip(&set(&types, None, false), without_data([one.clone()]));
    let area = key(range("fd00::", "fd00::ff"), ports(8000, 8999));
    assert_round_trip(&set(&types, None, true), without_data([one, area]));
}

#[test]
fn maps_come_back_as_they_went() {
    let some = |data| Some(Box::new(data));
    let verdicts = [
        Verdict::Accept,
        Verdict::Drop,
        Verdict::Jump("a".to_owned()),
        Verdict::Goto("b".to_owned()),
    ];
    let element = |(port, verdict)| (Key::from(ports(port, port)), some(Data::Verdict(verdict)));
    let elements = (0..).zip(verdicts).map(element);
    let verdict_map = set(&[Type::Port], Some(DataType::Verdict), false);
    assert_round_trip(&verdict_map, elements.collect());

    let types = DataType::Values(vec![Type::Ipv4, Type::Port]);
    let target = || Data::from(vec![address("10.0.0.1"), Value::Port(8080)]);
    let key = Key::from(range("192.0.2.0", "192.0.2.255"));
    let elements = Elements::from([(key, some(target()))]);
    assert_round_trip(&set(&[Type::Ipv4], Some(types), true), elements);

    let numbers = DataType::Values(vec![Type::Class]);
    let key = Key::from_iter([range("10.0.0.0", "10.0.0.9"), ports(1, 9)]);
    let elements = Elements::from([(key, some(Data::Value(Value::Class(7))))]);
    let map = set(&[Type::Ipv4, Type::Port], Some(numbers), true);
    assert_round_trip(&map, elements);
}

#[test]
fn what_this_set_cannot_have_is_foreign() {
    let catch_all = Attributes::new().number(FLAGS, 2);
    let no_data = values_to(
        Attributes::new(),
        KEY,
        [Value::Port(1)].into_iter(),
        Order::Native,
    );
    let plain = set(&[Type::Port], None, false);
    let map = set(&[Type::Port], Some(DataType::Verdict), false);
    let other_length = set(&[Type::Ipv4], None, false);
    for (set, item) in [
        (plain, catch_all),
        (map, no_data.clone()),
        (other_length, no_data),
    ] {
        let list = Attributes::new().nested(ITEM, &item);
        let decoded = decode(&set, [list.as_bytes()].into_iter());
        assert!(decoded.elements.is_empty());
        assert_eq!(decoded.foreign, item.as_bytes());
    }
}

#[test]
fn a_message_holds_no_more_than_an_attribute_can() {
    let chain = "x".repeat(200);
    let set = set(&[Type::Port], Some(DataType::Verdict), false);
    let data = Some(Box::new(Data::Verdict(Verdict::Goto(chain))));
    let keys = (0..1000).map(|port| Key::from(ports(port, port)));
    let change = Change {
        set: set.name.clone(),
        delta: ElementsDelta {
            removed: Vec::new(),
            added: keys.map(|key| (key, data.clone())).collect(),
        },
    };
    let table = TableKey {
        family: 1,
        name: "t",
    };
    let transaction = transaction(table, &[set], &[change], &[]);
    assert!((4..=6).contains(&transaction.len()), "{transaction:?}");
}
