//! Packet sizes, and addresses that nobody has. That every pod and node reaches every other
//! one and the host outside, and which source each of them sees, is what the demo's test shows.

use std::net::IpAddr;
use std::time::Duration;

use tweed_lab::{Cluster, LabError, PingOptions, ping, wait_until};

#[test]
fn a_packet_of_the_mtu_passes_and_one_more_byte_is_refused() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (from, same) = (cluster.pod(1, "from")?, cluster.pod(1, "same")?);
    let across = cluster.pod(2, "across")?;
    Cluster::wait_for_path(from.netns(), across.address())?;
    for to in [same, across] {
        let fits = ping(from.netns(), to.address(), &PingOptions::packet(1450))?;
        assert_eq!(fits.lost(), 0, "{fits}");
        let large = ping(from.netns(), to.address(), &PingOptions::packet(1451))?;
        assert_eq!(large.answered.len(), 0, "{large}");
        assert!(
            large.errors.iter().any(|e| e.contains("too long")),
            "{large}"
        );
    }
    Ok(())
}

/// As a chained `tuning` does it. The veth pair would drop such packets, and nobody would tell
/// their sender.
#[test]
fn senders_are_told_of_a_lower_mtu_of_the_pods_end() -> Result<(), LabError> {
    let mut cluster = Cluster::start(2)?;
    let (pod, far) = (cluster.pod(1, "pod")?, cluster.pod(2, "far")?);
    Cluster::wait_for_path(far.netns(), pod.address())?;
    pod.netns().sh("ip link set eth0 mtu 1300")?;
    // Longer than the agent's resync.
    let limit = Duration::from_secs(60);
    wait_until("the sender is told", limit, || {
        let options = PingOptions {
            wait: Duration::from_millis(500),
            ..PingOptions::packet(1301)
        };
        let report = ping(far.netns(), pod.address(), &options).map_err(|e| e.to_string())?;
        let is_told = report.errors.iter().any(|e| e.contains("1300"));
        if is_told {
            Ok(())
        } else {
            Err(report.to_string())
        }
    })?;
    let fits = ping(far.netns(), pod.address(), &PingOptions::packet(1300))?;
    assert_eq!(fits.lost(), 0, "{fits}");
    Ok(())
}

#[test]
fn an_unused_address_is_unreachable_and_no_packet_to_it_leaves_the_node() -> Result<(), LabError> {
    let mut cluster = Cluster::start_with(2, |options| {
        options.arg("--cluster-cidr").arg("10.244.0.0/16")
    })?;
    let pod = cluster.pod(1, "pod")?;
    let outside = tweed_lab::capture(cluster.underlay().router(), "any", "net 10.244.0.0/16")?;
    for unused in [[10, 244, 1, 200], [10, 244, 2, 200], [10, 244, 77, 7]].map(IpAddr::from) {
        for from in [pod.netns(), cluster[1].node.netns()] {
            let report = ping(
                from,
                unused,
                &PingOptions {
                    count: 1,
                    ..PingOptions::default()
                },
            )?;
            assert!(report.answered.is_empty(), "{report}");
            assert!(
                report
                    .errors
                    .iter()
                    .any(|e| e.contains("Unreachable") || e.contains("No route to host")),
                "{} to {unused}: {report}",
                from.name()
            );
        }
    }
    assert_eq!(outside.stop()?, Vec::<String>::new());
    Ok(())
}
