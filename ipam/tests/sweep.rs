//! Sweep and GC: which records are freed, which stay, and in which order.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use tweed_core::attachment::{Attachment, NetworkName};
    use tweed_ipam::record::{Owner, Process, Record, State};
    use tweed_ipam::store::{Entry, Held, Store, StoreError};
    use tweed_ipam::sweep::{self, Reason, Removal, Swept};

    use super::common::*;

    /// Records in every state, by name; returns the lock of the one named "adding".
    fn populate(store: &Store) -> Held {
        let ranges = subnet("10.1.0.0/24");
        add(store, "live", &ranges).unwrap();
        add(store, "second", &ranges).unwrap();
        let with = |who: &str, owner, by| Record::adding(attachment(who), owner, by);
        let alive = Process::current().unwrap();
        let mut locked = lock(store);
        let other = with("live-other", Owner::Other, alive);
        let record = locked.reserve(&other, &ranges, &[]).unwrap();
        locked.mark_live(&record).unwrap();
        let adding = with("adding", Owner::Tweed, alive);
        let held = locked.reserve(&adding, &ranges, &[]).unwrap();
        let cut_off = with("cut-off", Owner::Tweed, dead());
        drop(locked.reserve(&cut_off, &ranges, &[]).unwrap());
        let deleting = with("deleting", Owner::Tweed, alive);
        drop(locked.reserve(&deleting, &ranges, &[]).unwrap());
        drop(locked.mark_deleting(&attachment("deleting")).unwrap());
        held
    }

    fn freed<E: std::fmt::Debug>(swept: &Swept<E>) -> Vec<(String, Reason)> {
        assert!(swept.failed.is_empty(), "{swept:?}");
        assert!(swept.stopped.is_none(), "{swept:?}");
        let mut freed: Vec<(String, Reason)> = swept
            .freed
            .iter()
            .map(|(freed, reason)| {
                let record = freed.record.as_ref().unwrap();
                assert_eq!(addresses(record).len(), freed.addresses.len());
                (record.container_id.to_string(), *reason)
            })
            .collect();
        freed.sort_by(|a, b| a.0.cmp(&b.0));
        freed
    }

    fn left(store: &Store) -> Vec<String> {
        let (records, _) = store.records().unwrap();
        records.iter().map(|r| r.container_id.to_string()).collect()
    }

    #[test]
    fn a_sweep_frees_what_is_provably_dead_and_no_more() {
        let lab = Lab::new();
        let store = lab.store();
        let _adding = populate(&store);
        let link_gone = |record: &Record| {
            // `link_gone` is not called for records of other owners.
            assert_eq!(record.owner, Owner::Tweed);
            record.container_id.as_str() == "second"
        };
        let swept = sweep::sweep(&store, WAIT, link_gone, detach).unwrap();
        assert_eq!(
            freed(&swept),
            [
                ("cut-off".to_owned(), Reason::OwnerGone),
                ("deleting".to_owned(), Reason::DelInterrupted),
                ("second".to_owned(), Reason::LinkGone),
            ]
        );
        assert_eq!(left(&store), ["adding", "live", "live-other"]);
        assert_eq!(claims(&lab).len(), 3);
        assert_eq!(freed(&sweep(&store)), []);
    }

    #[test]
    fn a_gc_frees_what_is_not_listed() {
        let lab = Lab::new();
        let store = lab.store();
        let _adding = populate(&store);
        fs::write(lab.path("10.1.0.200"), "live\r\neth0").unwrap();
        fs::write(lab.path("10.1.0.201"), "gone\r\neth0").unwrap();
        let elsewhere = Attachment {
            network: NetworkName::new("elsewhere").unwrap(),
            ..attachment("second")
        };
        let swept = sweep::gc(&store, WAIT, &[attachment("live"), elsewhere], detach).unwrap();
        assert_eq!(
            freed(&swept),
            [
                ("cut-off".to_owned(), Reason::OwnerGone),
                ("deleting".to_owned(), Reason::DelInterrupted),
                ("live-other".to_owned(), Reason::NotListed),
                ("second".to_owned(), Reason::NotListed),
            ]
        );
        assert_eq!(left(&store), ["adding", "live"]);
        assert_eq!(swept.host_local, [lab.path("10.1.0.201")]);
        assert!(lab.path("10.1.0.200").exists());
        assert!(lab.path("lock").exists());
    }

    #[test]
    fn a_gc_with_an_empty_list_frees_all_of_its_network_only() {
        let lab = Lab::new();
        let store = lab.store();
        add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
        add(&store, "two", &subnet("10.1.0.0/24")).unwrap();
        let damaged = lab.path("attachments").join(attachment("two").id());
        fs::write(damaged, "{").unwrap();
        let other = Store::open(&lab.data_dir(), &NetworkName::new("other").unwrap());
        let mut locked = other.lock(WAIT).unwrap();
        let mut seed = seed("one");
        seed.network = other.network().clone();
        drop(locked.reserve(&seed, &subnet("10.1.0.0/24"), &[]).unwrap());
        drop(locked);

        let mut links = Vec::new();
        let swept = sweep::gc(&store, WAIT, &[], |entry: &Entry| {
            links.push(entry.link_name());
            Ok::<(), String>(())
        })
        .unwrap();
        assert_eq!(swept.freed.len(), 2);
        links.sort();
        let mut names = [attachment("one").link_name(), attachment("two").link_name()];
        names.sort();
        assert_eq!(links, names);
        assert_eq!(store.records().unwrap(), (vec![], vec![]));
        assert_eq!(claims(&lab), [""; 0]);
        assert_eq!(other.records().unwrap().0.len(), 1);
    }

    #[test]
    fn an_address_is_free_only_when_its_link_is_gone() {
        let lab = Lab::new();
        let store = lab.store();
        let _adding = populate(&store);
        let before = claims(&lab);
        let refuse = |entry: &tweed_ipam::store::Entry| {
            // It is marked before, so that the agent does not repair it meanwhile.
            let record = store.read(&entry.record.as_ref().unwrap().attachment());
            assert_ne!(record.unwrap().unwrap().state, State::Live);
            Err(format!("{} does not go", entry.link_name()))
        };
        let swept = sweep::gc(&store, WAIT, &[], refuse).unwrap();
        assert_eq!(swept.freed, []);
        assert_eq!(swept.failed.len(), 5);
        let why = swept.failed[0].to_string();
        assert!(why.contains("does not go") && why.contains("net/"), "{why}");
        assert_eq!(claims(&lab), before);
        // The next sweep, with or without a list, completes it.
        assert_eq!(sweep(&store).freed.len(), 5);
        assert_eq!(claims(&lab).len(), 1);
    }

    /// As GC of a plugin that can call the other IPAM plugin.
    struct Releasing<'a> {
        steps: &'a mut Vec<String>,
        store: &'a Store,
        refuse: bool,
    }

    impl Removal for Releasing<'_> {
        type Error = &'static str;

        fn detach(&mut self, entry: &Entry) -> Result<(), Self::Error> {
            self.steps.push(format!("detach {entry}"));
            Ok(())
        }

        fn releases(&self) -> bool {
            true
        }

        fn release(&mut self, record: &Record) -> Result<(), Self::Error> {
            self.steps.push(format!("release {}", record.attachment()));
            // The other plugin may need the lock, and nobody else takes the record.
            drop(self.store.lock(std::time::Duration::ZERO).unwrap());
            assert!(!self.store.is_abandoned(record));
            assert!(self.store.read(&record.attachment()).unwrap().is_some());
            if self.refuse { Err("no") } else { Ok(()) }
        }
    }

    #[test]
    fn addresses_of_another_ipam_plugin_go_back_to_it_before_the_record() {
        let lab = Lab::new();
        let store = lab.store();
        let track = |who: &str, by| {
            let seed = Record {
                ipam: Some("host-local".to_owned()),
                ..Record::adding(attachment(who), Owner::Tweed, by)
            };
            let address = vec!["192.0.2.7/24".parse().unwrap()];
            lock(&store).track(&seed, address).unwrap()
        };
        drop(track("cut-off", dead()));
        let held = track("live", Process::current().unwrap());
        lock(&store).mark_live(&held).unwrap();
        drop(held);
        // The agent cannot call the other plugin.
        let swept = sweep::sweep(&store, WAIT, |_| true, detach).unwrap();
        assert_eq!(freed(&swept), []);
        assert_eq!(left(&store), ["cut-off", "live"]);

        let mut steps = Vec::new();
        let mut gc = |refuse| {
            let removal = Releasing {
                steps: &mut steps,
                store: &store,
                refuse,
            };
            sweep::gc(&store, WAIT, &[], removal).unwrap()
        };
        assert_eq!(gc(true).failed.len(), 2);
        assert_eq!(left(&store), ["cut-off", "live"]);
        assert_eq!(gc(false).freed.len(), 2);
        assert_eq!(left(&store), [""; 0]);
        steps.sort();
        let each = |what: &str, who: &str| vec![format!("{what} net/{who}/eth0"); 2];
        let expected = [
            each("detach", "cut-off"),
            each("detach", "live"),
            each("release", "cut-off"),
            each("release", "live"),
        ];
        assert_eq!(steps, expected.concat());
    }

    /// Takes the store's lock for another process until it is dropped.
    fn lock_of_another(lab: &Lab) -> fs::File {
        let file = fs::File::open(lab.path("lock")).unwrap();
        file.lock().unwrap();
        file
    }

    #[test]
    fn a_sweep_that_cannot_go_on_tells_what_it_has_freed() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/24");
        for who in ["one", "two", "three"] {
            add(&store, who, &ranges).unwrap();
        }
        let (detached, other) = (RefCell::new(Vec::new()), RefCell::new(None));
        let link_gone = |_: &Record| {
            if !detached.borrow().is_empty() {
                other
                    .borrow_mut()
                    .get_or_insert_with(|| lock_of_another(&lab));
            }
            true
        };
        let removal = |entry: &Entry| {
            detached.borrow_mut().push(entry.id.clone());
            Ok::<(), String>(())
        };
        let swept = sweep::sweep(&store, Duration::ZERO, link_gone, removal).unwrap();
        let ids: Vec<String> = swept
            .freed
            .iter()
            .map(|(freed, _)| freed.id.clone())
            .collect();
        assert_eq!((ids.len(), &ids), (1, &*detached.borrow()));
        let stopped = swept.stopped.as_ref();
        assert!(
            matches!(stopped, Some(StoreError::LockTimeout { .. })),
            "{swept:?}"
        );
        drop(other);
        assert_eq!(left(&store).len(), 2);
        assert_eq!(claims(&lab).len(), 2);
    }

    #[test]
    fn a_gc_that_cannot_lock_host_locals_folder_tells_what_it_has_freed() {
        let lab = Lab::new();
        let networks = lab.data_dir().with_file_name("networks");
        let theirs = networks.join(NETWORK);
        fs::create_dir_all(&theirs).unwrap();
        fs::write(theirs.join("10.1.0.9"), "gone\r\neth0").unwrap();
        fs::write(theirs.join("lock"), "").unwrap();
        let store = lab.store().after_host_local(&networks);
        add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
        let other = fs::File::open(theirs.join("lock")).unwrap();
        other.lock().unwrap();
        let swept = sweep::gc(&store, Duration::ZERO, &[], detach).unwrap();
        assert_eq!(swept.freed.len(), 1);
        assert_eq!(left(&store), [""; 0]);
        let stopped = swept.stopped.as_ref();
        assert!(
            matches!(stopped, Some(StoreError::LockTimeout { .. })),
            "{swept:?}"
        );
    }

    #[test]
    fn claims_without_a_record_are_dropped() {
        let lab = Lab::new();
        let store = lab.store();
        add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
        let one = format!("attachments/{}", attachment("one").id());
        let nobody = format!("attachments/{}", attachment("nobody").id());
        // Not listed by its record; without a record; a file of another program.
        symlink(&one, lab.path("10.1.0.7")).unwrap();
        symlink(&nobody, lab.path("10.1.0.8")).unwrap();
        symlink("elsewhere", lab.path("10.1.0.9")).unwrap();
        let mut void = sweep(&store).void_claims;
        void.sort();
        let gone: Vec<std::net::IpAddr> =
            vec!["10.1.0.7".parse().unwrap(), "10.1.0.8".parse().unwrap()];
        assert_eq!(void, gone);
        assert_eq!(claims(&lab), ["10.1.0.2", "10.1.0.9"]);
    }

    #[test]
    fn a_store_that_is_not_there_needs_no_sweeping() {
        let lab = Lab::new();
        let swept = sweep::gc(&lab.store(), WAIT, &[], detach).unwrap();
        assert_eq!((swept.freed.len(), swept.void_claims.len()), (0, 0));
        assert!(!lab.data_dir().exists());
    }

    /// A record of another boot, copied into the folder of this one.
    #[test]
    fn a_record_of_another_boot_goes() {
        let lab = Lab::new();
        let store = lab.store();
        let one = add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
        let copied = Record {
            boot_id: BOOT_2.to_owned(),
            ..one
        };
        let path = lab.path("attachments").join(attachment("one").id());
        fs::write(path, serde_json::to_vec(&copied).unwrap()).unwrap();
        let swept = sweep(&store);
        assert_eq!(freed(&swept), [("one".to_owned(), Reason::OtherBoot)]);
        assert_eq!(claims(&lab), [""; 0]);
    }
}
