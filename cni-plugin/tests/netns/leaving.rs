//! Links with the name that a DEL gives to the link of its pod.

use tweed_cni_plugin::datapath::veth::LinuxKernel;

use crate::lab::{Lab, assert_same, ip};

/// What a DEL of the lab's pod names its link.
const NAME: &str = "twxe00e76fd76b4";

/// Its cleanup process was killed, and there will be no other DEL: the runtime calls GC
/// without a list, or for another network.
#[test]
fn a_gc_without_a_list_deletes_those_of_any_network() {
    let lab = Lab::new();
    let before = lab.picture();
    for (name, network) in [("twx000000000001", "tweed"), ("twx000000000002", "other")] {
        let peer = format!("to{network}");
        let pair = ["link", "add", name, "group", "117", "type", "veth"];
        ip(&[&pair[..], &["peer", "name", &peer]].concat());
        let alias = format!("tweed:{network}/gone/eth0");
        ip(&["link", "set", name, "alias", &alias]);
    }
    lab.call(LinuxKernel::default(), "GC", None).ok();
    assert_same(&before, &lab.picture(), "after GC");
}

/// Somebody else has made the pair, and a DEL comes before any ADD.
#[test]
fn a_foreign_link_of_that_name_keeps_its_end_in_the_pod() {
    let lab = Lab::new();
    let pod = lab.pod_name();
    ip(&[
        "link", "add", NAME, "type", "veth", "peer", "name", "eth0", "netns", pod,
    ]);
    ip(&["-n", pod, "link", "set", "eth0", "up"]);
    let before = lab.picture();
    lab.call(LinuxKernel::default(), "DEL", None).ok();
    assert_same(&before, &lab.picture(), "after DEL");
}
