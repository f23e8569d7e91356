//! What a user of the store sees.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;
    use std::time::Duration;

    use tweed_core::attachment::NetworkName;
    use tweed_ipam::record::{Owner, Record, State};
    use tweed_ipam::store::{Seed, Store, StoreError};

    use super::common::mortal::FullDisk;
    use super::common::*;

    fn given(lab: &Lab, who: &str, from: &str) -> Vec<String> {
        addresses(&add(&lab.store(), who, &subnet(from)).unwrap())
    }

    #[test]
    fn an_address_is_used_again_only_when_the_range_has_gone_round() {
        let lab = Lab::new();
        // .1 is the gateway, .0 and .7 are network and broadcast: five are left.
        let mut round = Vec::new();
        for n in 0..10 {
            round.extend(given(&lab, &format!("c{n}"), "10.1.0.0/29"));
            del(&lab.store(), &format!("c{n}"));
        }
        let once = ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5", "10.1.0.6"];
        assert_eq!(round[..5], once);
        assert_eq!(round[5..], once);
    }

    /// Pods that come and go, at most twelve at a time: between two uses of an address lie
    /// as many ADDs as the range has addresses that nobody holds.
    #[test]
    fn hundreds_of_adds_and_dels_keep_their_distance() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/27");
        let mut last_use = std::collections::HashMap::new();
        for n in 0..400 {
            let record = add(&store, &format!("c{n}"), &ranges).unwrap();
            let before = last_use.insert(addresses(&record), n);
            assert!(before.is_none_or(|before| n - before >= 29 - 12));
            // Not in the order in which they came.
            if n >= 9 {
                let oldest = n - 9;
                del(&store, &format!("c{}", oldest / 3 * 3 + 2 - oldest % 3));
            }
        }
        assert_eq!(last_use.len(), 29);
    }

    #[test]
    fn a_round_passes_over_those_that_are_taken_however_many() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/23");
        let mut last = None;
        for n in 0..509 {
            last = Some(add(&store, &format!("c{n}"), &ranges).unwrap());
        }
        assert_eq!(addresses(&last.unwrap()), ["10.1.1.254"]);
        // One is left free far behind more taken ones than are looked at singly.
        del(&store, "c300");
        let record = add(&store, "late", &ranges).unwrap();
        assert_eq!(addresses(&record), ["10.1.1.46"]);
    }

    #[test]
    fn one_address_of_every_range_set() {
        let lab = Lab::new();
        let ranges = ranges(
            r#"{"ranges":[[{"subnet":"10.1.0.0/30"},{"subnet":"10.2.0.0/30"}],[{"subnet":"fd00::/64"}]]}"#,
        );
        let one = add(&lab.store(), "one", &ranges).unwrap();
        assert_eq!(one.addresses[0].to_string(), "10.1.0.2/30");
        assert_eq!(one.addresses[1].to_string(), "fd00::2/64");
        let two = add(&lab.store(), "two", &ranges).unwrap();
        assert_eq!(addresses(&two), ["10.2.0.2", "fd00::3"]);
    }

    #[test]
    fn a_full_range_is_named_with_its_count_and_nothing_is_kept() {
        let lab = Lab::new();
        let ranges = ranges(r#"{"ranges":[[{"subnet":"fd00::/64"}],[{"subnet":"10.1.0.0/30"}]]}"#);
        add(&lab.store(), "one", &ranges).unwrap();
        let error = add(&lab.store(), "two", &ranges).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, StoreError::Exhausted { index: 1, .. }));
        assert!(text.contains("10.1.0.1-10.1.0.2"), "{text}");
        assert!(text.contains("1 of 1 addresses"), "{text}");
        assert_eq!(claims(&lab), ["10.1.0.2", "fd00::2"]);
        assert_eq!(lab.store().read(&attachment("two")).unwrap(), None);
    }

    #[test]
    fn usage_counts_per_range_set() {
        let lab = Lab::new();
        let ranges = ranges(r#"{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}"#);
        let empty = lab.store().usage(&ranges).unwrap();
        assert_eq!(
            (empty[0].used, empty[0].free, empty[0].total),
            (0, 253, 253)
        );
        add(&lab.store(), "one", &ranges).unwrap();
        fs::write(lab.path("10.1.0.77"), "other\r\neth0").unwrap();
        // The gateway is never given, so it is never free either.
        fs::write(lab.path("10.1.0.1"), "other\r\neth0").unwrap();
        let usage = lab.store().usage(&ranges).unwrap();
        assert_eq!(
            (usage[0].used, usage[0].free, usage[0].total),
            (2, 251, 253)
        );
        assert_eq!(usage[1].used, 1);
        assert_eq!(usage[1].total, (1 << 64) - 2);
        lab.boot(BOOT_2);
        let usage = lab.store().usage(&ranges).unwrap();
        assert_eq!((usage[0].used, usage[1].used), (1, 0));
    }

    #[test]
    fn asked_for_addresses() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = ranges(r#"{"ranges":[[{"subnet":"10.1.0.0/24"}],[{"subnet":"fd00::/64"}]]}"#);
        let one = add_asking(&store, "one", &ranges, &["fd00::99", "10.1.0.50"]).unwrap();
        assert_eq!(addresses(&one), ["10.1.0.50", "fd00::99"]);
        // The round is not moved by what was asked for.
        let two = add_asking(&store, "two", &ranges, &["10.1.0.60", "10.1.0.60"]).unwrap();
        assert_eq!(addresses(&two), ["10.1.0.60", "fd00::2"]);

        let refused = |asked: &[&str]| {
            let error = add_asking(&store, "three", &ranges, asked).unwrap_err();
            assert_eq!(store.read(&attachment("three")).unwrap(), None);
            error.to_string()
        };
        let taken = refused(&["10.1.0.50"]);
        assert!(
            taken.contains("10.1.0.50 is taken by net/one/eth0"),
            "{taken}"
        );
        fs::write(lab.path("10.1.0.70"), "x").unwrap();
        assert!(refused(&["10.1.0.70"]).contains("10.1.0.70"));
        assert!(refused(&["10.1.0.1"]).contains("gateway"));
        for outside in ["10.1.0.0", "10.1.0.255", "10.2.0.1", "fd01::1"] {
            assert!(refused(&[outside]).contains(outside));
        }
        assert!(refused(&["10.1.0.80", "10.1.0.81"]).contains("10.1.0.81"));
    }

    #[test]
    fn an_asked_for_address_of_a_cut_off_add_can_be_had() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/24");
        let asked = ["10.1.0.9".parse().unwrap()];
        let other = Seed::new(attachment("dead"), Owner::Other, dead());
        drop(lock(&store).reserve(&other, &ranges, &asked).unwrap());
        add_asking(&store, "one", &ranges, &["10.1.0.9"]).unwrap();

        // Not if a link of tweed's may still use it.
        let asked = ["10.1.0.10".parse().unwrap()];
        let tweed = Seed::new(attachment("dead2"), Owner::Tweed, dead());
        drop(lock(&store).reserve(&tweed, &ranges, &asked).unwrap());
        add_asking(&store, "two", &ranges, &["10.1.0.10"]).unwrap_err();
    }

    #[test]
    fn a_full_range_gives_what_cut_off_adds_of_other_plugins_hold() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/30");
        let other = Seed::new(attachment("dead"), Owner::Other, dead());
        drop(lock(&store).reserve(&other, &ranges, &[]).unwrap());
        assert_eq!(given(&lab, "one", "10.1.0.0/30"), ["10.1.0.2"]);
    }

    #[test]
    fn an_add_over_a_live_one_or_one_under_way_is_an_error() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/24");
        let _held = lock(&store).reserve(&seed("one"), &ranges, &[]).unwrap();
        let under_way = add(&store, "one", &ranges).unwrap_err();
        assert!(matches!(under_way, StoreError::AddUnderWay { .. }));
        del(&store, "one");
        add(&store, "one", &ranges).unwrap();
        let live = add(&store, "one", &ranges).unwrap_err();
        assert!(live.to_string().contains("10.1.0.3"), "{live}");
        let tracked = lock(&store).track(&seed("one"), vec![]).unwrap_err();
        assert!(matches!(tracked, StoreError::Attached { .. }));
        assert_eq!(claims(&lab), ["10.1.0.3"]);
    }

    #[test]
    fn an_add_that_was_deleted_meanwhile_does_not_go_live() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/24");
        let record = lock(&store).reserve(&seed("one"), &ranges, &[]).unwrap();
        del(&store, "one");
        let error = lock(&store).mark_live(&record).unwrap_err();
        assert!(matches!(error, StoreError::TakenAway { found: None, .. }));
        add(&store, "one", &ranges).unwrap();
        let error = lock(&store).mark_live(&record).unwrap_err();
        assert!(error.to_string().contains("net/one/eth0"), "{error}");
    }

    /// The same attachment with the same address, but of another process.
    #[test]
    fn an_add_does_not_end_anothers() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/30");
        let record = lock(&store).reserve(&seed("one"), &ranges, &[]).unwrap();
        del(&store, "one");
        let other = Seed::new(attachment("one"), Owner::Tweed, dead());
        let theirs = lock(&store).reserve(&other, &ranges, &[]).unwrap();
        assert_eq!(record.addresses, theirs.addresses);
        let error = lock(&store).mark_live(&record).unwrap_err();
        assert!(error.to_string().contains("another ADD"), "{error}");
        assert_eq!(
            store.read(&attachment("one")).unwrap(),
            Some(theirs.clone())
        );
    }

    #[test]
    fn a_claim_that_fails_leaves_nothing() {
        let lab = Lab::new();
        let store = lab.store_on(Arc::new(FullDisk));
        let error = add(&store, "one", &subnet("10.1.0.0/24")).unwrap_err();
        assert!(error.to_string().contains("make room"), "{error}");
        assert_eq!(store.records().unwrap(), (vec![], vec![]));
    }

    /// A sandbox is made anew; the DEL of the old one comes late.
    #[test]
    fn a_late_del_of_an_old_sandbox_leaves_the_new_one_alone() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/30");
        add(&store, "old", &ranges).unwrap();
        del(&store, "old");
        let new = add(&store, "new", &ranges).unwrap();
        del(&store, "old");
        assert_eq!(store.read(&attachment("new")).unwrap(), Some(new));
        assert_eq!(claims(&lab), ["10.1.0.2"]);
    }

    /// The old record was cut off before its claims went; it lists an address
    /// that is another's by now.
    #[test]
    fn a_late_del_frees_only_the_claims_that_are_its_own() {
        let lab = Lab::new();
        let store = lab.store();
        let ranges = subnet("10.1.0.0/30");
        add(&store, "old", &ranges).unwrap();
        fs::remove_file(lab.path("10.1.0.2")).unwrap();
        drop(lock(&store).mark_deleting(&attachment("old")).unwrap());
        add(&store, "new", &ranges).unwrap();
        del(&store, "old");
        assert_eq!(claims(&lab), ["10.1.0.2"]);
        assert_sound(&store);
    }

    #[test]
    fn tracked_addresses_claim_nothing_and_can_be_written_down_later() {
        let lab = Lab::new();
        let store = lab.store();
        let _held = lock(&store).track(&seed("one"), vec![]).unwrap();
        let address = vec!["192.0.2.7/24".parse().unwrap()];
        let record = lock(&store).track(&seed("one"), address).unwrap();
        let record = lock(&store).mark_live(&record).unwrap();
        assert_eq!(store.read(&attachment("one")).unwrap(), Some(record));
        assert_eq!(claims(&lab), [""; 0]);
        del(&store, "one");
        assert_eq!(store.records().unwrap(), (vec![], vec![]));
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_empty_store_and_stays_away() {
        let lab = Lab::new();
        let store = lab.store();
        assert_eq!(store.records().unwrap(), (vec![], vec![]));
        assert_eq!(store.read(&attachment("one")).unwrap(), None);
        assert_eq!(store.usage(&subnet("10.1.0.0/30")).unwrap()[0].used, 0);
        assert!(store.lock_existing(WAIT).unwrap().is_none());
        assert_eq!(Store::networks(&lab.data_dir()).unwrap(), []);
        assert!(!lab.data_dir().exists());
        add(&store, "one", &subnet("10.1.0.0/30")).unwrap();
        let net = NetworkName::new(NETWORK).unwrap();
        fs::create_dir(lab.data_dir().join("of-host-local")).unwrap();
        fs::write(lab.data_dir().join("a-file"), "").unwrap();
        assert_eq!(Store::networks(&lab.data_dir()).unwrap(), [net]);
    }

    #[test]
    fn a_reboot_voids_everything_but_host_locals_files_and_the_round() {
        let lab = Lab::new();
        let store = lab.store();
        given(&lab, "one", "10.1.0.0/24");
        fs::write(lab.path("10.1.0.4"), "x\r\neth0").unwrap();
        lab.boot(BOOT_2);
        assert_eq!(store.read(&attachment("one")).unwrap(), None);
        assert_eq!(store.records().unwrap().0, []);
        assert_eq!(given(&lab, "two", "10.1.0.0/24"), ["10.1.0.3"]);
        assert_eq!(claims(&lab), ["10.1.0.3", "10.1.0.4"]);
        assert_eq!(given(&lab, "three", "10.1.0.0/24"), ["10.1.0.5"]);
    }

    /// The marker was deleted or scribbled over, but the records say that they
    /// are of this boot.
    #[test]
    fn a_lost_marker_of_the_boot_frees_nothing_that_is_alive() {
        for marker in [None, Some(""), Some("garbage"), Some(BOOT_2)] {
            let lab = Lab::new();
            let store = lab.store();
            let one = add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
            add(&store, "damaged", &subnet("10.1.0.0/24")).unwrap();
            let damaged = lab.path("attachments").join(attachment("damaged").id());
            fs::write(damaged, "{").unwrap();
            match marker {
                None => fs::remove_file(lab.path("boot_id")).unwrap(),
                Some(text) => fs::write(lab.path("boot_id"), text).unwrap(),
            }
            let two = add(&store, "two", &subnet("10.1.0.0/24")).unwrap();
            assert_eq!(store.records().unwrap().0, [one, two]);
            assert_sound(&store);
            // One that does not say of which boot it is goes with the folder's word.
            let is_kept = marker != Some(BOOT_2);
            assert_eq!(claims(&lab).contains(&"10.1.0.3".to_owned()), is_kept);
        }
    }

    #[test]
    fn a_kernel_without_a_boot_id_is_an_error() {
        let lab = Lab::new();
        lab.boot("");
        let error = add(&lab.store(), "one", &subnet("10.1.0.0/24")).unwrap_err();
        assert!(matches!(error, StoreError::NoBootId { .. }), "{error}");
    }

    /// Whatever a record's file has become, its address is not given again, the
    /// others are seen, and a DEL frees it.
    #[test]
    fn damaged_records_are_reported_and_keep_their_addresses() {
        let huge = " ".repeat(100_000);
        let lab = Lab::new();
        let whole = add(&lab.store(), "other", &subnet("10.1.0.0/24")).unwrap();
        let foreign = serde_json::to_string(&whole).unwrap();
        for content in ["", "{", "[]", "null", "\u{0}\u{0}", "{}", &huge, &foreign] {
            let lab = Lab::new();
            let store = lab.store();
            let ranges = ranges(r#"{"subnet":"10.1.0.0/29","rangeEnd":"10.1.0.3"}"#);
            add(&store, "one", &ranges).unwrap();
            let path = lab.path("attachments").join(attachment("one").id());
            fs::write(&path, content).unwrap();

            let two = add(&store, "two", &ranges).unwrap();
            let (records, problems) = store.records().unwrap();
            assert_eq!(records, [two]);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert_eq!(problems[0].path, path);
            let full = add(&store, "three", &ranges).unwrap_err();
            assert!(matches!(full, StoreError::Exhausted { .. }), "{full}");
            let again = add(&store, "one", &ranges).unwrap_err();
            assert!(matches!(again, StoreError::Damaged { .. }), "{again}");
            assert!(again.to_string().contains(path.to_str().unwrap()));
            sweep(&store);
            assert_eq!(claims(&lab), ["10.1.0.2", "10.1.0.3"]);

            del(&store, "one");
            let three = add(&store, "three", &ranges).unwrap();
            assert_eq!(addresses(&three), ["10.1.0.2"]);
        }
    }

    #[test]
    fn what_is_not_of_the_store_is_reported_and_left_alone() {
        let lab = Lab::new();
        let store = lab.store();
        let one = add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
        let id = "0".repeat(64);
        fs::create_dir(lab.path("10.1.0.3")).unwrap();
        symlink("/nowhere", lab.path("10.1.0.4")).unwrap();
        fs::write(lab.path("10.1.0.05"), "").unwrap();
        fs::write(lab.path("README"), "").unwrap();
        fs::write(lab.path("attachments/notes"), "").unwrap();
        fs::create_dir(lab.path("attachments").join(&id)).unwrap();
        nix::unistd::mkfifo(
            &lab.path("attachments").join("1".repeat(64)),
            nix::sys::stat::Mode::S_IRWXU,
        )
        .unwrap();
        symlink("/etc/passwd", lab.path("attachments").join("2".repeat(64))).unwrap();

        let (records, problems) = store.records().unwrap();
        assert_eq!(records, [one]);
        let named: Vec<String> = problems
            .iter()
            .map(|p| p.path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            named,
            [
                "10.1.0.05",
                "10.1.0.3",
                "README",
                &id,
                &"1".repeat(64),
                &"2".repeat(64),
                "notes"
            ]
        );
        sweep(&store);
        assert_eq!(given(&lab, "two", "10.1.0.0/24"), ["10.1.0.5"]);
        lab.boot(BOOT_2);
        assert_eq!(given(&lab, "three", "10.1.0.0/24"), ["10.1.0.6"]);
        assert!(lab.path("10.1.0.3").is_dir() && lab.path("README").is_file());
        assert!(lab.path("10.1.0.4").is_symlink());
    }

    #[test]
    fn a_cursor_that_makes_no_sense_costs_the_round_its_place_only() {
        for content in ["", "x", "fd00::7", "10.99.0.1", &"9".repeat(100_000)] {
            let lab = Lab::new();
            given(&lab, "one", "10.1.0.0/24");
            fs::write(lab.path("last_reserved_ip.0"), content).unwrap();
            assert_eq!(given(&lab, "two", "10.1.0.0/24"), ["10.1.0.3"]);
        }
    }

    #[test]
    fn something_in_the_way_is_named_with_the_cure() {
        let lab = Lab::new();
        let store = lab.store();
        given(&lab, "one", "10.1.0.0/24");
        fs::remove_file(lab.path("last_reserved_ip.0")).unwrap();
        fs::create_dir(lab.path("last_reserved_ip.0")).unwrap();
        let error = add(&store, "two", &subnet("10.1.0.0/24")).unwrap_err();
        assert!(error.to_string().contains("last_reserved_ip.0"), "{error}");
        assert!(error.to_string().contains("move it elsewhere"), "{error}");

        let lab = Lab::new();
        fs::write(lab.data_dir(), "a file in place of the folder").unwrap();
        let error = add(&lab.store(), "one", &subnet("10.1.0.0/24")).unwrap_err();
        assert!(error.to_string().contains("/data/net"), "{error}");
    }

    #[test]
    fn a_lock_that_is_held_is_waited_for_and_then_named() {
        let lab = Lab::new();
        let store = lab.store();
        let held = lock(&store);
        let error = store.lock(Duration::from_millis(30)).unwrap_err();
        assert!(matches!(error, StoreError::LockTimeout { .. }));
        assert!(error.to_string().contains("/net/lock"), "{error}");
        let other = lab.store();
        let waiting = std::thread::spawn(move || other.lock(WAIT).map(drop));
        drop(held);
        waiting.join().unwrap().unwrap();
    }

    /// A record of a later version, with keys that this one does not know, and
    /// the least that an earlier one may have written.
    #[test]
    fn records_of_neighbouring_versions_count() {
        let lab = Lab::new();
        let store = lab.store();
        let one = add(&store, "one", &subnet("10.1.0.0/24")).unwrap();
        let path = lab.path("attachments").join(attachment("one").id());

        let mut later: serde_json::Value = serde_json::to_value(&one).unwrap();
        later["version"] = 2.into();
        later["bandwidth"] = serde_json::json!({ "ingressRate": 1 });
        fs::write(&path, later.to_string()).unwrap();
        let read = store.read(&attachment("one")).unwrap().unwrap();
        assert_eq!(Record { version: 1, ..read }, one);

        let earlier = format!(
            r#"{{"version":0,"network":"net","containerId":"one","ifname":"eth0",
                "addresses":["10.1.0.2/24"],"owner":"tweed","bootId":"{BOOT_1}",
                "state":{{"is":"adding","by":{{"pid":1,"startTime":2}}}}}}"#
        );
        fs::write(&path, earlier).unwrap();
        let read = store.read(&attachment("one")).unwrap().unwrap();
        assert!(matches!(read.state, State::Adding { .. }));
        assert_eq!(read.link, None);
        // Whose process it was cannot be known: nobody takes it back but a DEL.
        assert_eq!(sweep(&store).freed, []);
        del(&store, "one");
        assert_eq!(claims(&lab), [""; 0]);
    }

    /// Frozen: another version of this program reads it.
    #[test]
    fn the_format_of_a_record_is_frozen() {
        let lab = Lab::new();
        let mut whole = seed("one");
        whole.netns = Some("/run/netns/one".to_owned());
        whole.link = Some(whole.attachment.link_name());
        whole.host_mac = Some(whole.attachment.host_mac());
        whole.pod_mac = Some(whole.attachment.pod_mac());
        whole.mtu = Some(1450);
        whole.pod = Some(tweed_core::attachment::PodName {
            namespace: "default".to_owned(),
            name: "web-0".to_owned(),
        });
        let store = lab.store();
        let record = lock(&store)
            .reserve(&whole, &subnet("10.1.0.0/24"), &[])
            .unwrap();
        let State::Adding { by } = record.state else {
            panic!("{record:?}");
        };
        let path = lab.path("attachments").join(attachment("one").id());
        let text = fs::read_to_string(path).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let frozen = serde_json::json!({
            "version": 1,
            "network": "net",
            "containerId": "one",
            "ifname": "eth0",
            "netns": "/run/netns/one",
            "addresses": ["10.1.0.2/24"],
            "owner": "tweed",
            "link": "tw35e70c953497",
            "hostMac": whole.host_mac.unwrap().to_string(),
            "podMac": whole.pod_mac.unwrap().to_string(),
            "mtu": 1450,
            "pod": { "namespace": "default", "name": "web-0" },
            "bootId": BOOT_1,
            "state": { "is": "adding", "by": {
                "pid": by.pid, "startTime": by.start_time, "pidNamespace": by.pid_namespace } },
            "held": true,
        });
        assert_eq!(found, frozen);
        assert_eq!(
            fs::read_link(lab.path("10.1.0.2")).unwrap().to_str(),
            Some(format!("attachments/{}", attachment("one").id()).as_str())
        );
    }
}
