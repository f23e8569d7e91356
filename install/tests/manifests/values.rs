//! Values that the agent accepts and values that it refuses: the chart agrees on
//! each.

use clap::Parser as _;
use serde_json::{Value, json};
use tweed_agent::config::Flags;

use crate::chart::render_with;
use crate::flags;
use crate::shapes::as_text;

/// For each flag: accepted values and refused values, each as a JSON list.
const ROWS: [(&str, &str, &str); 32] = [
    (
        "apiServer",
        r#"["https://192.0.2.10:6443", "https://[2001:db8::1]:6443", "https://api.example/"]"#,
        r#"["x", "", "192.0.2.10:6443", "http://192.0.2.10:6443", "https://", "https://a/b",
            "https://a?b"]"#,
    ),
    ("backend", r#"["cross-subnet"]"#, r#"["ipip", ""]"#),
    (
        "clusterCidr",
        r#"[["10.244.0.0/16"], ["fd00::/48", "10.0.0.0/8"], "10.244.0.0/16"]"#,
        r#"[["10.244.0.0"], ["10.244.0.0/33"], ["10.244.0.256/32"], [""],
            "10.244.0.0", ["10.0.0.0/16", "10.0.0.0/16"], ["10.0.0.0/16", "fd00::/48", "10.1.0.0/16"]]"#,
    ),
    (
        "cniBinDir",
        r#"["/var/lib/rancher/k3s/data/cni"]"#,
        r#"["opt/cni/bin", ""]"#,
    ),
    (
        "cniConfDir",
        r#"["/etc/cni/net.d"]"#,
        r#"["etc/cni/net.d", "./x"]"#,
    ),
    ("conntrackLimits", r#"["off"]"#, r#"["yes", ""]"#),
    ("externalIps", r#"["on"]"#, r#"["yes", ""]"#),
    (
        "fastPath",
        r#"["auto", "on", true, false]"#,
        r#"["yes", ""]"#,
    ),
    (
        "fastPathFlows",
        "[1024, 16777216]",
        r#"[1023, 16777217, "x"]"#,
    ),
    (
        "healthAddr",
        r#"["127.0.0.1:9117", "[::1]:9117", "$(NODE_IP):9117", "0.0.0.0:9117"]"#,
        r#"["", "9117", "127.0.0.1", "localhost:9117"]"#,
    ),
    (
        "loadBalancerCidrs",
        r#"[["all"], ["192.0.2.0/24"], ["192.0.2.0/24", "fd00::/48"], "all"]"#,
        r#"[["none"], ["192.0.2.0"], [""]]"#,
    ),
    ("logFormat", r#"["json"]"#, r#"["yaml"]"#),
    (
        "logLevel",
        r#"["TRACE", "off", "tweed_agent=3", "info,tweed_nft=debug",
            "tweed_agent[pass{node=alpha}]=debug"]"#,
        r#"["", "loud=louder", "info,a=b"]"#,
    ),
    ("masquerade", r#"["random", false]"#, r#"["on", true]"#),
    ("masqueradeIpv6", r#"["off"]"#, r#"["random"]"#),
    ("masqueradeNodes", r#"["on"]"#, r#"["random"]"#),
    (
        "metricsAddr",
        r#"["$(NODE_IP):9116", "127.0.0.1:1", "0.0.0.0:65535", "[fd00::1]:9999", "fd00::1:9999",
            "[::]:9116", "[::ffff:192.0.2.7]:9116"]"#,
        r#"["xx", "", ":9116", "9116", "127.0.0.1", "127.0.0.1:65536", "127.0.0.256:9116",
            "localhost:9116", "$(NODE_NAME):9116"]"#,
    ),
    (
        "metricsAuth",
        r#"["none", "token-review"]"#,
        r#"["off", ""]"#,
    ),
    (
        "mtu",
        r#"["auto", 576, "576", 1450, "9000", 65535, "65535"]"#,
        r#"[10, 575, "575", 65536, "65536", "abc", "", -1500]"#,
    ),
    (
        "nodeportAddresses",
        r#"["primary", ["primary"], ["all"], ["primary", "192.0.2.0/24"], ["fd00::/48"]]"#,
        r#"[["eth0"], ["192.0.2.0"], [""]]"#,
    ),
    ("policy", r#"["off", true, false]"#, r#"["none", ""]"#),
    ("policyLog", r#"["on"]"#, r#"["debug", ""]"#),
    (
        "policyWait",
        r#"[0, "0", "500ms", "60s"]"#,
        r#"[1, "abc", "", "-1s"]"#,
    ),
    ("probePeers", r#"["off", true, false]"#, r#"["none", ""]"#),
    ("runDir", r#"["/run/tweed"]"#, r#"["run/tweed"]"#),
    (
        "services",
        r#"["on", true, false]"#,
        r#"["kube-proxy", ""]"#,
    ),
    (
        "servicesHealthAddr",
        r#"["[::]:10256", "0.0.0.0:10256", "$(NODE_IP):10256"]"#,
        r#"["", "10256", "localhost:10256"]"#,
    ),
    (
        "servicesMetricsAddr",
        r#"["127.0.0.1:10249", "$(NODE_IP):10249"]"#,
        r#"["", "10249", "localhost:10249"]"#,
    ),
    (
        "underlay",
        r#"["192.0.2.0/24", "2001:db8::/64", "2001:db8::7/128"]"#,
        r#"["abc", "eth0", "192.0.2.0", "2001:db8::/129", ""]"#,
    ),
    ("underlayFamily", r#"["ipv6"]"#, r#"["ipv5"]"#),
    ("vni", "[1, 16777215]", r#"[0, 16777216, -1, 1.5, "x"]"#),
    ("vxlanPort", "[1, 65535]", "[0, 65536, 70000]"),
];

/// Each value of the rows, with its key and whether it is taken.
fn each(mut ask: impl FnMut(&'static str, &Value, bool)) {
    for (key, taken, refused) in ROWS {
        for (list, is_taken) in [(taken, true), (refused, false)] {
            let values: Vec<Value> = serde_json::from_str(list).unwrap();
            values.iter().for_each(|value| ask(key, value, is_taken));
        }
    }
}

#[test]
fn there_is_a_row_for_every_flag() {
    let mut keys: Vec<String> = flags::all().into_iter().map(|flag| flag.key).collect();
    keys.sort();
    assert_eq!(keys, ROWS.map(|(key, ..)| key));
}

#[test]
fn the_agent_takes_and_refuses_as_the_rows_say() {
    let flags = flags::all();
    each(|key, value, is_taken| {
        let flag = flags.iter().find(|flag| flag.key == key).unwrap();
        // As kubelet puts it in.
        let text = as_text(value).replace("$(NODE_IP)", "192.0.2.7");
        let words = ["tweed-agent".to_owned(), format!("--{}={text}", flag.long)];
        let parsed = Flags::try_parse_from(words);
        let takes = parsed.is_ok_and(|flags| flags.resolve(|| Ok("alpha".to_owned())).is_ok());
        assert_eq!(takes, is_taken, "{key}: {value}");
    });
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn helm_takes_and_refuses_the_same_and_names_the_value() {
    each(
        |key, value, is_taken| match render_with(&json!({ "agent": { key: value } })) {
            Ok(_) => assert!(is_taken, "{key}: {value} was taken"),
            Err(said) => {
                assert!(!is_taken, "{key}: {value} was refused: {said}");
                assert!(said.contains(key), "{key}: {value}: {said}");
            }
        },
    );
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn on_and_off_without_quotes_are_the_words() {
    let rendered = |services: Value, policy: Value| {
        render_with(&json!({ "agent": { "services": services, "policy": policy } })).unwrap()
    };
    let of_words = rendered(json!("on"), json!("off"));
    assert_eq!(rendered(json!(true), json!(false)), of_words);
    assert_ne!(of_words, rendered(json!("off"), json!("on")));
    assert_eq!(
        rendered(json!(false), json!(true)),
        rendered(json!("off"), json!("on"))
    );
}
