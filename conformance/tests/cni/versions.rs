//! Every verb in every version: the result's shape, one document or none.

use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginCall};

use crate::bench::{Bench, refused, refused_with, silent, with_prev_result, words_of};

versions!(
    add_answers_in_the_versions_shape,
    a_second_family_is_answered_too,
    verbs_without_a_result_print_nothing,
    verbs_that_the_version_lacks_are_refused,
    a_failure_is_one_document,
    an_older_prev_result_is_read,
    cnitool_goes_round,
);

fn in_version(mut config: Value, version: &str) -> Value {
    config["cniVersion"] = version.into();
    config
}

/// The keys of an object, sorted.
fn keys(object: &Value) -> Vec<&str> {
    let fields = object.as_object().unwrap();
    fields.keys().map(String::as_str).collect()
}

fn assert_keys_among(object: &Value, known: &[&str]) {
    for key in keys(object) {
        assert!(
            known.contains(&key),
            "{key} is not in that version: {object}"
        );
    }
}

/// The shape of a result, by the specification of each version.
fn assert_shape(result: &Value, version: &str) {
    assert_eq!(result["cniVersion"], version, "{result}");
    assert_keys_among(
        result,
        &["cniVersion", "interfaces", "ips", "routes", "dns"],
    );
    let old = matches!(version, "0.3.1" | "0.4.0");
    let newest = version == "1.1.0";
    let count = result["interfaces"].as_array().unwrap().len();
    for interface in result["interfaces"].as_array().unwrap() {
        let known: &[&str] = if newest {
            &["name", "mac", "mtu", "sandbox", "socketPath", "pciID"]
        } else {
            &["name", "mac", "sandbox"]
        };
        assert_keys_among(interface, known);
        assert!(interface["name"].is_string(), "{interface}");
    }
    for ip in result["ips"].as_array().unwrap() {
        let address = ip["address"].as_str().unwrap();
        assert!(address.contains('/'), "a prefix length: {ip}");
        if old {
            assert_keys_among(ip, &["version", "address", "gateway", "interface"]);
            let family = if address.contains(':') { "6" } else { "4" };
            assert_eq!(ip["version"], family, "{ip}");
        } else {
            assert_keys_among(ip, &["address", "gateway", "interface"]);
        }
        let interface = ip["interface"].as_u64().unwrap();
        assert!(usize::try_from(interface).unwrap() < count, "{result}");
    }
    for route in result["routes"].as_array().into_iter().flatten() {
        let known: &[&str] = if newest {
            &["dst", "gw", "mtu", "advmss", "priority", "table", "scope"]
        } else {
            &["dst", "gw"]
        };
        assert_keys_among(route, known);
    }
}

fn add_answers_in_the_versions_shape(bench: &Bench, version: &str) {
    let pod = bench.pod("pod");
    let added = bench.add_with(&pod, &in_version(bench.config(), version));
    assert_shape(&added.document, version);
    let inside = added
        .interfaces
        .iter()
        .find(|i| i.sandbox.is_some())
        .unwrap();
    assert_eq!(inside.name, "eth0");
    assert_eq!(inside.sandbox.as_deref(), Some(pod.path().as_str()));
    assert!(!added.host_link().is_empty(), "{added:?}");
    if bench.is_tweed() {
        let mtus = added.document["interfaces"].as_array().unwrap();
        let told = mtus.iter().all(|interface| interface["mtu"] == 1437);
        assert_eq!(told, version == "1.1.0", "{added:?}");
    }
}

fn a_second_family_is_answered_too(bench: &Bench, version: &str) {
    let pod = bench.pod("pod");
    let added = bench.add_with(&pod, &in_version(bench.dual_stack_config(), version));
    assert_shape(&added.document, version);
    let families: Vec<bool> = added.ips.iter().map(|ip| ip.address.is_ipv6()).collect();
    assert_eq!(families, [false, true], "{added:?}");
}

fn verbs_without_a_result_print_nothing(bench: &Bench, version: &str) {
    let pod = bench.pod("pod");
    let config = in_version(bench.config(), version);
    let added = bench.add_with(&pod, &config);
    let later = with_prev_result(config.clone(), &added);
    if version != "0.3.1" {
        silent(&bench.run(&bench.call("CHECK", &pod).config(&later)));
    }
    if version == "1.1.0" {
        silent(&bench.run(&bench.call("STATUS", &pod).config(&config)));
        let mut gc = config.clone();
        gc["cni.dev/valid-attachments"] = json!([]);
        silent(&bench.run(&bench.call("GC", &pod).config(&gc)));
    }
    silent(&bench.run(&bench.call("DEL", &pod).config(&later)));
    silent(&bench.run(&bench.call("DEL", &pod).config(&config)));
}

fn verbs_that_the_version_lacks_are_refused(bench: &Bench, version: &str) {
    let pod = bench.pod("pod");
    let config = in_version(bench.config(), version);
    let added = bench.add_with(&pod, &config);
    let config = with_prev_result(config, &added);
    let lacking: &[&str] = match version {
        "0.3.1" => &["CHECK", "STATUS", "GC"],
        "0.4.0" | "1.0.0" => &["STATUS", "GC"],
        _ => &[],
    };
    for verb in lacking {
        refused_with(
            &bench.run(&bench.call(verb, &pod).config(&config)),
            1,
            &[verb],
        );
    }
}

fn a_failure_is_one_document(bench: &Bench, version: &str) {
    let mut config = in_version(bench.config(), version);
    config["name"] = "../up".into();
    let pod = bench.pod("pod");
    for verb in ["ADD", "DEL"] {
        let document = refused(&bench.run(&bench.call(verb, &pod).config(&config)));
        assert_eq!(document["code"], 7, "{document}");
        if bench.is_tweed() {
            assert_eq!(document["cniVersion"], version);
        }
    }
}

fn an_older_prev_result_is_read(bench: &Bench, version: &str) {
    let pod = bench.pod("pod");
    let added = bench.add_with(&pod, &in_version(bench.config(), version));
    // Only its shape is the older one's: libcni converts before it calls.
    if bench.is_tweed() {
        silent(&bench.check(&pod, &added));
    }
    let later = with_prev_result(bench.config(), &added);
    silent(&bench.run(&bench.call("DEL", &pod).config(&later)));
}

fn cnitool_goes_round(bench: &Bench, version: &str) {
    bench.write_chain(version, &[bench.config()]);
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    let tool = bench.tool();
    let added = tool.add(&pod).unwrap();
    assert_shape(&added.document, version);
    if version == "0.3.1" {
        words_of(tool.check(&pod));
    } else {
        tool.check(&pod).unwrap();
    }
    tool.status().unwrap();
    tool.del(&pod).unwrap();
    bench.assert_nothing_left(&before);
    tool.add(&pod).unwrap();
    tool.gc().unwrap();
    bench.assert_nothing_left(&before);
}

subjects! {
    all: version_lists_every_version, version_asks_for_nothing_else,
        a_version_of_nobody_is_code_1, an_unknown_verb_is_code_4;
    tweed: version_is_answered_in_the_asked_one, no_version_is_refused_with_the_list;
}

fn version_of(bench: &Bench, stdin: &str) -> Value {
    let output = bench.run(&PluginCall::new("VERSION").stdin(stdin));
    assert_eq!(output.code, Some(0), "{output:?}");
    output.document().unwrap()
}

fn version_lists_every_version(bench: &Bench) {
    let answer = version_of(bench, r#"{"cniVersion":"1.1.0"}"#);
    let listed = answer["supportedVersions"].as_array().unwrap();
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        assert!(listed.iter().any(|v| v == version), "{version}: {answer}");
    }
}

fn version_asks_for_nothing_else(bench: &Bench) {
    // libcni sends the version and nothing else; a person may send less.
    for stdin in ["", "{}", r#"{"cniVersion":"0.4.0"}"#] {
        assert!(
            version_of(bench, stdin)["supportedVersions"].is_array(),
            "{stdin:?}"
        );
    }
}

fn version_is_answered_in_the_asked_one(bench: &Bench) {
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let stdin = json!({ "cniVersion": version }).to_string();
        assert_eq!(version_of(bench, &stdin)["cniVersion"], version);
    }
}

fn a_version_of_nobody_is_code_1(bench: &Bench) {
    let pod = bench.pod("pod");
    let config = in_version(bench.config(), "9.9.9");
    for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
        refused_with(&bench.run(&bench.call(verb, &pod).config(&config)), 1, &[]);
    }
}

fn no_version_is_refused_with_the_list(bench: &Bench) {
    let mut config = bench.config();
    config.as_object_mut().unwrap().remove("cniVersion");
    let output = bench.run(&bench.call("ADD", &bench.pod("pod")).config(&config));
    refused_with(&output, 1, &["cniVersion is missing", "0.3.1", "1.1.0"]);
}

fn an_unknown_verb_is_code_4(bench: &Bench) {
    let pod = bench.pod("pod");
    for verb in ["add", "DELETE"] {
        refused_with(&bench.run(&bench.call(verb, &pod)), 4, &["CNI_COMMAND"]);
    }
}

/// The whole of a result, once, as every later reader of it will see it.
#[test]
fn a_whole_result_of_tweed() {
    let bench = Bench::tweed();
    let pod = bench.pod("pod");
    let AddResult { document, .. } = bench.add_with(&pod, &bench.dual_stack_config());
    let [host, inside] = [0, 1].map(|end: usize| document["interfaces"][end].clone());
    assert_eq!(
        document,
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [
                { "name": host["name"], "mac": host["mac"], "mtu": 1437 },
                { "name": "eth0", "mac": inside["mac"], "mtu": 1437, "sandbox": pod.path() },
            ],
            "ips": [
                { "address": "10.244.1.2/32", "gateway": "169.254.1.1", "interface": 1 },
                { "address": "fd00:244:1::2/128", "gateway": "fe80::1", "interface": 1 },
            ],
            "routes": [
                { "dst": "0.0.0.0/0", "gw": "169.254.1.1" },
                { "dst": "::/0", "gw": "fe80::1" },
            ],
        })
    );
    let name = host["name"].as_str().unwrap();
    assert!(name.len() == 14 && name.starts_with("tw"), "{name}");
    assert_ne!(host["mac"], inside["mac"]);
}
