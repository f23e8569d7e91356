use std::collections::BTreeMap;
use std::path::PathBuf;

use tweed_core::sysctl::{FOUND, IP_FORWARD, set_to};
use tweed_netlink::link::{Ipv4Settings, Ipv6Settings, Link, Vxlan};

use super::*;
use crate::reconcile::kernel::mirror::Mirror;

const BOOT: &str = "11111111-1111-4111-8111-111111111111";
const BOTH: [Family; 2] = [Family::V4, Family::V6];
/// A machine on which nobody has switched forwarding on.
const HOST: Defaults = Defaults {
    ipv4_forwarding: Some(0),
    ipv6_forwarding: Some(0),
    accept_ra: Some(1),
    ipv6_off: true,
    switched: false,
};

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
            mtu: 1500,
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
    let mut found = sysctls.found.read().unwrap();
    let outcome = sysctls.write(desired, Some(&mut found));
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
    assert_eq!(
        names(&pod_link(&mirror().links[&9], &BOTH.into())),
        expected
    );
}

#[test]
fn links_of_tweed_forward_ipv4_where_pods_have_it() {
    let mut mirror = mirror();
    let (_, mut tweed) = link(4, "tweed.1", 0, 0);
    tweed.vxlan = Some(Vxlan::nolearning(1, 8472, "192.0.2.1".parse().unwrap()));
    mirror.links.insert(4, tweed);
    for link in mirror.links.values_mut() {
        let v4 = link.ipv4.as_mut().unwrap();
        (v4.forwarding, v4.send_redirects) = (0, 0);
        link.ipv6 = None;
    }
    let pod = |family: Family| names(&pod_link(&mirror.links[&9], &[family].into()));
    let expected = ["net.ipv4.conf.tw001122334455.forwarding=1"];
    assert_eq!(pod(Family::V4), expected);
    assert_eq!(pod(Family::V6), [""; 0]);
    let of_device = |family: Family| names(&device(&mirror, &[family].into()));
    assert_eq!(
        of_device(Family::V4),
        ["net.ipv4.conf.tweed/1.forwarding=1"]
    );
    assert_eq!(of_device(Family::V6), [""; 0]);
}

#[test]
fn links_of_others_that_do_not_forward_are_named_and_left_alone() {
    let mut mirror = mirror();
    let on = Defaults {
        ipv4_forwarding: Some(1),
        ..HOST
    };
    let named = |mirror: &Mirror, direct, defaults: &Defaults| -> Vec<(String, Effect)> {
        let problems = forwarding_off(mirror, &[2].into(), || direct, defaults);
        let objects = problems.into_iter().map(|one| (one.object, one.effect));
        objects.collect()
    };
    assert_eq!(named(&mirror, true, &on), []);
    let default = (
        "net.ipv4.conf.default.forwarding".to_owned(),
        Effect::Warning,
    );
    assert_eq!(named(&mirror, true, &HOST), [default]);
    for link in mirror.links.values_mut() {
        link.ipv4.as_mut().unwrap().forwarding = 0;
    }
    let uplink = |effect| ("net.ipv4.conf.eth0.forwarding".to_owned(), effect);
    assert_eq!(named(&mirror, false, &on), [uplink(Effect::Warning)]);
    assert_eq!(named(&mirror, true, &on), [uplink(Effect::RunningPods)]);
    let problem = forwarding_off(&mirror, &[2].into(), || false, &on).remove(0);
    assert!(
        problem
            .cure
            .contains("sysctl -w net.ipv4.conf.eth0.forwarding=1")
    );
    mirror.links.get_mut(&2).unwrap().loopback = true;
    assert_eq!(named(&mirror, true, &on), []);
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
    assert_eq!(names(&pod_link(&pod, &BOTH.into())), expected);
    assert_eq!(names(&pod_link(&pod, &[Family::V4].into())), [""; 0]);

    device.ipv6.as_mut().unwrap().accept_ra = 2;
    let mirror = Mirror {
        links: [(3, device), link(2, "eth0", 0, 0)].into(),
        ..Mirror::default()
    };
    let of_device = |family| names(&super::device(&mirror, &[family].into()));
    let expected = [
        "net.ipv6.conf.tweed/1.accept_ra=0",
        "net.ipv6.conf.tweed/1.disable_ipv6=0",
    ];
    assert_eq!(of_device(Family::V6), expected);
    assert_eq!(of_device(Family::V4), [""; 0]);
}

fn machine_of(mirror: &Mirror, families: &[Family], defaults: &Defaults) -> Vec<String> {
    names(&machine(
        mirror,
        &families.iter().copied().collect(),
        defaults,
    ))
}

/// Whether or not one has come yet: the next would be the first that is ignored.
#[test]
fn links_that_accept_advertisements_still_do_when_forwarding_is_on() {
    let mut mirror = mirror();
    let (_, mut lo) = link(1, "lo", 0, 1);
    lo.loopback = true;
    mirror.links.insert(1, lo);
    assert_eq!(
        machine_of(&mirror, &[Family::V4], &HOST),
        ["net.ipv4.ip_forward=1"]
    );
    let expected = [
        "net.ipv6.conf.eth0.accept_ra=2",
        "net.ipv6.conf.default.accept_ra=2",
        "net.ipv6.conf.all.forwarding=1",
    ];
    assert_eq!(machine_of(&mirror, &[Family::V6], &HOST), expected);
    assert_eq!(machine_of(&mirror, &[], &HOST), [""; 0]);
}

/// A link that came later, or whose setting somebody wrote again.
#[test]
fn forwarding_that_is_on_decides_by_who_switched_it_on() {
    let mut mirror = mirror();
    for link in mirror.links.values_mut() {
        link.ipv6.as_mut().unwrap().forwarding = 1;
    }
    let defaults = |switched| Defaults {
        ipv6_forwarding: Some(1),
        accept_ra: Some(2),
        ipv6_off: false,
        switched,
        ..HOST
    };
    let ours = [
        "net.ipv6.conf.eth0.accept_ra=2",
        "net.ipv6.conf.all.forwarding=1",
    ];
    assert_eq!(machine_of(&mirror, &[Family::V6], &defaults(true)), ours);
    let others = ["net.ipv6.conf.all.forwarding=1"];
    assert_eq!(machine_of(&mirror, &[Family::V6], &defaults(false)), others);
    // Somebody keeps this link a host's although the machine forwards.
    mirror
        .links
        .get_mut(&2)
        .unwrap()
        .ipv6
        .as_mut()
        .unwrap()
        .forwarding = 0;
    assert_eq!(machine_of(&mirror, &[Family::V6], &defaults(false)), others);
}

#[test]
fn every_remembered_value_is_known_by_its_path() {
    for sysctl in machine(&mirror(), &BOTH.into(), &HOST) {
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
    let sysctls = Sysctls::new(&net, &run, BOOT);
    let desired = [Sysctl::machine(IP_FORWARD, 1)];
    assert_eq!(write(&sysctls, &desired), (1, vec![]));
    assert_eq!(fs::read_to_string(&file).unwrap().trim(), "1");
    assert_eq!(write(&sysctls, &desired), (0, vec![]));

    fs::write(&file, "7\n").unwrap();
    assert_eq!(write(&sysctls, &desired), (1, vec![]));
    assert_eq!(
        sysctls.found.read().unwrap().values,
        [(IP_FORWARD.to_owned(), "0".to_owned())].into()
    );
}

/// Gives a sysctl below `net` a value.
fn put(net: &Path, path: &str, value: &str) {
    fs::create_dir_all(net.join(path).parent().unwrap()).unwrap();
    fs::write(net.join(path), value).unwrap();
}

/// The machine forwarded before tweed: an uninstallation must not switch that off.
#[test]
fn a_value_that_was_right_at_the_first_look_is_the_one_from_before() {
    let folder = tempfile::tempdir().unwrap();
    let (net, run) = (folder.path().join("net"), folder.path().join("run"));
    let put = |path: &str, value: &str| put(&net, path, value);
    put("ipv4/ip_forward", "1\n");
    put("ipv4/conf/eth0/forwarding", "1\n");
    let sysctls = Sysctls::new(&net, &run, BOOT);
    let desired = [Sysctl::machine(IP_FORWARD, 1)];
    assert_eq!(write(&sysctls, &desired), (0, vec![]));
    put("ipv4/ip_forward", "0\n");
    assert_eq!(write(&sysctls, &desired), (1, vec![]));
    assert_eq!(
        sysctls.found.read().unwrap().values,
        [(IP_FORWARD.to_owned(), "1".to_owned())].into()
    );
}

/// As an older version wrote it: with its next boot it is one of an earlier boot.
#[test]
fn a_file_without_a_boot_id_is_kept_and_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let (net, run) = (folder.path().join("net"), folder.path().join("run"));
    fs::create_dir_all(net.join("ipv4")).unwrap();
    fs::create_dir_all(&run).unwrap();
    fs::write(net.join("ipv4/ip_forward"), "1\n").unwrap();
    fs::write(run.join(FOUND), r#"{"net/ipv4/ip_forward": "0"}"#).unwrap();
    let sysctls = Sysctls::new(&net, &run, BOOT);
    let desired = [Sysctl::machine(IP_FORWARD, 1)];
    assert_eq!(write(&sysctls, &desired), (0, vec![]));
    let found = sysctls.found.read().unwrap();
    assert_eq!(
        found.values,
        [(IP_FORWARD.to_owned(), "0".to_owned())].into()
    );
    let rebooted = Sysctls::new(&net, &run, "another boot");
    assert_eq!(rebooted.found.read().unwrap().values, BTreeMap::new());
}

/// With a folder where nothing can be stored, as on a full disk.
#[test]
fn a_value_that_is_right_and_cannot_be_remembered_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let (net, run) = (folder.path().join("net"), folder.path().join("run"));
    fs::create_dir_all(net.join("ipv4")).unwrap();
    fs::write(net.join("ipv4/ip_forward"), "1\n").unwrap();
    // Another file cannot take the name of a folder.
    fs::create_dir_all(run.join(FOUND)).unwrap();
    let sysctls = Sysctls::new(&net, &run, BOOT);
    let desired = [Sysctl::machine(IP_FORWARD, 1)];
    let outcome = sysctls.write(&desired, Some(&mut Found::none_in(BOOT)));
    let [problem] = &outcome.problems[..] else {
        panic!("{:?}", outcome.problems);
    };
    assert_eq!(problem.kind, ProblemKind::SysctlsFile);
    assert_eq!(problem.effect, Effect::Warning);
    assert_eq!(problem.object, run.join(FOUND).display().to_string());
    assert!(!outcome.failed(), "every pass would fail");
}

/// It is not tweed that switches it on then, and links accept as much as before.
#[test]
fn forwarding_that_was_on_and_is_off_for_a_moment_changes_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ipv6/conf/all/forwarding");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, "0\n").unwrap();
    let sysctls = Sysctls::new(folder.path(), folder.path(), BOOT);
    let changed = |found: Option<&str>| {
        let value = found.map(|value| (FORWARDING_V6.to_owned(), value.to_owned()));
        let mut found = Found::none_in(BOOT);
        found.values.extend(value);
        let defaults = sysctls.defaults(&BOTH.into(), Some(&found));
        machine_of(&mirror(), &[Family::V6], &defaults)
    };
    let accepts = "net.ipv6.conf.eth0.accept_ra=2";
    let forwards = "net.ipv6.conf.all.forwarding=1";
    assert_eq!(changed(Some("1")), [forwards]);
    assert_eq!(changed(None), [accepts, forwards]);
    assert_eq!(changed(Some("0")), [accepts, forwards]);
    fs::write(&file, "1\n").unwrap();
    assert_eq!(changed(Some("0")), [accepts, forwards]);
    assert_eq!(changed(Some("1")), [forwards]);
    assert_eq!(changed(None), [forwards]);
}

#[test]
fn what_forwarding_changes_with_it_is_remembered_with_it_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    let (net, run) = (folder.path().join("net"), folder.path().join("run"));
    let put = |path: &str, value: &str| put(&net, path, value);
    put("ipv4/ip_forward", "0\n");
    put("ipv4/conf/all/accept_redirects", "0\n");
    let sysctls = Sysctls::new(&net, &run, BOOT);
    let desired = [Sysctl::machine(IP_FORWARD, 1)];
    assert_eq!(write(&sysctls, &desired), (1, vec![]));
    let found = || sysctls.found.read().unwrap().values;
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
    let sysctls = Sysctls::new(&folder.path().join("none"), folder.path(), BOOT);
    let (written, problems) = write(&sysctls, &[Sysctl::machine(IP_FORWARD, 1)]);
    assert_eq!((written, problems.len()), (0, 1));
    assert!(problems[0].cure.contains("sysctl -w net.ipv4.ip_forward=1"));
    // With its link.
    let gone = Sysctl::machine("net/ipv6/conf/eth0/accept_ra", 2);
    assert_eq!(write(&sysctls, &[gone]), (0, vec![]));
}

fn conntrack_of(folder: &Path, name: &str) -> PathBuf {
    folder
        .join("net/netfilter")
        .join(format!("nf_conntrack_{name}"))
}

/// Sysctls in a folder that has those of conntrack. As files are not cut off when they are
/// written, unlike sysctls, no value is longer than the one that replaces it.
fn conntrack_sysctls(folder: &Path) -> Sysctls {
    fs::create_dir_all(folder.join("net/netfilter")).unwrap();
    for (name, value) in [
        ("max", "1"),
        ("buckets", "2147483647"),
        ("tcp_timeout_established", "43200"),
        ("tcp_timeout_close_wait", "60"),
    ] {
        fs::write(conntrack_of(folder, name), format!("{value}\n")).unwrap();
    }
    Sysctls::new(&folder.join("net"), &folder.join("run"), BOOT)
}

#[test]
fn limits_of_conntrack_are_only_raised_and_nothing_is_kept_for_the_uninstallation() {
    let folder = tempfile::tempdir().unwrap();
    let sysctls = conntrack_sysctls(folder.path());
    let read = |name: &str| -> i64 {
        let text = fs::read_to_string(conntrack_of(folder.path(), name)).unwrap();
        text.trim().parse().unwrap()
    };
    let outcome = sysctls.reconcile_conntrack();
    assert_eq!(outcome.problems, []);
    assert_eq!(outcome.written[&ObjectKind::Sysctl], 3);
    assert!(read("max") >= 131_072);
    assert_eq!(read("buckets"), 2_147_483_647);
    assert_eq!(read("tcp_timeout_established"), 86_400);
    assert_eq!(read("tcp_timeout_close_wait"), 3600);
    assert!(!folder.path().join("run").join(FOUND).exists());
    assert!(sysctls.reconcile_conntrack().written.is_empty());
}

#[test]
fn limits_that_only_the_machine_can_set_are_no_problem_and_timeouts_are() {
    let folder = tempfile::tempdir().unwrap();
    let sysctls = conntrack_sysctls(folder.path());
    let max = conntrack_of(folder.path(), "max");
    fs::set_permissions(&max, fs::Permissions::from_mode(0o444)).unwrap();
    assert_eq!(sysctls.reconcile_conntrack().problems, []);
    assert_eq!(fs::read_to_string(&max).unwrap(), "1\n");
    // Not a file: as little can be written there as on a read-only mount.
    let timeout = conntrack_of(folder.path(), "tcp_timeout_close_wait");
    fs::remove_file(&timeout).unwrap();
    fs::create_dir(&timeout).unwrap();
    let outcome = sysctls.reconcile_conntrack();
    let [problem] = &outcome.problems[..] else {
        panic!("{:?}", outcome.problems);
    };
    assert!(!outcome.failed(), "every pass would fail");
    let name = "net.netfilter.nf_conntrack_tcp_timeout_close_wait";
    assert_eq!((&*problem.object, problem.effect), (name, Effect::Warning));
    assert!(
        problem.cure.contains("--conntrack-limits"),
        "{}",
        problem.cure
    );
}
