//! What becomes of the open flows of the pod that had an address before.

use std::io::Write as _;
use std::process::Command;

use serde_json::json;
use tweed_cni_plugin::datapath::veth::LinuxKernel;

use crate::enforcement::{LONG, agent, lab, nft};

/// Runs `conntrack` in the node of the thread's lab, and gives what it prints.
fn conntrack(arguments: &str) -> String {
    let output = Command::new("conntrack")
        .args(arguments.split(' '))
        .output()
        .expect("these tests need conntrack: apt-get install conntrack");
    assert!(output.status.success(), "conntrack {arguments}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// They were evaluated when they began, so the rules let their packets pass whoever has the address.
#[test]
fn the_open_flows_of_the_pod_before_end_unless_the_agent_has_seen_that_it_is_gone() {
    const ENFORCED: &str = "{\"version\":1,\"judged\":{}}\n";
    let pods = [
        ("10.244.1.5", "10.244.1.6", "192.0.2.9", "10.96.0.1"),
        ("fd00:1::5", "fd00:1::6", "2001:db8::9", "fd00:96::1"),
    ];
    for (wait, answer, is_known, end) in [
        (0, None, true, true),
        (LONG, None, true, true),
        (LONG, Some(""), true, true),
        (LONG, Some(ENFORCED), true, false),
        (0, None, false, false),
    ] {
        let mut lab = lab(wait);
        lab.site.keys["args"] = json!({"cni": {"ips": pods.map(|(own, ..)| own)}});
        let known = |family: &str, of: (&str, &str, &str, &str)| {
            let elements = if is_known {
                format!("elements = {{ {} }};", of.0)
            } else {
                String::new()
            };
            format!("set policy_judged{family} {{ type ipv{family}_addr; {elements} }}")
        };
        let sets = [known("4", pods[0]), known("6", pods[1])].join("\n");
        assert!(nft(&format!("table inet tweed-policy {{\n{sets}\n}}")));
        for (own, other, peer, service) in pods {
            for (port, tuples) in [
                (1, format!("-s {peer} -d {own}")),
                (2, format!("-s {own} -d {peer}")),
                (3, format!("-s {peer} -d {service} -r {own} -q {peer}")),
                (4, format!("-s {peer} -d {other}")),
            ] {
                let ports = format!(
                    "--sport {port} --dport 53 --reply-port-src 53 --reply-port-dst {port}"
                );
                conntrack(&format!("-I -p udp {tuples} {ports} -t 3600"));
            }
        }
        let agent = answer.map(|answer| {
            agent(&lab.site.run_dir, move |_, mut stream| {
                stream.write_all(answer.as_bytes()).unwrap();
            })
        });
        lab.call(LinuxKernel::default(), "ADD", None).ok();
        if let Some(agent) = agent {
            agent.join().unwrap();
        }
        for family in ["ipv4", "ipv6"] {
            let left = conntrack(&format!("-L -f {family} -p udp"));
            let left: Vec<bool> = (1..=4)
                .map(|port| left.contains(&format!(" sport={port} ")))
                .collect();
            assert_eq!(left, [!end, !end, !end, true], "{wait} {answer:?} {family}");
        }
    }
}
