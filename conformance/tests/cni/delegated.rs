//! tweed over other IPAM plugins, and other main plugins over `tweed-ipam`.

use std::fs;
use std::net::IpAddr;

use serde_json::{Value, json};
use tweed_lab::{AddResult, PingOptions, PluginCall, Pod, Snapshot, ping};

use crate::bench::{Bench, MTU, NETWORK, refused, refused_with, silent};

/// Attaches, pings, CHECKs, and DELs twice, by `cnitool`.
fn goes_round(bench: &Bench, config: &Value) {
    let before = bench.snapshot();
    let pod = bench.pod("pod");
    bench.write_chain("1.1.0", std::slice::from_ref(config));
    let tool = bench.tool();
    let added = tool.add(&pod).unwrap();
    let to = added.address().unwrap();
    let report = ping(bench.node.netns(), to, &PingOptions::default()).unwrap();
    assert_eq!(report.lost(), 0, "{report}");
    tool.check(&pod).unwrap();
    tool.status().unwrap();
    tool.del(&pod).unwrap();
    tool.del(&pod).unwrap();
    left(bench, &before);
}

/// Nothing is left but what bridge keeps for the next pod.
fn left(bench: &Bench, before: &Snapshot) {
    let bridges = |line: &str| line.contains("cni0") || line.contains("lower0");
    let before = before.clone().without(bridges);
    let after = bench.snapshot().without(bridges);
    assert_eq!(before.changes(&after), [""; 0]);
    assert_eq!(bench.reserved(), [].into());
    assert_eq!(bench.records(), 0);
}

fn over(bench: &Bench, ipam: Value) -> Value {
    let mut config = bench.config();
    config["ipam"] = ipam;
    config
}

fn host_local(bench: &Bench) -> Value {
    over(
        bench,
        json!({ "type": "host-local", "dataDir": bench.node.run_dir().join("host-local"),
                "ranges": [[{ "subnet": "10.244.1.0/28" }]] }),
    )
}

mod tweed_over {
    use super::*;

    #[test]
    fn host_local_() {
        let bench = Bench::tweed();
        goes_round(&bench, &host_local(&bench));
    }

    #[test]
    fn static_() {
        let bench = Bench::tweed();
        let ipam = json!({ "type": "static", "addresses": [{ "address": "10.244.1.77/24" }] });
        goes_round(&bench, &over(&bench, ipam));
    }

    #[test]
    fn static_of_both_families_with_routes_and_dns() {
        let bench = Bench::tweed();
        let ipam = json!({
            "type": "static",
            "addresses": [{ "address": "10.244.1.77/24", "gateway": "10.244.1.1" },
                          { "address": "fd00:244:1::77/64" }],
            "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "fd00::/8" }],
            "dns": { "nameservers": ["10.96.0.10"], "search": ["svc.local"] },
        });
        let added = bench.add_with(&bench.pod("pod"), &over(&bench, ipam));
        // The pod's address is in no subnet; its gateway is told as it was given.
        assert_eq!(
            added.document["ips"],
            json!([
                { "address": "10.244.1.77/32", "gateway": "10.244.1.1", "interface": 1 },
                { "address": "fd00:244:1::77/128", "gateway": "fe80::1", "interface": 1 },
            ])
        );
        assert_eq!(added.document["dns"]["nameservers"], json!(["10.96.0.10"]));
        let dsts = added.document["routes"].as_array().unwrap().iter();
        let dsts: Vec<_> = dsts.map(|route| &route["dst"]).collect();
        assert_eq!(dsts, ["0.0.0.0/0", "fd00::/8"]);
    }

    #[test]
    fn host_local_that_is_full() {
        let bench = Bench::tweed();
        let mut config = host_local(&bench);
        config["ipam"]["ranges"] = json!([[{ "subnet": "10.244.1.0/30" }]]);
        let [one, two] = ["one", "two"].map(|name| bench.pod(name));
        bench.add_with(&one, &config);
        let before = bench.snapshot();
        let document = refused(&bench.run(&bench.call("ADD", &two).config(&config)));
        assert!(
            document["msg"]
                .as_str()
                .unwrap()
                .contains("no IP addresses available")
        );
        bench.assert_same_kernel(&before);
        assert_eq!(bench.records(), 1, "the first pod's");
    }

    #[test]
    fn a_plugin_that_is_nowhere() {
        let bench = Bench::tweed();
        let before = bench.snapshot();
        let config = over(&bench, json!({ "type": "no-such-ipam" }));
        let output = bench.run(&bench.call("ADD", &bench.pod("pod")).config(&config));
        refused_with(&output, 106, &["no-such-ipam", "CNI_PATH"]);
        bench.assert_nothing_left(&before);
    }

    #[test]
    fn an_interface_that_is_there_gives_the_address_back() {
        let bench = Bench::tweed();
        let config = host_local(&bench);
        let pod = bench.pod("pod");
        pod.netns().ip(["link add eth0 type bridge"]).unwrap();
        let before = bench.snapshot();
        refused_with(
            &bench.run(&bench.call("ADD", &pod).config(&config)),
            102,
            &[],
        );
        bench.assert_nothing_left(&before);
        assert_eq!(host_locals(&bench), [] as [&str; 0]);
    }

    #[test]
    fn gc_reaches_the_kernel_and_the_other_plugin() {
        let bench = Bench::tweed();
        let before = bench.snapshot();
        let mut config = host_local(&bench);
        let added = bench.add_with(&bench.pod("pod"), &config);
        assert_eq!(host_locals(&bench), [added.address().unwrap().to_string()]);
        config["cni.dev/valid-attachments"] = json!([]);
        silent(&bench.run(&PluginCall::new("GC").config(&config)));
        bench.assert_nothing_left(&before);
    }

    /// The addresses that host-local has given.
    fn host_locals(bench: &Bench) -> Vec<String> {
        let folder = bench.node.run_dir().join("host-local").join(NETWORK);
        let names = fs::read_dir(folder).into_iter().flatten();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.parse::<IpAddr>().is_ok())
            .collect()
    }
}

/// Another main plugin over `tweed-ipam`.
mod tweed_ipam_under {
    use super::*;

    fn config(bench: &Bench, main: Value) -> Value {
        let mut config = main;
        config["cniVersion"] = "1.1.0".into();
        config["name"] = NETWORK.into();
        config["mtu"] = MTU.into();
        config["runDir"] = json!(bench.node.run_dir());
        config["ipam"] = json!({
            "type": "tweed-ipam", "dataDir": bench.data_dir(),
            "ranges": [[{ "subnet": "10.244.1.0/28" }]], "routes": [{ "dst": "0.0.0.0/0" }]
        });
        config
    }

    #[test]
    fn ptp() {
        let bench = Bench::tweed();
        goes_round(&bench, &config(&bench, json!({ "type": "ptp" })));
    }

    #[test]
    fn bridge() {
        let bench = Bench::tweed();
        let main = json!({ "type": "bridge", "bridge": "cni0", "isGateway": true });
        goes_round(&bench, &config(&bench, main));
    }

    #[test]
    fn macvlan() {
        let bench = Bench::tweed();
        let netns = bench.node.netns();
        netns
            .ip([
                "link add lower0 type veth peer name lower1",
                "link set lower0 up",
                "link set lower1 up",
            ])
            .unwrap();
        let main = json!({ "type": "macvlan", "master": "lower0", "mode": "bridge" });
        bench.write_chain("1.1.0", &[config(&bench, main)]);
        let [one, two] = ["one", "two"].map(|name| bench.pod(name));
        let tool = bench.tool();
        let added = [&one, &two].map(|pod| tool.add(pod).unwrap());
        tool.check(&one).unwrap();
        let to = added[1].address().unwrap();
        let report = ping(one.netns(), to, &PingOptions::default()).unwrap();
        assert_eq!(report.lost(), 0, "{report}");
        for pod in [&one, &two] {
            tool.del(pod).unwrap();
        }
        assert_eq!((bench.reserved().len(), bench.records()), (0, 0));
    }

    #[test]
    fn beside_tweed_in_one_store() {
        let bench = Bench::tweed();
        let ptp = config(&bench, json!({ "type": "ptp" }));
        let pods = [0, 1, 2, 3].map(|n| bench.pod(&format!("pod{n}")));
        let mut own = bench.config();
        own["ipam"]["ranges"] = ptp["ipam"]["ranges"].clone();
        let add_ptp = |pod: &Pod| {
            let call = bench.call("ADD", pod).config(&ptp);
            let output = call.run(&bench.node, "ptp").unwrap();
            AddResult::parse(&output.stdout).unwrap()
        };
        let given = [
            bench.add_with(&pods[0], &own),
            add_ptp(&pods[1]),
            bench.add_with(&pods[2], &own),
            add_ptp(&pods[3]),
        ]
        .map(|added| added.address().unwrap());
        assert_eq!(given, [2, 3, 4, 5].map(|n| IpAddr::from([10, 244, 1, n])));
        // A sweep by GC without a list frees nothing that lives.
        silent(&bench.run(&PluginCall::new("GC").config(&own)));
        assert_eq!(bench.reserved().len(), 4);
    }

    #[test]
    fn its_record_stays_while_the_other_plugins_link_is_gone() {
        let bench = Bench::tweed();
        let ptp = config(&bench, json!({ "type": "ptp" }));
        let pod = bench.pod("pod");
        let call = bench.call("ADD", &pod).config(&ptp);
        assert_eq!(call.run(&bench.node, "ptp").unwrap().code, Some(0));
        pod.netns().ip(["link del eth0"]).unwrap();
        // Whose link it is, is not tweed's to judge: DEL and GC free it.
        silent(&bench.run(&PluginCall::new("GC").config(&bench.config())));
        assert_eq!(bench.reserved().len(), 1);
        let mut listed = ptp;
        listed["cni.dev/valid-attachments"] = json!([]);
        let gc = PluginCall::new("GC").config(&listed);
        silent(&gc.run(&bench.node, "tweed-ipam").unwrap());
        assert_eq!((bench.reserved().len(), bench.records()), (0, 0));
    }
}
