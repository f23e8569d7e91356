//! Whatever comes in on stdin: one document goes out, in bounded memory.

use serde_json::json;
use tweed_lab::PluginCall;

use crate::bench::{Bench, refused_with};

const VERBS: [&str; 5] = ["ADD", "DEL", "CHECK", "STATUS", "GC"];

mod broken {
    use super::*;

    fn is_code_6(bench: &Bench, stdin: impl Into<Vec<u8>>) {
        let (before, stdin) = (bench.snapshot(), stdin.into());
        let pod = bench.pod("pod");
        for verb in VERBS {
            let output = bench.run(&bench.call(verb, &pod).stdin(stdin.clone()));
            refused_with(&output, 6, &[]);
        }
        bench.assert_nothing_left(&before);
    }

    rows! {
        is_code_6;
        all {
            empty: "";
            white_space: " \n\t";
            a_list: "[]";
            a_text: "\"tweed\"";
            a_number: "7";
            cut_off: r#"{"cniVersion":"1.1.0","name":"po"#;
            more_than_one: r#"{"cniVersion":"1.1.0","name":"a"}{"cniVersion":"1.1.0"}"#;
            version_a_number: r#"{"cniVersion":1.1,"name":"a"}"#;
            no_json: "cniVersion: 1.1.0\nname: pods\n";
            binary: (0..=255_u8).cycle().take(4096).collect::<Vec<u8>>();
            deep_lists: "[".repeat(200_000);
            deep_objects: r#"{"a":"#.repeat(100_000);
        }
        tweed {
            null: "null";
            not_utf8: b"{\"cniVersion\":\"1.1.0\",\"name\":\"\xff\xfe\"}".as_slice();
            deep_in_a_known_key: format!(
                r#"{{"cniVersion":"1.1.0","name":"pods","ipam":{}1{}}}"#,
                r#"{"a":"#.repeat(5000),
                "}".repeat(5000)
            );
            more_than_a_mebibyte: format!(
                r#"{{"cniVersion":"1.1.0","name":"pods","x":"{}"}}"#,
                "x".repeat(1 << 20)
            );
        }
    }
}

subjects! {
    all: a_config_cut_off_anywhere_is_code_6, a_log_level_never_reaches_stdout;
    tweed: endless_input_takes_no_memory, one_document_whatever_the_environment,
        no_mutation_makes_it_panic;
}

fn a_config_cut_off_anywhere_is_code_6(bench: &Bench) {
    let pod = bench.pod("pod");
    let config = bench.config().to_string();
    for length in (0..config.len()).step_by(7) {
        let output = bench.run(&bench.call("ADD", &pod).stdin(&config[..length]));
        refused_with(&output, 6, &[]);
    }
}

fn endless_input_takes_no_memory(bench: &Bench) {
    // 64 MiB of address space, most of which the program itself maps.
    for (name, piece) in [
        ("lists", "["),
        ("objects", "{\\\"a\\\":"),
        ("text", "\\\"xxx"),
    ] {
        let script = format!("yes \"{piece}\" | (ulimit -v 65536; exec $PLUGIN)");
        let endless = bench.wrapper(name, &script);
        let pod = bench.pod(name);
        for verb in ["ADD", "DEL"] {
            let output = bench.call(verb, &pod).run(&bench.node, &endless).unwrap();
            refused_with(&output, 6, &[]);
        }
    }
}

fn one_document_whatever_the_environment(bench: &Bench) {
    let pod = bench.pod("pod");
    let config = bench.config();
    for verb in VERBS {
        for call in [
            PluginCall::new(verb),
            PluginCall::new(verb).config(&config),
            bench.call(verb, &pod).env("CNI_ARGS", "no pairs at all"),
            bench.call(verb, &pod).env("CNI_ARGS", "IP=10.0.0.0.1"),
            bench
                .call(verb, &pod)
                .env("CNI_ARGS", ";;=;IgnoreUnknown=perhaps"),
            bench.call(verb, &pod).env("CNI_PATH", ""),
        ] {
            let output = bench.run(&call);
            let document = output.document();
            match output.code {
                Some(0) if verb == "ADD" => assert!(document.is_ok(), "{verb}: {output:?}"),
                Some(0) => assert_eq!(output.stdout, "", "{verb}: {output:?}"),
                Some(1) => assert!(document.is_ok(), "{verb}: {output:?}"),
                _ => panic!("{verb}: {output:?}"),
            }
            assert_ne!(output.error_code(), Some(999), "{verb}: {output:?}");
        }
        bench.del(&pod);
    }
}

fn a_log_level_never_reaches_stdout(bench: &Bench) {
    let pod = bench.pod("pod");
    for verb in ["ADD", "DEL"] {
        let call = bench.call(verb, &pod);
        let output = bench.run(&call.env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full"));
        assert_eq!(output.code, Some(0), "{output:?}");
        assert_eq!(output.document().is_ok(), verb == "ADD", "{output:?}");
    }
}

/// One byte after the other replaced, in a config that has every key.
fn no_mutation_makes_it_panic(bench: &Bench) {
    let pod = bench.pod("pod");
    let added = bench.add(&pod);
    let mut config = bench.config();
    config["prevResult"] = added.document.clone();
    config["dns"] = json!({ "nameservers": ["10.96.0.10"], "search": ["local"] });
    config["runtimeConfig"] = json!({ "mac": "02:00:00:00:00:01", "ips": ["10.244.1.9"] });
    config["cni.dev/valid-attachments"] =
        json!([{ "containerID": pod.container_id(), "ifname": "eth0" }]);
    let good = config.to_string().into_bytes();
    // What makes folders is kept to its own: no ADD and no STATUS, and no GC
    // (which leaves a lock beside a link that it puts aside) at a changed path.
    let run_dir = bench.node.run_dir().display().to_string();
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
        let output = bench.run(&bench.call(verb, &pod).stdin(bytes.clone()));
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
