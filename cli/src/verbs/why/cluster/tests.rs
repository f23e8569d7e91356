use std::cell::RefCell;

use serde_json::json;
use tweed_component::explain::{Explained, Flow, Side, Verdict};

use super::*;
use crate::answered::Unanswered;
use crate::exit::Exit;
use crate::verb::Verb as _;
use crate::verbs::places::{destination, source};

/// Two nodes: web of shop on n1, and db on n2, which denies.
#[derive(Default)]
struct Cluster {
    asked: RefCell<Vec<(String, String)>>,
}

fn side(verdict: Verdict) -> Side {
    let steps = Vec::new();
    Side { verdict, steps }
}

/// What a node says of a flow.
fn explained(node: &str, to: &str, port: u16) -> Explained {
    let decides = |own: &str, verdict| {
        side(if node == own {
            verdict
        } else {
            Verdict::DecidedBy(own.to_owned())
        })
    };
    Explained {
        about: String::new(),
        flows: vec![Flow {
            from: "10.0.1.5".parse().unwrap(),
            to: to.parse().unwrap(),
            protocol: 6,
            port: Some(port),
            egress: decides("n1", Verdict::Allowed),
            ingress: decides("n2", Verdict::Denied),
        }],
        notes: Vec::new(),
    }
}

impl Agents for Cluster {
    fn ask(
        &self,
        nodes: Option<&[String]>,
        arguments: &[String],
    ) -> Result<Vec<Answered<Vec<u8>>>> {
        let [node] = nodes.unwrap() else {
            panic!("one at a time: {nodes:?}");
        };
        let mut asked = self.asked.borrow_mut();
        asked.push((node.clone(), arguments.join(" ")));
        let answers = vec![explained(node, "10.0.2.6", 5432)];
        let report = json!({"version": 1, "why": Report { service: Vec::new(), answers }});
        let printed = match node.as_str() {
            "n3" => Err(Unanswered::new("no agent runs there")),
            _ if arguments.iter().any(|one| one.contains("/elsewhere:")) => {
                Err(Unanswered::new("Services are not served by this agent"))
            }
            _ => Ok(report.to_string().into_bytes()),
        };
        Ok(vec![(node.clone(), printed)])
    }

    fn get(&self, path: &str) -> Result<Option<Value>> {
        let pod = |node: &str, address: &str| json!({"spec": {"nodeName": node}, "status": {"podIPs": [{"ip": address}]}});
        Ok(match path {
            "/api/v1/namespaces/shop/pods/web" => Some(pod("n1", "10.0.1.5")),
            "/api/v1/namespaces/shop/pods/db" => Some(pod("n2", "10.0.2.6")),
            "/api/v1/namespaces/shop/pods/lost" => Some(pod("n3", "10.0.3.7")),
            "/api/v1/namespaces/shop/services/elsewhere" => Some(
                json!({"spec": {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 80, "name": "web"}]}}),
            ),
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io/service-name%3Delsewhere" => {
                Some(json!({"items": [{
                    "ports": [{"port": 53, "protocol": "UDP"}, {"port": 5432, "name": "web", "protocol": "TCP"}],
                    "endpoints": [
                        {"addresses": ["10.0.2.6"], "conditions": {"ready": true}},
                        {"addresses": ["10.0.2.7"], "conditions": {"ready": false}},
                    ],
                }]}))
            }
            "/api/v1/nodes?limit=1" => Some(json!({"items": [{"metadata": {"name": "n1"}}]})),
            _ => None,
        })
    }
}

/// The exit code, and who was asked what.
fn asked(from: &str, to: &str) -> (Result<Exit>, Vec<(String, String)>) {
    let cluster = Cluster::default();
    let why = Why {
        from: source(from).unwrap(),
        to: destination(to).unwrap(),
        exit_code: true,
    };
    let answers = ask(&why, &cluster);
    let exit = answers.map(|answers| why.exit(&answers));
    (exit, cluster.asked.into_inner())
}

fn of(node: &str, arguments: &str) -> (String, String) {
    (node.to_owned(), arguments.to_owned())
}

#[test]
fn both_ends_are_asked_by_address_and_the_one_that_denies_counts() {
    let by_address = "why 10.0.1.5 10.0.2.6:5432/TCP";
    let both = vec![of("n1", by_address), of("n2", by_address)];
    let (exit, seen) = asked("shop/web", "shop/db:5432");
    assert_eq!((exit.unwrap(), seen), (Exit::Denied, both));
    let first = of("n1", "why pod/shop/web svc/shop/db:80/TCP");
    let (exit, seen) = asked("shop/web", "svc/shop/db:80");
    assert_eq!(exit.unwrap(), Exit::Denied);
    assert_eq!(seen, [first, of("n2", by_address)]);
}

#[test]
fn endpoints_of_a_service_that_another_program_serves_are_those_of_the_api() {
    let by_address = "why 10.0.1.5 10.0.2.6:5432/TCP";
    let (exit, seen) = asked("shop/web", "svc/shop/elsewhere:80");
    assert_eq!(exit.unwrap(), Exit::Denied);
    let first = of("n1", "why pod/shop/web svc/shop/elsewhere:80/TCP");
    assert_eq!(seen, [first, of("n1", by_address), of("n2", by_address)]);
    let (missing, _) = asked("shop/web", "svc/shop/elsewhere:443");
    assert!(missing.unwrap_err().to_string().contains("no such port"));
}

#[test]
fn the_end_that_denies_counts_where_the_other_one_cannot_be_asked() {
    let by_address = "why 10.0.3.7 10.0.2.6:5432/TCP";
    let (exit, seen) = asked("shop/lost", "shop/db:5432");
    assert_eq!(exit.unwrap(), Exit::Denied);
    assert!(seen.contains(&of("n3", by_address)), "{seen:?}");
}

#[test]
fn what_cannot_be_found_is_an_error_and_never_allowed() {
    let (missing, _) = asked("shop/nobody", "shop/db:5432");
    assert!(
        missing
            .unwrap_err()
            .to_string()
            .contains("no Pod shop/nobody")
    );
    let (families, _) = asked("fd00::1", "shop/db:5432");
    assert!(families.unwrap_err().to_string().contains("family"));
}
