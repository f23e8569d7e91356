//! The store against a model of it, under random interleavings of several
//! attachments, kills at random steps, reboots, damage and foreign files.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::fs;
    use std::sync::Arc;

    use proptest::prelude::*;
    use tweed_ipam::ranges::RangeSets;
    use tweed_ipam::record::{Owner, Process, Record, State};
    use tweed_ipam::store::{Held, KnownFiles, Store, StoreError};
    use tweed_ipam::sweep;

    use super::common::mortal::MortalDisk;
    use super::common::*;

    /// One attachment, by number.
    type Who = u8;

    #[derive(Debug, Clone)]
    enum Step {
        /// The first half of an ADD. The process of a doomed one ends before the
        /// second half.
        Reserve { who: Who, doomed: bool },
        /// The second half.
        MarkLive { who: Who },
        /// The first half of a DEL; a doomed one as with ADD.
        MarkDeleting { who: Who, doomed: bool },
        /// The second half.
        Free { who: Who },
        /// An ADD that is killed at a system call.
        KilledAdd { who: Who, at: usize },
        /// A DEL that is killed at a system call.
        KilledDel { who: Who, at: usize },
        /// A GC that lists these and is killed at a system call.
        KilledGc { listed: BTreeSet<Who>, at: usize },
        /// A sweep of the agent.
        Sweep,
        /// A GC with this list.
        Gc { listed: BTreeSet<Who> },
        /// Somebody overwrites a record.
        Damage { who: Who, with: &'static str },
        /// host-local takes the address with this last number.
        HostLocal { number: u8 },
        /// A reboot.
        Reboot,
    }

    fn step() -> impl Strategy<Value = Step> {
        let who = || 0..6u8;
        let listed = || prop::collection::btree_set(who(), 0..5);
        prop_oneof![
            6 => (who(), any::<bool>()).prop_map(|(who, doomed)| Step::Reserve { who, doomed }),
            6 => who().prop_map(|who| Step::MarkLive { who }),
            3 => (who(), any::<bool>())
                .prop_map(|(who, doomed)| Step::MarkDeleting { who, doomed }),
            4 => who().prop_map(|who| Step::Free { who }),
            4 => (who(), 0..16usize).prop_map(|(who, at)| Step::KilledAdd { who, at }),
            4 => (who(), 0..12usize).prop_map(|(who, at)| Step::KilledDel { who, at }),
            1 => (listed(), 0..12usize).prop_map(|(listed, at)| Step::KilledGc { listed, at }),
            2 => Just(Step::Sweep),
            1 => listed().prop_map(|listed| Step::Gc { listed }),
            1 => (who(), prop::sample::select(vec!["", "{", "null", "\u{0}\u{1}"]))
                .prop_map(|(who, with)| Step::Damage { who, with }),
            1 => (0..8u8).prop_map(|number| Step::HostLocal { number }),
            1 => Just(Step::Reboot),
        ]
    }

    /// The state of an attachment in the model.
    #[derive(Debug, Clone, PartialEq)]
    #[expect(clippy::large_enum_variant, reason = "there are six of them")]
    enum Known {
        Record(Record),
        /// The record was overwritten; these addresses must stay taken.
        Damaged(Vec<String>),
    }

    struct World {
        lab: Lab,
        ranges: RangeSets,
        boot: usize,
        known: BTreeMap<Who, Known>,
        /// The process that works on an attachment.
        at_work: BTreeMap<Who, Held>,
        /// What one reader knows of the files, through all steps.
        files: KnownFiles,
        host_local: BTreeSet<String>,
    }

    fn name(who: Who) -> String {
        format!("c{who}")
    }

    fn seed_of(who: Who, doomed: bool) -> Record {
        let by = if doomed {
            dead()
        } else {
            Process::current().unwrap()
        };
        Record::adding(attachment(&name(who)), Owner::Tweed, by)
    }

    impl World {
        fn new() -> Self {
            Self {
                lab: Lab::new(),
                // Four addresses for six attachments: it is full all the time.
                ranges: ranges(r#"{"ranges":[[{"subnet":"10.1.0.0/29","rangeEnd":"10.1.0.5"}]]}"#),
                boot: 0,
                known: BTreeMap::new(),
                at_work: BTreeMap::new(),
                files: KnownFiles::default(),
                host_local: BTreeSet::new(),
            }
        }

        /// Whether an ADD or DEL of `who` was interrupted.
        fn is_cut_off(&self, who: Who, record: &Record) -> bool {
            let held = self.at_work.get(&who);
            record.state != State::Live && held.is_none_or(|held| **held != *record)
        }

        /// Updates the model from what a killed verb has left of `who`, if that is one
        /// of the possible states.
        fn learn(&mut self, store: &Store, who: Who) {
            match store.read(&attachment(&name(who))) {
                Ok(Some(record)) => {
                    self.known.insert(who, Known::Record(record));
                }
                Ok(None) => {
                    self.known.remove(&who);
                }
                Err(StoreError::Damaged { .. }) => {
                    let claims = claims(&self.lab);
                    match self.known.get_mut(&who) {
                        // A killed DEL may have freed them before it removed the
                        // file.
                        Some(Known::Damaged(held)) => held.retain(|a| claims.contains(a)),
                        known => panic!("{known:?} was damaged by a kill"),
                    }
                }
                Err(error) => panic!("{error}"),
            };
        }

        fn reserve(&mut self, store: &Store, who: Who, doomed: bool) {
            let seed = seed_of(who, doomed);
            let mut locked = lock(store);
            let claimed = claims(&self.lab);
            let old_addresses = match self.known.get(&who) {
                Some(Known::Record(old)) => addresses(old),
                _ => Vec::new(),
            };
            let outcome = locked.reserve(&seed, &self.ranges, &[]);
            drop(locked);
            match (self.known.get(&who), outcome) {
                (Some(Known::Damaged(_)), Err(StoreError::Damaged { .. })) => {}
                (Some(Known::Record(old)), Err(StoreError::Attached { .. })) => {
                    assert_eq!(old.state, State::Live);
                }
                (Some(Known::Record(old)), Err(StoreError::AddInProgress { .. })) => {
                    assert!(matches!(old.state, State::Adding { .. }));
                    assert!(!self.is_cut_off(who, old));
                }
                (Some(Known::Record(old)), Err(StoreError::DelInProgress { .. })) => {
                    assert_eq!(old.state, State::Deleting);
                    assert!(!self.is_cut_off(who, old));
                }
                (old, Ok(record)) => {
                    let may_replace = match old {
                        None => true,
                        Some(Known::Record(old)) => self.is_cut_off(who, old),
                        Some(Known::Damaged(_)) => false,
                    };
                    assert!(may_replace, "an ADD over {old:?}");
                    self.known.remove(&who);
                    let given = &addresses(&record)[0];
                    // Its own old record was freed first. The claims of the others
                    // stay, wherever their ADD or DEL was interrupted.
                    let is_own = old_addresses.contains(given);
                    assert!(is_own || !claimed.contains(given), "{given} twice");
                    for known in self.known.values() {
                        let held = match known {
                            Known::Record(r) if r.state == State::Live => addresses(r),
                            Known::Record(_) => continue,
                            Known::Damaged(held) => held.clone(),
                        };
                        assert!(!held.contains(given), "{given} twice");
                    }
                    self.known.insert(who, Known::Record(record.clone()));
                    if doomed {
                        self.at_work.remove(&who);
                    } else {
                        self.at_work.insert(who, record);
                    }
                }
                (old, Err(StoreError::Exhausted { used, capacity, .. })) => {
                    assert!(!matches!(old, Some(Known::Damaged(_))));
                    assert_eq!((used, capacity), (4, 4));
                    assert_eq!(claims_to_give(&self.lab).len(), 4);
                    self.learn(store, who);
                }
                (old, outcome) => panic!("{old:?} gave {outcome:?}"),
            }
        }

        fn gc(&mut self, listed: &BTreeSet<Who>) {
            let gone = |(who, known): (&Who, &Known)| {
                let goes = match known {
                    Known::Record(record) if record.state != State::Live => {
                        self.is_cut_off(*who, record)
                    }
                    Known::Record(_) | Known::Damaged(_) => !listed.contains(who),
                };
                goes.then_some(*who)
            };
            let gone: Vec<Who> = self.known.iter().filter_map(gone).collect();
            self.known.retain(|who, _| !gone.contains(who));
        }

        #[expect(clippy::too_many_lines, reason = "one arm for each step of the model")]
        fn take(&mut self, step: &Step) {
            let store = self.lab.store();
            match step {
                Step::Reserve { who, doomed } => self.reserve(&store, *who, *doomed),
                Step::MarkLive { who } => {
                    if let Some(Known::Record(record)) = self.known.get(who).cloned()
                        && !(matches!(record.state, State::Adding { .. })
                            && self.is_cut_off(*who, &record))
                    {
                        let outcome = lock(&store).mark_live(&record);
                        self.at_work.remove(who);
                        if matches!(record.state, State::Adding { .. }) {
                            self.known.insert(*who, Known::Record(outcome.unwrap()));
                        } else {
                            assert!(matches!(outcome, Err(StoreError::RecordLost { .. })));
                        }
                    }
                }
                Step::MarkDeleting { who, doomed } => {
                    self.at_work.remove(who);
                    let marked = lock(&store)
                        .mark_deleting(&attachment(&name(*who)))
                        .unwrap();
                    match (self.known.get_mut(who), marked) {
                        (Some(Known::Record(old)), Some(marked)) => {
                            old.state = State::Deleting;
                            old.held = true;
                            assert_eq!(*old, *marked);
                            if !doomed {
                                self.at_work.insert(*who, marked);
                            }
                        }
                        (Some(Known::Damaged(_)) | None, None) => {}
                        (known, marked) => panic!("{known:?} became {marked:?}"),
                    }
                }
                Step::Free { who } => {
                    self.at_work.remove(who);
                    let freed = lock(&store).free(&attachment(&name(*who))).unwrap();
                    assert_eq!(freed.is_some(), self.known.remove(who).is_some());
                }
                Step::KilledAdd { who, at } => {
                    let disk = Arc::new(MortalDisk::dying_at(*at));
                    let mortal = self.lab.store_on(disk.clone());
                    let added = mortal.lock(WAIT).and_then(|mut locked| {
                        let record = locked.reserve(&seed_of(*who, true), &self.ranges, &[])?;
                        locked.mark_live(&record)
                    });
                    drop(added);
                    self.learn(&store, *who);
                }
                Step::KilledDel { who, at } => {
                    self.at_work.remove(who);
                    let disk = Arc::new(MortalDisk::dying_at(*at));
                    let mortal = self.lab.store_on(disk.clone());
                    let attachment = attachment(&name(*who));
                    let deleted = mortal.lock(WAIT).and_then(|mut locked| {
                        locked.mark_deleting(&attachment)?;
                        locked.free(&attachment)
                    });
                    drop(deleted);
                    self.learn(&store, *who);
                }
                Step::KilledGc { listed, at } => {
                    let disk = Arc::new(MortalDisk::dying_at(*at));
                    let mortal = self.lab.store_on(disk.clone());
                    let valid: Vec<_> = listed.iter().map(|w| attachment(&name(*w))).collect();
                    drop(sweep::gc(&mortal, WAIT, &valid, detach));
                    let before = self.known.clone();
                    for who in 0..6 {
                        self.learn(&store, who);
                    }
                    for (who, known) in before {
                        let stays = listed.contains(&who)
                            && matches!(&known, Known::Record(r) if r.state == State::Live);
                        assert!(!stays || self.known.get(&who) == Some(&known));
                    }
                }
                Step::Sweep => {
                    sweep(&store);
                    let everybody = (0..6).collect();
                    self.gc(&everybody);
                }
                Step::Gc { listed } => {
                    let valid: Vec<_> = listed.iter().map(|w| attachment(&name(*w))).collect();
                    let swept = sweep::gc(&store, WAIT, &valid, detach).unwrap();
                    assert!(swept.failed.is_empty(), "{swept:?}");
                    assert!(swept.stopped.is_none(), "{swept:?}");
                    self.gc(listed);
                }
                Step::Damage { who, with } => {
                    if let Some(Known::Record(record)) = self.known.get(who) {
                        let id = attachment(&name(*who)).id();
                        let unclaimed = store.unclaimed(record).unwrap();
                        let mut held = addresses(record);
                        held.retain(|a| !unclaimed.contains(&a.parse().unwrap()));
                        fs::write(self.lab.path("attachments").join(id), with).unwrap();
                        self.known.insert(*who, Known::Damaged(held));
                    }
                }
                Step::HostLocal { number } => {
                    let address = format!("10.1.0.{number}");
                    fs::create_dir_all(self.lab.path("")).unwrap();
                    let path = self.lab.path(&address);
                    if fs::File::create_new(path).is_ok() {
                        self.host_local.insert(address);
                    }
                }
                Step::Reboot => {
                    self.boot += 1;
                    self.lab
                        .boot(&format!("99999999-0000-4000-8000-{:012}", self.boot));
                    self.known.clear();
                    self.at_work.clear();
                    // The folder survives the reboot here, as on a disk.
                    assert_eq!(store.records().unwrap().0, []);
                }
            }
        }

        fn check(&mut self) {
            let store = self.lab.store();
            assert_sound(&store);
            let (records, problems) = store.records().unwrap();
            let again = store.records_again(&mut self.files).unwrap();
            assert_eq!(again, (records.clone(), problems));
            let records: Vec<Record> = records;
            let mut known: Vec<Record> = Vec::new();
            for it in self.known.values() {
                match it {
                    Known::Record(record) => known.push(record.clone()),
                    Known::Damaged(addresses) => {
                        for address in addresses {
                            assert!(claims(&self.lab).contains(address), "{address} was lost");
                        }
                    }
                }
            }
            known.sort_by_key(Record::attachment);
            assert_eq!(records, known);
            for file in &self.host_local {
                assert!(claims(&self.lab).contains(file), "host-local lost {file}");
            }
        }

        /// After a DEL of everything, only host-local's files are left.
        fn end(&mut self) {
            let store = self.lab.store();
            for who in 0..6 {
                del(&store, &name(who));
            }
            sweep(&store);
            let left: Vec<String> = self.host_local.iter().cloned().collect();
            assert_eq!(claims(&self.lab), left);
            let attachments = fs::read_dir(self.lab.path("attachments"));
            let names: Vec<_> = attachments
                .into_iter()
                .flatten()
                .map(|entry| entry.unwrap().file_name())
                .filter(|name| name != ".new")
                .collect();
            assert!(names.is_empty(), "{names:?}");
        }
    }

    /// Those of the four addresses that an attachment holds.
    fn claims_to_give(lab: &Lab) -> Vec<String> {
        let mut claims = claims(lab);
        claims.retain(|address| {
            ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5"].contains(&address.as_str())
        });
        claims
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 256,
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn the_store_does_what_its_model_does(steps in prop::collection::vec(step(), 1..60)) {
            let mut world = World::new();
            for step in &steps {
                world.take(step);
                world.check();
            }
            world.end();
        }
    }
}
