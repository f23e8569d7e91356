//! A server and two clients on two nodes, and what the clients reach.

use std::time::Duration;

use tweed_lab::{Cluster, ClusterPod, LabError, wait_until};

use super::policy;
use super::traffic::Listener;

/// Maximum time until very many policies have had their turn.
const TURNS: Duration = Duration::from_secs(60);

/// A server on node 1, a client beside it and one on node 2.
pub struct Scene {
    pub cluster: Cluster,
    pub server: ClusterPod,
    pub near: ClusterPod,
    pub far: ClusterPod,
    /// The server's ports 7001 to 7003.
    pub ports: Vec<Listener>,
    /// A pod on each node that shows whether its agent has read the file.
    flags: [(ClusterPod, Listener); 2],
    /// How many policies [`Scene::with`] has put into the file.
    policies: usize,
}

impl Scene {
    pub fn new() -> Result<Self, LabError> {
        Self::in_cluster(Cluster::start(2)?)
    }

    /// In a cluster of two nodes.
    pub fn in_cluster(mut cluster: Cluster) -> Result<Self, LabError> {
        let server = cluster.labelled_pod(1, "shop/server", "app=server")?;
        let near = cluster.labelled_pod(1, "shop/near", "app=near tier=front")?;
        let far = cluster.labelled_pod(2, "other/far", "app=far")?;
        let ports = (7001..=7003)
            .map(|port| Listener::open(&cluster, 1, &server, port))
            .collect::<Result<_, _>>()?;
        let mut flag = |node: u8| -> Result<_, LabError> {
            let pod = cluster.labelled_pod(node, &format!("flags/flag{node}"), "")?;
            let listener = Listener::open(&cluster, node, &pod, 7001)?;
            Ok((pod, listener))
        };
        let flags = [flag(1)?, flag(2)?];
        let mut scene = Self {
            cluster,
            server,
            near,
            far,
            ports,
            flags,
            policies: 0,
        };
        scene.list_all()?;
        Ok(scene)
    }

    /// Has both agents list all pods and namespaces, and go on to watch them. A policy that
    /// is the first to need them is not in force until they are listed, and none of the
    /// tests could tell when that is.
    fn list_all(&mut self) -> Result<(), LabError> {
        let to_all = "{podSelector: {}, policyTypes: [Egress], egress: \
                      [{to: [{namespaceSelector: {}, podSelector: {}}]}]}";
        let from_none = "{podSelector: {}, policyTypes: [Ingress], ingress: [{from: \
                         [{namespaceSelector: {}, podSelector: {matchLabels: {app: none}}}]}]}";
        let objects = self.cluster.objects();
        objects.set("watched", policy("flags", "watched", to_all));
        self.cluster
            .apply("listed", policy("flags", "listed", from_none))?;
        self.wait_for_flags(false)?;
        self.cluster.delete("listed")?;
        self.wait_for_flags(true)
    }

    fn wait_for_flags(&self, arrives: bool) -> Result<(), LabError> {
        let [(first, one), (second, two)] = &self.flags;
        one.wait(second.netns(), arrives)?;
        two.wait(first.netns(), arrives)
    }

    /// Replaces all policies by these, and waits until they are in force.
    pub fn with(&mut self, policies: &[String]) -> Result<(), LabError> {
        for number in 0..self.policies {
            self.cluster.objects().remove(&format!("policy{number}"));
        }
        for (number, text) in policies.iter().enumerate() {
            let key = format!("policy{number}");
            self.cluster.objects().set(&key, text.as_str());
        }
        self.policies = policies.len();
        self.settle()?;
        if self.take_turns()? {
            self.settle()?;
        }
        Ok(())
    }

    /// One plan takes up only some of very many policies, and the flag's before the rest. Waits
    /// until none is left, and says whether there were any.
    fn take_turns(&self) -> Result<bool, LabError> {
        let mut were_any = false;
        let agents = self.cluster.nodes().values();
        for agent in agents.filter_map(|node| node.agent.as_ref()) {
            wait_until("no policy waits for its turn", TURNS, || {
                match agent.metric("tweed_policies_queued") {
                    Ok(Some(0.0)) => Ok(()),
                    Ok(queued) => {
                        were_any = true;
                        Err(format!("{queued:?}"))
                    }
                    Err(error) => Err(error.chain()),
                }
            })?;
        }
        Ok(were_any)
    }

    /// Waits until both agents have read the policies of the file: one of the namespace
    /// `flags` changes with them. Each kind of object is read on its own.
    pub fn settle(&mut self) -> Result<(), LabError> {
        let spec = "{podSelector: {}, policyTypes: [Ingress]}";
        let text = policy("flags", "flag", spec);
        let is_up = self.cluster.objects().contains("flag");
        if is_up {
            self.cluster.delete("flag")?
        } else {
            self.cluster.apply("flag", text)?
        }
        self.wait_for_flags(is_up)
    }

    /// Which of the ports 7001 to 7003 hear a client.
    fn heard_from(&self, client: &ClusterPod) -> Result<Vec<u16>, LabError> {
        let mut heard = Vec::new();
        for listener in &self.ports {
            if listener.hears(client.netns())? {
                heard.push(listener.at().port());
            }
        }
        Ok(heard)
    }

    /// Waits until this is what the near and the far client reach: a Pod or a Namespace
    /// has changed.
    pub fn becomes(&self, expected: &[Vec<u16>; 2]) -> Result<(), LabError> {
        let what = format!("the clients to reach {expected:?}");
        wait_until(&what, Duration::from_secs(30), || match self.reached() {
            Ok(reached) if reached == *expected => Ok(()),
            Ok(reached) => Err(format!("{reached:?}")),
            Err(error) => Err(error.chain()),
        })
    }

    /// What the near and the far client reach.
    pub fn reached(&self) -> Result<[Vec<u16>; 2], LabError> {
        Ok([self.heard_from(&self.near)?, self.heard_from(&self.far)?])
    }
}

/// All ports of the server.
pub const ALL: [u16; 3] = [7001, 7002, 7003];
/// None of them.
pub const NONE: [u16; 0] = [];

/// A policy of the server's ingress with these rules.
pub fn ingress(name: &str, rules: &str) -> String {
    let spec = format!(
        "{{podSelector: {{matchLabels: {{app: server}}}}, policyTypes: [Ingress], ingress: {rules}}}"
    );
    policy("shop", name, &spec)
}
