//! The judge: a program around the evaluators of kube-network-policies. It and what is
//! known to differ stand here.
//!
//! | what the judge would say | what is right | so |
//! |---|---|---|
//! | a pod that a NetworkPolicy of one direction selects is not subject to Baseline policies in the other direction (`getNetworkPoliciesForPod` does not look at `policyTypes`) | in that direction no NetworkPolicy selects it, and the Baseline tier decides | each direction is judged in a case of its own, in which no policy has rules or types of the other |
//! | NetworkPolicies hold between a pod and itself | a pod reaches itself through a Service whatever they say, and ClusterNetworkPolicies hold (network-policy-api#343) | packets from an address to itself are judged in cases of their own, in which a NetworkPolicy allows everything |
//! | a packet from the first address of a Node's pod CIDR is nobody's | the Node itself sends with it through the overlay, and it counts as each of the Node's addresses and not as itself | at its destination it is allowed if it is with any of these as its source: no rule of ingress denies an address. A block that excepts one of the Node's addresses excepts all of these there |
//! | an address that only a pod has that has finished is that pod's | it is nobody's: a pod that comes next gets it | such pods have no address in the cases of the judge |

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use tweed_core::object::cluster_network_policy::ClusterNetworkPolicy;
use tweed_core::object::network_policy::{NetworkPolicy, Rule};
use tweed_core::object::pod::Pod;

use super::case::{Case, Packet};
use super::manifest;

/// Whether a packet is allowed, at each of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdicts {
    /// What may leave the source, if that is a pod.
    pub egress: bool,
    /// What the destination may receive, if that is a pod.
    pub ingress: bool,
}

/// The running program.
pub struct Judge {
    program: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Judge {
    /// Starts it.
    pub fn start() -> Self {
        let path = path();
        let mut program = Command::new(&path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| {
                panic!(
                    "{}: {error}: run `conformance/setup.sh test`",
                    path.display()
                )
            });
        Self {
            input: program.stdin.take().unwrap(),
            output: BufReader::new(program.stdout.take().unwrap()),
            program,
        }
    }

    /// Judges all packets of a case, in their order.
    pub fn verdicts(&mut self, case: &Case) -> Vec<Verdicts> {
        let [egress, ingress] = [Half::Egress, Half::Ingress].map(|half| self.judge(case, half));
        let both = egress.into_iter().zip(ingress);
        both.map(|(egress, ingress)| Verdicts { egress, ingress })
            .collect()
    }

    fn judge(&mut self, case: &Case, half: Half) -> Vec<bool> {
        let packets = case.packets.iter().enumerate();
        let questions = packets.flat_map(|(index, packet)| {
            let of_node = match half {
                Half::Ingress => case.same_node(packet.source),
                Half::Egress => None,
            };
            let sources = of_node.unwrap_or_else(|| vec![packet.source]);
            let of = move |source| {
                (
                    index,
                    Packet {
                        source,
                        ..packet.clone()
                    },
                )
            };
            sources.into_iter().map(of)
        });
        let (to_itself, others): (Vec<_>, Vec<_>) = questions.partition(|(_, one)| is_own(one));
        let is_of_overlay = |(index, _): &(usize, Packet)| {
            let source = case.packets[*index].source;
            half == Half::Ingress && case.same_node(source).is_some()
        };
        let (overlay, others): (Vec<_>, Vec<_>) = others.into_iter().partition(is_of_overlay);
        let excepted = case.excepting_whole_nodes();
        let mut verdicts = vec![false; case.packets.len()];
        for (questions, case, open) in [
            (others, case, false),
            (overlay, &excepted, false),
            (to_itself, case, true),
        ] {
            let (indices, packets): (Vec<usize>, Vec<Packet>) = questions.into_iter().unzip();
            let answers = self.ask(&half.of(case, open), &packets);
            assert_eq!(answers.len(), indices.len(), "a verdict for each packet");
            for (index, allowed) in indices.into_iter().zip(answers) {
                verdicts[index] |= allowed;
            }
        }
        verdicts
    }

    fn ask(&mut self, cluster: &Value, packets: &[Packet]) -> Vec<bool> {
        let mut question = cluster.clone();
        question["packets"] = packets.iter().map(manifest::packet).collect();
        writeln!(self.input, "{question}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("the judge says {line:?} to {question}"));
        let listed = answer["verdicts"].as_array();
        let verdicts = listed.unwrap_or_else(|| panic!("the judge says {answer} to {question}"));
        verdicts
            .iter()
            .map(|verdict| verdict.as_bool().unwrap())
            .collect()
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Whether a packet goes to where it comes from.
fn is_own(packet: &Packet) -> bool {
    packet.source == packet.destination
}

fn path() -> PathBuf {
    // This program is in target/<profile>/deps.
    let own = env::current_exe().unwrap();
    let tools = own.ancestors().nth(3).unwrap().join("tools/bin");
    let folder = env::var_os("TWEED_TOOLS_DIR").map_or(tools, PathBuf::from);
    folder.join("policy-judge")
}

/// A direction whose policies are judged while there are none of the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Ingress,
    Egress,
}

impl Half {
    /// The cluster of a case as manifests. With `open`, each NetworkPolicy allows
    /// everything to the pods that it selects.
    fn of(self, case: &Case, open: bool) -> Value {
        let policies = case.policies.iter();
        let cluster_policies = case.cluster_policies.iter();
        manifest::cluster(&Case {
            pods: case.pods.iter().map(without_address_if_finished).collect(),
            policies: policies.filter_map(|one| self.policy(one, open)).collect(),
            cluster_policies: cluster_policies
                .map(|one| self.cluster_policy(one))
                .collect(),
            packets: Vec::new(),
            ..case.clone()
        })
    }

    fn policy(self, policy: &NetworkPolicy, open: bool) -> Option<NetworkPolicy> {
        let name = match self {
            Self::Ingress => "Ingress",
            Self::Egress => "Egress",
        };
        let is_of_it = match policy.policy_types.as_slice() {
            [] => self == Self::Ingress || !policy.egress.is_empty(),
            types => types.iter().any(|one| one == name),
        };
        let mut half = policy.clone();
        half.policy_types = vec![name.to_owned()];
        let (kept, left_out) = match self {
            Self::Ingress => (&mut half.ingress, &mut half.egress),
            Self::Egress => (&mut half.egress, &mut half.ingress),
        };
        left_out.clear();
        if open {
            *kept = vec![Rule::default()];
        }
        is_of_it.then_some(half)
    }

    fn cluster_policy(self, policy: &ClusterNetworkPolicy) -> ClusterNetworkPolicy {
        let mut half = policy.clone();
        match self {
            Self::Ingress => half.egress.clear(),
            Self::Egress => half.ingress.clear(),
        }
        half
    }
}

fn without_address_if_finished(pod: &Pod) -> Pod {
    let mut pod = pod.clone();
    if pod.finished {
        pod.addresses.clear();
    }
    pod
}
