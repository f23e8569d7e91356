//! The objects as manifests.

use serde_json::{Value, json};
use tweed_lab::{Objects, labels, namespace_manifest};

use super::{ClusterPolicy, Direction, NetworkPolicy, Peer, Policies, Ports, Rule, Tier, Verdict};

impl Policies {
    /// Adds the Namespaces and policies to what is written into the node file.
    pub fn write(&self, objects: &mut Objects) {
        for (name, team) in &self.teams {
            let text = namespace_manifest(name, &labels(&format!("team={team}")));
            objects.set(&format!("namespace/{name}"), text);
        }
        for (number, policy) in &self.namespaced {
            let text = policy.to_json(*number).to_string();
            objects.set(&format!("policy/{number}"), text);
        }
        for (number, policy) in &self.cluster {
            let text = policy.to_json(*number).to_string();
            objects.set(&format!("cluster-policy/{number}"), text);
        }
    }
}

fn app_selector(app: Option<&str>) -> Value {
    match app {
        Some(app) => json!({ "matchLabels": { "app": app } }),
        None => json!({}),
    }
}

fn team_selector(team: Option<&str>) -> Value {
    match team {
        Some(team) => json!({ "matchLabels": { "team": team } }),
        None => json!({}),
    }
}

impl NetworkPolicy {
    fn to_json(&self, number: usize) -> Value {
        let mut spec = json!({ "podSelector": app_selector(self.app), "policyTypes": [] });
        let directions = [
            ("Ingress", "ingress", "from", &self.ingress),
            ("Egress", "egress", "to", &self.egress),
        ];
        for (kind, key, peers, rules) in directions {
            if let (Some(rules), Some(kinds)) = (rules, spec["policyTypes"].as_array_mut()) {
                kinds.push(json!(kind));
                let own = rules.iter().map(|rule| rule.to_json(peers));
                let bulk = (0..self.bulk).map(|number| bulk_rule(peers, number));
                spec[key] = own.chain(bulk).collect();
            }
        }
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": { "namespace": self.namespace, "name": format!("policy{number}") },
            "spec": spec,
        })
    }
}

/// A rule of those that make a policy large.
fn bulk_rule(peers: &str, number: usize) -> Value {
    let except = format!("198.18.{number}.0/24");
    // Ports side by side would be one range.
    let mut rule = json!({ "ports": [{ "protocol": "TCP", "port": 20_000 + 2 * number }] });
    rule[peers] = json!([{ "ipBlock": { "cidr": "0.0.0.0/0", "except": [except] } }]);
    rule
}

impl Rule {
    fn to_json(&self, peers: &str) -> Value {
        let mut rule = json!({});
        let peer = match &self.peer {
            Peer::Everybody => None,
            Peer::App(app) => Some(json!({ "podSelector": app_selector(Some(app)) })),
            Peer::Team(team) => Some(json!({ "namespaceSelector": team_selector(Some(team)) })),
            Peer::AppOfTeam(app, team) => Some(json!({
                "namespaceSelector": team_selector(Some(team)),
                "podSelector": app_selector(Some(app)),
            })),
            Peer::Block(block, except) => {
                let texts: Vec<String> = except.iter().map(ToString::to_string).collect();
                Some(json!({ "ipBlock": { "cidr": block.to_string(), "except": texts } }))
            }
        };
        if let Some(peer) = peer {
            rule[peers] = json!([peer]);
        }
        match self.ports {
            Ports::All => {}
            Ports::From(first) => {
                rule["ports"] = json!([{ "protocol": "UDP", "port": first, "endPort": 65535 }]);
            }
            Ports::Tcp => rule["ports"] = json!([{ "protocol": "TCP" }]),
        }
        rule
    }
}

impl ClusterPolicy {
    fn to_json(&self, number: usize) -> Value {
        let tier = match self.tier {
            Tier::Admin => "Admin",
            Tier::Baseline => "Baseline",
        };
        // The Baseline tier has no Pass: nothing comes after it.
        let action = match (self.action, self.tier) {
            (Verdict::Deny, _) => "Deny",
            (Verdict::Pass, Tier::Admin) => "Pass",
            (Verdict::Accept | Verdict::Pass, _) => "Accept",
        };
        let (key, peers) = match self.direction {
            Direction::Ingress => ("ingress", "from"),
            Direction::Egress => ("egress", "to"),
        };
        let mut rule = json!({ "action": action });
        rule[peers] = json!([{ "namespaces": team_selector(self.team) }]);
        let mut spec = json!({
            "tier": tier,
            "priority": number,
            "subject": { "pods": { "namespaceSelector": {},
                                   "podSelector": app_selector(Some(self.app)) } },
        });
        spec[key] = json!([rule]);
        json!({
            "apiVersion": "policy.networking.k8s.io/v1alpha2",
            "kind": "ClusterNetworkPolicy",
            "metadata": { "name": format!("policy{number}") },
            "spec": spec,
        })
    }
}
