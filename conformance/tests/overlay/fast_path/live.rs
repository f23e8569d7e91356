//! A cluster in which a change takes some milliseconds, and the moment of it is seen.

use std::time::Instant;

use aya::maps::{Array, Map, MapData};
use serde_json::Value;
use tweed_lab::{AgentOptions, Cluster, ClusterPod, Lab, LabError, labels, namespace_manifest};
use tweed_lab_api::{NODES, Server, Serves};

use super::maps::{self, EPOCH, MARK, pinned};
use super::scene::LIMIT;

/// Two nodes, each with an API server of its own: their agents hear of a change at once.
pub struct Live {
    servers: Vec<Server>,
    pub cluster: Cluster,
    settings: Array<MapData, maps::Settings>,
}

/// What the agent writes for the programs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    epoch: u64,
    /// Of the generation in force, with its mask.
    mark: u64,
}

impl Live {
    /// Agents with these arguments, and the fast path.
    pub fn new(args: &[&str]) -> Result<Self, LabError> {
        let mut cluster = Cluster::empty(&Lab::new()?, |options| options)?;
        let indexes = [1, 2];
        indexes.iter().try_for_each(|index| cluster.plug(*index))?;
        let nodes = indexes.map(|index| cluster[index].manifest.to_json());
        let mut servers = Vec::new();
        for index in indexes {
            let entry = cluster.entry(index)?;
            let server = Server::start(&entry.node, Serves::All, None, []).unwrap();
            server.put(NODES, nodes.clone());
            let kubeconfig = server.kubeconfig(&entry.node).unwrap();
            let options = AgentOptions::kubernetes(kubeconfig);
            let args = ["--fast-path", "on"].iter().chain(args);
            let options = args.fold(options, |all, arg| all.arg(*arg));
            entry.agent = Some(entry.node.start_agent(&options)?);
            servers.push(server);
        }
        cluster.wait_ready()?;
        let map = Map::Array(pinned(&cluster[1].node, "_settings")?);
        let settings = map.try_into().unwrap();
        let live = Self {
            servers,
            cluster,
            settings,
        };
        live.put("namespaces", &[namespace("shop")]);
        Ok(live)
    }

    /// Adds or replaces objects of a collection.
    pub fn put(&self, collection: &str, objects: &[Value]) {
        for server in &self.servers {
            server.put(collection, objects.to_vec());
        }
    }

    /// A pod of the namespace `shop`, with its name as its label `app`.
    pub fn pod(&mut self, index: u8, name: &str) -> Result<ClusterPod, LabError> {
        let (path, words) = (format!("shop/{name}"), format!("app={name}"));
        let pod = self.cluster.labelled_pod(index, &path, &words)?;
        self.put("pods", &[pod.manifest.as_ref().unwrap().to_json()]);
        Ok(pod)
    }

    /// What is written now.
    pub fn settings(&self) -> Settings {
        let value = self.settings.get(&0, 0).unwrap();
        Settings {
            epoch: value[EPOCH],
            mark: value[MARK],
        }
    }

    /// Waits for another generation, and then for the epoch that is written after it: the
    /// moment after that.
    pub fn wait_for_generation(&self, before: Settings) -> Instant {
        let start = Instant::now();
        let mut last = before;
        loop {
            let now = self.settings();
            let moment = Instant::now();
            if now.mark == before.mark {
                last = now;
            } else if now.epoch > last.epoch {
                return moment;
            }
            assert!(start.elapsed() < LIMIT, "{before:?}, {now:?}");
        }
    }
}

fn namespace(name: &str) -> Value {
    serde_json::from_str(&namespace_manifest(name, &labels(""))).unwrap()
}
