//! tweed with other IPAM plugins, and other main plugins with `tweed-ipam`.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use serde_json::{Value, json};
use tweed_lab::{AddResult, PingOptions, PluginCall, Pod, Snapshot, ping};

use crate::fixture::{Fixture, MTU, NETWORK, assert_refused, assert_refused_with, assert_silent};

/// ADD, ping, CHECK, STATUS, and DEL twice, by `cnitool`.
fn check_all_verbs(fixture: &Fixture, config: &Value) {
    let before = fixture.snapshot();
    let pod = fixture.pod("pod");
    fixture.write_chain("1.1.0", std::slice::from_ref(config));
    let tool = fixture.tool();
    let added = tool.add(&pod).unwrap();
    let to = added.address().unwrap();
    let report = ping(fixture.node.netns(), to, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
    tool.check(&pod).unwrap();
    tool.status().unwrap();
    tool.del(&pod).unwrap();
    tool.del(&pod).unwrap();
    assert_nothing_left(fixture, &before);
}

/// Checks that nothing is left but the bridge, which is kept for the next pod.
fn assert_nothing_left(fixture: &Fixture, before: &Snapshot) {
    let bridges = |line: &str| line.contains("cni0") || line.contains("lower0");
    let after = fixture.snapshot().without(bridges);
    assert_eq!(before.clone().without(bridges).changes(&after), [""; 0]);
    assert_eq!(fixture.reserved(), [].into());
    assert_eq!(fixture.records(), 0);
}

fn over(fixture: &Fixture, ipam: Value) -> Value {
    let mut config = fixture.config();
    config["ipam"] = ipam;
    config
}

fn host_local(fixture: &Fixture) -> Value {
    over(
        fixture,
        json!({ "type": "host-local", "dataDir": fixture.node.run_dir().join("host-local"),
                "ranges": [[{ "subnet": "10.244.1.0/28" }]] }),
    )
}

mod tweed_over {
    use super::*;

    #[test]
    fn host_local_() {
        let fixture = Fixture::tweed();
        check_all_verbs(&fixture, &host_local(&fixture));
    }

    /// The kernel then keeps nothing of a process that has ended, and who waits for it gets
    /// an error instead of its exit status.
    #[test]
    fn host_local_under_a_runtime_that_ignores_sigchld() {
        let fixture = Fixture::tweed();
        let before = fixture.snapshot();
        let config = host_local(&fixture);
        let plugin = fixture.wrapper("ignoring", "exec env --ignore-signal=CHLD $PLUGIN");
        let pod = fixture.pod("pod");
        for verb in ["ADD", "DEL"] {
            let call = fixture.call(verb, &pod).config(&config);
            let output = call.run(&fixture.node, &plugin).unwrap();
            assert_eq!(output.code, Some(0), "{verb}: {output:?}");
        }
        drop(pod);
        fixture.assert_nothing_left(&before);
    }

    #[test]
    fn static_() {
        let fixture = Fixture::tweed();
        let ipam = json!({ "type": "static", "addresses": [{ "address": "10.244.1.77/24" }] });
        check_all_verbs(&fixture, &over(&fixture, ipam));
    }

    #[test]
    fn static_of_both_families_with_routes_and_dns() {
        let fixture = Fixture::tweed();
        let ipam = json!({
            "type": "static",
            "addresses": [{ "address": "10.244.1.77/24", "gateway": "10.244.1.1" },
                          { "address": "fd00:244:1::77/64" }],
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "fd00::/8" }],
            "dns": { "nameservers": ["10.96.0.10"], "search": ["svc.local"] },
        });
        let added = fixture.add_with(&fixture.pod("pod"), &over(&fixture, ipam));
        // The pod has a host prefix; the gateway is that of the IPAM result.
        assert_eq!(
            added.document["ips"],
            json!([
                { "address": "10.244.1.77/32", "gateway": "10.244.1.1", "interface": 1 },
                { "address": "fd00:244:1::77/128", "gateway": "fe80::1", "interface": 1 },
            ])
        );
        assert_eq!(added.document["dns"]["nameservers"], json!(["10.96.0.10"]));
        let routes = added.document["routes"].as_array().unwrap().iter();
        let dsts: Vec<_> = routes.map(|route| &route["dst"]).collect();
        assert_eq!(dsts, ["0.0.0.0/0", "fd00::/8"]);
    }

    #[test]
    fn a_full_host_local() {
        let fixture = Fixture::tweed();
        let mut config = host_local(&fixture);
        config["ipam"]["ranges"] = json!([[{ "subnet": "10.244.1.0/30" }]]);
        let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
        fixture.add_with(&one, &config);
        let before = fixture.snapshot();
        let document = assert_refused(&fixture.run(&fixture.call("ADD", &two).config(&config)));
        assert!(
            document["msg"]
                .as_str()
                .unwrap()
                .contains("no IP addresses available")
        );
        fixture.assert_same_kernel(&before);
        assert_eq!(fixture.records(), 1, "that of the first pod");
    }

    #[test]
    fn a_plugin_that_does_not_exist() {
        let fixture = Fixture::tweed();
        let before = fixture.snapshot();
        let config = over(&fixture, json!({ "type": "no-such-ipam" }));
        let output = fixture.run(&fixture.call("ADD", &fixture.pod("pod")).config(&config));
        assert_refused_with(&output, 106, &["no-such-ipam", "CNI_PATH"]);
        fixture.assert_nothing_left(&before);
    }

    #[test]
    fn an_existing_interface_frees_the_address_again() {
        let fixture = Fixture::tweed();
        let config = host_local(&fixture);
        let pod = fixture.pod("pod");
        pod.netns().ip(["link add eth0 type bridge"]).unwrap();
        let before = fixture.snapshot();
        assert_refused_with(
            &fixture.run(&fixture.call("ADD", &pod).config(&config)),
            102,
            &[],
        );
        fixture.assert_nothing_left(&before);
        assert_eq!(host_locals(&fixture), [] as [&str; 0]);
    }

    #[test]
    fn gc_reaches_the_kernel_and_the_other_plugin() {
        let fixture = Fixture::tweed();
        let before = fixture.snapshot();
        let mut config = host_local(&fixture);
        let added = fixture.add_with(&fixture.pod("pod"), &config);
        assert_eq!(
            host_locals(&fixture),
            [added.address().unwrap().to_string()]
        );
        config["cni.dev/valid-attachments"] = json!([]);
        assert_silent(&fixture.run(&PluginCall::new("GC").config(&config)));
        assert_eq!(host_locals(&fixture), [""; 0]);
        fixture.assert_nothing_left(&before);
    }

    /// Each of the two pods was added with host-local, and is deleted after the switch.
    #[test]
    fn a_switch_to_tweed_ipam_in_the_same_folder_frees_what_host_local_gave() {
        let fixture = Fixture::tweed();
        let before = fixture.snapshot();
        let host_local = host_local(&fixture);
        let mut own = host_local.clone();
        own["ipam"]["type"] = "tweed-ipam".into();
        let [by_tweed, by_ptp] = ["by-tweed", "by-ptp"].map(|name| fixture.pod(name));
        fixture.add_with(&by_tweed, &host_local);
        let ptp = |verb: &str, config: &Value| {
            let mut config = config.clone();
            config["type"] = "ptp".into();
            let call = fixture.call(verb, &by_ptp).config(&config);
            let output = call.run(&fixture.node, "ptp").unwrap();
            assert_eq!(output.code, Some(0), "{output:?}");
        };
        ptp("ADD", &host_local);
        assert_eq!(host_locals(&fixture).len(), 2);
        ptp("DEL", &own);
        assert_eq!(host_locals(&fixture).len(), 1);
        let call = fixture.call("DEL", &by_tweed).config(&own);
        assert_silent(&fixture.run(&call));
        assert_eq!(host_locals(&fixture), [""; 0]);
        drop([by_tweed, by_ptp]);
        fixture.assert_same_kernel(&before);
    }

    /// The other plugin has no files in the store's folder.
    #[test]
    fn a_switch_to_tweed_ipam_gives_no_address_of_a_running_pod() {
        let fixture = Fixture::tweed();
        let old = ["old1", "old2"].map(|name| fixture.pod(name));
        let theirs = old.each_ref().map(|pod| {
            let added = fixture.add_with(pod, &host_local(&fixture));
            added.address().unwrap()
        });
        let new = fixture.pod("new");
        let own = fixture.add(&new).address().unwrap();
        assert!(!theirs.contains(&own), "{own}");
        assert_eq!(fixture.reserved().len(), 3);
        for pod in old.iter().chain([&new]) {
            fixture.del(pod);
        }
        assert_eq!((fixture.reserved().len(), fixture.records()), (0, 0));
    }

    /// As a config of host-local that works unchanged, for `ptp` and for `tweed`: its
    /// default folder is not the store's.
    #[test]
    fn a_switch_to_tweed_ipam_without_a_data_dir_finds_what_host_local_gave() {
        for main in ["tweed", "ptp"] {
            let fixture = Fixture::tweed();
            let with = |ipam: &str| {
                let mut config = fixture.config();
                config["type"] = main.into();
                config["ipam"] =
                    json!({ "type": ipam, "ranges": [[{ "subnet": "10.244.1.0/29" }]] });
                fixture.write_chain("1.1.0", &[config]);
                fixture.tool()
            };
            let [old, new] = ["old", "new"].map(|name| fixture.pod(name));
            let theirs = fixture.node.cni_cache_dir().join("networks").join(NETWORK);
            let given = with("host-local").add(&old).unwrap().address().unwrap();
            assert_eq!(files_like_addresses(&theirs), [given.to_string()], "{main}");
            let own = with("tweed-ipam");
            let added = own.add(&new).unwrap().address().unwrap();
            assert_ne!(added, given, "{main}");
            own.del(&old).unwrap();
            assert_eq!(files_like_addresses(&theirs), [""; 0], "{main}");
            own.del(&new).unwrap();
        }
    }

    /// The addresses that host-local has assigned.
    fn host_locals(fixture: &Fixture) -> Vec<String> {
        files_like_addresses(&fixture.node.run_dir().join("host-local").join(NETWORK))
    }

    fn files_like_addresses(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).into_iter().flatten();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.parse::<IpAddr>().is_ok())
            .collect()
    }
}

/// Another main plugin with `tweed-ipam`.
mod tweed_ipam_under {
    use super::*;

    fn config(fixture: &Fixture, main: Value) -> Value {
        let mut config = main;
        config["cniVersion"] = "1.1.0".into();
        config["name"] = NETWORK.into();
        config["mtu"] = MTU.into();
        config["runDir"] = json!(fixture.node.run_dir());
        config["ipam"] = json!({
            "type": "tweed-ipam", "dataDir": fixture.data_dir(),
            "ranges": [[{ "subnet": "10.244.1.0/28" }]], "routes": [{ "dst": "0.0.0.0/0" }]
        });
        config
    }

    #[test]
    fn ptp() {
        let fixture = Fixture::tweed();
        check_all_verbs(&fixture, &config(&fixture, json!({ "type": "ptp" })));
    }

    #[test]
    fn bridge() {
        let fixture = Fixture::tweed();
        let main = json!({ "type": "bridge", "bridge": "cni0", "isGateway": true });
        check_all_verbs(&fixture, &config(&fixture, main));
    }

    #[test]
    fn macvlan() {
        let fixture = Fixture::tweed();
        let netns = fixture.node.netns();
        netns
            .ip([
                "link add lower0 type veth peer name lower1",
                "link set lower0 up",
                "link set lower1 up",
            ])
            .unwrap();
        let main = json!({ "type": "macvlan", "master": "lower0", "mode": "bridge" });
        fixture.write_chain("1.1.0", &[config(&fixture, main)]);
        let [one, two] = ["one", "two"].map(|name| fixture.pod(name));
        let tool = fixture.tool();
        let added = [&one, &two].map(|pod| tool.add(pod).unwrap());
        tool.check(&one).unwrap();
        let to = added[1].address().unwrap();
        let report = ping(one.netns(), to, &PingOptions::default()).unwrap();
        assert_eq!(report.lost(), 0, "{report}");
        for pod in [&one, &two] {
            tool.del(pod).unwrap();
        }
        assert_eq!((fixture.reserved().len(), fixture.records()), (0, 0));
    }

    #[test]
    fn beside_tweed_in_one_store() {
        let fixture = Fixture::tweed();
        let ptp = config(&fixture, json!({ "type": "ptp" }));
        let pods = [0, 1, 2, 3].map(|n| fixture.pod(&format!("pod{n}")));
        let mut own = fixture.config();
        own["ipam"]["ranges"] = ptp["ipam"]["ranges"].clone();
        let add_ptp = |pod: &Pod| {
            let call = fixture.call("ADD", pod).config(&ptp);
            let output = call.run(&fixture.node, "ptp").unwrap();
            AddResult::parse(&output.stdout).unwrap()
        };
        let assigned = [
            fixture.add_with(&pods[0], &own),
            add_ptp(&pods[1]),
            fixture.add_with(&pods[2], &own),
            add_ptp(&pods[3]),
        ]
        .map(|added| added.address().unwrap());
        assert_eq!(
            assigned,
            [2, 3, 4, 5].map(|n| IpAddr::from([10, 244, 1, n]))
        );
        // GC without a list frees no live attachment.
        assert_silent(&fixture.run(&PluginCall::new("GC").config(&own)));
        assert_eq!(fixture.reserved().len(), 4);
    }

    #[test]
    fn its_record_stays_when_the_other_plugins_link_is_deleted() {
        let fixture = Fixture::tweed();
        let ptp = config(&fixture, json!({ "type": "ptp" }));
        let pod = fixture.pod("pod");
        let call = fixture.call("ADD", &pod).config(&ptp);
        assert_eq!(call.run(&fixture.node, "ptp").unwrap().code, Some(0));
        pod.netns().ip(["link del eth0"]).unwrap();
        // tweed does not know the other plugin's links, so only DEL and GC free it.
        assert_silent(&fixture.run(&PluginCall::new("GC").config(&fixture.config())));
        assert_eq!(fixture.reserved().len(), 1);
        let mut listed = ptp;
        listed["cni.dev/valid-attachments"] = json!([]);
        let gc = PluginCall::new("GC").config(&listed);
        assert_silent(&gc.run(&fixture.node, "tweed-ipam").unwrap());
        assert_eq!((fixture.reserved().len(), fixture.records()), (0, 0));
    }
}
