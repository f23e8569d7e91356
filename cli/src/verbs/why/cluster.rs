//! Asking the nodes of both ends. The API says where a named pod is; from there on each answer
//! says which node decides what it does not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tweed_component::explain::{End, Step, protocol_number};

use super::{Report, Why};
use crate::agents::Agents;
use crate::answered::Answered;
use crate::verb;
use crate::verbs::places::{Destination, Place};

/// Where an end is.
#[derive(Debug, Default)]
struct Located {
    addresses: Vec<IpAddr>,
    /// The node whose agent decides about it; none of what is no pod.
    node: Option<String>,
}

/// What the nodes of both ends answer.
pub(super) fn ask(why: &Why, agents: &dyn Agents) -> Result<Vec<Answered<Report>>> {
    let from = locate(agents, &why.from)?;
    let to = locate(agents, &why.to.place)?;
    let mut nodes: BTreeSet<String> = from.node.iter().chain(&to.node).cloned().collect();
    if nodes.is_empty() {
        // What no pod is part of, all nodes know alike.
        nodes.insert(any_node(agents)?);
    }
    let mut answers = Answers::default();
    for (source, destination) in pairs(why, &from, &to)? {
        for node in &nodes {
            answers.ask(agents, node, source.clone(), destination.clone())?;
        }
    }
    if let Place::Service(namespace, name) = &why.to.place
        && answers.0.values().all(Result::is_err)
    {
        // Another program serves it, mostly.
        let endpoints = endpoints(agents, namespace, name, why.to.service)?;
        if let Some((node, source)) = nodes.first().zip(from.addresses.first()) {
            answers.follow(agents, node, *source, &endpoints)?;
        }
    }
    // The other ends, of a Service many.
    for (node, source, destination) in answers.open() {
        answers.ask(agents, &node, source, destination)?;
    }
    Ok(answers.0.into_iter().collect())
}

/// What each node has answered so far.
#[derive(Default)]
struct Answers(BTreeMap<String, Result<Report, crate::answered::Unanswered>>);

impl Answers {
    fn ask(&mut self, agents: &dyn Agents, node: &str, from: Place, to: Destination) -> Result<()> {
        let asked = Why {
            from,
            to,
            exit_code: false,
        };
        let nodes = [node.to_owned()];
        for (node, answer) in verb::ask(&asked, agents, Some(&nodes))? {
            let known = self.0.entry(node).or_insert_with(|| Ok(Report::default()));
            match (known, answer) {
                (Ok(known), Ok(more)) => {
                    known.service.extend(more.service);
                    known.answers.extend(more.answers);
                }
                (known, Err(why)) => *known = Err(why),
                (Err(_), Ok(_)) => {}
            }
        }
        Ok(())
    }

    /// Asks a node, which has answered nothing of a Service, about its endpoints.
    fn follow(
        &mut self,
        agents: &dyn Agents,
        node: &str,
        source: IpAddr,
        endpoints: &[(SocketAddr, u8)],
    ) -> Result<()> {
        let same = |(to, _): &&(SocketAddr, u8)| to.is_ipv4() == source.is_ipv4();
        let asked: Vec<_> = endpoints.iter().filter(same).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let refused = self.0.remove(node);
        for (to, protocol) in asked {
            let place = Place::End(End::Address(to.ip()));
            let service = Some((*protocol, to.port()));
            let from = Place::End(End::Address(source));
            self.ask(agents, node, from, Destination { place, service })?;
        }
        if let (Some(Err(why)), Some(Ok(report))) = (refused, self.0.get_mut(node)) {
            let note = format!("the endpoints are those that the API names: {why}");
            report.service = vec![Step::note(note)];
        }
        Ok(())
    }

    /// The flows that a node decides one end of which was not asked.
    fn open(&self) -> Vec<(String, Place, Destination)> {
        let reports = self.0.values().flatten();
        let flows = reports.flat_map(|report| report.answers.iter().flat_map(|one| &one.flows));
        let open: BTreeSet<_> = flows
            .flat_map(|flow| {
                let ends = (
                    flow.from,
                    flow.to,
                    flow.port.map(|port| (flow.protocol, port)),
                );
                flow.elsewhere()
                    .map(move |(_, node)| (node.to_owned(), ends))
            })
            .filter(|(node, _)| !self.0.contains_key(node))
            .collect();
        let typed = |(node, (from, to, service))| {
            let place = Place::End(End::Address(to));
            let to = Destination { place, service };
            (node, Place::End(End::Address(from)), to)
        };
        open.into_iter().map(typed).collect()
    }
}

/// The endpoints of a port of a Service, with its protocol, as the API names them.
fn endpoints(
    agents: &dyn Agents,
    namespace: &str,
    name: &str,
    port: Option<(u8, u16)>,
) -> Result<Vec<(SocketAddr, u8)>> {
    let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
    let found = agents.get(&path)?;
    let service = found.with_context(|| format!("there is no Service {namespace}/{name}"))?;
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let protocol = |port: &Value| protocol_number(port["protocol"].as_str().unwrap_or("TCP"));
    let is_meant = |one: &&Value| {
        port.is_some_and(|(of, port)| one["port"] == port && protocol(one) == Some(of))
    };
    let Some((meant, (of, _))) = ports.into_iter().find(is_meant).zip(port) else {
        bail!("the Service {namespace}/{name} has no such port");
    };
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
         ?labelSelector=kubernetes.io/service-name%3D{name}"
    );
    let list = agents.get(&path)?.unwrap_or_default();
    let slices = list["items"].as_array().into_iter().flatten();
    let found = slices.flat_map(|slice| {
        let ports = slice["ports"].as_array().into_iter().flatten();
        let name = |port: &Value| port["name"].as_str().unwrap_or_default().to_owned();
        let same = ports.filter(|one| name(one) == name(meant) && protocol(one) == Some(of));
        let numbers = same.filter_map(|one| u16::try_from(one["port"].as_u64()?).ok());
        let at: Vec<u16> = numbers.collect();
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let ready = endpoints.filter(|one| one["conditions"]["ready"].as_bool() != Some(false));
        let addresses = ready.flat_map(|one| one["addresses"].as_array().into_iter().flatten());
        addresses.filter_map(address).flat_map(move |ip| {
            at.clone()
                .into_iter()
                .map(move |port| (SocketAddr::new(ip, port), of))
        })
    });
    Ok(found.collect())
}

/// What the first node is asked: of pods their addresses, which every node knows, in each
/// family that both ends have.
fn pairs(why: &Why, from: &Located, to: &Located) -> Result<Vec<(Place, Destination)>> {
    // The node of a pod knows it by its name.
    let by_name = from.node.is_some().then(|| why.from.clone());
    let source = |address: IpAddr| Place::End(End::Address(address));
    if matches!(why.to.place, Place::Service(..)) {
        let address = from.addresses.first().copied().map(source);
        let from = by_name.or(address);
        return Ok(from
            .map(|from| (from, why.to.clone()))
            .into_iter()
            .collect());
    }
    let common = to.addresses.iter().filter_map(|to| {
        let same = |from: &&IpAddr| from.is_ipv4() == to.is_ipv4();
        let address = from.addresses.iter().find(same)?;
        Some((source(*address), why.to.at(*to)))
    });
    let pairs: Vec<_> = common.collect();
    if pairs.is_empty() {
        bail!("the ends have no address family in common, or one has no address yet");
    }
    Ok(pairs)
}

fn locate(agents: &dyn Agents, place: &Place) -> Result<Located> {
    match place {
        Place::End(End::Pod { namespace, name }) => {
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            let pod = agents.get(&path)?;
            Ok(of_pod(&pod.with_context(|| {
                format!("there is no Pod {namespace}/{name}")
            })?))
        }
        Place::End(End::Node(name)) => {
            let found = agents.get(&format!("/api/v1/nodes/{name}"))?;
            let node = found.with_context(|| format!("there is no Node {name}"))?;
            let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
            let internal = addresses.filter(|one| one["type"] == "InternalIP");
            Ok(Located {
                addresses: internal
                    .filter_map(|one| address(&one["address"]))
                    .collect(),
                node: None,
            })
        }
        Place::End(End::Address(address)) => {
            let path = format!("/api/v1/pods?fieldSelector=status.podIP%3D{address}");
            let list = agents.get(&path)?.unwrap_or_default();
            let pods = list["items"].as_array().into_iter().flatten();
            let node = pods
                .filter(|pod| is_running(pod))
                .find_map(|pod| of_pod(pod).node);
            Ok(Located {
                addresses: vec![*address],
                node,
            })
        }
        Place::Service(..) => Ok(Located::default()),
        Place::Container(id) => bail!(
            "container/{id} is known on its node only: ask there with --run-dir, or name its address"
        ),
    }
}

fn of_pod(pod: &Value) -> Located {
    let addresses = pod["status"]["podIPs"].as_array().into_iter().flatten();
    let is_on_host = pod["spec"]["hostNetwork"].as_bool() == Some(true);
    let node = pod["spec"]["nodeName"].as_str().filter(|_| !is_on_host);
    Located {
        addresses: addresses.filter_map(|one| address(&one["ip"])).collect(),
        node: node.map(str::to_owned),
    }
}

/// Another pod may have the address of one that has ended.
fn is_running(pod: &Value) -> bool {
    !matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

fn address(value: &Value) -> Option<IpAddr> {
    value.as_str()?.parse().ok()
}

fn any_node(agents: &dyn Agents) -> Result<String> {
    let nodes = agents.get("/api/v1/nodes?limit=1")?.unwrap_or_default();
    let name = nodes["items"][0]["metadata"]["name"].as_str();
    Ok(name.context("the cluster has no Node")?.to_owned())
}

#[cfg(test)]
mod tests;
