//! Objects of tweed in the kernel are deleted, altered, duplicated or hidden.

use nix::sys::signal::Signal;
use tweed_lab::{Agent, LabError};

use super::{Kind, Run, lines};
use crate::random::pick;
use crate::world::{Target, World};

/// Hides the VXLAN device.
const RENAME: &str = "ip link set tweed.1 name hidden0";
/// What the agent says to do with a hidden device that it does not know as tweed's.
pub const REMOVE_HIDDEN: &str = "ip link del hidden0";

macro_rules! lines {
    ($($name:literal: $($line:expr),+;)*) => {
        &[$(Kind { name: $name, weight: 2, run: Run::Lines(&[$($line),+]) }),*]
    };
}

/// What the agent mends within seconds: each is lines for a node.
pub const MENDED: &[Kind] = lines! {
    "VXLAN device deleted": "ip link del tweed.1";
    "VXLAN device down": "ip link set tweed.1 down";
    "VXLAN device with another MAC": "ip link set tweed.1 address 02:00:00:00:00:99";
    "VXLAN device with another MTU": "ip link set tweed.1 mtu 1280";
    "VXLAN device renamed": RENAME;
    "VXLAN device in another group": "ip link set tweed.1 group 116";
    "VXLAN device learns": "ip link del tweed.1",
        "ip link add tweed.1 type vxlan id 1 dstport 8472 learning local {address}";
    "VXLAN device with another port": "ip link del tweed.1",
        "ip link add tweed.1 type vxlan id 1 dstport 4789 nolearning local {address}";
    "VXLAN device with another local address": "ip link del tweed.1",
        "ip link add tweed.1 type vxlan id 1 dstport 8472 nolearning local 192.0.2.200";
    "VXLAN device's addresses deleted": "ip addr flush dev tweed.1 scope global";
    "VXLAN device with one more address": "ip addr add 10.244.99.9/32 dev tweed.1";
    "VXLAN device with an address's twin": "ip addr add {net4}/24 dev tweed.1";
    "route to a node deleted": "ip route del {far.cidr4}";
    "route to a node deleted, IPv6": "ip -6 route del {far.cidr6}";
    "route to a node leads elsewhere":
        "ip route replace {far.cidr4} via 192.0.2.1 proto 116";
    "route to a node twice": "ip route add {far.cidr4} via 192.0.2.1 metric 7 proto 116";
    "one more route of tweed's": "ip route add 10.99.0.0/24 via 192.0.2.1 proto 116";
    "one more route of tweed's, IPv6": "ip -6 route add unreachable fd99::/64 proto 116";
    "all routes of tweed's deleted": "ip route flush proto 116", "ip -6 route flush proto 116";
    "unreachable route deleted": "ip route del unreachable {cidr4} metric 4294967295";
    "FDB entry deleted": "bridge fdb del {far.mac} dev tweed.1";
    "FDB entry leads elsewhere":
        "bridge fdb replace {far.mac} dev tweed.1 dst 192.0.2.99 self permanent";
    "one more FDB entry":
        "bridge fdb add 02:00:00:00:00:99 dev tweed.1 dst 192.0.2.99 self permanent";
    "FDB entry for everybody":
        "bridge fdb append 00:00:00:00:00:00 dev tweed.1 dst 192.0.2.99 self permanent";
    "neighbour deleted": "ip neigh del {far.net4} dev tweed.1";
    "neighbour deleted, IPv6": "ip neigh del {far.net6} dev tweed.1";
    "neighbour with another MAC":
        "ip neigh replace {far.net4} lladdr 02:00:00:00:00:99 dev tweed.1 nud permanent";
    "neighbour no longer permanent":
        "ip neigh replace {far.net4} lladdr 02:00:00:00:00:99 dev tweed.1 nud stale";
    "one more neighbour":
        "ip neigh add 10.99.0.0 lladdr 02:00:00:00:00:99 dev tweed.1 nud permanent";
    "neighbours flushed": "ip neigh flush all nud permanent dev tweed.1";
    "pod's route deleted": "ip route del {pod4}";
    "pod's route deleted, IPv6": "ip -6 route del {pod6}";
    "pod's route without its source": "ip route replace {pod4} dev {link} scope link proto 116";
    "pod's route behind another": "ip route prepend {pod4} via 192.0.2.1 proto 116";
    "pod's neighbour deleted": "ip neigh del {pod4} dev {link}";
    "pod's neighbour with another MAC":
        "ip neigh replace {pod6} lladdr 02:00:00:00:00:99 dev {link} nud permanent";
    "pod's link down": "ip link set {link} down";
    "pod's link with another MTU": "ip link set {link} mtu 1290";
    "pod's link with another MAC": "ip link set {link} address 02:00:00:00:00:98";
    "pod's link in no group": "ip link set {link} group default";
    "pod's link among the leaving": "ip link set {link} group 117";
    "pod's link in no group, and its route deleted":
        "ip link set {link} group default", "ip route del {pod4}";
    "pod's link takes router advertisements":
        "sysctl ipv6/conf/{link}/accept_ra=1", "sysctl ipv6/conf/{link}/autoconf=1";
    "pod's link sends redirects": "sysctl ipv4/conf/{link}/send_redirects=1";
    "pod's link takes redirects": "sysctl ipv4/conf/{link}/accept_redirects=1";
    "pod's link does not forward": "sysctl ipv4/conf/{link}/forwarding=0";
    "forwarding off": "sysctl ipv4/ip_forward=0";
    "forwarding off, IPv6": "sysctl ipv6/conf/all/forwarding=0";
    "table deleted": "nft delete table inet tweed";
    "table emptied": "nft flush table inet tweed";
    "ruleset flushed but for others'": "nft delete table inet tweed", "ip link del tweed.1";
    "chain emptied": "nft flush chain inet tweed prerouting_raw";
    "rule added": "nft insert rule inet tweed forward drop";
    "chain added": "nft add chain inet tweed hidden";
    "node's address removed from the table":
        "nft delete element inet tweed node_addresses4 { {far.address} }";
    "VXLAN sources removed": "nft flush set inet tweed vxlan_ipv4_24_sources4";
    "VXLAN source added": "nft add element inet tweed vxlan_ipv4_24_sources4 { 192.0.2.99 . 0x0af40200 }";
    "cluster CIDRs flushed": "nft flush set inet tweed cluster_cidrs4";
};

pub const KINDS: &[Kind] = &[
    Kind {
        name: "several of tweed's objects damaged at once",
        weight: 30,
        run: Run::Code(several),
    },
    Kind {
        name: "an object damaged again and again",
        weight: 5,
        run: Run::Code(again),
    },
    Kind {
        name: "objects damaged while the agent is stopped",
        weight: 15,
        run: Run::Code(unseen),
    },
    Kind {
        name: "pod's link deleted",
        weight: 4,
        run: Run::Pod(&["ip link del {link}"]),
    },
    Kind {
        name: "pod's link renamed",
        weight: 4,
        run: Run::Code(rename_link),
    },
    Kind {
        name: "pod's link with another alias",
        weight: 3,
        run: Run::Code(change_alias),
    },
    Kind {
        name: "pod's link in a bridge",
        weight: 2,
        run: Run::Fault(
            &[
                "ip link add br8 type bridge",
                "ip link set {link} master br8",
            ],
            &["ip link del br8"],
        ),
    },
    Kind {
        name: "VXLAN device in a bridge",
        weight: 2,
        run: Run::Fault(
            &[
                "ip link add br9 type bridge",
                "ip link set tweed.1 master br9",
            ],
            &["ip link del br9"],
        ),
    },
];

/// Damages one to four kinds of objects.
fn several(world: &mut World, target: Target) -> Result<(), LabError> {
    for place in 0..=target.number % 4 {
        damage(
            world,
            target,
            target.number.rotate_right(8 + 8 * (place as u32)),
        )?;
    }
    Ok(())
}

/// As a daemon that wants it otherwise: the same damage six times, faster than a repair
/// takes and slower.
fn again(world: &mut World, target: Target) -> Result<(), LabError> {
    for round in 0..6 {
        damage(world, target, target.number)?;
        std::thread::sleep(std::time::Duration::from_millis(40 * round));
    }
    Ok(())
}

/// Nothing but what the agent finds when it continues tells it of the damage.
fn unseen(world: &mut World, target: Target) -> Result<(), LabError> {
    signal(world, target, Signal::SIGSTOP)?;
    let done = several(world, target);
    signal(world, target, Signal::SIGCONT)?;
    done
}

fn signal(world: &mut World, target: Target, signal: Signal) -> Result<(), LabError> {
    if let Some(process) = world.node(target.node)?.agent.as_mut().map(Agent::process) {
        process.signal(signal);
    }
    Ok(())
}

fn damage(world: &mut World, target: Target, number: u64) -> Result<(), LabError> {
    let kind = &MENDED[pick(number, MENDED.len())];
    if let Run::Lines(words) = kind.run {
        let lines = lines::filled(world, target, words)?;
        world.note(kind.name);
        world.in_node(target.node, &lines);
        if words.contains(&RENAME) && hides_a_foreign_device(world, target)? {
            world.undo_lines(target.node, vec![REMOVE_HIDDEN.to_owned()]);
        }
    }
    Ok(())
}

/// Whether the device that was renamed is not known as tweed's, by its MAC: another damage
/// has put it in the place of tweed's. The agent says how to remove it.
fn hides_a_foreign_device(world: &mut World, target: Target) -> Result<bool, LabError> {
    let plan = world.plan();
    let own = plan.nodes.iter().find(|node| node.index == target.node);
    let netns = world.node(target.node)?.node.netns();
    // It may not have been renamed, or be renamed back.
    let Ok(links) = netns.json("ip -j link show hidden0") else {
        return Ok(false);
    };
    let mac = own.map(crate::plan::NodePlan::vtep_mac);
    Ok(links[0]["address"].as_str() != mac.as_deref())
}

/// A person hides a link under another name, and brings the name back later.
fn rename_link(world: &mut World, target: Target) -> Result<(), LabError> {
    let lines = lines::filled(world, target, &["ip link set {link} name hidden1"])?;
    let undo = lines::filled(world, target, &["ip link set hidden1 name {link}"])?;
    if let Some(pod) = target.pod.filter(|_| !lines.is_empty()) {
        world.undo_lines(target.node, undo);
        world.in_node(target.node, &lines);
        world.pods[pod].attached = None;
    }
    Ok(())
}

/// The alias is part of what says whose a link is: it is for CHECK and the runtime.
fn change_alias(world: &mut World, target: Target) -> Result<(), LabError> {
    let Some(pod) = target.pod else {
        return Ok(());
    };
    let lines = lines::filled(world, target, &["ip link set {link} alias mine"])?;
    world.in_node(target.node, &lines);
    world.pods[pod].attached = None;
    Ok(())
}
