//! What holds for every kind; `tweed_planner::overlay::cluster` tests the same over
//! Nodes, with what is special to them.

use proptest::prelude::*;

use super::*;

/// An object of a kind with namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thing {
    key: ObjectKey,
    value: u8,
}

impl Object for Thing {
    const KINDS: &'static str = "Things";

    fn name(&self) -> &str {
        &self.key.name
    }

    fn namespace(&self) -> &str {
        &self.key.namespace
    }
}

fn thing(name: u8, value: u8) -> Thing {
    let key = ObjectKey {
        namespace: format!("s{}", name % 2),
        name: format!("n{}", name / 2),
    };
    Thing { key, value }
}

fn list(store: &mut Store<Thing>, things: impl IntoIterator<Item = Thing>) -> bool {
    let _ = store.apply(Event::Init);
    for thing in things {
        let _ = store.apply(Event::InitApply(thing));
    }
    store.apply(Event::InitDone)
}

fn things(store: &Store<Thing>) -> Vec<Thing> {
    store.objects().values().cloned().collect()
}

#[test]
fn an_empty_list_is_complete() {
    let mut store = Store::<Thing>::default();
    assert!(!store.is_complete());
    assert!(list(&mut store, []));
    assert!(store.is_complete());
    assert!(!list(&mut store, []));
}

#[test]
fn the_same_name_in_two_namespaces_is_two_objects() {
    let mut store = Store::default();
    assert!(list(&mut store, [thing(0, 1), thing(1, 2)]));
    assert!(store.apply(Event::Delete(thing(1, 2).key)));
    assert_eq!(things(&store), [thing(0, 1)]);
}

#[test]
fn a_source_that_is_lost_takes_nothing_away() {
    let mut store = Store::default();
    assert!(list(&mut store, [thing(0, 1)]));
    assert!(store.apply(Event::Lost("503".into())));
    assert!(!store.apply(Event::Lost("503".into())));
    assert_eq!(store.lost(), Some("503"));
    assert!(store.is_complete());
    assert_eq!(things(&store), [thing(0, 1)]);
    assert!(store.apply(Event::Restored));
    assert_eq!(store.lost(), None);
}

#[test]
fn single_changes_are_remembered_up_to_a_number() {
    let mut store = Store::default();
    assert_eq!(store.take_touched(), Touched::Everything);
    assert!(list(&mut store, [thing(0, 1)]));
    assert_eq!(store.take_touched(), Touched::Everything);
    for value in 2..5 {
        assert!(store.apply(Event::Apply(thing(0, value))));
    }
    assert!(store.apply(Event::Apply(thing(1, 1))));
    assert_eq!(
        store.take_touched(),
        Touched::Objects(
            [
                (thing(0, 0).key, Some(thing(0, 1))),
                (thing(1, 0).key, None)
            ]
            .into()
        )
    );
    assert_eq!(store.take_touched(), Touched::default());
    let most = u8::try_from(MAX_TOUCHED).unwrap();
    for name in 0..most {
        assert!(store.apply(Event::Apply(thing(name, 9))));
    }
    assert!(matches!(store.take_touched(), Touched::Objects(all) if all.len() == MAX_TOUCHED));
    for name in 0..=most {
        assert!(store.apply(Event::Apply(thing(name, 10))));
    }
    assert_eq!(store.take_touched(), Touched::Everything);
}

fn any_event() -> impl Strategy<Value = Event<Thing>> {
    let thing = || (0..6_u8, 0..3_u8).prop_map(|(name, value)| thing(name, value));
    prop_oneof![
        1 => Just(Event::Init),
        1 => Just(Event::InitDone),
        3 => thing().prop_map(Event::InitApply),
        5 => thing().prop_map(Event::Apply),
        2 => thing().prop_map(|thing| Event::Delete(thing.key)),
        1 => Just(Event::Lost("why".into())),
        1 => Just(Event::Restored),
    ]
}

proptest! {
    #[test]
    fn a_change_is_seen_in_the_answer_the_version_and_what_was_touched(
        history in prop::collection::vec(any_event(), 0..60),
    ) {
        let seen = |store: &Store<Thing>| {
            (store.is_complete(), store.lost().map(str::to_owned), things(store))
        };
        let mut store = Store::default();
        for event in history {
            let _ = store.take_touched();
            let (before, version, objects) = (seen(&store), store.version(), store.objects().clone());
            let changed = store.apply(event);
            prop_assert_eq!(changed, seen(&store) != before);
            prop_assert_eq!(changed, store.version() != version);
            if let Touched::Objects(touched) = store.take_touched() {
                let mut restored = store.objects().clone();
                for (key, was) in touched {
                    match was {
                        Some(was) => restored.insert(key, was),
                        None => restored.remove(&key),
                    };
                }
                prop_assert_eq!(restored, objects);
            }
        }
    }
}
