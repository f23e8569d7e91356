//! A process killed at every system call that changes something on disk, one after
//! the other: afterwards no address is given twice and none is lost.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tweed_ipam::record::{Owner, Record, State};
    use tweed_ipam::store::{Store, StoreError};

    use super::common::mortal::MortalDisk;
    use super::common::*;

    /// A verb of a process that is killed: its record names a process that has ended.
    type Verb = fn(&Store) -> Result<(), StoreError>;

    fn doomed(container_id: &str) -> Record {
        Record::adding(attachment(container_id), Owner::Tweed, dead())
    }

    fn both() -> tweed_ipam::ranges::RangeSets {
        ranges(r#"{"ranges":[[{"subnet":"10.1.0.0/29"}],[{"subnet":"fd00::/125"}]]}"#)
    }

    fn whole_add(store: &Store) -> Result<(), StoreError> {
        let mut locked = store.lock(WAIT)?;
        let record = locked.reserve(&doomed("x"), &both(), &[])?;
        locked.mark_live(&record)?;
        Ok(())
    }

    fn add_that_asks(store: &Store) -> Result<(), StoreError> {
        let asked = ["10.1.0.6".parse().unwrap()];
        store
            .lock(WAIT)?
            .reserve(&doomed("x"), &both(), &asked)
            .map(drop)
    }

    fn add_without_claims(store: &Store) -> Result<(), StoreError> {
        let address = "192.0.2.7/24".parse().unwrap();
        let mut locked = store.lock(WAIT)?;
        let record = locked.track(&doomed("x"), vec![address])?;
        locked.mark_live(&record)?;
        Ok(())
    }

    fn whole_del(store: &Store) -> Result<(), StoreError> {
        let mut locked = store.lock(WAIT)?;
        locked.mark_deleting(&attachment("x"))?;
        locked.free(&attachment("x"))?;
        Ok(())
    }

    fn free_at_once(store: &Store) -> Result<(), StoreError> {
        store.lock(WAIT)?.free(&attachment("x")).map(drop)
    }

    fn gc_of_x(store: &Store) -> Result<(), StoreError> {
        let valid = [attachment("neighbour")];
        let swept = tweed_ipam::sweep::gc(store, WAIT, &valid, detach)?;
        swept.stopped.map_or(Ok(()), Err)
    }

    fn nothing(_: &Store) -> Result<(), StoreError> {
        Ok(())
    }

    /// Kills `verb` at its first step, its second, and so on, each time after
    /// `before`; then checks the store, then repairs it with a DEL, a GC or a sweep.
    fn kill_everywhere(before: Verb, verb: Verb) {
        kill_everywhere_on(MortalDisk::dying_at, before, verb);
    }

    fn kill_everywhere_on(disk: fn(usize) -> MortalDisk, before: Verb, verb: Verb) {
        for step in 0.. {
            for mend in [whole_del as Verb, gc_of_x, |store| {
                sweep(store);
                whole_del(store)
            }] {
                let lab = Lab::new();
                let store = lab.store();
                let neighbour = add(&store, "neighbour", &both()).unwrap();
                before(&store).unwrap();
                let disk = Arc::new(disk(step));
                let outcome = verb(&lab.store_on(disk.clone()));
                if !disk.is_dead() {
                    outcome.unwrap();
                    assert!(step > 0, "the verb changes nothing");
                    return;
                }
                assert_sound(&store);
                assert_eq!(
                    store.read(&attachment("neighbour")).unwrap().as_ref(),
                    Some(&neighbour)
                );

                // Other attachments use the store before it is repaired.
                let next = add(&store, "next", &both()).unwrap();
                assert_sound(&store);

                mend(&store).unwrap();
                assert_eq!(store.read(&attachment("x")).unwrap(), None, "step {step}");
                let mut left = addresses(&neighbour);
                if store.read(&attachment("next")).unwrap().is_some() {
                    left.extend(addresses(&next));
                }
                left.sort();
                assert_eq!(claims(&lab), left, "step {step}");
                whole_add(&store).unwrap();
                assert_sound(&store);
            }
        }
    }

    macro_rules! killed {
        ($($name:ident: $before:expr, $verb:expr;)*) => {
            $(#[test] fn $name() { kill_everywhere($before, $verb) })*
        };
    }

    killed! {
        in_an_add: nothing, whole_add;
        in_an_add_that_asks: nothing, add_that_asks;
        in_an_add_without_claims: nothing, add_without_claims;
        in_an_add_over_one_that_was_killed: |store| {
            let mut locked = store.lock(WAIT)?;
            locked.reserve(&doomed("x"), &both(), &[]).map(drop)
        }, whole_add;
        in_an_add_over_a_del_that_was_killed: |store| {
            whole_add(store)?;
            store.lock(WAIT)?.mark_deleting(&attachment("x")).map(drop)
        }, whole_add;
        in_a_del: whole_add, whole_del;
        in_a_del_without_a_mark: whole_add, free_at_once;
        in_a_gc: whole_add, gc_of_x;
    }

    /// Freeing needs no space, and a kill meanwhile does no more harm than otherwise.
    #[test]
    fn in_a_verb_that_frees_on_a_full_disk() {
        for verb in [whole_del, free_at_once, gc_of_x] {
            kill_everywhere_on(MortalDisk::full_and_dying_at, whole_add, verb);
        }
    }

    /// The first use after a reboot is killed while it removes the contents of the
    /// other boot, and the next one continues.
    #[test]
    fn killed_in_the_clean_up_after_a_reboot() {
        for step in 0.. {
            let lab = Lab::new();
            for n in 0..4 {
                add(&lab.store(), &format!("c{n}"), &both()).unwrap();
            }
            let damaged = lab.path("attachments").join(attachment("c1").id());
            std::fs::write(damaged, "{").unwrap();
            lab.boot(BOOT_2);
            let disk = Arc::new(MortalDisk::dying_at(step));
            let outcome = lab.store_on(disk.clone()).lock(WAIT).map(drop);
            let store = lab.store();
            assert_eq!(store.records().unwrap().0, []);
            // All five are free again.
            for n in 5..10 {
                add(&store, &format!("c{n}"), &both()).unwrap();
            }
            assert_sound(&store);
            assert_eq!(store.records().unwrap().0.len(), 5);
            if !disk.is_dead() {
                outcome.unwrap();
                assert!(step > 10, "{step} steps cannot be all");
                return;
            }
        }
    }

    /// A kill while the store is created.
    #[test]
    fn killed_in_the_first_add_of_all() {
        for step in 0.. {
            let lab = Lab::new();
            let disk = Arc::new(MortalDisk::dying_at(step));
            let outcome = whole_add(&lab.store_on(disk.clone()));
            let store = lab.store();
            assert_sound(&store);
            if !disk.is_dead() {
                outcome.unwrap();
                let record = store.read(&attachment("x")).unwrap().unwrap();
                assert_eq!(record.state, State::Live);
                return;
            }
            whole_add(&store).unwrap();
            assert_sound(&store);
            assert_eq!(claims(&lab).len(), 2);
        }
    }
}
