//! Services are handed over from kube-proxy to tweed and back while flows are open: TCP
//! connections stay, and a UDP socket loses no datagram but one that was in flight.

use anyhow::{Context, Result};
use tweed_lab::Transport;
use tweed_lab_kubernetes::ProxyMode;

use super::requests::send_all;
use super::setup::Setup;
use super::start_kube_proxy;
use crate::endpoint::Endpoint;
use crate::fixture::Fixture;
use crate::flows::Flows;
use crate::netexec::TRANSPORTS;
use crate::service::Frontend;
use crate::service_proxy::{HandOver, abandon_hand_over};

/// Hands over to tweed and back to kube-proxy in this mode.
pub fn there_and_back(fixture: &mut Fixture<'_>, setup: &Setup, mode: ProxyMode) -> Result<()> {
    let result = hand_over(fixture, setup, mode);
    result.and(abandon_hand_over(fixture))
}

fn hand_over(fixture: &mut Fixture<'_>, setup: &Setup, mode: ProxyMode) -> Result<()> {
    let flows = Flows::open(&wanted(setup))?;
    let mut changes = 0;
    let mut changed = |what: &'static str| {
        changes += 1;
        flows.check().context(what)
    };

    let steps = HandOver::begin(fixture)?;
    steps.add_tweed(fixture)?;
    changed("tweed beside kube-proxy")?;
    send_all(setup).context("tweed beside kube-proxy")?;
    steps.remove_kube_proxy(fixture)?;
    changed("tweed without kube-proxy")?;
    let answers = send_all(setup).context("tweed without kube-proxy")?;
    fixture.measure("answers checked, tweed", answers.to_string());
    steps.bring_kube_proxy_back(fixture)?;
    start_kube_proxy(fixture, setup, mode)?;
    changed("kube-proxy beside tweed again")?;
    steps.remove_tweed(fixture)?;
    changed("kube-proxy without tweed")?;
    send_all(setup).context("kube-proxy without tweed again")?;

    let count = flows.count();
    let total = flows.stop(changes)?;
    let what = format!(
        "datagrams lost in {changes} changes between kube-proxy as {mode:?} and tweed, on {count} \
         open flows with {} answers",
        total.answered
    );
    fixture.measure(&what, total.lost.to_string());
    Ok(())
}

/// From every kind of client, by both transports.
fn wanted(setup: &Setup) -> Vec<(&'static str, &Endpoint, Transport, std::net::SocketAddr)> {
    let [first, _] = &setup.servers;
    let bare = &setup.node_without_server;
    let web = setup.web.cluster_ip();
    let flows: [(&str, &Endpoint, Frontend); 5] = [
        ("a pod beside a server", &setup.local_client, web),
        ("a pod on another node", &setup.remote_client, web),
        ("a node", &bare.endpoint, web),
        (
            "a node port",
            &setup.outside,
            setup.web.node_port(bare.endpoint.address),
        ),
        (
            "a node port with policy Local",
            &setup.outside,
            setup.local.node_port(first.node.endpoint.address),
        ),
    ];
    let of_transport = |transport: Transport| {
        flows.map(|(what, from, to)| (what, from, transport, to.socket_address(transport)))
    };
    TRANSPORTS.into_iter().flat_map(of_transport).collect()
}
