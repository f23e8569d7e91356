//! Many networks in one policy (row 8), and many changes (row 12).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tweed_lab::LabError;

use super::policy;
use super::scene::{ALL, Scene, ingress};
use super::traffic::Flow;
use crate::packets::v4;

/// Long enough for TCP to send a lost segment again twice.
const LIMIT: Duration = Duration::from_secs(10);

/// Networks of a policy.
const NETWORKS: u32 = 10_000;

/// Policies that change at once, and how often they do.
const POLICIES: usize = 200;
const ROUNDS: usize = 5;

/// Networks of every length from /12 on, in and around the pod CIDRs, which overlap each
/// other and the pods' addresses.
fn overlapping() -> impl Iterator<Item = (Ipv4Addr, u32)> {
    let first = u32::from(Ipv4Addr::new(10, 240, 0, 0));
    (0..NETWORKS).map(move |number| {
        let length = 12 + number % 21;
        (masked(Ipv4Addr::from(first + number * 53), length), length)
    })
}

/// The address with its bits after the first `length` set to 0.
fn masked(address: Ipv4Addr, length: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(address) & (u32::MAX << (32 - length)))
}

/// Row 8: ten thousand overlapping networks, from each of which one address is taken out,
/// which another policy allows on one port.
#[test]
fn ten_thousand_overlapping_networks_and_an_exception() -> Result<(), LabError> {
    let mut scene = Scene::new()?;
    let (near, far) = (v4(scene.near.address()), v4(scene.far.address()));
    let (mut with_near, mut with_far) = (0, 0);
    let blocks: Vec<String> = overlapping()
        .map(|(network, length)| {
            with_far += usize::from(masked(far, length) == network);
            let has_near = masked(near, length) == network;
            with_near += usize::from(has_near);
            let except = if has_near {
                format!(", except: [{near}/32]")
            } else {
                String::new()
            };
            format!("{{ipBlock: {{cidr: {network}/{length}{except}}}}}")
        })
        .collect();
    assert!(with_near > 100 && with_far > 100, "{with_near}, {with_far}");
    let many = ingress("many", &format!("[{{from: [{}]}}]", blocks.join(", ")));
    let one = format!(
        "[{{from: [{{ipBlock: {{cidr: {near}/32}}}}], ports: [{{protocol: UDP, port: 7002}}]}}]"
    );
    scene.with(std::slice::from_ref(&many))?;
    assert_eq!(scene.reached()?, [vec![], ALL.to_vec()]);
    scene.with(&[many, ingress("one", &one)])?;
    assert_eq!(scene.reached()?, [vec![7002], ALL.to_vec()]);
    Ok(())
}

/// The handles of the table and of its chains at hooks, with their names.
fn handles(scene: &Scene) -> Result<Vec<(String, u64)>, LabError> {
    let node = scene.cluster[1].node.netns();
    let mut handles = Vec::new();
    for command in ["nft -j list tables inet", "nft -j list chains inet"] {
        let listed = node.json(command)?;
        for object in listed["nftables"].as_array().into_iter().flatten() {
            let at_hook = |object: &&serde_json::Value| object["hook"].is_string();
            let chain = object.get("chain").filter(at_hook);
            let Some(found) = object.get("table").or(chain) else {
                continue;
            };
            if [&found["name"], &found["table"]].contains(&&"tweed".into()) {
                let name = found["name"].as_str().unwrap_or_default().to_owned();
                handles.push((name, found["handle"].as_u64().unwrap_or_default()));
            }
        }
    }
    Ok(handles)
}

/// Row 12: table and chains stay as they are while policies change, and an open
/// connection that they do not concern goes on.
#[test]
fn a_thousand_changes_leave_table_and_chains_in_place() -> Result<(), LabError> {
    let mut scene = Scene::new()?;
    let keep = ingress("keep", "[{ports: [{protocol: TCP, port: 7101}]}]");
    scene.with(std::slice::from_ref(&keep))?;
    let flow = Flow::open(scene.near.netns(), &scene.server, 7101)?;
    let before = handles(&scene)?;
    assert!(before.len() > 3, "{before:?}");
    for round in 0..ROUNDS {
        // The server's port 7001 to 7003 is open or not by the last one of them.
        let open = 7001 + u16::try_from(round % 3).unwrap();
        let changing = (0..POLICIES).map(|number| {
            let port = if number + 1 == POLICIES { open } else { 8000 };
            let block = IpAddr::from([10, 244, u8::try_from(round).unwrap(), 0]);
            ingress(
                &format!("changing{number}"),
                &format!(
                    "[{{from: [{{ipBlock: {{cidr: {block}/24}}}}, {{podSelector: {{}}}}], \
                     ports: [{{protocol: UDP, port: {port}}}]}}]"
                ),
            )
        });
        let other = policy(
            "other",
            "other",
            "{podSelector: {}, policyTypes: [Ingress]}",
        );
        let policies: Vec<String> = [keep.clone(), other].into_iter().chain(changing).collect();
        scene.with(&policies)?;
        assert_eq!(scene.reached()?[0], [open], "round {round}");
        assert!(flow.moves(LIMIT), "round {round}");
    }
    assert_eq!(handles(&scene)?, before);
    let ended = flow.end();
    assert!(ended.is_ok(), "{ended:?}");
    Ok(())
}
