//! Many processes at once, and processes that are killed while they work.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;
    use std::time::Duration;

    use serde_json::json;
    use tweed_core::attachment::NetworkName;
    use tweed_ipam::record::Record;
    use tweed_ipam::store::Store;

    use super::common::program::{call, config, finish};
    use super::common::{assert_sound, folder};

    fn store(run_dir: &Path) -> Store {
        Store::open(&run_dir.join("ipam"), &NetworkName::new("net").unwrap())
    }

    fn files(store: &Store) -> Vec<String> {
        let entries = std::fs::read_dir(store.folder()).unwrap();
        let mut files: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("10."))
            .collect();
        files.sort();
        files
    }

    #[test]
    fn sixty_adds_at_once_give_sixty_addresses() {
        let run_dir = folder();
        let config = config(run_dir.path(), "10.1.0.0/26");
        let children: Vec<_> = (0..60)
            .map(|n| call("ADD", &format!("c{n}"), &config).start())
            .collect();
        let given: HashSet<String> = children
            .into_iter()
            .flat_map(|child| finish(child).addresses())
            .collect();
        assert_eq!(given.len(), 60);
        assert_sound(&store(run_dir.path()));
        assert_eq!(files(&store(run_dir.path())).len(), 60);

        // One address is left, so the second of them gets an error.
        call("ADD", "c60", &config).make().result();
        let (code, message) = call("ADD", "c61", &config).make().error();
        assert_eq!(code, 100);
        assert!(message.contains("61 of 61"), "{message}");

        let children: Vec<_> = (0..61)
            .map(|n| call("DEL", &format!("c{n}"), &config).start())
            .collect();
        for child in children {
            finish(child).done();
        }
        assert_eq!(files(&store(run_dir.path())), [""; 0]);
    }

    /// Four threads run ADDs and DELs, each killed after another time, over a range
    /// that is always nearly full.
    #[test]
    fn kill_9_at_any_moment_gives_no_address_twice_and_loses_none() {
        let run_dir = folder();
        let config = config(run_dir.path(), "10.1.0.0/28");
        let config = &config;
        std::thread::scope(|scope| {
            for row in 0..4u64 {
                scope.spawn(move || {
                    for n in 0..60u64 {
                        let verb = if n % 3 == 2 { "DEL" } else { "ADD" };
                        let who = format!("c{row}-{}", n % 5);
                        let mut child = call(verb, &who, config).start();
                        // From the start to well after a whole run.
                        let micros = (n * 7919 + row * 104_729) % 6_000;
                        std::thread::sleep(Duration::from_micros(micros));
                        child.kill().unwrap();
                        let answer = finish(child);
                        let answered = answer.stdout.contains("\"ips\"");
                        assert!(!answer.success || verb == "DEL" || answered);
                    }
                });
            }
        });
        let store = store(run_dir.path());
        assert_sound(&store);
        let (records, problems) = store.records().unwrap();
        assert_eq!(problems, []);

        // The runtime still lists some of them; everything else is freed.
        let mut kept: Vec<&Record> = records.iter().collect();
        kept.retain(|record| record.state == tweed_ipam::record::State::Live);
        kept.truncate(2);
        let valid: Vec<_> = kept
            .iter()
            .map(|record| json!({ "containerID": record.container_id, "ifname": "eth0" }))
            .collect();
        let mut listing = config.clone();
        listing["cni.dev/valid-attachments"] = json!(valid);
        call("GC", "gc", &listing).make().done();
        assert_sound(&store);
        let mut left: Vec<String> = kept
            .iter()
            .map(|record| record.addresses[0].ip().to_string())
            .collect();
        left.sort();
        assert_eq!(files(&store), left);
        for record in store.records().unwrap().0 {
            call("DEL", record.container_id.as_str(), config)
                .make()
                .done();
        }
        assert_eq!(files(&store), [""; 0]);
    }

    /// The kernel releases the lock when its process ends, however that happens.
    #[test]
    fn a_process_killed_under_the_lock_blocks_nobody() {
        let run_dir = folder();
        let config = config(run_dir.path(), "10.1.0.0/24");
        let store = store(run_dir.path());
        let held = store.lock(Duration::from_secs(9)).unwrap();
        let mut waiting = call("ADD", "killed", &config).start();
        std::thread::sleep(Duration::from_millis(20));
        waiting.kill().unwrap();
        waiting.wait().unwrap();
        drop(held);
        let given = call("ADD", "next", &config).make().addresses();
        assert_eq!(given, ["10.1.0.2"]);
    }
}
