//! What another boot left in the store is void.
//!
//! The boot's ID is that of `/proc/sys/kernel/random/boot_id`: the plugin runs
//! in a mount namespace with another file there.

use std::fs;
use std::net::IpAddr;

use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginOutput, Pod};

use crate::bench::{Bench, refused_with, silent, with_prev_result};

const NEXT_BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// The subject, after a reboot.
fn next_boot(bench: &Bench) -> String {
    let id = bench.node.folder().join("next_boot");
    fs::write(&id, format!("{NEXT_BOOT}\n")).unwrap();
    let script = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && exec $PLUGIN",
        id.display()
    );
    bench.wrapper("next_boot", &script)
}

/// Two addresses, no more.
fn small(bench: &Bench) -> Value {
    bench.config_over(&json!([[{
        "subnet": "10.244.1.0/24", "rangeStart": "10.244.1.8", "rangeEnd": "10.244.1.9"
    }]]))
}

fn after_reboot(bench: &Bench, verb: &str, pod: &Pod, config: &Value) -> PluginOutput {
    let plugin = next_boot(bench);
    let call = bench.call(verb, pod).config(config);
    call.run(&bench.node, &plugin).unwrap()
}

#[test]
fn its_addresses_are_free() {
    let bench = Bench::tweed();
    let config = small(&bench);
    let before = bench.snapshot();
    let old = ["old1", "old2"].map(|name| bench.pod(name));
    for pod in &old {
        bench.add_with(pod, &config);
    }
    // Namespaces do not outlive a boot.
    drop(old);
    bench.assert_same_kernel(&before);
    let new = ["new1", "new2"].map(|name| bench.pod(name));
    let given: Vec<IpAddr> = new
        .iter()
        .map(|pod| {
            let output = after_reboot(&bench, "ADD", pod, &config);
            assert_eq!(output.code, Some(0), "{output:?}");
            let added = AddResult::parse(&output.stdout).unwrap();
            silent(&after_reboot(
                &bench,
                "CHECK",
                pod,
                &with_prev_result(config.clone(), &added),
            ));
            added.address().unwrap()
        })
        .collect();
    assert_ne!(given[0], given[1]);
    assert_eq!(bench.records(), 2, "only those of this boot");
    assert_eq!(bench.reserved(), given.into_iter().collect());
}

#[test]
fn a_late_del_of_the_old_boot_frees_nothing_new() {
    let bench = Bench::tweed();
    let config = small(&bench);
    let pod = bench.pod("pod");
    let old = bench.call("ADD", &pod).container("old").config(&config);
    assert_eq!(bench.run(&old).code, Some(0));
    drop(pod);
    let new = bench.pod("new");
    assert_eq!(after_reboot(&bench, "ADD", &new, &config).code, Some(0));
    let reserved = bench.reserved();
    let plugin = next_boot(&bench);
    let late = bench.call("DEL", &new).container("old").netns("");
    silent(&late.run(&bench.node, &plugin).unwrap());
    assert_eq!(bench.reserved(), reserved);
}

#[test]
fn check_does_not_find_the_old_record() {
    let bench = Bench::tweed();
    let config = small(&bench);
    let pod = bench.pod("pod");
    let added = bench.add_with(&pod, &config);
    let config = with_prev_result(config, &added);
    let output = after_reboot(&bench, "CHECK", &pod, &config);
    refused_with(&output, 104, &["the store has no reservation"]);
}

#[test]
fn files_of_host_local_stay_taken() {
    let bench = Bench::tweed();
    let config = small(&bench);
    let before = bench.snapshot();
    bench.add_with(&bench.pod("pod"), &config);
    bench.assert_same_kernel(&before);
    fs::write(bench.store().join("10.244.1.9"), "host-local\neth0").unwrap();
    let new = bench.pod("new");
    let output = after_reboot(&bench, "ADD", &new, &config);
    let added = AddResult::parse(&output.stdout).unwrap();
    assert_eq!(added.address(), Some("10.244.1.8".parse().unwrap()));
}

#[test]
fn a_boot_id_that_makes_no_sense_is_code_105() {
    let bench = Bench::tweed();
    let before = bench.snapshot();
    let id = bench.node.folder().join("no_boot");
    fs::write(&id, "\n").unwrap();
    let script = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && exec $PLUGIN",
        id.display()
    );
    let plugin = bench.wrapper("no_boot", &script);
    let output = bench
        .call("ADD", &bench.pod("pod"))
        .run(&bench.node, &plugin)
        .unwrap();
    refused_with(&output, 105, &["boot_id"]);
    bench.assert_nothing_left(&before);
}
