//! Row 3 and the cutting of flows: a flow that stays allowed is never reset, whatever
//! comes and goes, and one that is no longer allowed stops.

use std::time::Duration;

use tweed_lab::{Cluster, LabError};

use super::traffic::{Flow, Listener};
use super::{DENY_ALL, cluster_policy, policy};

/// Long enough for TCP to send a lost segment again twice.
const LIMIT: Duration = Duration::from_secs(10);

/// Ingress of the servers from these clients on these ports.
fn allow(client: &str, port: u16) -> String {
    format!(
        "{{podSelector: {{matchLabels: {{app: server}}}}, policyTypes: [Ingress], ingress: [\
         {{from: [{{podSelector: {{matchLabels: {{app: {client}}}}}}}], \
         ports: [{{protocol: TCP, port: {port}}}, {{protocol: UDP, port: {port}}}]}}]}}"
    )
}

#[test]
fn an_allowed_flow_lives_and_one_that_is_not_is_cut() -> Result<(), LabError> {
    lives_or_is_cut(Cluster::start(2)?)
}

#[test]
fn an_allowed_flow_of_ipv6_lives_and_one_that_is_not_is_cut() -> Result<(), LabError> {
    lives_or_is_cut(Cluster::start_ipv6(2)?)
}

fn lives_or_is_cut(mut cluster: Cluster) -> Result<(), LabError> {
    let server = cluster.labelled_pod(1, "shop/server", "app=server")?;
    let near = cluster.labelled_pod(1, "shop/near", "app=near")?;
    let far = cluster.labelled_pod(2, "shop/far", "app=far")?;
    let signal = Listener::open(&cluster, 1, &server, 7001)?;
    cluster.apply("near", policy("shop", "near", &allow("near", 7002)))?;
    cluster.apply("far", policy("shop", "far", &allow("far", 7003)))?;
    signal.wait(far.netns(), false)?;
    Listener::open(&cluster, 1, &server, 7002)?.wait(near.netns(), true)?;
    Listener::open(&cluster, 1, &server, 7003)?.wait(far.netns(), true)?;
    let flows = [
        Flow::open(near.netns(), &server, 7002)?,
        Flow::open(far.netns(), &server, 7003)?,
    ];
    let all_move = |when: &str| {
        for (number, flow) in flows.iter().enumerate() {
            assert!(flow.moves(LIMIT), "flow {number} {when}");
        }
    };

    for node in [1, 2, 1] {
        cluster.kill_agent(node)?;
        all_move("without an agent");
        cluster.start_agent(node)?;
        cluster.wait_ready()?;
        all_move("after a restart of the agent");
    }
    // Policies of others come and go, some of which take away what others had.
    for round in 0..4 {
        let key = format!("other{round}");
        cluster.apply(&key, policy("shop", &key, &allow("far", 7001)))?;
        signal.wait(far.netns(), true)?;
        all_move("after a policy that allows more");
        cluster.delete(&key)?;
        signal.wait(far.netns(), false)?;
        all_move("after a policy that took something away from others");
    }
    let exchanges = |flow: &Flow| assert!(flow.moves(LIMIT));
    cluster.delete("far")?;
    flows[1].wait_until_cut()?;
    exchanges(&flows[0]);
    // It is TCP: it continues where it stopped once it may again.
    cluster.apply("far", policy("shop", "far", &allow("far", 7003)))?;
    Listener::open(&cluster, 1, &server, 7003)?.wait(far.netns(), true)?;
    assert!(flows[1].moves(Duration::from_secs(120)));

    // A Deny of the Admin tier comes before both. It names no namespaces, so it is about all.
    let deny = "{tier: Admin, priority: 7, subject: {pods: {podSelector: {matchLabels: {app: \
                server}}}}, ingress: [{action: Deny, from: [{pods: {podSelector: {matchLabels: \
                {app: near}}}}]}]}";
    cluster.apply("admin", cluster_policy("admin", deny))?;
    flows[0].wait_until_cut()?;
    exchanges(&flows[1]);
    // Isolation alone cuts what nothing allows.
    cluster.delete("admin")?;
    assert!(flows[0].moves(Duration::from_secs(120)));
    cluster.apply("deny", policy("shop", "deny", DENY_ALL))?;
    // Egress of the clients is not allowed by anything now.
    for flow in &flows {
        flow.wait_until_cut()?;
    }
    cluster.delete("deny")?;
    for flow in flows {
        assert!(flow.moves(Duration::from_secs(120)));
        let ended = flow.end();
        assert!(ended.is_ok(), "{ended:?}");
    }
    Ok(())
}
