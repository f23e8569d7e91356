//! IPAM by another plugin, a shell script, over real links.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::lab::{Lab, assert_same, ip};
use serde_json::json;
use tempfile::TempDir;
use tweed_cni_plugin::datapath::veth::LinuxKernel;

/// A lab whose IPAM plugin records its verbs and runs `body`.
struct Delegated {
    lab: Lab,
    folder: TempDir,
}

impl Delegated {
    fn new(body: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("other-ipam");
        let calls = folder.path().join("calls");
        let script = format!(
            "#!/bin/sh\necho $CNI_COMMAND >> {}\n{body}\n",
            calls.display()
        );
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut lab = Lab::new();
        lab.site.cni_path = folder.path().to_owned();
        lab.site.keys = json!({"ipam": {"type": "other-ipam"}});
        Self { lab, folder }
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }
}

const GIVES: &str = r#"test $CNI_COMMAND = ADD && echo '{"cniVersion":"1.0.0",
    "ips":[{"address":"10.7.0.9/16","gateway":"10.7.0.1"}],
    "routes":[{"dst":"10.0.0.0/8","gw":"10.7.0.1"}],"dns":{"nameservers":["10.7.0.53"]}}'
    exit 0"#;

#[test]
fn the_other_plugin_gives_and_gets_every_verb() {
    let other = Delegated::new(GIVES);
    let before = other.lab.picture();
    let result = other.lab.call(LinuxKernel::default(), "ADD", None).ok();
    assert_eq!(result["ips"][0]["address"], "10.7.0.9/32");
    assert_eq!(result["ips"][0]["gateway"], "10.7.0.1", "as it was given");
    assert_eq!(
        result["routes"],
        json!([{"dst": "10.0.0.0/8", "gw": "169.254.1.1"}])
    );
    assert_eq!(result["dns"]["nameservers"][0], "10.7.0.53");
    assert!(ip(&["route"]).contains("10.7.0.9 dev tw"));
    assert_eq!(other.lab.site.store().len(), 1, "a record, and no claim");

    other
        .lab
        .call(LinuxKernel::default(), "CHECK", Some(&result))
        .ok();
    other.lab.call(LinuxKernel::default(), "STATUS", None).ok();
    other.lab.call(LinuxKernel::default(), "GC", None).ok();
    other.lab.call(LinuxKernel::default(), "DEL", None).ok();
    assert_eq!(other.calls(), ["ADD", "CHECK", "STATUS", "GC", "DEL"]);
    assert_same(&before, &other.lab.picture(), "at the end");
}

#[test]
fn its_error_is_passed_on_and_it_is_asked_to_take_back() {
    let other = Delegated::new(
        r#"test $CNI_COMMAND = DEL || { echo '{"code":77,"msg":"nothing left"}'; exit 1; }"#,
    );
    let before = other.lab.picture();
    let answer = other.lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(answer.code(), 77);
    assert_eq!(answer.document["msg"], "nothing left");
    assert_eq!(other.calls(), ["ADD", "DEL"]);
    assert_same(&before, &other.lab.picture(), "at the end");
    assert_eq!(
        other
            .lab
            .call(LinuxKernel::default(), "STATUS", None)
            .code(),
        77
    );
}

#[test]
fn a_failure_after_it_gave_is_taken_back_there_too() {
    let other = Delegated::new(GIVES);
    ip(&[
        "link", "add", "foreign", "type", "veth", "peer", "name", "x",
    ]);
    ip(&["link", "set", "foreign", "up"]);
    ip(&["route", "add", "10.7.0.9/32", "dev", "foreign"]);
    let before = other.lab.picture();
    assert_eq!(
        other.lab.call(LinuxKernel::default(), "ADD", None).code(),
        103
    );
    assert_eq!(other.calls(), ["ADD", "DEL"]);
    assert_same(&before, &other.lab.picture(), "at the end");
}

#[test]
fn a_second_add_does_not_take_the_first_ones_address_back() {
    let other = Delegated::new(GIVES);
    other.lab.call(LinuxKernel::default(), "ADD", None).ok();
    let before = other.lab.picture();
    let again = other.lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(again.code(), 102);
    assert_eq!(other.calls(), ["ADD"]);
    assert_same(&before, &other.lab.picture(), "after the second ADD");
}

#[test]
fn an_answer_without_an_address_is_a_failure() {
    for body in ["exit 0", "echo '{}'", "echo nonsense", "echo '[]'"] {
        let other = Delegated::new(&format!("test $CNI_COMMAND = DEL && exit 0; {body}"));
        assert_eq!(
            other.lab.call(LinuxKernel::default(), "ADD", None).code(),
            106,
            "{body}"
        );
        assert_eq!(other.calls(), ["ADD", "DEL"], "{body}");
    }
}

#[test]
fn as_a_later_plugin_of_a_chain_it_adds_to_what_is_there() {
    let lab = Lab::new();
    let before = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "first0", "sandbox": "/run/netns/x", "mac": "02:00:00:00:00:09"}],
        "ips": [{"address": "192.0.2.9/24", "interface": 0}],
        "routes": [{"dst": "192.0.2.0/24"}],
        "dns": {"nameservers": ["192.0.2.53"]},
    });
    let result = lab.call(LinuxKernel::default(), "ADD", Some(&before)).ok();
    assert_eq!(result["interfaces"].as_array().unwrap().len(), 3);
    assert_eq!(result["interfaces"][0], before["interfaces"][0]);
    assert_eq!(result["ips"][0], before["ips"][0]);
    assert_eq!(result["ips"][1]["interface"], 2);
    assert_eq!(result["interfaces"][2]["name"], "eth0");
    assert_eq!(result["routes"][0], before["routes"][0]);
    assert_eq!(result["dns"], before["dns"]);
    lab.call(LinuxKernel::default(), "CHECK", Some(&result))
        .ok();
    lab.call(LinuxKernel::default(), "DEL", None).ok();
}
