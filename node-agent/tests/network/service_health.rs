//! What load balancers and dashboards find on a node that serves Services.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, SystemTime};

use tweed_watch::client::timestamp;

use crate::node::{Agent, Node, eventually, manifest, run};
use crate::script::write_script;

/// Where load balancers ask for the Service.
const CHECK: &str = "192.0.2.1:31000";
/// Where they ask for the node.
pub const NODE: &str = "192.0.2.1:10256";
/// Where dashboards get their metrics.
const METRICS: &str = "127.0.0.1:10249";

/// A node that serves a Service of type LoadBalancer.
struct Scene {
    node: Node,
}

impl Scene {
    /// With the endpoint on this node.
    fn new(endpoint_on: &str) -> Self {
        let scene = Self { node: Node::new() };
        std::fs::create_dir_all(scene.node.path("run")).unwrap();
        scene.apply(&manifest(1), &[balancer(), endpoint(endpoint_on, "")]);
        scene
    }

    fn apply(&self, own: &str, documents: &[String]) {
        let nodes = [own.to_owned(), manifest(2)].concat();
        self.node.write_nodes(&(nodes + &documents.concat()));
    }

    fn start(&self) -> Agent {
        self.node.start(&["--services", "on"])
    }

    /// Nobody can tell from now on which Services there are.
    fn lose_the_objects(&self) {
        std::fs::remove_file(self.node.path("nodes.yaml")).unwrap();
    }

    /// Waits until `agent.json` and the answer to load balancers say that the kernel serves
    /// these Services: all, those of an earlier plan, or none.
    fn says(&self, all: bool, earlier: bool) {
        let status = if all || earlier { 200 } else { 503 };
        answers(NODE, "/healthz", status, "");
        eventually(|| {
            let text =
                std::fs::read_to_string(self.node.path("run/agent.json")).unwrap_or_default();
            let said = ["\"services\": true", "\"earlierServices\": true"];
            if said.map(|words| text.contains(words)) == [all, earlier] {
                Ok(())
            } else {
                Err(text)
            }
        });
    }
}

fn balancer() -> String {
    "---\napiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: web}\n\
     spec: {type: LoadBalancer, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], \
     externalTrafficPolicy: Local, healthCheckNodePort: 31000, \
     ports: [{name: http, protocol: TCP, port: 8080, nodePort: 30080}]}\n"
        .to_owned()
}

/// The endpoint of the Service, on this node; `annotations` are those of its slice.
fn endpoint(node: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n\
         metadata: {{namespace: shop, name: web-1, annotations: {{{annotations}}}, \
         labels: {{kubernetes.io/service-name: web}}}}\naddressType: IPv4\n\
         endpoints: [{{addresses: [10.0.1.6], nodeName: {node}, conditions: {{ready: true}}}}]\n\
         ports: [{{name: http, protocol: TCP, port: 80}}]\n"
    )
}

/// The answer to a request; empty if nobody gives one.
pub fn get(addr: &str, path: &str) -> String {
    let answer = || {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    answer().unwrap_or_default()
}

/// Waits until an answer has this status and contains this text.
pub fn answers(addr: &str, path: &str, status: u16, text: &str) {
    let begin = format!("HTTP/1.1 {status} ");
    eventually(|| match get(addr, path) {
        answer if answer.starts_with(&begin) && answer.contains(text) => Ok(()),
        answer => Err(format!("{addr}{path}: {answer}")),
    });
}

#[test]
fn a_load_balancer_learns_how_many_endpoints_the_node_has() {
    let scene = Scene::new("n2");
    let agent = scene.start();
    let external =
        "\nkubeproxy_sync_proxy_rules_no_local_endpoints_total{traffic_policy=\"external\"}";
    let none = "\"localEndpoints\":0,\"serviceProxyHealthy\":true";
    answers(CHECK, "/healthz", 503, none);
    answers(METRICS, "/metrics", 200, &format!("{external} 1\n"));
    scene.apply(&manifest(1), &[balancer(), endpoint("n1", "")]);
    let body = "\r\n\r\n{\"service\":{\"namespace\":\"shop\",\"name\":\"web\"},\
                \"localEndpoints\":1,\"serviceProxyHealthy\":true}";
    answers(CHECK, "/healthz", 200, body);
    let answer = get(CHECK, "/healthz");
    let weight = "x-load-balancing-endpoint-weight: 1";
    assert!(answer.lines().any(|line| line == weight), "{answer}");
    answers(METRICS, "/metrics", 200, &format!("{external} 0\n"));
    assert_eq!(get("127.0.0.1:31000", "/healthz"), "", "no node ports here");
    scene.apply(&manifest(1), &[]);
    eventually(|| match TcpStream::connect(CHECK) {
        Ok(_) => Err("the port is still open".to_owned()),
        Err(_) => Ok(()),
    });
    agent.ready();
}

#[test]
fn load_balancers_send_nothing_to_a_node_that_is_about_to_go() {
    let scene = Scene::new("n1");
    let agent = scene.start();
    answers(NODE, "/healthz", 200, "\"nodeEligible\":true");
    let leaving = [
        manifest(1).replace(
            "spec: {",
            "spec: {taints: [{key: ToBeDeletedByClusterAutoscaler, effect: NoSchedule}], ",
        ),
        manifest(1).replace(
            "metadata: {",
            "metadata: {deletionTimestamp: 2026-11-21T10:00:00Z, ",
        ),
        String::new(),
    ];
    for own in leaving {
        scene.apply(&own, &[balancer(), endpoint("n1", "")]);
        answers(NODE, "/healthz", 503, "\"nodeEligible\":false");
        answers(NODE, "/livez", 200, "\"healthy\":true");
        // Connections that are open, and those through the Service, go on.
        answers(CHECK, "/", 200, "\"serviceProxyHealthy\":true");
        // Other taints are about pods.
        let cordoned =
            "spec: {taints: [{key: node.kubernetes.io/unschedulable, effect: NoSchedule}], ";
        let cordoned = manifest(1).replace("spec: {", cordoned);
        scene.apply(&cordoned, &[balancer(), endpoint("n1", "")]);
        answers(NODE, "/healthz", 200, "\"nodeEligible\":true");
    }
    agent.ready();
}

#[test]
fn ports_that_kube_proxy_still_has_are_reported_and_had_once_it_is_gone() {
    let scene = Scene::new("n1");
    let taken = [CHECK, "0.0.0.0:10256", METRICS].map(|addr| TcpListener::bind(addr).unwrap());
    let agent = scene.start();
    for kind in [
        "service-health-port",
        "services-health-addr",
        "services-metrics-addr",
    ] {
        agent.complains(kind);
    }
    agent.serves();
    drop(taken);
    agent.ready();
    answers(CHECK, "/", 200, "");
    answers(NODE, "/livez", 200, "");
    answers(METRICS, "/proxyMode", 200, "nftables");
}

/// `tweed-install` asks there whether a kube-proxy runs, and one that starts again takes
/// its port late.
#[test]
fn the_port_of_kube_proxy_s_metrics_is_its_own_while_its_rules_are_there() {
    let scene = Scene::new("n1");
    run("nft", "add table ip kube-proxy");
    let agent = scene.start();
    let problem = agent.complains("services-metrics-addr");
    assert!(problem.contains("left to kube-proxy"), "{problem}");
    drop(TcpListener::bind(METRICS).unwrap());
    answers(NODE, "/livez", 200, "");
    run("nft", "delete table ip kube-proxy");
    answers(METRICS, "/proxyMode", 200, "nftables");
    agent.ready();
}

/// It does not know them, and must not have kube-proxy's rules removed; the kernel serves
/// what it has.
#[test]
fn a_restart_that_cannot_list_services_says_what_the_kernel_has() {
    let scene = Scene::new("n1");
    let agent = scene.start();
    scene.says(true, false);
    agent.stop();
    scene.lose_the_objects();
    // The second one knows it from one that did not know more itself.
    for _ in 0..2 {
        let agent = scene.start();
        scene.says(false, true);
        agent.stop();
    }
    run("nft", "delete table inet tweed-services");
    let agent = scene.start();
    scene.says(false, false);
    agent.stop();
}

#[test]
fn services_that_are_not_known_are_gone_when_somebody_deletes_the_table() {
    let scene = Scene::new("n1");
    let agent = scene.start();
    scene.says(true, false);
    agent.stop();
    scene.lose_the_objects();
    let agent = scene.start();
    scene.says(false, true);
    run("nft", "delete table inet tweed-services");
    scene.says(false, false);
    scene.apply(&manifest(1), &[balancer(), endpoint("n1", "")]);
    scene.says(true, false);
    agent.ready();
}

#[test]
fn services_that_cannot_be_written_again_are_not_said_to_be_served() {
    let scene = Scene::new("n1");
    let nft = scene.node.path("nft");
    write_script(&nft, "#!/bin/sh\nexec nft \"$@\"\n");
    let flags = ["--services", "on", "--nft", nft.to_str().unwrap()];
    let agent = scene.node.start(&flags);
    scene.says(true, false);
    write_script(&nft, "#!/bin/sh\nexit 1\n");
    run("nft", "delete table inet tweed-services");
    scene.says(false, false);
    write_script(&nft, "#!/bin/sh\nexec nft \"$@\"\n");
    scene.says(true, false);
    agent.ready();
}

#[test]
fn the_port_of_kube_proxy_s_metrics_is_its_own_before_services_are_known() {
    let scene = Scene::new("n1");
    scene.lose_the_objects();
    run("nft", "add table ip kube-proxy");
    let agent = scene.start();
    let problem = agent.complains("services-metrics-addr");
    assert!(problem.contains("left to kube-proxy"), "{problem}");
    let problems = agent.problems();
    let named = |problem: &String| problem.starts_with("kube-proxy-rules");
    assert!(!problems.iter().any(named), "{problems:?}");
    run("nft", "delete table ip kube-proxy");
    answers(METRICS, "/proxyMode", 200, "nftables");
}

#[test]
fn the_time_from_a_pod_s_change_to_the_kernel_is_measured() {
    let scene = Scene::new("n1");
    let agent = scene.start();
    answers(CHECK, "/", 200, "");
    let count = "\nkubeproxy_network_programming_duration_seconds_count";
    answers(METRICS, "/metrics", 200, &format!("{count} 0\n"));
    let changed = format!(
        "endpoints.kubernetes.io/last-change-trigger-time: \"{}\"",
        timestamp(SystemTime::now())
    );
    scene.apply(&manifest(1), &[balancer(), endpoint("n2", &changed)]);
    answers(METRICS, "/metrics", 200, &format!("{count} 1\n"));
    // With another label only, the same slice is nothing to write.
    let other = format!("{changed}, note: other");
    scene.apply(&manifest(1), &[balancer(), endpoint("n2", &other)]);
    agent.passes();
    answers(METRICS, "/metrics", 200, &format!("{count} 1\n"));
}
