//! What was right when a flow was let in and is not any more: policies, endpoints, pods.

use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tweed_lab::{LabError, wait_until};

use super::datagrams::Datagrams;
use super::scene::{LIFE, LIMIT, Pods, Scene, address, service, wait_for_service};
use crate::policy::{DENY_ALL, policy};

const PORT: u16 = 7010;
const SERVICE: [&str; 2] = ["10.96.0.10", "fd00:96::10"];
/// Some thousands of datagrams a second.
const PAUSE: Duration = Duration::from_micros(200);
/// How long a datagram may be on its way in a busy machine.
const LATE: Duration = Duration::from_secs(1);

/// How often flows had to pass the kernel's path again for this cause.
pub fn invalidations(scene: &Scene, index: u8, cause: &str) -> Result<f64, LabError> {
    let name = format!("tweed_fast_path_invalidations_total{{cause=\"{cause}\"}}");
    scene.sum(index, &name)
}

#[test]
fn a_policy_ends_datagrams_at_full_rate() -> Result<(), LabError> {
    for (node, ways) in [(1, ["local", "local"]), (2, ["vxlan-in", "vxlan-out"])] {
        let mut scene = Scene::new(&[], Pods::Ipv4)?;
        let server = scene.cluster.labelled_pod(1, "shop/server", "app=server")?;
        let client = scene
            .cluster
            .labelled_pod(node, "other/client", "app=client")?;
        // The agents list pods when the first policy comes: that takes a while.
        let none = "{podSelector: {matchLabels: {app: none}}, policyTypes: [Ingress], ingress: \
                    [{from: [{namespaceSelector: {}, podSelector: {}}]}]}";
        scene
            .cluster
            .apply("first", policy("shop", "first", none))?;
        let at = SocketAddr::new(server.address(), PORT);
        let datagrams = Datagrams::open(client.netns(), at, &server, PORT, PAUSE)?;
        for (index, way) in [1, node].into_iter().zip(ways) {
            scene.wait_for(index, way)?;
        }
        sleep(Duration::from_secs(2));
        let before = invalidations(&scene, 1, "policies")?;
        scene
            .cluster
            .apply("deny", policy("shop", "deny", DENY_ALL))?;
        wait_until("the policy to be in force", LIMIT, || {
            match invalidations(&scene, 1, "policies") {
                Ok(now) if now > before => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })?;
        let first_denied = datagrams.next();
        sleep(Duration::from_secs(2));
        let last = datagrams.next();
        assert!(last > first_denied + 100, "{last}");
        let arrivals = datagrams.arrivals();
        let numbers = arrivals.iter().map(|(_, number)| *number);
        let late: Vec<u64> = numbers.filter(|n| *n > first_denied).collect();
        assert_eq!(late, Vec::<u64>::new(), "{}", scene.all(1));
        // Allowed again, and in again.
        scene.cluster.delete("deny")?;
        datagrams.wait()?;
        for (index, way) in [1, node].into_iter().zip(ways) {
            scene.wait_for(index, way)?;
        }
    }
    Ok(())
}

/// The programs go on while the agent is away. The next one tells them of what it changes
/// before it has loaded its own.
#[test]
fn a_policy_that_came_while_the_agent_was_away_ends_datagrams() -> Result<(), LabError> {
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    let server = scene.cluster.labelled_pod(1, "shop/server", "app=server")?;
    let client = scene.cluster.labelled_pod(1, "shop/client", "app=client")?;
    let all = "{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}";
    scene.cluster.apply("all", policy("shop", "all", all))?;
    let entry = |scene: &Scene| {
        let map = scene
            .node(1)
            .sh("nft list map inet tweed-policy policy_entry");
        map.map_err(|error| error.chain())
    };
    let before = wait_until("the policy to be in force", LIMIT, || entry(&scene))?;
    let at = SocketAddr::new(server.address(), PORT);
    let datagrams = Datagrams::open(client.netns(), at, &server, PORT, PAUSE)?;
    scene.wait_for(1, "local")?;
    scene.cluster.kill_agent(1)?;
    scene.cluster.delete("all")?;
    scene
        .cluster
        .apply("deny", policy("shop", "deny", DENY_ALL))?;
    scene.start_one(1, "on")?;
    wait_until(
        "another generation to be in force",
        LIMIT,
        || match entry(&scene)? {
            now if now != before => Ok(()),
            same => Err(same),
        },
    )?;
    let first_denied = datagrams.next();
    sleep(Duration::from_secs(2));
    assert!(datagrams.next() > first_denied + 100);
    let arrivals = datagrams.arrivals();
    let late = arrivals.iter().filter(|(_, number)| *number > first_denied);
    assert_eq!(late.count(), 0, "{}", scene.all(1));
    Ok(())
}

/// A conversation of UDP leads elsewhere when its endpoint goes, by which no packet of its own
/// could tell; that of the other protocol stays.
#[test]
fn an_endpoint_is_removed_under_datagrams() -> Result<(), LabError> {
    for node in [1, 2] {
        let mut scene = Scene::new(&["--services", "on"], Pods::Both)?;
        let one = scene.cluster.pod(1, "one")?;
        let other = scene.cluster.pod(3 - node, "other")?;
        let client = scene.cluster.pod(node, "client")?;
        for (key, manifest) in service(SERVICE, &[&one], PORT) {
            scene.cluster.objects().set(&key, manifest);
        }
        scene.cluster.publish()?;
        let mut flows = Vec::new();
        for (ip, is_ipv4) in SERVICE.iter().zip([true, false]) {
            let at = SocketAddr::new(ip.parse().unwrap(), 80);
            wait_for_service(client.netns(), at, &one, PORT)?;
            let bind = || UdpSocket::bind((address(&one, is_ipv4), PORT));
            let server = one.netns().listen(bind)?;
            flows.push(Datagrams::between(client.netns(), at, server, PAUSE)?);
        }
        let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT));
        let second = other.netns().listen(bind)?;
        second.set_read_timeout(Some(LIMIT)).unwrap();
        scene.wait_for(1, if node == 1 { "local" } else { "vxlan-in" })?;
        for flow in &flows {
            flow.wait()?;
        }
        for (key, manifest) in service(SERVICE, &[&other], PORT) {
            scene.cluster.objects().set(&key, manifest);
        }
        scene.cluster.publish()?;
        let mut families = [false; 2];
        while families != [true; 2] {
            let (_, from) = second.recv_from(&mut [0; 8]).unwrap();
            let is_ipv4 = from.ip().to_canonical().is_ipv4();
            if !std::mem::replace(&mut families[usize::from(is_ipv4)], true) {
                let moved = Instant::now();
                println!("node {node}: {from} at the other endpoint");
                let flow = &flows[usize::from(!is_ipv4)];
                // A walk ends when all flows of the node have been seen.
                sleep(Duration::from_millis(1500));
                let arrivals = flow.arrivals();
                let last = arrivals.last().unwrap().0;
                let late = last.saturating_duration_since(moved);
                assert!(late < LATE, "{late:?} at the first endpoint still");
            }
        }
    }
    Ok(())
}

/// A pod goes, and another gets its address within a flow's life.
#[test]
fn an_address_is_given_out_again() -> Result<(), LabError> {
    for node in [1, 2] {
        let mut scene = Scene::new(&[], Pods::Ipv4)?;
        let server = scene.cluster.labelled_pod(1, "shop/server", "app=server")?;
        let ip = server.address();
        let client = scene
            .cluster
            .labelled_pod(node, "shop/client", "app=client")?;
        let at = SocketAddr::new(ip, PORT);
        let datagrams = Datagrams::open(client.netns(), at, &server, PORT, PAUSE)?;
        scene.wait_for(1, if node == 1 { "local" } else { "vxlan-in" })?;
        datagrams.wait()?;
        let start = Instant::now();
        scene.cluster.delete_pod(1, server)?;
        let (path, words) = ("shop/next", "app=next");
        let next = scene.cluster.labelled_pod_at(1, path, words, Some(ip))?;
        let given = start.elapsed();
        println!("node {node}: given out again after {given:?}");
        let again = Datagrams::open(client.netns(), at, &next, PORT, PAUSE)?;
        let opened = Instant::now();
        // With the fast path's entry of the pod before, nothing would come for the rest of
        // its life.
        let first = wait_until("a datagram of the flow before", LIMIT, || {
            let arrivals = again.arrivals();
            arrivals
                .first()
                .map(|first| first.0)
                .ok_or("none".to_owned())
        })?;
        let waited = first.saturating_duration_since(opened);
        assert!(waited < LIFE, "{waited:?}");
        again.wait()?;
        scene.wait_for(1, if node == 1 { "local" } else { "vxlan-in" })?;
        let answered = datagrams.answered();
        sleep(Duration::from_millis(200));
        assert!(datagrams.answered() > answered, "the flow before goes on");
        // Its server hears nobody else after that.
        datagrams.end();
        let sent = again.next();
        let [_, arrived, _] = again.end();
        println!("{sent} sent, {arrived} of both flows have come");
    }
    Ok(())
}
