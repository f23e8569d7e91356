use super::*;
use crate::datapath::veth::{LinuxKernel, Veth, plan::GATEWAY_V4};
use crate::verbs::check;
use tweed_cni::{AddResult, IpConfig, Route as PodRoute};
use tweed_core::attachment::{Attachment, ContainerId, IfName, NetworkName};
use tweed_core::mac::Mac;
use tweed_core::ownership::{ROUTE_PROTOCOL, alias};
use tweed_ipam::record::{Owner, Record, State};
use tweed_netlink::link::{Ipv4Settings, Ipv6Settings};

const NETNS: &str = "/run/netns/c1";
const IP: &str = "10.244.1.5";
const HOST: u32 = 7;
const POD: u32 = 2;

/// An attachment as ADD leaves it: its result, its record, the links that it created.
struct Scene {
    attachment: Attachment,
    result: AddResult,
    record: Option<Record>,
    unclaimed: Vec<IpAddr>,
    observed: Observed,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[expect(clippy::too_many_lines, reason = "a scene is one literal")]
fn scene() -> Scene {
    let attachment = Attachment {
        network: NetworkName::new("tweed").unwrap(),
        container_id: ContainerId::new("c1").unwrap(),
        ifname: IfName::new("eth0").unwrap(),
    };
    let (host_mac, pod_mac) = (attachment.host_mac(), attachment.pod_mac());
    let interface = |name: String, mac: Mac, sandbox: Option<&str>| Interface {
        name,
        mac: Some(mac.to_string()),
        mtu: Some(1450),
        sandbox: sandbox.map(str::to_owned),
        ..Interface::default()
    };
    let neighbour = |index: u32, of: &str, mac: Mac| Neighbour {
        index,
        ip: ip(of),
        mac: Some(mac),
        permanent: true,
    };
    let host = Link {
        index: HOST,
        name: attachment.link_name(),
        up: true,
        noarp: true,
        mtu: 1450,
        mac: Some(host_mac),
        group: LINK_GROUP,
        alias: Some(alias(&attachment, None)),
        peer: Some(POD),
        ipv4: Some(Ipv4Settings {
            forwarding: 1,
            accept_redirects: 0,
            send_redirects: 0,
            rp_filter: 1,
        }),
        ipv6: Some(Ipv6Settings {
            disable_ipv6: 0,
            forwarding: 1,
            accept_ra: 0,
            autoconf: 0,
            accept_redirects: 0,
            addr_gen_mode: 1,
            mtu: 1500,
        }),
        ..Link::default()
    };
    let pod = Link {
        index: POD,
        name: "eth0".to_owned(),
        up: true,
        mtu: 1450,
        mac: Some(pod_mac),
        peer: Some(HOST),
        ..Link::default()
    };
    let mut host_route = plan::host_route(ip(IP), &[]);
    host_route.out = Some(HOST);
    let mut pod_route = Route::to("0.0.0.0/0".parse().unwrap(), ROUTE_PROTOCOL);
    pod_route.gateway = Some(GATEWAY_V4.into());
    Scene {
        result: AddResult {
            interfaces: vec![
                interface(attachment.link_name(), host_mac, None),
                interface("eth0".to_owned(), pod_mac, Some(NETNS)),
            ],
            ips: vec![IpConfig {
                address: ip(IP).into(),
                gateway: Some(GATEWAY_V4.into()),
                interface: Some(1),
            }],
            routes: vec![PodRoute {
                gw: Some(GATEWAY_V4.into()),
                ..PodRoute::to("0.0.0.0/0".parse().unwrap())
            }],
            ..AddResult::default()
        },
        record: Some(Record {
            version: 1,
            network: attachment.network.clone(),
            container_id: attachment.container_id.clone(),
            ifname: attachment.ifname.clone(),
            netns: None,
            addresses: vec!["10.244.1.5/24".parse().unwrap()],
            ipam: None,
            host_netns: None,
            owner: Owner::Tweed,
            link: None,
            host_mac: None,
            pod_mac: Some(pod_mac),
            mtu: None,
            pod: None,
            pod_uid: None,
            made: None,
            boot_id: String::new(),
            state: State::Live,
            held: false,
        }),
        unclaimed: Vec::new(),
        observed: Observed {
            host: Some(host),
            host_routes: vec![host_route],
            host_neighbours: vec![neighbour(HOST, IP, pod_mac)],
            pod: Some(pod),
            pod_addresses: vec![Address {
                index: POD,
                network: ip(IP).into(),
                tentative: false,
                temporary: false,
            }],
            pod_routes: vec![pod_route],
            pod_neighbours: vec![neighbour(POD, "169.254.1.1", host_mac)],
        },
        attachment,
    }
}

fn differences(scene: &Scene) -> Vec<String> {
    differences_with(scene, &[])
}

fn differences_with(scene: &Scene, host_source: &[IpAddr]) -> Vec<String> {
    let expected = Expected {
        attachment: &scene.attachment,
        netns: NETNS,
        mtu: 1450,
        host_source,
        result: &scene.result,
        record: scene.record.as_ref(),
    };
    let datapath = Veth::new(LinuxKernel::default());
    check::differences(&datapath, &expected, &scene.unclaimed, &scene.observed)
}

macro_rules! differs {
    ($($name:ident: $change:expr => $($word:literal),+;)*) => {
        $(#[test]
        fn $name() {
            let mut scene = scene();
            let change: fn(&mut Scene) = $change;
            change(&mut scene);
            let found = differences(&scene);
            assert!(!found.is_empty());
            for word in [$($word),+] {
                assert!(found.iter().any(|line| line.contains(word)), "{word}: {found:?}");
            }
        })*
    };
}

fn host(scene: &mut Scene) -> &mut Link {
    scene.observed.host.as_mut().unwrap()
}

fn pod(scene: &mut Scene) -> &mut Link {
    scene.observed.pod.as_mut().unwrap()
}

differs! {
    no_host_end: |s| s.observed.host = None => "twe00e76fd76b4 is missing";
    host_end_of_another: |s| (host(s).group, host(s).alias) = (0, None) => "does not belong to it";
    host_end_group: |s| host(s).group = 0 => "group of twe00e76fd76b4 is 0, should be 116";
    host_end_alias: |s| host(s).alias = Some("mine".to_owned())
        => "alias of twe00e76fd76b4 is mine, should be tweed:tweed/c1/eth0";
    host_end_without_alias: |s| host(s).alias = None => "alias of twe00e76fd76b4 is , should be";
    host_end_down: |s| host(s).up = false => "state of twe00e76fd76b4 is down";
    host_end_with_arp: |s| host(s).noarp = false => "ARP of twe00e76fd76b4 is on";
    host_mtu: |s| host(s).mtu = 1500 => "MTU of twe00e76fd76b4 is 1500, should be 1450";
    host_mac: |s| host(s).mac = Some(Mac([2; 6])) => "MAC of twe00e76fd76b4 is 02:02:02:02:02:02";
    router_advertisements: |s| host(s).ipv6.as_mut().unwrap().accept_ra = 2 => "accept_ra";
    redirects: |s| host(s).ipv4.as_mut().unwrap().send_redirects = 1 => "send_redirects";
    no_host_route: |s| s.observed.host_routes.clear() => "route 10.244.1.5/32";
    host_route_of_another: |s| s.observed.host_routes[0].protocol = 3 => "protocol of route 10.244.1.5/32";
    no_host_neighbour: |s| s.observed.host_neighbours.clear() => "neighbour 10.244.1.5";
    wrong_host_neighbour: |s| s.observed.host_neighbours[0].mac = Some(Mac([2; 6])) => "neighbour 10.244.1.5", "02:02:02:02:02:02";
    passing_neighbour: |s| s.observed.host_neighbours[0].permanent = false => "not permanent";
    no_pod_end: |s| s.observed.pod = None => "eth0 is missing";
    pod_end_of_another_pair: |s| pod(s).index = 9 => "not the other end";
    pod_end_down: |s| pod(s).up = false => "state of eth0 is down";
    pod_mtu: |s| pod(s).mtu = 1500 => "MTU of eth0 is 1500, should be at most 1450";
    pod_mac: |s| pod(s).mac = Some(Mac([2; 6])) => "MAC of eth0";
    no_pod_address: |s| s.observed.pod_addresses.clear() => "address 10.244.1.5 of eth0";
    duplicate_address: |s| s.observed.pod_addresses[0].tentative = true => "not usable";
    no_pod_route: |s| s.observed.pod_routes.clear() => "route 0.0.0.0/0";
    no_pod_neighbour: |s| s.observed.pod_neighbours.clear() => "neighbour 169.254.1.1";
    no_reservation: |s| s.record = None => "no reservation";
    cut_off: |s| s.record.as_mut().unwrap().state = State::Deleting => "not live";
    given_away: |s| s.unclaimed.push(ip(IP)) => "10.244.1.5 is no longer reserved";
    other_address_reserved: |s| s.record.as_mut().unwrap().addresses = vec!["10.244.1.6/24".parse().unwrap()]
        => "address 10.244.1.5 of prevResult is not reserved", "10.244.1.6 is not in prevResult", "address 10.244.1.6 of eth0";
    host_end_not_in_result: |s| s.result.interfaces[0].sandbox = Some(NETNS.to_owned()) => "does not list twe00e76fd76b4";
    interface_not_in_result: |s| s.result.interfaces[1].sandbox = Some("/run/netns/x".to_owned()) => "does not list eth0";
}

#[test]
fn as_add_leaves_it_nothing_differs() {
    assert_eq!(differences(&scene()), [] as [&str; 0]);
}

#[test]
fn what_other_plugins_add_does_not_differ() {
    let mut scene = scene();
    let observed = &mut scene.observed;
    let mut address = observed.pod_addresses[0].clone();
    address.network = "192.0.2.9/24".parse().unwrap();
    observed.pod_addresses.push(address);
    let mut route = Route::to("192.0.2.0/24".parse().unwrap(), 3);
    route.out = Some(POD);
    observed.pod_routes.push(route);
    scene.result.interfaces.push(Interface {
        name: "ifb0".to_owned(),
        ..Interface::default()
    });
    scene.result.ips.push(IpConfig {
        address: "192.0.2.9/24".parse().unwrap(),
        gateway: None,
        interface: Some(1),
    });
    scene
        .result
        .routes
        .push(PodRoute::to("198.51.100.0/24".parse().unwrap()));
    assert_eq!(differences(&scene), [] as [&str; 0]);
}

#[test]
fn what_other_plugins_change_counts_as_in_their_result() {
    let mut scene = scene();
    pod(&mut scene).mtu = 1400;
    assert_eq!(
        differences(&scene),
        Vec::<String>::new(),
        "as tuning does it"
    );
    host(&mut scene).mtu = 1400;
    assert_eq!(differences(&scene), [] as [&str; 0], "as the agent follows");
    host(&mut scene).mtu = 1300;
    assert_eq!(differences(&scene).len(), 1);
    host(&mut scene).mtu = 1450;
    scene.result.interfaces[1].mtu = Some(1400);
    assert_eq!(differences(&scene), [] as [&str; 0]);
    // A version without MTUs in its result cannot tell.
    scene.result.interfaces[1].mtu = None;
    scene.result.interfaces[0].mtu = None;
    assert_eq!(differences(&scene), [] as [&str; 0]);
    pod(&mut scene).mtu = 1500;
    assert_eq!(differences(&scene).len(), 1);
}

#[test]
fn a_kernel_without_ipv6_has_no_settings_to_differ() {
    let mut scene = scene();
    host(&mut scene).ipv6 = None;
    assert_eq!(differences(&scene), [] as [&str; 0]);
}

/// A scene whose record says what the ADD did.
fn made(made: Made) -> Scene {
    let mut scene = scene();
    scene.record.as_mut().unwrap().made = Some(made);
    scene
}

#[test]
fn settings_that_add_could_not_write_do_not_differ() {
    let mut scene = made(Made {
        unwritten: vec!["accept_ra".to_owned()],
        ..Made::default()
    });
    host(&mut scene).ipv6.as_mut().unwrap().accept_ra = 1;
    assert_eq!(differences(&scene), [] as [&str; 0]);
    host(&mut scene).ipv6.as_mut().unwrap().autoconf = 1;
    assert_eq!(differences(&scene).len(), 1);
}

#[test]
fn a_route_in_a_table_of_its_own_is_not_looked_for_in_the_main_one() {
    let elsewhere = PodRoute {
        gw: Some(GATEWAY_V4.into()),
        table: Some(100),
        ..PodRoute::to("10.0.0.0/8".parse().unwrap())
    };
    // As in the result of a version that has no tables.
    let in_result = PodRoute {
        table: None,
        ..elsewhere.clone()
    };
    let mut scene = made(Made {
        routes: vec![elsewhere.clone()],
        ..Made::default()
    });
    scene.result.routes.push(in_result.clone());
    assert_eq!(differences(&scene), [] as [&str; 0]);
    let made = scene.record.as_mut().unwrap().made.as_mut().unwrap();
    made.routes.push(in_result);
    assert_eq!(differences(&scene).len(), 1);
    scene.record.as_mut().unwrap().made = None;
    assert_eq!(differences(&scene).len(), 1);
    scene.result.routes.pop();
    scene.result.routes.push(PodRoute {
        table: Some(254),
        ..elsewhere
    });
    assert_eq!(differences(&scene).len(), 1, "the main table by its number");
}

#[test]
fn the_source_is_that_of_the_add_or_that_of_the_config() {
    let of = |source: &str, config: &str, at_add: Option<&str>| {
        let sources = |text: &str| -> Vec<IpAddr> { text.split_whitespace().map(ip).collect() };
        let mut scene = scene();
        scene.record.as_mut().unwrap().made = at_add.map(|text| Made {
            host_source: sources(text),
            ..Made::default()
        });
        scene.observed.host_routes[0].source = sources(source).first().copied();
        differences_with(&scene, &sources(config)).join(";")
    };
    let (old, new) = ("192.0.2.7", "192.0.2.8");
    assert_eq!(of(old, new, Some(old)), "");
    assert_eq!(of(new, new, Some(old)), "");
    assert_eq!(of("", new, Some("")), "");
    assert_eq!(of(old, "", Some(old)), "");
    assert!(of("192.0.2.9", new, Some(old)).contains("should be 192.0.2.8 or 192.0.2.7"));
    assert!(of("", new, Some(old)).contains("is none"));
    assert!(of(old, new, None).contains("should be 192.0.2.8"));
}
