//! Policies and labels change, what the kernel holds of them is damaged, and pods come
//! while nobody enforces policies for them.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tweed_lab::{LabError, Netns, receive};

use super::{Kind, Run};
use crate::policy::{
    APPS, CLUSTER_POLICIES, ClusterPolicy, End, NAMESPACES, NetworkPolicy, POLICIES, TEAMS,
    may_receive,
};
use crate::random::pick;
use crate::world::{Attached, ChaosPod, Target, World};

/// The port at which the first packets of a new pod would be seen.
const LEAK_PORT: u16 = 7790;

pub const KINDS: &[Kind] = &[
    Kind {
        name: "policy added or changed",
        weight: 14,
        run: Run::Code(set_policy),
    },
    Kind {
        name: "policy removed",
        weight: 6,
        run: Run::Code(remove_policy),
    },
    Kind {
        name: "cluster policy added or changed",
        weight: 5,
        run: Run::Code(set_cluster_policy),
    },
    Kind {
        name: "cluster policy removed",
        weight: 4,
        run: Run::Code(remove_cluster_policy),
    },
    Kind {
        name: "all policies removed",
        weight: 2,
        run: Run::Code(remove_all),
    },
    Kind {
        name: "labels of a pod changed",
        weight: 6,
        run: Run::Code(label_pod),
    },
    Kind {
        name: "labels of a namespace changed",
        weight: 4,
        run: Run::Code(label_namespace),
    },
    Kind {
        name: "sets, maps and chains of policy damaged",
        weight: 14,
        run: Run::Code(damage),
    },
    Kind {
        name: "the agent's socket removed or replaced",
        weight: 4,
        run: Run::Code(replace_socket),
    },
    Kind {
        name: "ADD beside a killed agent",
        weight: 8,
        run: Run::Code(add_without_agent),
    },
];

/// What is done to the objects of policy, a line each; one that fits no object of the
/// moment fails. A chain or a map goes with the rules that lead to it.
pub const DAMAGES: &[&str] = &[
    "flush set inet tweed-policy policy_judged4",
    "flush set inet tweed-policy policy_judged6",
    "flush set inet tweed-policy policy_in4",
    "flush set inet tweed-policy policy_out4",
    "flush map inet tweed-policy policy_ids4",
    "flush map inet tweed-policy policy_nets4",
    "flush map inet tweed-policy policy_pairs_in4",
    "flush map inet tweed-policy policy_pairs_out4",
    "flush set inet tweed-policy policy_open",
    "flush set inet tweed-policy policy_exact",
    "flush set inet tweed-policy policy_ranges",
    "flush map inet tweed-policy policy_range_profiles",
    "flush map inet tweed-policy policy_entry",
    "flush chain inet tweed-policy policy_judge",
    "flush chain inet tweed-policy policy_judge4",
    "flush chain inet tweed-policy policy_to4",
    "flush chain inet tweed-policy policy_input",
    "flush chain inet tweed-policy forward",
    "insert rule inet tweed-policy policy_judge accept",
    "insert rule inet tweed-policy policy_judge drop",
    "insert rule inet tweed-policy policy_from4 accept",
    "add element inet tweed-policy policy_judged4 { 10.244.1.250 }",
    "add element inet tweed-policy policy_open { 0 }",
    "delete element inet tweed-policy policy_entry { ipv4 : goto policy_1 }",
    "delete element inet tweed-policy policy_entry { ipv4 : goto policy_2 }",
    "flush map inet tweed-policy policy_entry ; add element inet tweed-policy policy_entry { ipv4 : goto policy_30 }",
    "flush chain inet tweed-policy policy_reply6 ; delete chain inet tweed-policy policy_to_reply6",
    "flush chain inet tweed-policy policy_to6 ; flush chain inet tweed-policy policy_to_reply6 ; \
     flush chain inet tweed-policy policy_from6 ; flush chain inet tweed-policy policy_from_reply6 ; \
     delete map inet tweed-policy policy_ids6",
    "delete table inet tweed-policy",
];

fn set_policy(world: &mut World, target: Target) -> Result<(), LabError> {
    let slot = pick(target.number, POLICIES);
    let policy = NetworkPolicy::drawn(target.number);
    world.policies.namespaced.insert(slot, policy);
    world.publish()
}

fn remove_policy(world: &mut World, target: Target) -> Result<(), LabError> {
    let slot = pick(target.number, POLICIES);
    world.policies.namespaced.remove(&slot);
    world.publish()
}

fn set_cluster_policy(world: &mut World, target: Target) -> Result<(), LabError> {
    let slot = pick(target.number, CLUSTER_POLICIES);
    let policy = ClusterPolicy::drawn(target.number);
    world.policies.cluster.insert(slot, policy);
    world.publish()
}

fn remove_cluster_policy(world: &mut World, target: Target) -> Result<(), LabError> {
    let slot = pick(target.number, CLUSTER_POLICIES);
    world.policies.cluster.remove(&slot);
    world.publish()
}

fn remove_all(world: &mut World, _: Target) -> Result<(), LabError> {
    world.policies.namespaced.clear();
    world.policies.cluster.clear();
    world.publish()
}

fn label_pod(world: &mut World, target: Target) -> Result<(), LabError> {
    let pod = pick(target.number, world.pods.len());
    if let Some(pod) = world.pods.get_mut(pod) {
        pod.app = APPS[pick(target.number >> 16, APPS.len())];
    }
    world.publish()
}

fn label_namespace(world: &mut World, target: Target) -> Result<(), LabError> {
    let namespace = NAMESPACES[pick(target.number, NAMESPACES.len())];
    let team = TEAMS[pick(target.number >> 16, TEAMS.len())];
    world.policies.teams.insert(namespace, team);
    world.publish()
}

fn damage(world: &mut World, target: Target) -> Result<(), LabError> {
    super::damage(world, target, DAMAGES);
    Ok(())
}

/// Nobody answers on it, or something else is there. The agent need not mend it while
/// it runs: an ADD then goes on without an answer.
fn replace_socket(world: &mut World, target: Target) -> Result<(), LabError> {
    let path = world.node(target.node)?.node.run_dir().join("agent.sock");
    // It may be missing already: there is one only while a policy exists.
    let _ = fs::remove_file(&path);
    let what = ["nothing", "garbage", "a folder", "a link to nowhere"];
    let choice = pick(target.number, what.len());
    let _ = match choice {
        1 => fs::write(&path, "garbage\n"),
        2 => fs::create_dir(&path),
        3 => symlink("/nowhere", &path),
        _ => Ok(()),
    };
    world.note(what[choice]);
    world.undo_later(move |_| {
        let _ = fs::remove_dir(&path);
        Ok(())
    });
    Ok(())
}

/// A new pod whose agent is dead sends before, during and after its ADD: while any
/// policy exists nothing of it may arrive. That holds for a node that was whole and is
/// not damaged otherwise, so only the first action of a burst is checked.
fn add_without_agent(world: &mut World, target: Target) -> Result<(), LabError> {
    let is_checked = world.is_untouched && world.policies.any();
    if let Some(agent) = world.node(target.node)?.agent.take() {
        agent.kill9()?;
    }
    if !world.has_room() {
        return Ok(());
    }
    world.create_pod(target.node)?;
    let new = world.pods.len() - 1;
    let Some((receiver, at)) = receiver(world, new)? else {
        return Ok(());
    };
    let Ok(call) = world.call("ADD", new) else {
        return Ok(());
    };
    let stop = AtomicBool::new(false);
    let netns = Netns::existing(world.cluster.lab(), &world.pods[new].name);
    let sender = netns.enter(|| UdpSocket::bind(("0.0.0.0", 0)));
    let Ok(Ok(sender)) = sender else {
        return Ok(());
    };
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                // Without an address there is no route yet.
                let _ = sender.send_to(b"leak", at);
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let output = world.run(&call, target.node);
        std::thread::sleep(Duration::from_millis(50));
        stop.store(true, Ordering::Release);
        output
    });
    let attached = output.and_then(|output| Attached::read(&output, &call.config));
    let is_attached = attached.is_ok();
    world.pods[new].attached = attached.ok();
    let leaked = leaked(&receiver);
    world.note(&format!("checked: {}", is_checked && is_attached));
    if is_checked && leaked {
        let name = world.pods[new].name.clone();
        world.findings.push(format!(
            "{name}, for which no agent has enforced policies, reaches {at}"
        ));
    }
    Ok(())
}

/// A socket in a pod of another node that may receive what the new pod would send, and its
/// address.
fn receiver(world: &World, new: usize) -> Result<Option<(UdpSocket, SocketAddr)>, LabError> {
    let end = |pod: &ChaosPod, address| End::Pod {
        node: pod.node,
        namespace: pod.namespace,
        app: pod.app,
        address,
    };
    let new = &world.pods[new];
    // The address that it will get is not known: no block has this one.
    let from = end(new, Ipv4Addr::UNSPECIFIED.into());
    let mut others = world.pods.iter().filter(|pod| pod.node != new.node);
    let found = others.find_map(|pod| {
        let attached = pod.attached.as_ref()?;
        let address = *attached.addresses.iter().find(|ip| ip.is_ipv4())?;
        let open = may_receive(&world.policies, end(pod, address), from, LEAK_PORT);
        open.then(|| (pod.pod.netns(), SocketAddr::new(address, LEAK_PORT)))
    });
    let Some((netns, at)) = found else {
        return Ok(None);
    };
    let socket = netns.enter(|| UdpSocket::bind(("0.0.0.0", LEAK_PORT)))?;
    // Another action may have taken the address away.
    Ok(socket.ok().map(|socket| (socket, at)))
}

/// Whether anything has arrived.
fn leaked(receiver: &UdpSocket) -> bool {
    let limited = receiver.set_read_timeout(Some(Duration::from_millis(50)));
    limited.is_ok() && receive(receiver, &mut [0; 16]).is_ok()
}
