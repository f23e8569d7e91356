//! Defaults, and flags that contradict each other or are refused.

use clap::Parser;

use super::*;
use crate::config::{FastPath, LogFormat};
use tweed_planner::config::{Backend, Masquerade, MasqueradeIpv6, MasqueradeNodes};

fn flags(line: &str) -> Flags {
    let args = std::iter::once("tweed-agent").chain(line.split_whitespace());
    Flags::try_parse_from(args).unwrap()
}

fn resolve(line: &str) -> Result<Config, ConfigError> {
    flags(line).resolve(|| Ok("Worker-1.Example".to_owned()))
}

/// What clap prints for a line that it refuses.
fn refused(line: &str) -> String {
    let args = std::iter::once("tweed-agent").chain(line.split_whitespace());
    Flags::try_parse_from(args).unwrap_err().to_string()
}

#[test]
fn without_flags_the_defaults_of_the_design_hold() {
    let config = resolve("").unwrap();
    let expected = Config {
        source: SourceConfig::Kubernetes(Access::InCluster { server: None }),
        overlay: tweed_planner::config::Config {
            node_name: "worker-1.example".to_owned(),
            backend: Backend::Vxlan,
            cluster_cidrs: Vec::new(),
            vni: 1,
            vxlan_port: 8472,
            underlay: None,
            underlay_family: None,
            mtu: Mtu::Auto,
            masquerade: Masquerade::RandomFully,
            masquerade_ipv6: MasqueradeIpv6::Auto,
            masquerade_nodes: MasqueradeNodes::Auto,
        },
        probe_peers: true,
        policy: true,
        policy_log: false,
        policy_wait: std::time::Duration::from_secs(2),
        services: None,
        conntrack_limits: false,
        fast_path: FastPath::Off,
        fast_path_flows: 65_536,
        bpf_dir: "/sys/fs/bpf/tweed".into(),
        services_health_addr: "[::]:10256".parse().unwrap(),
        services_metrics_addr: "127.0.0.1:10249".parse().unwrap(),
        metrics_addr: "127.0.0.1:9116".parse().unwrap(),
        metrics_auth: MetricsAuth::None,
        health_addr: "127.0.0.1:9117".parse().unwrap(),
        cni_conf_dir: "/etc/cni/net.d".into(),
        cni_bin_dir: "/opt/cni/bin".into(),
        run_dir: "/run/tweed".into(),
        sysctl_dir: "/proc/sys/net".into(),
        boot_id_file: "/proc/sys/kernel/random/boot_id".into(),
        nft: "nft".into(),
        once: false,
        once_limit: ONCE_LIMIT,
        log_format: LogFormat::Text,
        log_level: "info".to_owned(),
    };
    assert_eq!(config, expected);
}

#[test]
fn one_cluster_cidr_per_family_is_taken_however_it_is_typed() {
    for line in [
        "--cluster-cidr 10.244.0.0/16,fd00::/48",
        "--cluster-cidr 10.244.0.0/16 --cluster-cidr fd00::/48",
    ] {
        let cidrs = resolve(line).unwrap().overlay.cluster_cidrs;
        let expected: Vec<IpNetwork> = vec![
            "10.244.0.0/16".parse().unwrap(),
            "fd00::/48".parse().unwrap(),
        ];
        assert_eq!(cidrs, expected);
    }
}

#[test]
fn services_are_planned_from_their_own_flags_and_those_of_the_overlay() {
    let line = "--services on --node-name a --cluster-cidr 10.244.0.0/16";
    let expected = Options {
        node_name: "a".to_owned(),
        node_port_addresses: NodePortAddresses {
            primary: true,
            networks: Vec::new(),
        },
        external_ips: false,
        load_balancer_cidrs: ["0.0.0.0/0", "::/0"].map(|all| all.parse().unwrap()).into(),
    };
    assert_eq!(resolve(line).unwrap().services, Some(expected));
    assert!(resolve(line).unwrap().conntrack_limits);
    let off = format!("{line} --conntrack-limits off");
    assert!(!resolve(&off).unwrap().conntrack_limits);
    let node_ports = |parts: &str| {
        let line = format!("--services on --nodeport-addresses {parts}");
        let addresses = resolve(&line)
            .unwrap()
            .services
            .unwrap()
            .node_port_addresses;
        let networks = addresses.networks.iter().map(ToString::to_string);
        (addresses.primary, networks.collect::<Vec<_>>().join(" "))
    };
    assert_eq!(node_ports("all"), (false, "0.0.0.0/0 ::/0".to_owned()));
    let mixed = node_ports("primary,192.0.2.0/24");
    assert_eq!(mixed, (true, "192.0.2.0/24".to_owned()));
    let line = "--services on --load-balancer-cidrs 192.0.2.0/24,2001:db8::/32";
    let cidrs = resolve(line).unwrap().services.unwrap().load_balancer_cidrs;
    let expected = ["192.0.2.0/24", "2001:db8::/32"].map(|cidr| cidr.parse().unwrap());
    assert_eq!(cidrs, expected);
}

#[test]
fn a_node_s_address_can_stand_before_the_port_whatever_its_family() {
    for (typed, expected) in [
        ("192.0.2.7:9116", "192.0.2.7:9116"),
        ("[2001:db8::7]:9116", "[2001:db8::7]:9116"),
        ("2001:db8::7:9116", "[2001:db8::7]:9116"),
        ("::1:9116", "[::1]:9116"),
    ] {
        let config = resolve(&format!("--metrics-addr {typed}")).unwrap();
        assert_eq!(config.metrics_addr.to_string(), expected, "{typed}");
    }
}

/// White space before a directive made `tracing-subscriber` panic, or refuse it.
#[test]
fn a_log_filter_may_have_white_space_between_its_directives() {
    for (typed, expected) in [
        (" info, tweed_watch=debug ,", "info,tweed_watch=debug"),
        ("\t-\u{4840}\u{3000}=off", "-\u{4840}\u{3000}=off"),
    ] {
        let flags = Flags::try_parse_from(["tweed-agent", "--log-level", typed]).unwrap();
        assert_eq!(flags.log_level, expected, "{typed:?}");
    }
}

#[test]
fn a_pod_is_told_where_the_api_server_is_if_its_service_may_not_work_yet() {
    let config = resolve("--api-server https://[2001:db8::1]:6443").unwrap();
    let server = Some("https://[2001:db8::1]:6443".parse().unwrap());
    let expected = SourceConfig::Kubernetes(Access::InCluster { server });
    assert_eq!(config.source, expected);
}

#[test]
fn the_host_name_is_asked_only_when_it_is_needed() {
    let unreadable = || Err("EPERM".to_owned());
    let named = flags("--node-name a").resolve(unreadable);
    assert_eq!(named.unwrap().overlay.node_name, "a");
    let unnamed = flags("").resolve(unreadable).unwrap_err();
    assert!(unnamed.to_string().contains("--node-name"), "{unnamed}");
    let bad = flags("").resolve(|| Ok("my_host".to_owned())).unwrap_err();
    let why = "the host name \"my_host\" cannot be a Node's name; pass --node-name";
    assert_eq!(bad.to_string(), why);
}

#[test]
fn the_underlay_decides_the_family_unless_both_are_given_and_differ() {
    let config = resolve("--underlay fd01::/64").unwrap();
    assert_eq!(config.overlay.underlay_family, Some(Family::V6));
    let error = resolve("--underlay fd01::/64 --underlay-family ipv4").unwrap_err();
    assert!(
        error.to_string().contains("fd01::/64 is not IPv4"),
        "{error}"
    );
}

macro_rules! contradictions {
    ($($name:ident: $line:literal => $says:literal;)*) => {$(
        #[test]
        fn $name() {
            let error = resolve($line).unwrap_err().to_string();
            assert!(error.contains($says), "{error}");
        }
    )*};
}
contradictions! {
    two_cluster_cidrs_of_one_family:
        "--cluster-cidr 10.0.0.0/16,10.1.0.0/16" => "both are IPv4; allowed is one per family";
    a_cluster_cidr_of_everything: "--cluster-cidr 0.0.0.0/0" => "every address there is";
    a_loopback_cluster_cidr: "--cluster-cidr 127.1.0.0/16" => "loopback";
    a_link_local_cluster_cidr: "--cluster-cidr fe80::/64" => "link-local";
    a_multicast_cluster_cidr: "--cluster-cidr 239.0.0.0/8" => "multicast";
    an_mtu_too_small_for_ipv6: "--cluster-cidr fd00::/48 --mtu 1000" => "1280 and more";
    reviews_without_an_api_server: "--nodes a --metrics-auth token-review" => "with --nodes there is none";
    two_listeners_on_one_port: "--metrics-addr 127.0.0.1:9117" => "give them two ports";
    a_listener_on_all_ipv4: "--metrics-addr 0.0.0.0:9117" => "--metrics-addr 0.0.0.0:9117";
    a_listener_on_everything: "--health-addr [::]:9116" => "--health-addr [::]:9116";
    a_listener_on_kube_proxy_s_port: "--services on --metrics-addr 192.0.2.7:10256" => "--services-health-addr [::]:10256";
    two_listeners_of_services_on_one_port: "--services on --services-metrics-addr [::1]:10256" => "--services-metrics-addr [::1]:10256";
}

macro_rules! refusals {
    ($($name:ident: $line:literal => $flag:literal, $says:literal;)*) => {$(
        #[test]
        fn $name() {
            let error = refused($line);
            assert!(error.contains($flag), "{error}");
            assert!(error.contains($says), "{error}");
        }
    )*};
}
#[test]
fn two_listeners_may_have_one_port_on_two_addresses() {
    for line in [
        "--metrics-addr 192.0.2.7:9117",
        "--metrics-addr 0.0.0.0:9117 --health-addr [::1]:9117",
        "--services off --metrics-addr 192.0.2.7:10256",
    ] {
        resolve(line).unwrap();
    }
}

refusals! {
    vni_zero: "--vni 0" => "'0' for '--vni", "1..=16777215";
    vni_of_25_bits: "--vni 16777216" => "'16777216' for '--vni", "1..=16777215";
    port_zero: "--vxlan-port 0" => "--vxlan-port", "1..=65535";
    cluster_cidr_with_host_bits: "--cluster-cidr 10.244.1.0/16" => "--cluster-cidr", "did you mean 10.244.0.0/16?";
    cluster_cidr_without_prefix: "--cluster-cidr 10.244.0.0" => "--cluster-cidr", "not a CIDR";
    underlay_of_words: "--underlay eth0" => "--underlay", "not a CIDR";
    mtu_of_575: "--mtu 575" => "--mtu", "auto, or a number of bytes from 576";
    mtu_of_words: "--mtu big" => "--mtu", "auto, or a number of bytes from 576";
    node_name_in_capitals: "--node-name Worker" => "--node-name", "lower-case letters";
    run_dir_relative: "--run-dir run/tweed" => "--run-dir", "not an absolute path";
    sysctl_dir_relative: "--sysctl-dir proc/sys/net" => "--sysctl-dir", "not an absolute path";
    boot_id_file_relative: "--boot-id-file boot_id" => "--boot-id-file", "not an absolute path";
    metrics_addr_without_port: "--metrics-addr 192.0.2.7" => "--metrics-addr", "an address and a port";
    metrics_addr_of_words: "--metrics-addr localhost:9116" => "--metrics-addr", "an address and a port";
    health_addr_without_port: "--health-addr 127.0.0.1" => "--health-addr", "an address and a port";
    node_ports_at_loopback: "--nodeport-addresses primary,localhost" => "--nodeport-addresses", "leave localhost out";
    node_ports_at_words: "--nodeport-addresses eth0" => "--nodeport-addresses", "primary and all are allowed too";
    load_balancers_in_words: "--load-balancer-cidrs none" => "--load-balancer-cidrs", "all is allowed too";
    policy_wait_of_words: "--policy-wait long" => "--policy-wait", "2s or 500ms";
    policy_wait_without_unit: "--policy-wait 2" => "--policy-wait", "2s or 500ms";
    policy_wait_of_an_hour: "--policy-wait 3600s" => "--policy-wait", "0 to 60s";
    api_server_without_tls: "--api-server http://192.0.2.7:6443" => "--api-server", "https://";
    api_server_without_scheme: "--api-server 192.0.2.7:6443" => "--api-server", "https://";
    api_server_beside_nodes: "--nodes a --api-server https://a" => "--api-server", "cannot be used with";
    backend_unknown: "--backend ipip" => "--backend", "cross-subnet";
    log_level_unknown: "--log-level loud=louder" => "--log-level", "not a log filter";
    log_level_misspelt: "--log-level inof" => "--log-level", "inof is no level";
    log_level_of_a_target_misspelt: "--log-level tweed=inof" => "--log-level", "not a log filter";
    log_level_misspelt_beside_others: "--log-level tweed_watch=debug,warm" => "--log-level", "warm is no level";
    log_level_of_commas: "--log-level ,," => "--log-level", "empty";
    two_sources: "--nodes a --kubeconfig b" => "--nodes <FILE>", "cannot be used with";
}
