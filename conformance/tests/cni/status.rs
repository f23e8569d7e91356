//! STATUS, and ADD while the node is not ready.

use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

use serde_json::{Value, json};
use tweed_lab::PluginOutput;

use crate::fixture::{Fixture, assert_refused, assert_refused_with, assert_silent};

subjects! {
    all: it_succeeds;
    tweed: a_config_without_ready_file_needs_no_agent, a_missing_ready_file_is_code_50,
        the_agents_reasons_are_reported, running_pods_affected_is_code_51,
        readiness_can_change, an_invalid_agent_state_is_ignored,
        a_full_range_does_not_change_it, a_config_that_add_would_refuse_is_refused,
        it_changes_nothing,
        a_store_that_cannot_be_used_is_code_50, an_add_before_ready_is_code_11,
        a_ready_file_that_an_earlier_boot_left_does_not_count, del_check_and_gc_do_not_need_readiness;
}

fn ready_file(fixture: &Fixture) -> PathBuf {
    fixture.node.run_dir().join("ready")
}

fn with_ready_file(fixture: &Fixture) -> Value {
    let mut config = fixture.config();
    config["readyFile"] = json!(ready_file(fixture));
    config
}

fn write_agent_state(fixture: &Fixture, state: &Value) {
    let path = fixture.node.run_dir().join("agent.json");
    fs::write(path, state.to_string()).unwrap();
}

/// STATUS as a runtime calls it, without container and interface.
fn status(fixture: &Fixture, config: &Value) -> PluginOutput {
    fixture.run(&tweed_lab::PluginCall::new("STATUS").config(config))
}

fn it_succeeds(fixture: &Fixture) {
    assert_silent(&status(fixture, &fixture.config()));
    fixture.tool().status().unwrap();
}

fn a_config_without_ready_file_needs_no_agent(fixture: &Fixture) {
    write_agent_state(
        fixture,
        &json!({ "ready": false, "affectsRunning": true, "reasons": ["no"] }),
    );
    assert_silent(&status(fixture, &fixture.config()));
}

fn a_missing_ready_file_is_code_50(fixture: &Fixture) {
    let config = with_ready_file(fixture);
    let path = ready_file(fixture).display().to_string();
    assert_refused_with(&status(fixture, &config), 50, &[&path]);
    fixture.write_chain("1.1.0", &[config]);
    let error = fixture.tool().status().unwrap_err().chain();
    assert!(error.contains(&path), "{error}");
}

fn the_agents_reasons_are_reported(fixture: &Fixture) {
    let reasons = ["Node node1 has no pod CIDR", "VXLAN port 8472 is taken"];
    write_agent_state(
        fixture,
        &json!({ "ready": false, "affectsRunning": false, "reasons": reasons }),
    );
    let config = with_ready_file(fixture);
    assert_refused_with(&status(fixture, &config), 50, &reasons);
    fs::write(ready_file(fixture), "{}").unwrap();
    assert_refused_with(&status(fixture, &config), 50, &reasons);
}

fn running_pods_affected_is_code_51(fixture: &Fixture) {
    fs::write(ready_file(fixture), "{}").unwrap();
    let state = json!({ "ready": false, "affectsRunning": true, "reasons": ["tweed.1 is down"] });
    write_agent_state(fixture, &state);
    assert_refused_with(
        &status(fixture, &with_ready_file(fixture)),
        51,
        &["tweed.1 is down"],
    );
}

fn readiness_can_change(fixture: &Fixture) {
    let config = with_ready_file(fixture);
    for ready in [false, true, false, true] {
        write_agent_state(
            fixture,
            &json!({ "ready": ready, "affectsRunning": false, "reasons": [] }),
        );
        if ready {
            fs::write(ready_file(fixture), "{}").unwrap();
            assert_silent(&status(fixture, &config));
        } else {
            assert_refused_with(&status(fixture, &config), 50, &[]);
        }
    }
}

fn an_invalid_agent_state_is_ignored(fixture: &Fixture) {
    let config = with_ready_file(fixture);
    fs::write(ready_file(fixture), "{}").unwrap();
    for text in ["", "{", "[]", "{\"ready\":7}", "\0"] {
        fs::write(fixture.node.run_dir().join("agent.json"), text).unwrap();
        let output = status(fixture, &config);
        assert_silent(&output);
        assert!(output.stderr.contains("agent.json"), "{text:?}: {output:?}");
    }
}

/// An error of STATUS would make the node NotReady, and its pods would be evicted.
fn a_full_range_does_not_change_it(fixture: &Fixture) {
    let mut config = with_ready_file(fixture);
    fs::write(ready_file(fixture), "{}").unwrap();
    config["ipam"]["ranges"] = json!([[{ "subnet": "10.244.1.0/30" }]]);
    let pods = ["one", "two"].map(|name| fixture.pod(name));
    fixture.add_with(&pods[0], &config);
    assert_refused_with(
        &fixture.run(&fixture.call("ADD", &pods[1]).config(&config)),
        100,
        &[],
    );
    assert_silent(&status(fixture, &config));
}

fn a_config_that_add_would_refuse_is_refused(fixture: &Fixture) {
    let mut config = fixture.config();
    config.as_object_mut().unwrap().remove("mtu");
    assert_refused_with(&status(fixture, &config), 7, &["mtu is missing"]);
}

fn it_changes_nothing(fixture: &Fixture) {
    let before = fixture.snapshot();
    assert_silent(&status(fixture, &fixture.config()));
    fixture.assert_nothing_left(&before);
}

fn a_store_that_cannot_be_used_is_code_50(fixture: &Fixture) {
    fs::write(fixture.data_dir(), "a file where the folder should be").unwrap();
    let folder = fixture.store().display().to_string();
    assert_refused_with(&status(fixture, &fixture.config()), 50, &[&folder]);
}

fn an_add_before_ready_is_code_11(fixture: &Fixture) {
    let before = fixture.snapshot();
    let config = with_ready_file(fixture);
    let pod = fixture.pod("pod");
    let add = fixture.call("ADD", &pod).config(&config);
    let path = ready_file(fixture).display().to_string();
    assert_refused_with(&fixture.run(&add), 11, &[&path]);
    assert!(!fixture.data_dir().exists());
    fixture.assert_same_kernel(&before);
    // An agent that is not ready any more does not prevent ADD.
    fs::write(ready_file(fixture), "{}").unwrap();
    write_agent_state(
        fixture,
        &json!({ "ready": false, "affectsRunning": false, "reasons": ["x"] }),
    );
    assert_eq!(fixture.run(&add).code, Some(0));
}

fn a_ready_file_that_an_earlier_boot_left_does_not_count(fixture: &Fixture) {
    let ready = json!({ "bootId": "11111111-1111-4111-8111-111111111111", "node": "node1",
                        "version": "0.1.0" });
    fs::write(ready_file(fixture), ready.to_string()).unwrap();
    let file = fs::File::open(ready_file(fixture)).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    let config = with_ready_file(fixture);
    assert_refused_with(&status(fixture, &config), 50, &["earlier boot"]);
    let pod = fixture.pod("pod");
    let add = fixture.call("ADD", &pod).config(&config);
    assert_refused_with(&fixture.run(&add), 11, &["earlier boot"]);
}

fn del_check_and_gc_do_not_need_readiness(fixture: &Fixture) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    let mut config = with_ready_file(fixture);
    config["prevResult"] = added.document;
    config["cni.dev/valid-attachments"] =
        json!([{ "containerID": pod.container_id(), "ifname": "eth0" }]);
    assert_refused(&status(fixture, &config));
    for verb in ["CHECK", "GC", "DEL"] {
        assert_silent(&fixture.run(&fixture.call(verb, &pod).config(&config)));
    }
    fixture.assert_nothing_left(&before);
}
