//! Invalid input on stdin, and variables that are not for the plugin: it prints exactly one
//! document, with bounded memory.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tweed_lab::{AddResult, PluginCall};

use crate::fixture::{Fixture, assert_refused_with, assert_silent, with_prev_result};

const VERBS: [&str; 5] = ["ADD", "DEL", "CHECK", "STATUS", "GC"];

subjects! {
    all: broken_input_is_code_6, a_config_cut_off_anywhere_is_code_6,
        a_log_level_never_reaches_stdout, a_trace_reaches_the_ipam_plugin_and_nothing_else;
    tweed: endless_input_takes_no_memory, one_document_whatever_the_environment,
        no_mutation_makes_it_panic;
}

fn broken_input_is_code_6(fixture: &Fixture) {
    let texts = [
        "",
        " \n\t",
        "[]",
        "\"tweed\"",
        "7",
        r#"{"cniVersion":"1.1.0","name":"po"#,
        r#"{"cniVersion":"1.1.0","name":"a"}{"cniVersion":"1.1.0"}"#,
        r#"{"cniVersion":1.1,"name":"a"}"#,
        "cniVersion: 1.1.0\nname: pods\n",
    ];
    let mut inputs: Vec<Vec<u8>> = texts.map(Into::into).into();
    inputs.push((0..=255_u8).cycle().take(4096).collect());
    inputs.push("[".repeat(200_000).into());
    inputs.push(r#"{"a":"#.repeat(100_000).into());
    if fixture.is_tweed() {
        let config = |rest: &str| format!(r#"{{"cniVersion":"1.1.0","name":"pods",{rest}}}"#);
        let (open, close) = (r#"{"a":"#.repeat(5000), "}".repeat(5000));
        inputs.push("null".into());
        inputs.push(b"{\"cniVersion\":\"1.1.0\",\"name\":\"\xff\xfe\"}".into());
        inputs.push(config(&format!(r#""ipam":{open}1{close}"#)).into());
        // More than a mebibyte.
        inputs.push(config(&format!(r#""x":"{}""#, "x".repeat(1 << 20))).into());
    }
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    for stdin in inputs {
        println!(
            "{:?}",
            String::from_utf8_lossy(&stdin[..stdin.len().min(80)])
        );
        for verb in VERBS {
            let output = fixture.run(&fixture.call(verb, &pod).stdin(stdin.clone()));
            assert_refused_with(&output, 6, &[]);
        }
    }
    fixture.assert_nothing_left(&before);
}

fn a_config_cut_off_anywhere_is_code_6(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let config = fixture.config().to_string();
    for length in (0..config.len()).step_by(7) {
        let output = fixture.run(&fixture.call("ADD", &pod).stdin(&config[..length]));
        assert_refused_with(&output, 6, &[]);
    }
}

fn endless_input_takes_no_memory(fixture: &Fixture) {
    // 64 MiB of address space; most of it is mapped by the program itself.
    for (name, piece) in [
        ("lists", "["),
        ("objects", "{\\\"a\\\":"),
        ("text", "\\\"xxx"),
    ] {
        let script = format!("yes \"{piece}\" | (ulimit -v 65536; exec $PLUGIN)");
        let endless = fixture.wrapper(name, &script);
        let pod = fixture.pod(name);
        for verb in ["ADD", "DEL"] {
            let output = fixture
                .call(verb, &pod)
                .run(&fixture.node, &endless)
                .unwrap();
            assert_refused_with(&output, 6, &[]);
        }
    }
}

fn one_document_whatever_the_environment(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let config = fixture.config();
    for verb in VERBS {
        for call in [
            PluginCall::new(verb),
            PluginCall::new(verb).config(&config),
            fixture.call(verb, &pod).env("CNI_ARGS", "no pairs at all"),
            fixture.call(verb, &pod).env("CNI_ARGS", "IP=10.0.0.0.1"),
            fixture
                .call(verb, &pod)
                .env("CNI_ARGS", ";;=;IgnoreUnknown=perhaps"),
            fixture.call(verb, &pod).env("CNI_PATH", ""),
        ] {
            let output = fixture.run(&call);
            let document = output.document();
            match output.code {
                Some(0) if verb == "ADD" => assert!(document.is_ok(), "{verb}: {output:?}"),
                Some(0) => assert_eq!(output.stdout, "", "{verb}: {output:?}"),
                Some(1) => assert!(document.is_ok(), "{verb}: {output:?}"),
                _ => panic!("{verb}: {output:?}"),
            }
            assert_ne!(output.error_code(), Some(999), "{verb}: {output:?}");
        }
        fixture.del(&pod);
    }
}

fn a_log_level_never_reaches_stdout(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    for verb in ["ADD", "DEL"] {
        let call = fixture.call(verb, &pod);
        let output = fixture.run(&call.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full"));
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(output.document().is_ok(), verb == "ADD", "{output:?}");
    }
}

/// The context of a trace as libcni sets it for each plugin (containernetworking/cni#1173),
/// and such as no one can read.
fn a_trace_reaches_the_ipam_plugin_and_nothing_else(fixture: &Fixture) {
    let traces = [
        [
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "vendor=t61rcWkgMzE,other@system=00f067aa0ba902b7",
            "user=alice,path=/a%20b;secret",
        ],
        ["no trace", "=", ""],
    ];
    // `host-local`, and a note of what it was called with.
    let ipam = fixture.wrapper(
        "traced-ipam",
        "echo \"$CNI_COMMAND|$TRACEPARENT|$TRACESTATE|$BAGGAGE\" >>$0.calls\n\
         exec ${PLUGIN%/*}/host-local",
    );
    let folder = Path::new(&ipam).parent().unwrap().display();
    let cni_path = format!("{folder}:{}", fixture.node.cni_bin_dir().display());
    let mut config = fixture.config();
    config["ipam"] = json!({
        "type": "traced-ipam", "ranges": [[{ "subnet": fixture.node.pod_cidr() }]],
        "dataDir": fixture.node.run_dir().join("host-local"),
    });
    let before = fixture.snapshot();
    let mut expected = Vec::new();
    for [parent, state, baggage] in traces {
        for config in [&fixture.config(), &config] {
            let pod = fixture.pod("pod");
            let call = |verb: &str, config: &Value| {
                let call = fixture.call(verb, &pod).env("CNI_PATH", &cni_path);
                let traced = call.env("TRACEPARENT", parent).env("TRACESTATE", state);
                let output = fixture.run(&traced.env("BAGGAGE", baggage).config(config));
                let seen = (output.code, output.stderr.as_str());
                assert_eq!(seen, (Some(0), ""), "{verb}: {output:?}");
                output
            };
            let added = AddResult::parse(&call("ADD", config).stdout).unwrap();
            assert_silent(&call("CHECK", &with_prev_result(config.clone(), &added)));
            assert_silent(&call("DEL", config));
        }
        let called = |verb| format!("{verb}|{parent}|{state}|{baggage}");
        expected.extend(["ADD", "CHECK", "DEL"].map(called));
    }
    let calls = fs::read_to_string(format!("{ipam}.calls")).unwrap();
    assert_eq!(calls.lines().collect::<Vec<_>>(), expected);
    fixture.assert_nothing_left(&before);
}

/// Replaces each byte of a config with all keys, one at a time.
fn no_mutation_makes_it_panic(fixture: &Fixture) {
    let pod = fixture.pod("pod");
    let added = fixture.add(&pod);
    let mut config = fixture.config();
    config["prevResult"] = added.document.clone();
    config["dns"] = json!({ "nameservers": ["10.96.0.10"], "search": ["local"] });
    config["runtimeConfig"] = json!({ "mac": "02:00:00:00:00:01", "ips": ["10.244.1.9"] });
    config["cni.dev/valid-attachments"] =
        json!([{ "containerID": pod.container_id(), "ifname": "eth0" }]);
    let good = config.to_string().into_bytes();
    // A changed path must not create folders elsewhere: no ADD and no STATUS, and no GC
    // (which creates a lock beside links that it puts aside) with a changed path.
    let run_dir = fixture.node.run_dir().display().to_string();
    let key = format!("\"runDir\":\"{run_dir}\"");
    let text = config.to_string();
    let is_path = |position: usize| {
        [&run_dir, &key]
            .into_iter()
            .flat_map(|place| text.match_indices(place.as_str()))
            .any(|(start, place)| (start..start + place.len()).contains(&position))
    };
    for position in 0..good.len() {
        let verb = match position % 2 {
            0 if !is_path(position) => "GC",
            _ => "CHECK",
        };
        let mut bytes = good.clone();
        bytes[position] = b"\"}[,9-\x00\xff\\e"[position % 10];
        let output = fixture.run(&fixture.call(verb, &pod).stdin(bytes.clone()));
        let text = String::from_utf8_lossy(&bytes);
        assert_ne!(
            output.error_code(),
            Some(999),
            "{verb} of {text}: {output:?}"
        );
        assert!(
            matches!(output.code, Some(0 | 1)),
            "{verb} of {text}: {output:?}"
        );
        assert_eq!(
            output.stdout.is_empty(),
            output.code == Some(0),
            "{verb}: {output:?}"
        );
        if output.code == Some(1) {
            assert!(output.document().is_ok(), "{verb} of {text}: {output:?}");
        }
    }
}
