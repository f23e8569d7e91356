//! The network between the nodes flaps, gets other addresses and another MTU.

use std::net::Ipv4Addr;
use std::time::Duration;

use tweed_lab::LabError;

use super::{Kind, Run};
use crate::world::{Target, World};

/// What brings a node's uplink back to what it was: a network manager would.
const RESTORE: &[&str] = &[
    "ip link set eth0 mtu 1500 up",
    "ip addr replace {address}/24 dev eth0",
    "ip route replace default via 192.0.2.1",
];

pub const KINDS: &[Kind] = &[
    Kind {
        name: "uplink down",
        weight: 4,
        run: Run::Fault(&["ip link set eth0 down"], RESTORE),
    },
    Kind {
        name: "uplink flaps",
        weight: 4,
        run: Run::Code(flap),
    },
    Kind {
        name: "uplink without its address",
        weight: 4,
        run: Run::Fault(&["ip addr del {address}/24 dev eth0"], RESTORE),
    },
    Kind {
        name: "uplink with a smaller MTU",
        weight: 3,
        run: Run::Fault(&["ip link set eth0 mtu 1400"], RESTORE),
    },
    Kind {
        name: "uplink with a larger MTU",
        weight: 3,
        run: Run::Fault(&["ip link set eth0 mtu 9000"], RESTORE),
    },
    Kind {
        name: "uplink with one more address",
        weight: 2,
        run: Run::Fault(
            &["ip addr add 192.0.2.222/24 dev eth0"],
            &["ip addr del 192.0.2.222/24 dev eth0"],
        ),
    },
    Kind {
        name: "port of the switch down",
        weight: 3,
        run: Run::Code(port_down),
    },
    Kind {
        name: "node renumbered",
        weight: 5,
        run: Run::Code(renumber),
    },
];

fn flap(world: &mut World, target: Target) -> Result<(), LabError> {
    let restore = super::lines::filled(world, target, RESTORE)?;
    for round in 0..3 {
        world.in_node(target.node, &["ip link set eth0 down".to_owned()]);
        std::thread::sleep(Duration::from_millis(30 * round));
        world.in_node(target.node, &restore);
    }
    Ok(())
}

/// The carrier goes, the link stays up.
fn port_down(world: &mut World, target: Target) -> Result<(), LabError> {
    let port = format!("node{}", target.node);
    let set = move |world: &mut World, state: &str| {
        // The machine may have been removed meanwhile.
        let _ = world
            .cluster
            .underlay()
            .switch()
            .ip([format!("link set {port} {state}")]);
        Ok(())
    };
    set(world, "down")?;
    world.undo_later(move |world| set(world, "up"));
    Ok(())
}

/// The node gets another address, and the Node says so before or after.
fn renumber(world: &mut World, target: Target) -> Result<(), LabError> {
    let last = 50 + u8::try_from(target.number % 140).unwrap_or_default();
    let address = Ipv4Addr::new(192, 0, 2, last);
    if world
        .cluster
        .nodes()
        .values()
        .any(|entry| entry.node.address() == address)
    {
        return Ok(());
    }
    let entry = world.node(target.node)?;
    entry.manifest.addresses = vec![("InternalIP".to_owned(), address.to_string())];
    let is_late = target.number & (1 << 20) != 0;
    if !is_late {
        world.cluster.publish()?;
    }
    // What a fault of this burst did to the uplink is undone with the new address.
    let entry = world.node(target.node)?;
    let old = entry.node.address();
    entry.node.netns().ip([
        "link set eth0 up".to_owned(),
        format!("addr replace {old}/24 dev eth0"),
    ])?;
    entry.node.change_address(address)?;
    if is_late {
        world.cluster.publish()?;
    }
    Ok(())
}
