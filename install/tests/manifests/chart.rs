//! The Helm chart: the same objects as `install/tweed.yaml`, and a value for
//! each flag of the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Map, Value, json};

use crate::address::{documents_base, with_runbook_base};
use crate::files::{documents, holds, objects, read, same, shipped, tool, try_tool, updating};
use crate::flags;
use crate::shapes::as_text;

const HELM: &str = "bin/helm";
const KUBECTL: &str = "kubernetes/bin/kubectl";
const CHART: &str = "install/chart";
const VALUES: &str = "install/chart/values.yaml";
const SCHEMA: &str = "install/chart/values.schema.json";

/// What the chart makes of these arguments, or why it does not.
pub fn render(args: &[&str]) -> Result<String, String> {
    let base = ["template", "tweed", CHART, "--namespace", "kube-system"];
    try_tool(HELM, &[&base, args].concat())
}

/// What the chart makes of these values, or why it does not.
pub fn render_with(values: &Value) -> Result<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.json");
    fs::write(&file, values.to_string()).unwrap();
    render(&["--values", file.to_str().unwrap()])
}

/// Helm leaves these rights when it no longer renders them: it would remove them before the
/// first agent is restarted. The manifests have no such annotation: `kubectl apply` removes
/// nothing.
pub fn take_keep(built: &mut BTreeMap<String, Value>, kept: &[&str]) {
    let mut found = BTreeSet::new();
    for (key, object) in built {
        let metadata = object["metadata"].as_object_mut().unwrap();
        if let Some(annotations) = metadata.remove("annotations") {
            assert_eq!(annotations, json!({"helm.sh/resource-policy": "keep"}));
            found.insert(key.clone());
        }
    }
    let kinds = ["ClusterRole", "ClusterRoleBinding"];
    let expected = kept
        .iter()
        .flat_map(|name| kinds.map(|kind| format!("{kind} -/{name}")));
    assert_eq!(found, expected.collect());
}

/// The agent's container when the chart is rendered with these values.
fn agent(values: &Value) -> Value {
    let text = render_with(values).unwrap();
    let daemon_set = &objects(&text)["DaemonSet kube-system/tweed"];
    daemon_set
        .pointer("/spec/template/spec/containers/0")
        .unwrap()
        .clone()
}

#[test]
fn its_version_is_that_of_the_programs() {
    let chart = &documents(&read(&format!("{CHART}/Chart.yaml")))[0];
    assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn its_values_name_every_flag() {
    const BEGIN: &str = "# flags: written by install/tests/manifests\n";
    const END: &str = "# end of flags\n";
    let text = with_runbook_base(&read(VALUES));
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let lines: Vec<String> = flags::all().iter().map(flags::Flag::lines).collect();
    let agent = lines.join("\n");
    holds(
        VALUES,
        &format!("{before}{BEGIN}agent:\n{agent}{END}{after}"),
    );
}

#[test]
fn its_schema_knows_every_flag_and_no_other() {
    let mut schema: Value = serde_json::from_str(&read(SCHEMA)).unwrap();
    let all = flags::all();
    let flags: Map<String, Value> = all.iter().map(|f| (f.key.clone(), f.schema())).collect();
    let agent = json!({
        "type": "object",
        "description": "The agent's flags",
        "additionalProperties": false,
        "required": ["metricsAddr"],
        "properties": flags,
    });
    if updating() {
        schema["properties"]["agent"] = agent;
        let text = serde_json::to_string_pretty(&schema).unwrap();
        holds(SCHEMA, &format!("{text}\n"));
    } else {
        assert_eq!(
            schema["properties"]["agent"], agent,
            "{SCHEMA} is stale: run make manifests"
        );
    }
}

#[test]
fn its_schema_has_every_value() {
    let schema: Value = serde_json::from_str(&read(SCHEMA)).unwrap();
    for value in documents(&read(VALUES))[0].as_object().unwrap().keys() {
        assert!(schema["properties"][value].is_object(), "{value}");
    }
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn it_passes_the_linter() {
    tool(HELM, &["lint", "--strict", CHART]);
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn with_no_values_it_is_tweed_yaml() {
    let mut built = objects(&render(&[]).unwrap());
    take_keep(&mut built, &["tweed-policy"]);
    same(&built, &shipped());
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn each_flags_value_reaches_the_agent() {
    let mut values = Map::new();
    let mut expected = Vec::new();
    for flag in flags::all() {
        let value = flag.another();
        expected.push((flag.variable(), as_text(&value)));
        values.insert(flag.key.clone(), value);
    }
    let agent = agent(&json!({ "agent": values }));
    let env = agent["env"].as_array().unwrap();
    for (variable, text) in expected {
        let entry = env.iter().find(|one| one["name"] == variable.as_str());
        let found = entry.unwrap_or_else(|| panic!("{variable} is missing"));
        assert_eq!(found["value"], text, "{variable}");
    }
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn probes_follow_the_health_address() {
    for (address, host, port) in [
        ("$(NODE_IP):9200", Value::Null, 9200),
        ("127.0.0.1:9117", json!("127.0.0.1"), 9117),
        ("[::1]:9117", json!("::1"), 9117),
        ("0.0.0.0:9117", Value::Null, 9117),
    ] {
        let agent = agent(&json!({ "agent": { "healthAddr": address } }));
        let health = &agent["ports"][1];
        assert_eq!(health["containerPort"], port, "{address}");
        assert_eq!(health["hostPort"], port, "{address}");
        assert_eq!(health["hostIP"], host, "{address}");
        for probe in ["livenessProbe", "readinessProbe"] {
            let get = &agent[probe]["httpGet"];
            assert_eq!(get["host"], host, "{address}");
            assert_eq!(get["port"], "health", "{address}");
        }
    }
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn the_metrics_port_follows_the_metrics_address() {
    for (address, port) in [("$(NODE_IP):9200", 9200), ("[fd00::1]:9201", 9201)] {
        let agent = agent(&json!({ "agent": { "metricsAddr": address } }));
        assert_eq!(agent["ports"][0]["containerPort"], port, "{address}");
        assert_eq!(agent["ports"][0]["hostPort"], port, "{address}");
        assert_eq!(
            agent["livenessProbe"]["httpGet"]["host"], "127.0.0.1",
            "{address}"
        );
    }
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn the_folders_of_the_node_are_mounted_where_the_flags_say() {
    let agent =
        agent(&json!({ "agent": { "cniConfDir": "/a", "cniBinDir": "/b", "runDir": "/c" } }));
    let mounts = agent["volumeMounts"].as_array().unwrap();
    let paths: Vec<&str> = mounts
        .iter()
        .map(|one| one["mountPath"].as_str().unwrap())
        .collect();
    let of_the_host = ["/host/proc/sys/net", "/host/proc/sys/kernel/random/boot_id"];
    assert_eq!(paths, [&["/b", "/a", "/c"][..], &of_the_host].concat());
}

/// k3s's plugins are links out of their folder: what they lead to is mounted too.
#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn on_k3s_the_chart_mounts_what_the_overlay_does() {
    let guide = read("docs/install.md");
    let (_, section) = guide.split_once("### On k3s").unwrap();
    let of_k3s = section.split("\n## ").next().unwrap();
    let (_, rest) = of_k3s
        .split_once("helm install tweed install/chart")
        .unwrap();
    let command = rest.split("```").next().unwrap().replace("\\\n", " ");
    let words: Vec<&str> = command
        .split_whitespace()
        .map(|word| word.trim_matches('\''))
        .collect();
    let rendered = objects(&render(&words[2..]).unwrap());
    let overlay = objects(&tool(KUBECTL, &["kustomize", "install/kustomize/k3s"]));
    let mounts = |all: &BTreeMap<String, Value>| {
        let pod = all["DaemonSet kube-system/tweed"].pointer("/spec/template/spec");
        let mounts = pod.unwrap()["containers"][0]["volumeMounts"].as_array();
        let mount = |one: &Value| (one["mountPath"].to_string(), one["readOnly"] == true);
        mounts.unwrap().iter().map(mount).collect::<BTreeSet<_>>()
    };
    assert_eq!(mounts(&rendered), mounts(&overlay));
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn where_and_how_pods_run_is_what_the_values_say() {
    let term = json!({ "key": "pool", "operator": "NotIn", "values": ["external"] });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution":
        { "nodeSelectorTerms": [{ "matchExpressions": [term] }] } } });
    let values = json!({
        "affinity": affinity,
        "nodeSelector": { "kubernetes.io/os": "linux", "pool": "own" },
        "tolerations": [{ "key": "a", "operator": "Exists" }],
        "priorityClassName": "mine",
    });
    let rendered = objects(&render_with(&values).unwrap());
    let pod = &rendered["DaemonSet kube-system/tweed"]["spec"]["template"]["spec"];
    for key in ["affinity", "tolerations", "priorityClassName"] {
        assert_eq!(pod[key], values[key], "{key}");
    }
    assert_eq!(pod["nodeSelector"]["pool"], "own");
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn what_values_yaml_shows_as_empty_leaves_the_agents_default() {
    let agent = agent(&json!({ "agent": { "clusterCidr": [] } }));
    let env = agent["env"].as_array().unwrap();
    // An empty variable would be a value, and one that the agent refuses.
    let has = |name: &str| env.iter().any(|one| one["name"] == name);
    assert!(!has("TWEED_CLUSTER_CIDR"), "{env:?}");
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn a_value_that_nobody_knows_is_refused() {
    for set in ["agent.mtuu=1400", "agnt.mtu=1400", "image.digest=latest"] {
        let refused = render(&["--set", set]);
        assert!(refused.is_err(), "{set} was taken");
    }
}

/// Kubernetes 1.29 has no admission policies.
#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn without_the_admission_policy_only_who_says_so_installs_it() {
    let older = ["--kube-version", "1.29.0"];
    let refused = render(&older).unwrap_err();
    assert!(refused.contains("--set admissionPolicy=false"), "{refused}");
    let acknowledged = [&older[..], &["--set", "admissionPolicy=false"]].concat();
    assert!(
        !render(&acknowledged)
            .unwrap()
            .contains("ValidatingAdmissionPolicy")
    );
    for newer in ["1.30.0", "v1.30.0-gke.1", "1.35.2+k3s1"] {
        let rendered = render(&["--kube-version", newer]).unwrap();
        assert!(rendered.contains("ValidatingAdmissionPolicy"), "{newer}");
    }
}

#[test]
#[ignore = "needs helm: conformance/setup.sh e2e"]
fn what_is_optional_comes_and_goes() {
    let has = |args: &[&str], kind: &str| {
        let rendered = objects(&render(args).unwrap());
        rendered
            .keys()
            .any(|key| key == kind || key.starts_with(&format!("{kind} ")))
    };
    assert!(has(&["--set", "podMonitor.enabled=true"], "PodMonitor"));
    let rules = "PrometheusRule kube-system/tweed";
    let dashboard = "ConfigMap kube-system/tweed-dashboard";
    assert!(!has(&[], rules) && !has(&[], dashboard));
    let base = "monitoring.runbookBase=https://docs.test/";
    let args = [
        "--set",
        "monitoring.rules=true,monitoring.dashboard=true",
        "--set",
        base,
    ];
    let rendered = objects(&render(&args).unwrap());
    let shipped =
        read("install/monitoring/rules.yaml").replace(&documents_base(), "https://docs.test/");
    assert_eq!(
        rendered[rules]["spec"]["groups"],
        documents(&shipped)[0]["groups"]
    );
    let shown = rendered[dashboard]["data"]["tweed.json"].as_str().unwrap();
    let shown: Value = serde_json::from_str(shown).unwrap();
    let shipped: Value = serde_json::from_str(&read("install/monitoring/dashboard.json")).unwrap();
    assert_eq!(shown, shipped);
    let reviews = "ClusterRole -/tweed-metrics-auth";
    assert!(!has(&[], reviews));
    assert!(has(&["--set", "agent.metricsAuth=token-review"], reviews));
    assert!(!has(
        &["--set", "admissionPolicy=false"],
        "ValidatingAdmissionPolicy"
    ));
    assert!(!has(&["--set", "rbac.create=false"], "ClusterRole"));
}
