//! What the agent may do in the API.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::namespace::Namespace;
use tweed_core::object::network_policy::NetworkPolicy;
use tweed_core::object::{
    endpoint_slice::EndpointSlice, node::Node, pod::Pod, service::Service,
    service_cidr::ServiceCidr,
};
use tweed_watch::Kind as _;

use crate::files::{objects, read, shipped};

fn rules(object: &str) -> Value {
    shipped()[object]["rules"].clone()
}

#[test]
fn it_may_read_nodes_and_patch_their_status_and_nothing_else() {
    let expected = json!([
        { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"] },
        { "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] },
    ]);
    assert_eq!(rules("ClusterRole -/tweed"), expected);
}

#[test]
fn for_policy_it_may_read_what_policies_speak_of() {
    let read = json!(["get", "list", "watch"]);
    let expected = json!([
        { "apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": read },
        {
            "apiGroups": ["policy.networking.k8s.io"],
            "resources": ["clusternetworkpolicies"],
            "verbs": read,
        },
        { "apiGroups": [""], "resources": ["namespaces", "pods"], "verbs": ["list", "watch"] },
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create"] },
        {
            "nonResourceURLs": ["/apis", "/apis/policy.networking.k8s.io/*"],
            "verbs": ["get"],
        },
    ]);
    assert_eq!(rules("ClusterRole -/tweed-policy"), expected);
}

/// What the component adds for Services.
fn for_services() -> BTreeMap<String, Value> {
    objects(&read("install/kustomize/with-services/rbac.yaml"))
}

#[test]
fn for_services_it_may_list_three_kinds_and_only_where_that_is_wanted() {
    let read = json!(["list", "watch"]);
    let expected = json!([
        { "apiGroups": [""], "resources": ["services"], "verbs": read },
        { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": read },
        { "apiGroups": ["networking.k8s.io"], "resources": ["servicecidrs"], "verbs": read },
    ]);
    let rbac = for_services();
    assert_eq!(rbac.len(), 2, "{rbac:?}");
    assert_eq!(rbac["ClusterRole -/tweed-services"]["rules"], expected);
    let binding = &rbac["ClusterRoleBinding -/tweed-services"];
    assert_eq!(binding["roleRef"]["name"], "tweed-services");
    let of_policy = &shipped()["ClusterRoleBinding -/tweed-policy"];
    assert_eq!(binding["subjects"], of_policy["subjects"]);
    assert!(!shipped().keys().any(|key| key.contains("tweed-services")));
}

/// Every collection that the agent can watch, by the names that RBAC has for it.
#[test]
fn it_may_read_each_kind_that_it_can_watch() {
    let mut all = shipped();
    all.extend(for_services());
    let roles = all.values().filter(|one| one["kind"] == "ClusterRole");
    let rules = roles.flat_map(|one| one["rules"].as_array().unwrap());
    let texts = |list: &Value| -> Vec<String> {
        let items = list.as_array().into_iter().flatten();
        items.map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let mut readable: Vec<String> = rules
        .filter(|rule| texts(&rule["verbs"]).ends_with(&["list".to_owned(), "watch".to_owned()]))
        .flat_map(|rule| {
            let group = texts(&rule["apiGroups"]).concat();
            let resources = texts(&rule["resources"]).into_iter();
            resources.map(move |resource| match group.as_str() {
                "" => resource,
                group => format!("{resource}.{group}"),
            })
        })
        .collect();
    readable.sort();
    let mut watched = [
        Node::resource(),
        Pod::resource(),
        Namespace::resource(),
        NetworkPolicy::resource(),
        ClusterNetworkPolicy::resource(),
        Service::resource(),
        EndpointSlice::resource(),
        ServiceCidr::resource(),
    ];
    watched.sort();
    assert_eq!(readable, watched);
}

#[test]
fn it_may_write_events_where_those_of_nodes_are() {
    let expected = json!([
        { "apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"] },
    ]);
    assert_eq!(rules("Role default/tweed"), expected);
}

#[test]
fn for_metrics_it_may_ask_for_two_reviews_and_only_where_that_is_wanted() {
    let rbac = objects(&read("install/kustomize/metrics-auth/rbac.yaml"));
    let expected = json!([
        { "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"] },
        { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"] },
    ]);
    assert_eq!(rbac["ClusterRole -/tweed-metrics-auth"]["rules"], expected);
    assert!(!shipped().contains_key("ClusterRole -/tweed-metrics-auth"));
}

#[test]
fn no_other_role_is_bound() {
    let shipped = shipped();
    let bound: Vec<_> = shipped
        .values()
        .filter(|object| object["kind"].as_str().unwrap().ends_with("RoleBinding"))
        .map(|object| {
            (
                object["roleRef"]["kind"].clone(),
                object["roleRef"]["name"].clone(),
            )
        })
        .collect();
    assert_eq!(
        bound,
        [
            (json!("ClusterRole"), json!("tweed")),
            (json!("ClusterRole"), json!("tweed-policy")),
            (json!("Role"), json!("tweed"))
        ]
    );
}

#[test]
fn the_policy_is_for_the_agents_account_and_in_force() {
    let shipped = shipped();
    let policy = &shipped["ValidatingAdmissionPolicy -/tweed-own-node"]["spec"];
    let condition = policy["matchConditions"][0]["expression"].as_str().unwrap();
    let account = &shipped["ServiceAccount kube-system/tweed"]["metadata"];
    let user = format!(
        "system:serviceaccount:{}:{}",
        account["namespace"].as_str().unwrap(),
        account["name"].as_str().unwrap()
    );
    assert!(condition.contains(&format!("\"{user}\"")), "{condition}");
    assert_eq!(policy["failurePolicy"], "Fail");
    let binding = &shipped["ValidatingAdmissionPolicyBinding -/tweed-own-node"]["spec"];
    assert_eq!(binding["policyName"], "tweed-own-node");
    assert_eq!(binding["validationActions"], json!(["Deny"]));
}

#[test]
fn the_policy_holds_all_of_a_nodes_status_but_the_conditions() {
    let shipped = shipped();
    let policy = &shipped["ValidatingAdmissionPolicy -/tweed-own-node"]["spec"];
    let checks = policy["validations"].as_array().unwrap().iter();
    let rules: String = checks.map(|rule| rule["expression"].to_string()).collect();
    // `NodeStatus` of Kubernetes 1.37.
    for field in [
        "addresses",
        "allocatable",
        "capacity",
        "config",
        "daemonEndpoints",
        "declaredFeatures",
        "features",
        "images",
        "nodeInfo",
        "phase",
        "runtimeHandlers",
        "volumesAttached",
        "volumesInUse",
    ] {
        let rule = format!("object.status.?{field} == oldObject.status.?{field}");
        assert!(rules.contains(&rule), "{field} is not held");
    }
}
