use tweed_core::sysctl::set_to;
use tweed_netlink::link::{Ipv4Settings, Ipv6Settings, Vxlan};

use super::*;

fn link(index: u32, name: &str, group: u32, accept_ra: i32) -> (u32, Link) {
    let link = Link {
        index,
        name: name.to_owned(),
        group,
        alias: Some("tweed:tweed/c/eth0".to_owned()),
        ipv4: Some(Ipv4Settings {
            forwarding: 1,
            accept_redirects: 0,
            send_redirects: 1,
            rp_filter: 0,
        }),
        ipv6: Some(Ipv6Settings {
            disable_ipv6: 0,
            forwarding: 0,
            accept_ra,
            autoconf: 0,
            accept_redirects: 0,
            addr_gen_mode: 1,
        }),
        ..Link::default()
    };
    (index, link)
}

fn mirror() -> Mirror {
    Mirror {
        links: [
            link(2, "eth0", 0, 1),
            link(3, "eth1.5", 0, 0),
            link(9, "tw001122334455", 116, 1),
        ]
        .into(),
        ..Mirror::default()
    }
}

/// Number of writes, and problems.
fn write(sysctls: &Sysctls, desired: &[Sysctl]) -> (u64, Vec<Problem>) {
    let outcome = sysctls.write(desired);
    assert_eq!(outcome.failed(), !outcome.problems.is_empty());
    let written = outcome.written.values().sum();
    (written, outcome.problems)
}

fn names(sysctls: &[Sysctl]) -> Vec<String> {
    sysctls
        .iter()
        .map(|sysctl| format!("{}={}", sysctl.name(), sysctl.value))
        .collect()
}

#[test]
fn only_what_differs_on_pods_links_is_to_be_written() {
    let expected = [
        "net.ipv4.conf.tw001122334455.send_redirects=0",
        "net.ipv6.conf.tw001122334455.accept_ra=0",
    ];
    assert_eq!(names(&pod_link(&mirror().links[&9], true)), expected);
}

#[test]
fn ipv6_is_enabled_where_pods_have_it_and_new_links_are_without() {
    let (_, mut pod) = link(9, "tw001122334455", 116, 0);
    let (_, mut device) = link(3, "tweed.1", 0, 0);
    device.vxlan = Some(Vxlan::nolearning(1, 8472, "192.0.2.1".parse().unwrap()));
    for link in [&mut pod, &mut device] {
        link.ipv4 = None;
        link.ipv6.as_mut().unwrap().disable_ipv6 = 1;
    }
    let expected = ["net.ipv6.conf.tw001122334455.disable_ipv6=0"];
    assert_eq!(names(&pod_link(&pod, true)), expected);
    assert_eq!(names(&pod_link(&pod, false)), [""; 0]);

    let mirror = Mirror {
        links: [(3, device), link(2, "eth0", 0, 0)].into(),
        ..Mirror::default()
    };
    let machine = |family| names(&machine(&mirror, &[family].into(), &BTreeSet::new()));
    let expected = [
        "net.ipv6.conf.all.forwarding=1",
        "net.ipv6.conf.tweed/1.disable_ipv6=0",
    ];
    assert_eq!(machine(Family::V6), expected);
    assert_eq!(machine(Family::V4), ["net.ipv4.ip_forward=1"]);
}

#[test]
fn an_uplink_that_needs_advertisements_keeps_them_before_forwarding_is_on() {
    let machine = |families: &[Family]| {
        let families = families.iter().copied().collect();
        names(&machine(&mirror(), &families, &[2, 3].into()))
    };
    assert_eq!(machine(&[Family::V4]), ["net.ipv4.ip_forward=1"]);
    let expected = [
        "net.ipv6.conf.eth0.accept_ra=2",
        "net.ipv6.conf.all.forwarding=1",
    ];
    assert_eq!(machine(&[Family::V6]), expected);
    assert_eq!(machine(&[]), [""; 0]);
}

#[test]
fn every_remembered_value_is_known_by_its_path() {
    let families = [Family::V4, Family::V6].into();
    for sysctl in machine(&mirror(), &families, &[2].into()) {
        assert_eq!(set_to(&sysctl.path), Some(sysctl.value), "{}", sysctl.path);
    }
    for path in ["net/ipv4/tcp_ecn", "net/ipv6/conf/../../x/accept_ra", ""] {
        assert_eq!(set_to(path), None, "{path}");
    }
}

#[test]
fn a_dot_in_a_links_name_is_not_a_separator() {
    let sysctl = Sysctl::machine("net/ipv6/conf/eth1.5/accept_ra", 2);
    assert_eq!(sysctl.name(), "net.ipv6.conf.eth1/5.accept_ra");
}

#[test]
fn the_first_value_found_is_remembered_and_nothing_is_written_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (net, run) = (folder.path().join("net"), folder.path().join("run"));
    let file = net.join("ipv4/ip_forward");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "0\n").unwrap();
    let sysctls = Sysctls::new(&net, &run);
    let desired = [Sysctl::machine(IP_FORWARD, 1)];
    assert_eq!(write(&sysctls, &desired), (1, vec![]));
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), "1");
    assert_eq!(write(&sysctls, &desired), (0, vec![]));

    fs::write(&file, "7\n").unwrap();
    assert_eq!(write(&sysctls, &desired), (1, vec![]));
    let found = fs::read(run.join(FOUND)).unwrap();
    let found: BTreeMap<String, String> = serde_json::from_slice(&found).unwrap();
    assert_eq!(found, [(IP_FORWARD.to_owned(), "0".to_owned())].into());
}

#[test]
fn what_forwarding_changes_with_it_is_remembered_with_it_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    let (net, run) = (folder.path().join("net"), folder.path().join("run"));
    let put = |path: &str, value: &str| {
        fs::create_dir_all(net.join(path).parent().unwrap()).unwrap();
        fs::write(net.join(path), value).unwrap();
    };
    put("ipv4/ip_forward", "0\n");
    put("ipv4/conf/all/accept_redirects", "0\n");
    let sysctls = Sysctls::new(&net, &run);
    let desired = [Sysctl::machine(IP_FORWARD, 1)];
    assert_eq!(write(&sysctls, &desired), (1, vec![]));
    let found = || -> BTreeMap<String, String> {
        serde_json::from_slice(&fs::read(run.join(FOUND)).unwrap()).unwrap()
    };
    let redirects = "net/ipv4/conf/all/accept_redirects";
    assert_eq!(found().get(redirects).map(String::as_str), Some("0"));
    assert_eq!(found().len(), 2);

    // A value that was set afterwards is not one from before.
    put("ipv4/ip_forward", "0\n");
    put("ipv4/conf/eth0/forwarding", "1\n");
    assert_eq!(write(&sysctls, &desired), (1, vec![]));
    assert_eq!(found().len(), 2);
}

#[test]
fn what_cannot_be_set_is_a_problem_that_says_what_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let sysctls = Sysctls::new(&folder.path().join("none"), folder.path());
    let (written, problems) = write(&sysctls, &[Sysctl::machine(IP_FORWARD, 1)]);
    assert_eq!((written, problems.len()), (0, 1));
    assert!(problems[0].cure.contains("sysctl -w net.ipv4.ip_forward=1"));
    let gone = Sysctl {
        remembered: false,
        ..Sysctl::machine("net/ipv4/conf/tw0/send_redirects", 0)
    };
    assert_eq!(write(&sysctls, &[gone]), (0, vec![]));
}
