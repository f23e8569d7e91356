//! Records of an earlier boot in the store are void.
//!
//! The boot ID is read from `/proc/sys/kernel/random/boot_id`. To simulate a reboot, the
//! plugin runs in a mount namespace with another file there.

use std::fs;
use std::net::IpAddr;
use std::time::SystemTime;

use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginOutput, Pod};

use crate::fixture::{Fixture, assert_refused_with, assert_silent, with_prev_result};

const NEXT_BOOT: &str = "11111111-2222-3333-4444-555555555555";

/// The path of a script that runs the plugin with the next boot ID.
fn next_boot(fixture: &Fixture) -> String {
    next_boot_of(fixture, "$PLUGIN")
}

fn next_boot_of(fixture: &Fixture, program: &str) -> String {
    let id = fixture.node.folder().join("next_boot");
    fs::write(&id, format!("{NEXT_BOOT}\n")).unwrap();
    let script = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && exec {program}",
        id.display()
    );
    fixture.wrapper("next_boot", &script)
}

/// A config with a range of two addresses.
fn small(fixture: &Fixture) -> Value {
    fixture.config_over(&json!([[{
        "subnet": "10.244.1.0/24", "rangeStart": "10.244.1.8", "rangeEnd": "10.244.1.9"
    }]]))
}

fn after_reboot(fixture: &Fixture, verb: &str, pod: &Pod, config: &Value) -> PluginOutput {
    let plugin = next_boot(fixture);
    let call = fixture.call(verb, pod).config(config);
    call.run(&fixture.node, &plugin).unwrap()
}

#[test]
fn addresses_of_the_old_boot_are_free() {
    let fixture = Fixture::tweed();
    let config = small(&fixture);
    let before = fixture.snapshot();
    let old = ["old1", "old2"].map(|name| fixture.pod(name));
    for pod in &old {
        fixture.add_with(pod, &config);
    }
    // Namespaces end with the boot.
    drop(old);
    fixture.assert_same_kernel(&before);
    let new = ["new1", "new2"].map(|name| fixture.pod(name));
    let assigned: Vec<IpAddr> = new
        .iter()
        .map(|pod| {
            let output = after_reboot(&fixture, "ADD", pod, &config);
            assert_eq!(output.code, Some(0), "{output:?}");
            let added = AddResult::parse(&output.stdout).unwrap();
            assert_silent(&after_reboot(
                &fixture,
                "CHECK",
                pod,
                &with_prev_result(config.clone(), &added),
            ));
            added.address().unwrap()
        })
        .collect();
    assert_ne!(assigned[0], assigned[1]);
    assert_eq!(fixture.records(), 2, "only those of this boot");
    assert_eq!(fixture.reserved(), assigned.into_iter().collect());
}

#[test]
fn a_late_del_of_the_old_boot_frees_nothing_new() {
    let fixture = Fixture::tweed();
    let config = small(&fixture);
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let old = fixture.call("ADD", &pod).container("old").config(&config);
    assert_eq!(fixture.run(&old).code, Some(0));
    drop(pod);
    fixture.assert_same_kernel(&before);
    let new = fixture.pod("new");
    assert_eq!(after_reboot(&fixture, "ADD", &new, &config).code, Some(0));
    let reserved = fixture.reserved();
    let plugin = next_boot(&fixture);
    let late = fixture.call("DEL", &new).container("old").netns("");
    assert_silent(&late.run(&fixture.node, &plugin).unwrap());
    assert_eq!(fixture.reserved(), reserved);
}

#[test]
fn check_does_not_find_the_old_record() {
    let fixture = Fixture::tweed();
    let config = small(&fixture);
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let added = fixture.add_with(&pod, &config);
    let config = with_prev_result(config, &added);
    let container = pod.container_id();
    drop(pod);
    fixture.assert_same_kernel(&before);
    // The path of its namespace is not used again: that would say that it is there.
    let new = fixture.pod("new");
    let call = fixture.call("CHECK", &new).container(&container);
    let output = call
        .config(&config)
        .run(&fixture.node, &next_boot(&fixture));
    assert_refused_with(&output.unwrap(), 104, &["the store has no reservation"]);
}

/// There was no reboot: the plugin reads another file than before, as in a container
/// that LXC gives a boot ID of its own.
#[test]
fn what_has_a_link_is_not_of_another_boot() {
    let fixture = Fixture::tweed();
    let config = small(&fixture);
    let pods = ["first", "second"].map(|name| fixture.pod(name));
    let first = fixture.add_with(&pods[0], &config);
    let added = after_reboot(&fixture, "ADD", &pods[1], &config);
    assert_eq!(added.code, Some(0), "{added:?}");
    let second = AddResult::parse(&added.stdout).unwrap();
    assert_ne!(first.address(), second.address());
    assert_eq!(fixture.records(), 2);
    let checked = with_prev_result(config.clone(), &first);
    assert_silent(&after_reboot(&fixture, "CHECK", &pods[0], &checked));
    assert_silent(&after_reboot(&fixture, "DEL", &pods[0], &config));
    assert_eq!(fixture.reserved(), second.address().into_iter().collect());
}

/// As where a unit runs `ip netns add blue` at boot, and the store is in a folder that
/// outlives it: pod and namespace have the same names as before.
#[test]
fn a_namespace_whose_path_is_there_again_keeps_no_record_of_the_old_boot() {
    let fixture = Fixture::tweed();
    let config = small(&fixture);
    let blue = fixture.pod("blue");
    let add = fixture.call("ADD", &blue).config(&config);
    let output = add.run(&fixture.node, "tweed-ipam").unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let path = blue.path();
    drop((add, blue));
    let again = fixture.pod("blue");
    assert_eq!(again.path(), path);
    for entry in fs::read_dir(fixture.store().join("attachments")).unwrap() {
        let file = fs::File::options().write(true).open(entry.unwrap().path());
        file.unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    let add = fixture.call("ADD", &again).config(&config);
    let program = next_boot_of(&fixture, "$PLUGIN-ipam");
    let output = add.run(&fixture.node, &program).unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!((fixture.reserved().len(), fixture.records()), (1, 1));
}

#[test]
fn files_of_host_local_stay_taken() {
    let fixture = Fixture::tweed();
    let config = small(&fixture);
    let before = fixture.snapshot();
    fixture.add_with(&fixture.pod("pod"), &config);
    fixture.assert_same_kernel(&before);
    fs::write(fixture.store().join("10.244.1.9"), "host-local\neth0").unwrap();
    let new = fixture.pod("new");
    let output = after_reboot(&fixture, "ADD", &new, &config);
    let added = AddResult::parse(&output.stdout).unwrap();
    assert_eq!(added.address(), Some("10.244.1.8".parse().unwrap()));
}

#[test]
fn an_invalid_boot_id_is_code_105() {
    let fixture = Fixture::tweed();
    let before = fixture.snapshot();
    let id = fixture.node.folder().join("no_boot");
    fs::write(&id, "\n").unwrap();
    let script = format!(
        "mount --bind {} /proc/sys/kernel/random/boot_id && exec $PLUGIN",
        id.display()
    );
    let plugin = fixture.wrapper("no_boot", &script);
    let output = fixture
        .call("ADD", &fixture.pod("pod"))
        .run(&fixture.node, &plugin)
        .unwrap();
    assert_refused_with(&output, 105, &["boot_id"]);
    fixture.assert_nothing_left(&before);
}
