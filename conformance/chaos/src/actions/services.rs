//! Services change, and what the kernel holds of them is damaged.

use tweed_lab::LabError;

use super::{Kind, Run};
use crate::random::pick;
use crate::services::{SERVICES, Service};
use crate::world::{Target, World};

pub const KINDS: &[Kind] = &[
    Kind {
        name: "Service added or changed",
        weight: 12,
        run: Run::Code(set_service),
    },
    Kind {
        name: "Service removed",
        weight: 5,
        run: Run::Code(remove_service),
    },
    Kind {
        name: "all Services removed",
        weight: 2,
        run: Run::Code(remove_all),
    },
    Kind {
        name: "sets, maps and chains of Services damaged",
        weight: 12,
        run: Run::Code(damage),
    },
    Kind {
        name: "connections forgotten",
        weight: 3,
        run: Run::Code(forget_connections),
    },
];

/// What is done to the objects of Services, a line each; one that fits no object of the
/// moment fails.
pub const DAMAGES: &[&str] = &[
    "flush map inet tweed-services service_targets4",
    "flush map inet tweed-services service_targets6",
    "flush map inet tweed-services service_affinity_groups",
    "flush map inet tweed-services service_leads",
    "flush map inet tweed-services service_part_leads",
    "flush map inet tweed-services service_timeouts",
    "flush map inet tweed-services service_slots4",
    "flush map inet tweed-services service_slots6",
    "flush map inet tweed-services service_member_slots",
    "flush map inet tweed-services service_endpoints4",
    "flush set inet tweed-services service_members_cluster",
    "flush set inet tweed-services service_pods4",
    "flush set inet tweed-services service_cluster_ips4",
    "flush set inet tweed-services service_networks4",
    "flush chain inet tweed-services service_prerouting",
    "flush chain inet tweed-services service_send",
    "flush chain inet tweed-services service_reject",
    "insert rule inet tweed-services service_prerouting accept",
    "insert rule inet tweed-services service_prerouting drop",
    "add element inet tweed-services service_foreign4 { 10.96.0.10 }",
    "add element inet tweed-services service_cluster_ips4 { 10.96.0.99 }",
    "add element inet tweed-services service_targets4 { 10.96.0.10 . udp . 7780 : 0x40000001 }",
    "flush map inet tweed-services service_parts",
    "delete table inet tweed-services",
];

fn set_service(world: &mut World, target: Target) -> Result<(), LabError> {
    let slot = pick(target.number, SERVICES);
    let service = Service::drawn(target.number);
    world.services.all.insert(slot, service);
    world.publish()
}

fn remove_service(world: &mut World, target: Target) -> Result<(), LabError> {
    world.services.all.remove(&pick(target.number, SERVICES));
    world.publish()
}

fn remove_all(world: &mut World, _: Target) -> Result<(), LabError> {
    world.services.all.clear();
    world.publish()
}

fn damage(world: &mut World, target: Target) -> Result<(), LabError> {
    super::damage(world, target, DAMAGES);
    Ok(())
}

/// Every flow is a new one after that.
fn forget_connections(world: &mut World, target: Target) -> Result<(), LabError> {
    world.in_node(target.node, &["conntrack --flush".to_owned()]);
    Ok(())
}
