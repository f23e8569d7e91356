//! Every verb in every version of the specification: the format of results and errors.

use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginCall};

use crate::fixture::{
    Fixture, assert_refused, assert_refused_with, assert_silent, error_of, with_prev_result,
};

versions!(
    add_result_has_the_format_of_the_version,
    add_result_has_both_families,
    verbs_without_a_result_print_nothing,
    verbs_that_the_version_lacks_are_refused,
    an_error_is_one_document,
    an_older_prev_result_is_read,
    cnitool_runs_all_verbs,
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

/// Checks the format of a result, by the specification of each version.
fn assert_format(result: &Value, version: &str) {
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

fn add_result_has_the_format_of_the_version(fixture: &Fixture, version: &str) {
    let pod = fixture.pod("pod");
    let added = fixture.add_with(&pod, &in_version(fixture.config(), version));
    assert_format(&added.document, version);
    let inside = added
        .interfaces
        .iter()
        .find(|i| i.sandbox.is_some())
        .unwrap();
    assert_eq!(inside.name, "eth0");
    assert_eq!(inside.sandbox.as_deref(), Some(pod.path().as_str()));
    assert!(!added.host_link().is_empty(), "{added:?}");
    if fixture.is_tweed() {
        let mtus = added.document["interfaces"].as_array().unwrap();
        let have_mtu = mtus.iter().all(|interface| interface["mtu"] == 1437);
        assert_eq!(have_mtu, version == "1.1.0", "{added:?}");
    }
}

fn add_result_has_both_families(fixture: &Fixture, version: &str) {
    let pod = fixture.pod("pod");
    let added = fixture.add_with(&pod, &in_version(fixture.dual_stack_config(), version));
    assert_format(&added.document, version);
    let families: Vec<bool> = added.ips.iter().map(|ip| ip.address.is_ipv6()).collect();
    assert_eq!(families, [false, true], "{added:?}");
}

fn verbs_without_a_result_print_nothing(fixture: &Fixture, version: &str) {
    let pod = fixture.pod("pod");
    let config = in_version(fixture.config(), version);
    let added = fixture.add_with(&pod, &config);
    let later = with_prev_result(config.clone(), &added);
    if version != "0.3.1" {
        assert_silent(&fixture.run(&fixture.call("CHECK", &pod).config(&later)));
    }
    if version == "1.1.0" {
        assert_silent(&fixture.run(&fixture.call("STATUS", &pod).config(&config)));
        let mut gc = config.clone();
        gc["cni.dev/valid-attachments"] = json!([]);
        assert_silent(&fixture.run(&fixture.call("GC", &pod).config(&gc)));
    }
    assert_silent(&fixture.run(&fixture.call("DEL", &pod).config(&later)));
    assert_silent(&fixture.run(&fixture.call("DEL", &pod).config(&config)));
}

fn verbs_that_the_version_lacks_are_refused(fixture: &Fixture, version: &str) {
    let pod = fixture.pod("pod");
    let config = in_version(fixture.config(), version);
    let added = fixture.add_with(&pod, &config);
    let config = with_prev_result(config, &added);
    let lacking: &[&str] = match version {
        "0.3.1" => &["CHECK", "STATUS", "GC"],
        "0.4.0" | "1.0.0" => &["STATUS", "GC"],
        _ => &[],
    };
    for verb in lacking {
        assert_refused_with(
            &fixture.run(&fixture.call(verb, &pod).config(&config)),
            1,
            &[verb],
        );
    }
}

fn an_error_is_one_document(fixture: &Fixture, version: &str) {
    let mut config = in_version(fixture.config(), version);
    config["name"] = "../up".into();
    let pod = fixture.pod("pod");
    for verb in ["ADD", "DEL"] {
        let document = assert_refused(&fixture.run(&fixture.call(verb, &pod).config(&config)));
        assert_eq!(document["code"], 7, "{document}");
        if fixture.is_tweed() {
            assert_eq!(document["cniVersion"], version);
        }
    }
}

fn an_older_prev_result_is_read(fixture: &Fixture, version: &str) {
    let pod = fixture.pod("pod");
    let added = fixture.add_with(&pod, &in_version(fixture.config(), version));
    // libcni converts results, so only its format is the older one.
    if fixture.is_tweed() {
        assert_silent(&fixture.check(&pod, &added));
    }
    let later = with_prev_result(fixture.config(), &added);
    assert_silent(&fixture.run(&fixture.call("DEL", &pod).config(&later)));
}

fn cnitool_runs_all_verbs(fixture: &Fixture, version: &str) {
    fixture.write_chain(version, &[fixture.config()]);
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    let tool = fixture.tool();
    let added = tool.add(&pod).unwrap();
    assert_format(&added.document, version);
    if version == "0.3.1" {
        error_of(tool.check(&pod));
    } else {
        tool.check(&pod).unwrap();
    }
    tool.status().unwrap();
    tool.del(&pod).unwrap();
    fixture.assert_nothing_left(&before);
    tool.add(&pod).unwrap();
    tool.gc().unwrap();
    fixture.assert_nothing_left(&before);
}

subjects! {
    all: version_lists_every_version, version_needs_no_other_input,
        version_is_answered_while_its_input_does_not_end,
        an_unknown_version_is_code_1, an_unknown_verb_is_code_4;
    tweed: version_is_answered_in_the_requested_version, no_version_is_refused_with_the_list;
}

fn version_of(fixture: &Fixture, stdin: &str) -> Value {
    let output = fixture.run(&PluginCall::new("VERSION").stdin(stdin));
    assert_eq!(output.code, Some(0), "{output:?}");
    output.document().unwrap()
}

fn version_lists_every_version(fixture: &Fixture) {
    let answer = version_of(fixture, r#"{"cniVersion":"1.1.0"}"#);
    let listed = answer["supportedVersions"].as_array().unwrap();
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        assert!(listed.iter().any(|v| v == version), "{version}: {answer}");
    }
}

fn version_needs_no_other_input(fixture: &Fixture) {
    // libcni sends only the version; a user may send less.
    for stdin in ["", "{}", r#"{"cniVersion":"0.4.0"}"#] {
        assert!(
            version_of(fixture, stdin)["supportedVersions"].is_array(),
            "{stdin:?}"
        );
    }
}

/// As on a terminal, or in `ssh NODE CNI_COMMAND=VERSION …`.
fn version_is_answered_while_its_input_does_not_end(fixture: &Fixture) {
    // A FIFO that is open for writing too has no end.
    let endless = "mkfifo $0.in\nexec 0<>$0.in\nexec $PLUGIN";
    let plugin = fixture.wrapper("endless", endless);
    let call = PluginCall::new("VERSION");
    let output = call.run(&fixture.node, &plugin).unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let listed = output.document().unwrap()["supportedVersions"].clone();
    assert!(listed.as_array().unwrap().len() > 3, "{listed}");
}

fn version_is_answered_in_the_requested_version(fixture: &Fixture) {
    for version in ["0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let stdin = json!({ "cniVersion": version }).to_string();
        assert_eq!(version_of(fixture, &stdin)["cniVersion"], version);
    }
}

fn an_unknown_version_is_code_1(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let config = in_version(fixture.config(), "9.9.9");
    for verb in ["ADD", "DEL", "CHECK", "STATUS", "GC"] {
        assert_refused_with(
            &fixture.run(&fixture.call(verb, &pod).config(&config)),
            1,
            &[],
        );
    }
}

fn no_version_is_refused_with_the_list(fixture: &Fixture) {
    let mut config = fixture.config();
    config.as_object_mut().unwrap().remove("cniVersion");
    let output = fixture.run(&fixture.call("ADD", &fixture.pod("pod")).config(&config));
    assert_refused_with(&output, 1, &["cniVersion is missing", "0.3.1", "1.1.0"]);
}

fn an_unknown_verb_is_code_4(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    for verb in ["add", "DELETE"] {
        assert_refused_with(&fixture.run(&fixture.call(verb, &pod)), 4, &["CNI_COMMAND"]);
    }
}

/// A complete result, key by key.
#[test]
fn a_complete_result_of_tweed() {
    let fixture = Fixture::tweed();
    let pod = fixture.pod("pod");
    let AddResult { document, .. } = fixture.add_with(&pod, &fixture.dual_stack_config());
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
