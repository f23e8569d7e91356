//! STATUS, and ADD while the node is not ready.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use tweed_lab::PluginOutput;

use crate::bench::{Bench, refused, refused_with, silent};

subjects! {
    all: all_is_well;
    tweed: a_config_without_ready_file_needs_no_agent, a_missing_ready_file_is_code_50,
        the_agents_reasons_are_told, running_pods_affected_is_code_51,
        readiness_comes_and_goes, what_is_no_state_of_an_agent_says_nothing,
        a_full_range_does_not_change_it, a_config_that_add_would_refuse_is_refused,
        it_changes_nothing,
        a_store_that_cannot_be_used_is_code_50, an_add_before_ready_is_code_11, del_check_and_gc_ask_for_no_readiness;
}

fn ready_file(bench: &Bench) -> PathBuf {
    bench.node.run_dir().join("ready")
}

fn with_ready_file(bench: &Bench) -> Value {
    let mut config = bench.config();
    config["readyFile"] = json!(ready_file(bench));
    config
}

fn agent_says(bench: &Bench, state: &Value) {
    let path = bench.node.run_dir().join("agent.json");
    fs::write(path, state.to_string()).unwrap();
}

/// STATUS as a runtime calls it: no container, no interface.
fn status(bench: &Bench, config: &Value) -> PluginOutput {
    bench.run(&tweed_lab::PluginCall::new("STATUS").config(config))
}

fn all_is_well(bench: &Bench) {
    silent(&status(bench, &bench.config()));
    bench.tool().status().unwrap();
}

fn a_config_without_ready_file_needs_no_agent(bench: &Bench) {
    agent_says(
        bench,
        &json!({ "ready": false, "affectsRunning": true, "reasons": ["no"] }),
    );
    silent(&status(bench, &bench.config()));
}

fn a_missing_ready_file_is_code_50(bench: &Bench) {
    let config = with_ready_file(bench);
    let path = ready_file(bench).display().to_string();
    refused_with(&status(bench, &config), 50, &[&path]);
    bench.write_chain("1.1.0", &[config]);
    let said = bench.tool().status().unwrap_err().chain();
    assert!(said.contains(&path), "{said}");
}

fn the_agents_reasons_are_told(bench: &Bench) {
    let reasons = ["Node node1 has no pod CIDR", "VXLAN port 8472 is taken"];
    agent_says(
        bench,
        &json!({ "ready": false, "affectsRunning": false, "reasons": reasons }),
    );
    let config = with_ready_file(bench);
    refused_with(&status(bench, &config), 50, &reasons);
    fs::write(ready_file(bench), "{}").unwrap();
    refused_with(&status(bench, &config), 50, &reasons);
}

fn running_pods_affected_is_code_51(bench: &Bench) {
    fs::write(ready_file(bench), "{}").unwrap();
    let state = json!({ "ready": false, "affectsRunning": true, "reasons": ["tweed.1 is down"] });
    agent_says(bench, &state);
    refused_with(
        &status(bench, &with_ready_file(bench)),
        51,
        &["tweed.1 is down"],
    );
}

fn readiness_comes_and_goes(bench: &Bench) {
    let config = with_ready_file(bench);
    for ready in [false, true, false, true] {
        agent_says(
            bench,
            &json!({ "ready": ready, "affectsRunning": false, "reasons": [] }),
        );
        if ready {
            fs::write(ready_file(bench), "{}").unwrap();
            silent(&status(bench, &config));
        } else {
            refused_with(&status(bench, &config), 50, &[]);
        }
    }
}

fn what_is_no_state_of_an_agent_says_nothing(bench: &Bench) {
    let config = with_ready_file(bench);
    fs::write(ready_file(bench), "{}").unwrap();
    for text in ["", "{", "[]", "{\"ready\":7}", "\0"] {
        fs::write(bench.node.run_dir().join("agent.json"), text).unwrap();
        let output = status(bench, &config);
        silent(&output);
        assert!(output.stderr.contains("agent.json"), "{text:?}: {output:?}");
    }
}

fn a_full_range_does_not_change_it(bench: &Bench) {
    let mut config = with_ready_file(bench);
    fs::write(ready_file(bench), "{}").unwrap();
    config["ipam"]["ranges"] = json!([[{ "subnet": "10.244.1.0/30" }]]);
    let pods = ["one", "two"].map(|name| bench.pod(name));
    bench.add_with(&pods[0], &config);
    refused_with(
        &bench.run(&bench.call("ADD", &pods[1]).config(&config)),
        100,
        &[],
    );
    silent(&status(bench, &config));
}

fn a_config_that_add_would_refuse_is_refused(bench: &Bench) {
    let mut config = bench.config();
    config.as_object_mut().unwrap().remove("mtu");
    refused_with(&status(bench, &config), 7, &["mtu is missing"]);
}

fn it_changes_nothing(bench: &Bench) {
    let before = bench.snapshot();
    silent(&status(bench, &bench.config()));
    bench.assert_nothing_left(&before);
}

fn a_store_that_cannot_be_used_is_code_50(bench: &Bench) {
    fs::write(bench.data_dir(), "a file where the folder should be").unwrap();
    let folder = bench.store().display().to_string();
    refused_with(&status(bench, &bench.config()), 50, &[&folder]);
}

fn an_add_before_ready_is_code_11(bench: &Bench) {
    let before = bench.snapshot();
    let config = with_ready_file(bench);
    let pod = bench.pod("pod");
    let add = bench.call("ADD", &pod).config(&config);
    let path = ready_file(bench).display().to_string();
    refused_with(&bench.run(&add), 11, &[&path]);
    assert!(!bench.data_dir().exists());
    bench.assert_same_kernel(&before);
    // An agent that has turned not ready since does not stop pods.
    fs::write(ready_file(bench), "{}").unwrap();
    agent_says(
        bench,
        &json!({ "ready": false, "affectsRunning": false, "reasons": ["x"] }),
    );
    assert_eq!(bench.run(&add).code, Some(0));
}

fn del_check_and_gc_ask_for_no_readiness(bench: &Bench) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    let mut config = with_ready_file(bench);
    config["prevResult"] = added.document;
    config["cni.dev/valid-attachments"] =
        json!([{ "containerID": pod.container_id(), "ifname": "eth0" }]);
    refused(&status(bench, &config));
    for verb in ["CHECK", "GC", "DEL"] {
        silent(&bench.run(&bench.call(verb, &pod).config(&config)));
    }
    bench.assert_nothing_left(&before);
}
