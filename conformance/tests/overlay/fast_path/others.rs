//! Others on the same links: limits of bandwidth, filters, rules, bridges, programs.

use std::thread::sleep;
use std::time::Duration;

use aya::programs::links::FdLink;
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use tweed_lab::{LabError, Netns, wait_until};

use super::scene::{LIFE, LIMIT, programs_at};
use super::three::{Three, WAYS};
use super::xdp::{XdpMode, attach_xdp, pass_all_frames};

#[test]
fn a_limit_of_bandwidth_at_a_pods_link() -> Result<(), LabError> {
    let three = Three::new()?;
    let at = format!("dev {} root", three.link());
    three.tc(&format!(
        "qdisc add {at} tbf rate 100mbit burst 64kb latency 50ms"
    ))?;
    three.wait_until_out(&WAYS)?;
    three.tc(&format!("qdisc del {at}"))?;
    three.are_in()
}

#[test]
fn filters_see_all_packets() -> Result<(), LabError> {
    let three = Three::new()?;
    for (link, direction, ways) in [
        (three.link(), "egress", &WAYS[..]),
        ("eth0", "ingress", &["vxlan-in"]),
    ] {
        three.tc(&format!("qdisc add dev {link} clsact"))?;
        three.tc(&format!(
            "filter add dev {link} {direction} protocol ip u32 match u32 0 0 flowid 1:1"
        ))?;
        three.wait_until_out(ways)?;
        let others = WAYS.iter().filter(|way| !ways.contains(way));
        others
            .into_iter()
            .try_for_each(|way| three.scene.wait_for(1, way))?;
        three.tc(&format!("qdisc del dev {link} clsact"))?;
        three.are_in()?;
    }
    Ok(())
}

/// The agent takes it back.
#[test]
fn a_bridge_takes_a_pods_link() -> Result<(), LabError> {
    let three = Three::new()?;
    three.scene.node(1).ip([
        "link add br9 type bridge forward_delay 0",
        "link set br9 up",
    ])?;
    is_taken_back(&three, "br9")
}

/// Puts the server's link under another one.
fn is_taken_back(three: &Three, master: &str) -> Result<(), LabError> {
    let (node, link) = (three.scene.node(1), three.link());
    node.ip([format!("link set {link} master {master}")])?;
    wait_until("the link to be the agent's again", LIMIT, || {
        let shown = node.sh(&format!("ip link show {link}"));
        match shown {
            Ok(text) if !text.contains("master") => Ok(()),
            Ok(text) => Err(text),
            Err(error) => Err(error.chain()),
        }
    })?;
    three.to_near.wait()?;
    three.are_in()
}

/// Whether node 1 has a VRF now; not all kernels have any.
fn has_vrf(three: &Three) -> bool {
    let added = three
        .scene
        .node(1)
        .ip(["link add vrf9 type vrf table 9", "link set vrf9 up"]);
    if let Err(error) = &added {
        println!("skipped: {}", error.chain());
    }
    added.is_ok()
}

#[test]
fn a_vrf_takes_a_pods_link() -> Result<(), LabError> {
    let three = Three::new()?;
    if has_vrf(&three) {
        is_taken_back(&three, "vrf9")?;
    }
    Ok(())
}

/// The kernel finds no way to other nodes then, and does not take what comes from them.
#[test]
fn a_vrf_takes_the_underlay() -> Result<(), LabError> {
    let three = Three::new()?;
    if !has_vrf(&three) {
        return Ok(());
    }
    let node = three.scene.node(1);
    node.ip(["link set eth0 master vrf9"])?;
    sleep(LIFE + Duration::from_secs(1));
    three.wait_until_out(&WAYS[1..])?;
    let arrived = three.to_far.arrivals().len();
    three.scene.wait_for(1, "local")?;
    assert_eq!(three.to_far.arrivals().len(), arrived);
    node.ip(["link set eth0 nomaster"])?;
    three.to_far.wait()?;
    three.are_in()
}

/// A firewall's rule that drops what it has let pass before.
#[test]
fn a_rule_of_others_drops_flows_that_are_in() -> Result<(), LabError> {
    let three = Three::new()?;
    three.scene.node(1).nft(
        "table inet others { chain forward { type filter hook forward priority 10; \
         ct state established counter drop; }; }",
    )?;
    sleep(LIFE + Duration::from_secs(1));
    let arrived = [&three.to_near, &three.to_far].map(|flow| flow.arrivals().len());
    sleep(Duration::from_secs(1));
    let later = [&three.to_near, &three.to_far].map(|flow| flow.arrivals().len());
    assert_eq!(arrived, later);
    three.scene.node(1).nft("delete table inet others")?;
    three.to_near.wait()?;
    three.to_far.wait()?;
    three.are_in()
}

/// A program of others, which changes nothing, at a link. It is attached as long as this
/// lives.
struct Program {
    _loaded: aya::Ebpf,
    link: FdLink,
}

impl Program {
    /// The first or the last at a hook.
    fn attach(
        node: &Netns,
        link: &str,
        direction: TcAttachType,
        order: LinkOrder,
    ) -> Result<Self, LabError> {
        let source = node.lab().programs().source();
        let object = source.join("fastpath/src/bpf/fast_path.o");
        let mut loaded = aya::Ebpf::load_file(object).unwrap();
        // It has maps of its own: they say that it has nothing to do.
        let program: &mut SchedClassifier =
            loaded.program_mut("pod_out").unwrap().try_into().unwrap();
        program.load().unwrap();
        let options = TcAttachOptions::TcxOrder(order);
        let id = node.enter(|| {
            program
                .attach_with_options(link, direction, options)
                .unwrap()
        })?;
        let attached: SchedClassifierLink = program.take_link(id).unwrap();
        let link = attached.try_into().unwrap();
        Ok(Self {
            _loaded: loaded,
            link,
        })
    }
}

#[test]
fn programs_of_others_come_before_and_after() -> Result<(), LabError> {
    let three = Three::new()?;
    let (node, link) = (three.scene.node(1), three.link());
    for (link, direction) in [
        (link, TcAttachType::Ingress),
        (link, TcAttachType::Egress),
        ("eth0", TcAttachType::Ingress),
    ] {
        let own = programs_at(node, link, direction)?;
        assert_eq!(own.len(), 1, "{own:?}");
        let first = Program::attach(node, link, direction, LinkOrder::first())?;
        let last = Program::attach(node, link, direction, LinkOrder::last())?;
        wait_until("the fast path to be last again", LIMIT, || {
            let now = programs_at(node, link, direction).unwrap();
            if now.len() == 3 && now.last() == own.last() {
                Ok(())
            } else {
                Err(format!("{now:?}"))
            }
        })?;
        three.are_in()?;
        drop((first.link, last.link));
        three.are_in()?;
        let now = programs_at(node, link, direction)?;
        assert_eq!(now, own);
    }
    three.end();
    Ok(())
}

/// Nested pods and machines have one: what is redirected into the pod has to arrive as from
/// its link.
#[test]
fn a_pod_has_a_bridge_inside() -> Result<(), LabError> {
    let three = Three::new()?;
    let pod = three.server.netns();
    let address = three.server.address();
    let links = pod.json("ip -j link show eth0")?;
    let mac = links[0]["address"].as_str().unwrap().to_owned();
    let neighbours = pod.json("ip -j neigh show dev eth0 nud permanent")?;
    let gateway = neighbours[0]["lladdr"].as_str().unwrap();
    pod.ip([
        format!("link add br0 address {mac} type bridge forward_delay 0"),
        "link set eth0 master br0".to_owned(),
        "link set br0 up".to_owned(),
        format!("addr del {address}/32 dev eth0"),
        format!("addr add {address}/32 dev br0"),
        format!("neigh add 169.254.1.1 lladdr {gateway} dev br0 nud permanent"),
        "route replace 169.254.1.1 dev br0 scope link".to_owned(),
        "route replace default via 169.254.1.1 dev br0".to_owned(),
    ])?;
    for flow in [&three.to_near, &three.to_far] {
        flow.wait()?;
    }
    three.are_in()?;
    let received = || -> Result<Option<u64>, LabError> {
        let ports = pod.json("ip -j -s link show br0")?;
        Ok(ports[0]["stats64"]["rx"]["packets"].as_u64())
    };
    let most = received()?.map(|before| before + 100);
    wait_until(
        "packets of the flows to come by the bridge",
        LIMIT,
        || match received() {
            Ok(now) if now > most => Ok(()),
            Ok(now) => Err(format!("{now:?} of {most:?}")),
            Err(error) => Err(error.chain()),
        },
    )?;
    Ok(())
}

/// XDP sees frames before the fast path does.
#[test]
fn xdp_on_the_wire_of_the_nodes() -> Result<(), LabError> {
    let three = Three::new()?;
    for mode in [XdpMode::Generic, XdpMode::Driver] {
        let program = pass_all_frames();
        let link = three.scene.node(1).enter(|| attach_xdp(&program, mode))?;
        three.are_in()?;
        drop(link);
        three.are_in()?;
    }
    three.end();
    Ok(())
}
