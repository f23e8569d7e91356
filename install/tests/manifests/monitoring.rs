//! Alerts and the dashboard use existing metrics.

use std::collections::BTreeSet;
use std::time::Instant;

use prometheus_client::encoding::text::encode;
use serde_json::{Value, json};
use tweed_agent::serve::metrics::{Metrics, RangeUse};
use tweed_agent::serve::status::StatusBoard;

use crate::address::{RULES, documents_base, rules};
use crate::files::{documents, holds, objects, read, tool};

const PROMTOOL: &str = "bin/promtool";
const FOR_THE_OPERATOR: &str = "install/monitoring/prometheusrule.yaml";
const DASHBOARD: &str = "install/monitoring/dashboard.json";

/// The series of the agent's metrics, by the names that queries use.
fn series() -> BTreeSet<String> {
    let (registry, metrics) = Metrics::register();
    // A metric with labels is shown from its first value on.
    metrics.set_objects("route", 1);
    metrics.drift_repaired("route", &[].into(), 1);
    metrics.set_addresses(&[RangeUse {
        range: "10.244.0.0/24".parse().unwrap(),
        used: 1,
        free: 252,
    }]);
    metrics.set_policies("NetworkPolicy", 1);
    metrics.listed_again("nodes");
    metrics.set_policed("ingress", 1);
    metrics.set_peers([("answers", 1)]);
    metrics.set_fast_path("off", 0);
    metrics.flows_invalidated("policies");
    metrics.policy_drop_logged("NetworkPolicy default/deny", "policy-ingress");
    metrics.set_status(&StatusBoard::new(Instant::now()).status(Instant::now()));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let mut names = BTreeSet::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        let endings: &[&str] = match kind {
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            "info" => &["_info"],
            _ => &[""],
        };
        names.extend(endings.iter().map(|ending| format!("{name}{ending}")));
    }
    assert!(names.contains("tweed_ready"), "{names:?}");
    names
}

/// The words of a query that begin with `tweed_`.
fn named(query: &str) -> impl Iterator<Item = &str> {
    query
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| word.starts_with("tweed_"))
}

fn alerts() -> Vec<Value> {
    let groups = documents(&rules())[0]["groups"].as_array().unwrap().clone();
    let rules = groups.into_iter().map(|mut group| group["rules"].take());
    rules
        .flat_map(|rules| rules.as_array().unwrap().clone())
        .collect()
}

/// All texts of the dashboard that have one of these names: `expr` is a panel's
/// query, `query` a variable's.
fn texts(value: &Value, names: &[&str], found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_str() {
                    Some(text) if names.contains(&name.as_str()) => found.push(text.to_owned()),
                    _ => texts(field, names, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| texts(item, names, found)),
        _ => {}
    }
}

fn dashboard(names: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let dashboard = serde_json::from_str(&read(DASHBOARD)).unwrap();
    texts(&dashboard, names, &mut found);
    found
}

#[test]
fn every_metric_of_an_alert_exists() {
    let series = series();
    for alert in alerts() {
        let query = alert["expr"].as_str().unwrap();
        for name in named(query) {
            assert!(series.contains(name), "{}: {name}", alert["alert"]);
        }
    }
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let series = series();
    let found = dashboard(&["expr", "query"]);
    assert!(found.len() > 10, "{found:?}");
    for query in &found {
        for name in named(query) {
            assert!(series.contains(name), "{name} in {query}");
        }
    }
}

#[test]
fn every_metric_is_on_the_dashboard() {
    let dashboard = read(DASHBOARD);
    let shown: BTreeSet<&str> = named(&dashboard).collect();
    let parts = |name: &&String| !name.ends_with("_sum") && !name.ends_with("_count");
    for name in series().iter().filter(parts) {
        assert!(shown.contains(name.as_str()), "{name} is on no panel");
    }
}

#[test]
fn every_alert_says_what_to_do() {
    let guide = read("docs/monitoring.md");
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        assert!(
            guide.contains(&format!("\n### {name}\n")),
            "docs/monitoring.md lacks {name}"
        );
        let anchor = name.to_lowercase();
        let runbook = format!("{}docs/monitoring.md#{anchor}", documents_base());
        assert_eq!(alert["annotations"]["runbook_url"], runbook, "{name}");
    }
}

/// Where a query sums, the labels that it names are all that is left.
#[test]
fn every_alert_on_a_node_names_it() {
    for alert in alerts() {
        let query = alert["expr"].as_str().unwrap();
        for (_, by) in query
            .match_indices("by (")
            .map(|(at, _)| query.split_at(at))
        {
            let labels = by.split(')').next().unwrap();
            assert_eq!(
                labels.contains("instance"),
                labels.contains("node"),
                "{query}"
            );
        }
    }
}

#[test]
fn the_operator_gets_the_same_rules() {
    let rules = rules();
    let (_, below) = rules.split_once("groups:\n").unwrap();
    let groups: String = below
        .lines()
        .map(|line| {
            if line.is_empty() {
                "\n".to_owned()
            } else {
                format!("  {line}\n")
            }
        })
        .collect();
    let text = format!(
        "# install/monitoring/rules.yaml for the Prometheus operator, written by\n\
         # `make manifests`: change it there.\n\
         apiVersion: monitoring.coreos.com/v1\n\
         kind: PrometheusRule\n\
         metadata:\n  name: tweed\n  namespace: kube-system\n  labels:\n    \
         app.kubernetes.io/name: tweed\n    app.kubernetes.io/component: agent\n\
         spec:\n  groups:\n{groups}"
    );
    holds(FOR_THE_OPERATOR, &text);
    let rule = &objects(&text)["PrometheusRule kube-system/tweed"];
    assert_eq!(rule["spec"]["groups"], documents(&rules)[0]["groups"]);
}

#[test]
#[ignore = "needs promtool: conformance/setup.sh e2e"]
fn the_alerts_are_raised_by_the_faults_they_are_for() {
    tool(PROMTOOL, &["check", "rules", RULES]);
    tool(
        PROMTOOL,
        &["test", "rules", "install/monitoring/rules.test.yaml"],
    );
}

#[test]
#[ignore = "needs promtool: conformance/setup.sh e2e"]
fn the_queries_of_the_dashboard_are_promql() {
    let rule = |(index, query): (usize, &String)| {
        // What Grafana puts in.
        let with_interval = query.replace("$__rate_interval", "5m");
        let expr = with_interval.replace("$instance", ".+");
        assert!(!expr.contains('$'), "say here what stands for it: {expr}");
        json!({ "record": format!("query:{index}"), "expr": expr })
    };
    let queries = dashboard(&["expr"]);
    let rules: Vec<Value> = queries.iter().enumerate().map(rule).collect();
    let count = rules.len();
    // JSON is YAML too.
    let file = tempfile::NamedTempFile::new().unwrap();
    let groups = json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(file.path(), groups.to_string()).unwrap();
    let said = tool(PROMTOOL, &["check", "rules", file.path().to_str().unwrap()]);
    assert!(said.contains(&format!("{count} rules found")), "{said}");
}
