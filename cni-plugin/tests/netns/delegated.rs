//! IPAM by another plugin, a shell script, over real links.

use std::fs;

use crate::lab::{Lab, assert_same, ip};
use crate::script::write_script;
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
        write_script(&program, &script);
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
    assert_eq!(other.lab.site.store().len(), 2, "a record and a claim");

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
fn an_address_and_a_route_that_are_named_twice_count_once() {
    let twice = r#"test $CNI_COMMAND = ADD && echo '{"cniVersion":"1.0.0",
        "ips":[{"address":"10.7.0.9/16"},{"address":"10.7.0.9/16"},{"address":"fd00::9/64"}],
        "routes":[{"dst":"10.0.0.0/8"},{"dst":"10.0.0.0/8"}]}'
        exit 0"#;
    let other = Delegated::new(twice);
    let before = other.lab.picture();
    let result = other.lab.call(LinuxKernel::default(), "ADD", None).ok();
    let addresses: Vec<_> = result["ips"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ip| &ip["address"])
        .collect();
    assert_eq!(addresses, ["10.7.0.9/32", "fd00::9/128"]);
    assert_eq!(result["routes"].as_array().unwrap().len(), 2, "{result}");
    let check = other
        .lab
        .call(LinuxKernel::default(), "CHECK", Some(&result));
    check.ok();
    other.lab.call(LinuxKernel::default(), "DEL", None).ok();
    assert_same(&before, &other.lab.picture(), "at the end");
}

/// The pod would send to the node what was meant for that gateway.
#[test]
fn a_route_through_another_gateway_than_the_node_is_refused() {
    let other = Delegated::new(&GIVES.replace(r#""gw":"10.7.0.1""#, r#""gw":"10.7.0.2""#));
    let before = other.lab.picture();
    let answer = other.lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(answer.code(), 7, "{:#}", answer.document);
    assert!(
        answer.document["msg"]
            .as_str()
            .unwrap()
            .contains("10.7.0.2")
    );
    assert_eq!(other.calls(), ["ADD", "DEL"]);
    assert_same(&before, &other.lab.picture(), "at the end");
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

/// It is asked for each attachment that is gone, with the names of that one, and while
/// nobody holds the store's lock, which it may need. It waits a while: a process that
/// another test has just forked has a copy of each open file.
const SAYS_OF_WHOM: &str = r#"
if test $CNI_COMMAND = DEL; then
    run=$(sed 's/.*"runDir":"\([^"]*\)".*/\1/')
    flock -w 30 $run/ipam/tweed/lock true || exit 1
    echo "$CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS" > $0.of
    test ! -e $0.refuse || { echo '{"code":77,"msg":"not now"}'; exit 1; }
fi
"#;

#[test]
fn gc_has_it_take_back_what_is_not_listed_and_then_frees_the_record() {
    let mut other = Delegated::new(&format!("{SAYS_OF_WHOM}{GIVES}"));
    let before = other.lab.picture();
    let file = |end: &str| other.folder.path().join(format!("other-ipam.{end}"));
    let (of, refuse) = (file("of"), file("refuse"));
    other.lab.call(LinuxKernel::default(), "ADD", None).ok();
    other.lab.site.keys["cni.dev/valid-attachments"] = json!([]);

    fs::write(&refuse, "").unwrap();
    let failed = other.lab.call(LinuxKernel::default(), "GC", None);
    assert_eq!(failed.code(), 77, "its own code");
    let text = failed.document.to_string();
    assert!(text.contains("tweed/c1/eth0: not now"), "{text}");
    assert_eq!(other.lab.site.store().len(), 2, "record and claim stay");

    fs::remove_file(&refuse).unwrap();
    other.lab.call(LinuxKernel::default(), "GC", None).ok();
    let named = format!("c1 eth0 {}\n", other.lab.site.pod);
    assert_eq!(fs::read_to_string(of).unwrap(), named);
    assert_eq!(other.calls(), ["ADD", "DEL", "GC", "DEL", "GC"]);
    assert_same(&before, &other.lab.picture(), "at the end");
}

/// Nothing else leads a later DEL or GC to the address that it still has.
#[test]
fn a_record_stays_until_it_has_taken_back() {
    for later in ["DEL", "GC"] {
        for fails in ["DEL", "undo of ADD"] {
            let refuses =
                "test ! -e $0.refuse || { echo '{\"code\":77,\"msg\":\"not now\"}'; exit 1; }";
            let mut other = Delegated::new(&format!("{refuses}\n{GIVES}"));
            let refuse = other.folder.path().join("other-ipam.refuse");
            let before = other.lab.picture();
            if fails == "DEL" {
                other.lab.call(LinuxKernel::default(), "ADD", None).ok();
            }
            fs::write(&refuse, "").unwrap();
            let verb = if fails == "DEL" { "DEL" } else { "ADD" };
            let failed = other.lab.call(LinuxKernel::default(), verb, None);
            assert_eq!(failed.code(), 77, "{fails}");
            let left = other.lab.site.store();
            assert!(!left.is_empty(), "{fails}: the record stays");
            let says_so = failed.log.contains("the next DEL or GC will");
            assert_eq!(says_so, verb == "ADD", "{}", failed.log);

            fs::remove_file(&refuse).unwrap();
            other.lab.site.keys["cni.dev/valid-attachments"] = json!([]);
            other.lab.call(LinuxKernel::default(), later, None).ok();
            let calls = other.calls();
            let again = calls.iter().filter(|call| *call == "DEL").count();
            assert_eq!(again, 2, "{fails}, {later}: {calls:?}");
            assert_same(&before, &other.lab.picture(), later);
        }
    }
}

/// It gave nothing, and would not be found to take it back.
#[test]
fn a_plugin_that_was_never_started_leaves_no_record() {
    let other = Delegated::new(GIVES);
    let before = other.lab.picture();
    fs::remove_file(other.folder.path().join("other-ipam")).unwrap();
    let answer = other.lab.call(LinuxKernel::default(), "ADD", None);
    assert_eq!(answer.code(), 106);
    assert_eq!(answer.log, "");
    assert_eq!(other.lab.site.store().len(), 0);
    assert_same(&before, &other.lab.picture(), "at the end");
}

#[test]
fn an_add_after_the_namespace_vanished_begins_anew() {
    let other = Delegated::new(GIVES);
    let before = other.lab.picture();
    other.lab.call(LinuxKernel::default(), "ADD", None).ok();
    // As the kernel does when the pod's namespace ends.
    ip(&["link", "del", "twe00e76fd76b4"]);
    other.lab.call(LinuxKernel::default(), "ADD", None).ok();
    assert_eq!(other.calls(), ["ADD", "DEL", "ADD"]);
    other.lab.call(LinuxKernel::default(), "DEL", None).ok();
    assert_same(&before, &other.lab.picture(), "at the end");
}

#[test]
fn a_change_to_the_own_store_names_what_the_other_plugin_may_keep() {
    let mut other = Delegated::new(GIVES);
    other.lab.call(LinuxKernel::default(), "ADD", None).ok();
    other.lab.site.keys = json!({"ipam": {"type": "tweed-ipam"}});
    let del = other.lab.call(LinuxKernel::default(), "DEL", None);
    for word in ["other-ipam", "10.7.0.9", "tweed/c1/eth0"] {
        assert!(del.log.contains(word), "{}", del.log);
    }
    del.ok();
}

/// Two nodes that are namespaces of one machine may have one run folder.
#[test]
fn a_missing_link_of_another_network_namespace_proves_nothing() {
    let one = Lab::new();
    one.call(LinuxKernel::default(), "ADD", None).ok();
    let store = one.site.store();
    let _other = Lab::new();
    one.call(LinuxKernel::default(), "GC", None).ok();
    assert_eq!(one.site.store(), store);
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
