//! For any input the plugin writes exactly one document, and changes nothing in the
//! kernel that the config does not require.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};
use tweed_cni::{CniError, Code, Invocation, run};
use tweed_cni_plugin::Tweed;
use tweed_cni_plugin::datapath::veth::plan::Step;
use tweed_cni_plugin::datapath::veth::{Applied, Failed, Kernel, Observed, Veth};
use tweed_cni_plugin::delegate::{Call, Delegate};
use tweed_cni_plugin::not_done::NotDone;
use tweed_core::family::Family;
use tweed_netlink::Error;
use tweed_netlink::link::Link;
use tweed_netlink::route::Route;

/// A kernel where every call succeeds and nothing exists.
struct Empty;

impl Kernel for Empty {
    fn open_pod(&mut self, _: &Path) -> Result<(), CniError> {
        Ok(())
    }
    fn apply(&mut self, _: &[Step]) -> Result<Applied, Failed> {
        Ok(Applied::default())
    }
    fn enable_forwarding(&mut self, _: Family) -> Result<bool, Error> {
        Ok(false)
    }
    fn forget_enforcement(&mut self, _: IpAddr) -> Result<(), Error> {
        Ok(())
    }
    fn host_link(&mut self, _: &str) -> Result<Option<Link>, Error> {
        Ok(None)
    }
    fn host_links(&mut self) -> Result<Vec<Link>, Error> {
        Ok(Vec::new())
    }
    fn delete_host_link(&mut self, _: &Link) -> Result<(), Error> {
        Ok(())
    }
    fn mark_leaving(&mut self, _: &Link, _: &str, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn rename_pod_end(&mut self, _: &str, _: &Link, _: &str) -> Result<(), Error> {
        Ok(())
    }
    fn delete_leaving(&mut self) -> Result<(), Error> {
        Ok(())
    }
    fn delete_leaving_later(&mut self, _: &Path) -> Result<(), Error> {
        Ok(())
    }
    fn pod_has_link(&mut self, _: &str) -> Result<bool, Error> {
        Ok(false)
    }
    fn host_routes_to(&mut self, _: IpAddr) -> Result<Vec<(Route, Option<Link>)>, Error> {
        Ok(Vec::new())
    }
    fn observe(&mut self, _: &str, _: &str) -> Result<Observed, Error> {
        Ok(Observed::default())
    }
}

/// No other plugin exists.
struct Nobody;

impl Delegate for Nobody {
    fn call(&mut self, call: Call<'_>) -> Result<Vec<u8>, NotDone> {
        let problem = format!("no {}", call.plugin);
        Err(NotDone {
            error: CniError::new(Code::DelegateFailed, problem),
            needs_undo: false,
        })
    }
}

fn call(verb: &str, mut stdin: &[u8]) -> (u8, Vec<u8>) {
    let env = |name: &str| match name {
        "CNI_COMMAND" => Some(OsString::from(verb)),
        "CNI_CONTAINERID" => Some(OsString::from("c1")),
        "CNI_NETNS" => Some(OsString::from("/run/netns/c1")),
        "CNI_IFNAME" => Some(OsString::from("eth0")),
        _ => None,
    };
    let mut stdout = Vec::new();
    let exit = run(
        Invocation {
            env: &env,
            stdin: &mut stdin,
            stdout: &mut stdout,
            stderr: &mut std::io::sink(),
        },
        &mut Tweed::new(Veth::new(Empty), Nobody),
    );
    (exit, stdout)
}

/// Any JSON, more often with values that have a meaning for some key.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(1450)),
        ".{0,12}".prop_map(Value::from),
        prop::sample::select(vec![
            "tweed-ipam",
            "host-local",
            "10.244.1.0/24",
            "fd00::/64",
            "10.244.1.9",
            "02:00:00:00:00:01",
            "0.0.0.0/0",
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let key = prop_oneof![
            prop::sample::select(vec![
                "type",
                "ranges",
                "subnet",
                "rangeStart",
                "gateway",
                "routes",
                "dst",
                "ips",
                "mac",
                "cni",
                "interfaces",
                "address",
                "interface",
                "containerID",
                "ifname",
                "name",
            ])
            .prop_map(str::to_owned),
            "[a-zA-Z]{0,6}",
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(key, inner, 0..5).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// A config in which each key is valid, missing, or anything.
fn any_config() -> impl Strategy<Value = Value> {
    let good = [
        ("mtu", json!(1450)),
        ("hostSource", json!(["192.0.2.7"])),
        ("readyFile", json!("/")),
        (
            "ipam",
            json!({"type": "tweed-ipam", "ranges": [[{"subnet": "10.244.1.0/24"}]]}),
        ),
        ("prevResult", json!({"interfaces": [{"name": "a"}]})),
        ("runtimeConfig", json!({"ips": ["10.244.1.9"]})),
        ("args", json!({"cni": {"ips": ["10.244.1.9"]}})),
        ("dns", json!({"nameservers": ["10.0.0.10"]})),
        (
            "cni.dev/valid-attachments",
            json!([{"containerID": "c1", "ifname": "eth0"}]),
        ),
    ];
    let keys: Vec<_> = good
        .into_iter()
        .map(|(key, value)| {
            prop_oneof![
                3 => Just(Some((key, value))),
                1 => Just(None),
                2 => any_json().prop_map(move |value| Some((key, value))),
            ]
        })
        .collect();
    keys.prop_map(|keys| {
        keys.into_iter()
            .flatten()
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    })
}

/// The kernel here refuses nothing, so ADD fails over the config alone.
#[test]
fn status_refuses_a_config_that_add_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let ipam = |key: &str, value: Value| {
        let mut ipam = json!({"type": "tweed-ipam", "subnet": "10.244.1.0/24"});
        ipam[key] = value;
        ("ipam", ipam)
    };
    let route = |gw: &str| ipam("routes", json!([{"dst": "0.0.0.0/0", "gw": gw}]));
    for ((key, value), code) in [
        (("mtu", json!(1450)), None),
        (("mtu", Value::Null), Some(7)),
        (ipam("subnet", Value::Null), Some(7)),
        (ipam("subnet", json!("10.244.1.0/31")), Some(7)),
        (ipam("routes", json!({})), Some(7)),
        (route("10.244.1.1"), None),
        (route("10.244.1.77"), Some(7)),
        (ipam("resolvConf", json!("/does/not/exist")), Some(5)),
        (ipam("subnet", json!("fd00::/112")), Some(7)),
    ] {
        let mut config = json!({"cniVersion": "1.1.0", "name": "tweed", "mtu": 1279,
            "runDir": folder.path(), "ipam": {"type": "tweed-ipam", "subnet": "10.244.1.0/24"}});
        config[key] = value;
        for (verb, code) in [("STATUS", code), ("ADD", code), ("DEL", None)] {
            let (exit, stdout) = call(verb, config.to_string().as_bytes());
            let document = serde_json::from_slice(&stdout).unwrap_or(Value::Null);
            let answered = document.get("code").and_then(Value::as_u64);
            assert_eq!(
                answered, code,
                "{verb} of {config}: exit {exit}, {document}"
            );
        }
    }
}

proptest! {
    #[test]
    fn whatever_the_config_says_one_document_goes_out(
        mut config in any_config(),
        verb in prop::sample::select(vec!["ADD", "DEL", "CHECK", "STATUS", "GC", "VERSION"]),
        version in prop::sample::select(vec!["0.3.1", "0.4.0", "1.0.0", "1.1.0"]),
    ) {
        // The state must be in a folder of the test; everything else is random.
        let folder = tempfile::tempdir().unwrap();
        config["cniVersion"] = version.into();
        config["name"] = "tweed".into();
        config["runDir"] = folder.path().to_str().into();
        let (exit, stdout) = call(verb, config.to_string().as_bytes());
        if stdout.is_empty() {
            prop_assert_eq!(exit, 0);
            prop_assert!(verb != "ADD" && verb != "VERSION");
        } else {
            let document: Value = serde_json::from_slice(&stdout).unwrap();
            prop_assert_ne!(&document["code"], &json!(999), "{:#}", document);
            prop_assert_eq!(exit != 0, document.get("code").is_some());
            prop_assert_eq!(&document["cniVersion"], &json!(version));
        }
        if verb == "ADD" && exit != 0 {
            let records = folder.path().join("ipam/tweed/attachments");
            let left = std::fs::read_dir(records).into_iter().flatten().count();
            prop_assert_eq!(left, 0, "a failed ADD left its record");
        }
    }
}
