//! `tweed-ipam` as a main plugin sees it.

#[cfg(test)]
mod common;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::thread::sleep;
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::common::folder;
    use super::common::program::{Call, call, config, finish};

    const VERSIONS: [&str; 4] = ["0.3.1", "0.4.0", "1.0.0", "1.1.0"];

    #[test]
    fn every_version_gets_its_shape() {
        let run_dir = folder();
        let resolv_conf = run_dir.path().join("resolv.conf");
        fs::write(&resolv_conf, "nameserver 192.0.2.53\nsearch example.com\n").unwrap();
        for (n, version) in VERSIONS.iter().enumerate() {
            let mut config = config(run_dir.path(), "");
            config["cniVersion"] = json!(version);
            config["ipam"] = json!({
                "type": "tweed-ipam",
                "ranges": [[{ "subnet": "10.1.0.0/24" }], [{ "subnet": "fd00::/64" }]],
                "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0", "gw": "fd00::9" }],
                "resolvConf": resolv_conf,
            });
            let result = call("ADD", &format!("c{n}"), &config).make().result();
            let mut ips = json!([
                { "address": format!("10.1.0.{}/24", n + 2), "gateway": "10.1.0.1" },
                { "address": format!("fd00::{}/64", n + 2), "gateway": "fd00::1" },
            ]);
            if n < 2 {
                ips[0]["version"] = json!("4");
                ips[1]["version"] = json!("6");
            }
            let expected = json!({
                "cniVersion": version,
                "ips": ips,
                "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0", "gw": "fd00::9" }],
                "dns": { "nameservers": ["192.0.2.53"], "search": ["example.com"] },
            });
            assert_eq!(result, expected);
            config["prevResult"] = result;
            if n > 0 {
                call("CHECK", &format!("c{n}"), &config).make().done();
            }
            call("DEL", &format!("c{n}"), &config).make().done();
        }
        let program = std::env::var_os("CARGO_BIN_EXE_tweed-ipam").unwrap();
        let said = std::process::Command::new(program)
            .arg("--version")
            .output();
        let said = String::from_utf8(said.unwrap().stdout).unwrap();
        assert!(
            said.starts_with(concat!("tweed-ipam ", env!("CARGO_PKG_VERSION"), " (")),
            "{said}"
        );
        let result = call("VERSION", "", &config(run_dir.path(), "")).make();
        assert_eq!(result.result()["supportedVersions"], json!(VERSIONS));
    }

    /// What a runtime and a user may request, in every way that host-local supports.
    #[test]
    fn asked_for_addresses_and_ranges() {
        let run_dir = folder();
        let base = config(run_dir.path(), "10.1.0.0/24");
        let with = |key: &str, value: Value| {
            let mut config = base.clone();
            config[key] = value;
            config
        };
        let capability = with("runtimeConfig", json!({ "ips": ["10.1.0.11/24"] }));
        assert_eq!(
            call("ADD", "a", &capability).make().addresses(),
            ["10.1.0.11"]
        );
        let args = with("args", json!({ "cni": { "ips": ["10.1.0.12"] } }));
        assert_eq!(call("ADD", "b", &args).make().addresses(), ["10.1.0.12"]);
        let environment = Call {
            args: "IgnoreUnknown=1;K8S_POD_NAME=x;IP=10.1.0.13".to_owned(),
            ..call("ADD", "c", &base)
        };
        assert_eq!(environment.make().addresses(), ["10.1.0.13"]);
        let ranges = json!({ "ipRanges": [[{ "subnet": "10.7.0.0/24" }]] });
        let ranges = with("runtimeConfig", ranges);
        let given = call("ADD", "d", &ranges).make().addresses();
        assert_eq!(given, ["10.7.0.2", "10.1.0.2"]);

        let taken = call("ADD", "e", &capability).make().error();
        assert_eq!(taken.0, 101);
        assert!(taken.1.contains("net/a/eth0"), "{}", taken.1);
        let outside = with("runtimeConfig", json!({ "ips": ["192.0.2.1"] }));
        assert_eq!(call("ADD", "e", &outside).make().error().0, 101);
        assert_eq!(call("ADD", "a", &base).make().error().0, 102);
    }

    #[test]
    fn del_needs_no_ranges_and_nothing_that_is_there() {
        let run_dir = folder();
        let config = config(run_dir.path(), "10.1.0.0/24");
        call("DEL", "never", &config).make().done();
        assert!(!run_dir.path().join("ipam").exists());
        call("ADD", "a", &config).make().result();
        let mut broken = config.clone();
        broken["ipam"] = json!({ "type": "tweed-ipam", "subnet": "nonsense" });
        broken["prevResult"] = json!("nonsense");
        call("DEL", "a", &broken).make().done();
        call("DEL", "a", &broken).make().done();
        let (code, message) = call("CHECK", "a", &config).make().error();
        assert_eq!(code, 104);
        assert!(message.contains("net/a/eth0"), "{message}");
    }

    #[test]
    fn check_names_what_differs() {
        let run_dir = folder();
        let mut config = config(run_dir.path(), "10.1.0.0/24");
        let result = call("ADD", "a", &config).make().result();
        config["prevResult"] = result.clone();
        config["prevResult"]["ips"][0]["address"] = json!("10.1.0.99/24");
        let (code, message) = call("CHECK", "a", &config).make().error();
        assert_eq!(code, 104);
        assert!(message.contains("10.1.0.2"), "{message}");
        config["prevResult"] = result;
        fs::remove_file(run_dir.path().join("ipam/net/10.1.0.2")).unwrap();
        let (code, message) = call("CHECK", "a", &config).make().error();
        assert_eq!(code, 104);
        assert!(message.contains("10.1.0.2"), "{message}");
    }

    /// A full node must not become NotReady: its pods would be evicted.
    #[test]
    fn status_is_about_the_store_and_not_about_how_full_it_is() {
        let run_dir = folder();
        let full = config(run_dir.path(), "10.1.0.0/30");
        call("ADD", "a", &full).make().result();
        call("STATUS", "", &full).make().done();
        assert_eq!(call("ADD", "b", &full).make().error().0, 100);
        call("STATUS", "", &full).make().done();

        let broken = config(run_dir.path(), "10.1.0.0/33");
        let (code, message) = call("STATUS", "", &broken).make().error();
        assert_eq!(code, 7);
        assert!(message.contains("10.1.0.0/33"), "{message}");
        let mut nameless = full.clone();
        nameless["ipam"]["resolvConf"] = json!("/does/not/exist");
        let (code, message) = call("STATUS", "", &nameless).make().error();
        assert_eq!(code, 5);
        assert!(message.contains("/does/not/exist"), "{message}");
        let file = run_dir.path().join("file");
        fs::write(&file, "").unwrap();
        let nowhere = config(&file, "10.1.0.0/30");
        let (code, message) = call("STATUS", "", &nowhere).make().error();
        assert_eq!(code, 50);
        assert!(message.contains(file.to_str().unwrap()), "{message}");
    }

    /// The caller may have set its own file so, and this is the same one.
    #[test]
    fn a_config_is_read_where_stdin_does_not_block() {
        let run_dir = folder();
        let call = call("ADD", "a", &config(run_dir.path(), "10.1.0.0/24"));
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let child = call.start_with(OwnedFd::from(theirs).into());
        // The program mostly waits by now.
        sleep(Duration::from_millis(50));
        ours.write_all(call.config.to_string().as_bytes()).unwrap();
        drop(ours);
        assert_eq!(finish(child).addresses(), ["10.1.0.2"]);
    }

    /// The runtime gives them to ADD alone.
    #[test]
    fn status_misses_no_ranges_that_come_by_a_capability() {
        let run_dir = folder();
        let mut config = config(run_dir.path(), "");
        config["capabilities"] = json!({ "ipRanges": true });
        for ranges in [json!(null), json!([])] {
            config["ipam"]["ranges"] = ranges;
            call("STATUS", "", &config).make().done();
        }
        config["runtimeConfig"] = json!({ "ipRanges": [[{ "subnet": "10.1.0.0/24" }]] });
        call("ADD", "a", &config).make().result();
        config["runtimeConfig"] = json!({ "ipRanges": [[{ "subnet": "10.1.0.0/33" }]] });
        let (code, message) = call("STATUS", "", &config).make().error();
        assert_eq!(code, 7);
        assert!(message.contains("10.1.0.0/33"), "{message}");
        config["capabilities"] = json!({ "ipRanges": false });
        config["runtimeConfig"] = json!(null);
        let (code, message) = call("STATUS", "", &config).make().error();
        assert_eq!(code, 7);
        assert!(message.contains("ipam.ranges is missing"), "{message}");
    }

    #[test]
    fn gc_with_a_list_and_without_one() {
        let run_dir = folder();
        let config = config(run_dir.path(), "10.1.0.0/24");
        for who in ["a", "b"] {
            call("ADD", who, &config).make().result();
        }
        call("GC", "", &config).make().done();
        call("CHECK", "a", &config).make().done();
        call("CHECK", "b", &config).make().done();
        let mut listing = config.clone();
        listing["cni.dev/valid-attachments"] = json!([
            { "containerID": "b", "ifname": "eth0" },
            { "containerID": "../no name of ours", "ifname": "eth0" },
        ]);
        let answer = call("GC", "", &listing).make();
        answer.done();
        assert!(answer.stderr.contains("freed 10.1.0.2 of net/a/eth0"));
        call("CHECK", "b", &config).make().done();
        listing["cni.dev/valid-attachments"] = json!([]);
        call("GC", "", &listing).make().done();
        assert_eq!(call("CHECK", "b", &config).make().error().0, 104);
    }

    #[test]
    fn keys_that_mean_nothing_are_named_on_stderr() {
        let run_dir = folder();
        let mut config = config(run_dir.path(), "10.1.0.0/24");
        config["ipam"]["rangeStop"] = json!("10.1.0.9");
        let answer = call("ADD", "a", &config).make();
        answer.result();
        assert!(
            answer.stderr.contains("ipam.rangeStop"),
            "{}",
            answer.stderr
        );
    }

    #[test]
    fn a_data_folder_of_host_local_is_respected() {
        let run_dir = folder();
        let networks = run_dir.path().join("networks");
        fs::create_dir_all(networks.join("net")).unwrap();
        fs::write(networks.join("net/10.1.0.3"), "other\r\neth0").unwrap();
        fs::write(networks.join("net/last_reserved_ip.0"), "10.1.0.2").unwrap();
        fs::write(networks.join("net/lock"), "").unwrap();
        let mut config = config(run_dir.path(), "10.1.0.0/24");
        config["ipam"]["dataDir"] = json!(networks);
        let given = call("ADD", "a", &config).make().addresses();
        assert_eq!(given, ["10.1.0.4"]);
        // Of a pod that host-local attached.
        fs::write(networks.join("net/10.1.0.9"), "earlier\r\neth0").unwrap();
        call("DEL", "earlier", &config).make().done();
        assert!(!networks.join("net/10.1.0.9").exists());
        let mut empty = config.clone();
        empty["cni.dev/valid-attachments"] = json!([]);
        let gc = call("GC", "", &empty).make();
        assert!(gc.stderr.contains("net/10.1.0.3"), "{}", gc.stderr);
        gc.done();
        for address in ["net/10.1.0.3", "net/10.1.0.4"] {
            assert!(networks.join(address).symlink_metadata().is_err());
        }
    }
}
