//! How a process finds out whether another one works on an attachment.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::time::Duration;

    use tweed_ipam::record::{Owner, Process, Record};
    use tweed_ipam::store::{Held, Store, StoreError};
    use tweed_ipam::sweep;

    use super::common::*;

    fn begin(store: &Store, by: Process) -> Held {
        let seed = Record::adding(attachment("one"), Owner::Tweed, by);
        let reserved = lock(store).reserve(&seed, &subnet("10.1.0.0/24"), &[]);
        reserved.unwrap()
    }

    fn found(store: &Store) -> Record {
        store.read(&attachment("one")).unwrap().unwrap()
    }

    /// Whatever its process number says: in the PID namespace of an agent it is another one.
    #[test]
    fn an_add_counts_until_its_lock_is_let_go() {
        for by in [Process::current().unwrap(), dead()] {
            let lab = Lab::new();
            let store = lab.store();
            let held = begin(&store, by);
            assert!(!store.is_abandoned(&found(&store)));
            assert_eq!(sweep(&store).freed, []);
            let again = add(&store, "one", &subnet("10.1.0.0/24")).unwrap_err();
            assert!(matches!(again, StoreError::AddInProgress { .. }));
            drop(held);
            assert!(store.is_abandoned(&found(&store)));
            assert_eq!(sweep(&store).freed.len(), 1);
            assert_eq!(claims(&lab), [""; 0]);
        }
    }

    #[test]
    fn a_del_counts_until_its_lock_is_let_go() {
        let lab = Lab::new();
        let store = lab.store();
        add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
        let held = lock(&store).mark_deleting(&attachment("one")).unwrap();
        assert!(held.is_some());
        assert_eq!(sweep(&store).freed, []);
        let gc = sweep::gc(&store, WAIT, &[], detach).unwrap();
        assert_eq!(gc.freed, []);
        let again = add(&store, "one", &subnet("10.1.0.0/24")).unwrap_err();
        assert!(matches!(again, StoreError::DelInProgress { .. }), "{again}");
        drop(held);
        assert_eq!(sweep(&store).freed.len(), 1);
    }

    /// No program writes such a record, but a person may: no DEL may wait for it
    /// without end.
    #[test]
    fn a_live_record_that_says_it_is_held_keeps_nobody_waiting() {
        let lab = Lab::new();
        let store = lab.store();
        add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
        let path = lab.path("attachments").join(attachment("one").id());
        let text = fs::read_to_string(&path).unwrap();
        let mut document: serde_json::Value = serde_json::from_str(&text).unwrap();
        document["held"] = true.into();
        fs::write(&path, document.to_string()).unwrap();
        assert!(found(&store).held);
        let locked = store.lock_idle(&attachment("one"), WAIT).unwrap().unwrap();
        assert!(locked.store().read(&attachment("one")).unwrap().is_some());
    }

    /// It writes its record again, then releases the lock of the old one.
    #[test]
    fn an_add_that_learns_its_addresses_counts_all_the_time() {
        let lab = Lab::new();
        let store = lab.store();
        let first = lock(&store).track(&seed("one"), vec![]).unwrap();
        let before = found(&store);
        let address = vec!["192.0.2.7/24".parse().unwrap()];
        let second = lock(&store).track(&seed("one"), address).unwrap();
        drop(first);
        assert!(!store.is_abandoned(&before));
        assert!(!store.is_abandoned(&found(&store)));
        assert_eq!(sweep(&store).freed, []);
        drop(second);
        assert!(store.is_abandoned(&found(&store)));
    }

    /// A process that has read a record in state adding tests it when it is live.
    #[test]
    fn an_add_that_has_ended_was_not_cut_off() {
        let lab = Lab::new();
        let store = lab.store();
        let held = begin(&store, Process::current().unwrap());
        let before = found(&store);
        lock(&store).mark_live(&held).unwrap();
        drop(held);
        assert!(!store.is_abandoned(&before));
        assert!(!store.is_abandoned(&found(&store)));
    }

    #[test]
    fn what_it_runs_does_not_hold_it() {
        let lab = Lab::new();
        let store = lab.store();
        let held = begin(&store, Process::current().unwrap());
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        drop(held);
        assert!(store.is_abandoned(&found(&store)));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_del_waits_for_an_add_and_then_has_the_lock() {
        let lab = Lab::new();
        let store = lab.store();
        let held = begin(&store, Process::current().unwrap());
        std::thread::scope(|scope| {
            let del = scope.spawn(|| {
                let mut locked = store.lock_idle(&attachment("one"), WAIT).unwrap().unwrap();
                locked.free(&attachment("one")).unwrap().unwrap().record
            });
            let live = lock(&store).mark_live(&held).unwrap();
            drop(held);
            assert_eq!(del.join().unwrap(), Some(live));
        });
        assert_eq!(claims(&lab), [""; 0]);
    }

    #[test]
    fn a_del_does_not_wait_for_ever_for_an_add() {
        let lab = Lab::new();
        let store = lab.store();
        let _held = begin(&store, Process::current().unwrap());
        let short = Duration::from_millis(30);
        let error = store.lock_idle(&attachment("one"), short).unwrap_err();
        assert!(matches!(error, StoreError::AddInProgress { .. }), "{error}");
        // The store itself is not locked meanwhile, and other attachments do not wait.
        let other = store.lock_idle(&attachment("two"), short).unwrap();
        assert!(other.is_some());
    }
}
