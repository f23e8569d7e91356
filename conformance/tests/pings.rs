//! Tests of continuous pings: exactly the lost requests are counted.
#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::net::IpAddr;
use std::time::Duration;

use tweed_lab::{Cluster, EchoSocket, Lab, Netns, PingReport, Pings};

/// Two hosts with a switch between them: `near` is `10.9.0.1` and `fd09::1`, `far` is
/// `10.9.0.2` and `fd09::2`. `far` is the router of `near`.
struct Hosts {
    near: Netns,
    far: Netns,
    switch: Netns,
}

impl Hosts {
    fn new(lab: &Lab) -> Self {
        let [near, far, switch] = ["near", "far", "switch"].map(|name| lab.netns(name).unwrap());
        switch
            .ip(["link add br0 up type bridge forward_delay 0 mcast_snooping 0"])
            .unwrap();
        for (host, port, last) in [(&near, "near", 1), (&far, "far", 2)] {
            let name = host.name();
            switch
                .ip([
                    format!("link add {port} type veth peer name eth0 netns {name}"),
                    format!("link set {port} master br0 up"),
                ])
                .unwrap();
            host.ip([
                format!("addr add 10.9.0.{last}/24 dev eth0"),
                format!("addr add fd09::{last}/64 dev eth0 nodad"),
                "link set eth0 up".to_owned(),
            ])
            .unwrap();
        }
        near.ip(["10.9.0.2", "fd09::2"].map(|router| format!("route add default via {router}")))
            .unwrap();
        for key in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            far.set_sysctl(key, "1").unwrap();
        }
        Self { near, far, switch }
    }

    fn ping(&self, to: [&str; 2]) -> Pings {
        let open = |to: &str| {
            let address: IpAddr = to.parse().unwrap();
            let socket = self.near.enter(|| EchoSocket::open(address)).unwrap();
            (to.to_owned(), socket.unwrap())
        };
        Pings::start(to.map(open)).unwrap()
    }

    fn wait_for_path(&self, to: &str) {
        Cluster::wait_for_path(&self.near, to.parse().unwrap()).unwrap();
    }
}

/// So many that most of them meet what was changed before.
const REQUESTS: u32 = 30;

fn has_error(report: &PingReport, words: &str) -> bool {
    report.errors.iter().any(|error| error.contains(words))
}

#[test]
fn requests_are_lost_only_while_the_link_is_down() {
    let lab = Lab::new().unwrap();
    let hosts = Hosts::new(&lab);
    let to = ["10.9.0.2", "fd09::2"];
    let (whole, broken) = (hosts.ping(to), hosts.ping(to));
    whole.wait_for_requests(REQUESTS).unwrap();
    for (to, report) in whole.stop().unwrap() {
        assert_eq!(report.lost(), 0, "{to}: {report}");
        assert_eq!(report.errors, [""; 0], "{to}");
        assert!(report.sent >= 2, "{to}: {report}");
        assert!(report.average_ms.unwrap() > 0.0, "{to}: {report}");
    }

    hosts.switch.ip(["link set far down"]).unwrap();
    broken.wait_for_requests(REQUESTS).unwrap();
    hosts.switch.ip(["link set far up"]).unwrap();
    to.iter().for_each(|to| hosts.wait_for_path(to));
    broken.wait_for_requests(REQUESTS).unwrap();
    for (to, report) in broken.stop().unwrap() {
        assert!(report.lost() > 0, "{to}: {report}");
        let last = report.sent;
        let is_answered = [1, last].map(|number| report.answered.contains(&number));
        assert_eq!(is_answered, [true; 2], "{to}, 1 and {last}: {report}");
    }
}

#[test]
fn icmp_errors_of_a_router_are_reported() {
    let lab = Lab::new().unwrap();
    let hosts = Hosts::new(&lab);
    let to = ["10.8.0.1", "fd08::1"];
    let lines = |line: &str| to.map(|to| line.replace("TO", to));
    hosts.far.ip(lines("addr add TO dev lo")).unwrap();
    let pings = hosts.ping(to);
    hosts.far.ip(lines("addr del TO dev lo")).unwrap();
    hosts.far.ip(lines("route add unreachable TO")).unwrap();
    pings.wait_for_requests(REQUESTS).unwrap();
    let reports = pings.stop().unwrap();
    for ((to, report), router) in reports.iter().zip(["10.9.0.2", "fd09::2"]) {
        assert!(report.lost() > 0, "{to}: {report}");
        assert!(
            has_error(report, &format!("{router} answers ")),
            "{to}: {report}"
        );
    }
}

#[test]
fn requests_that_the_local_kernel_refuses_are_lost_and_reported() {
    let lab = Lab::new().unwrap();
    let hosts = Hosts::new(&lab);
    let to = ["10.9.0.2", "fd09::2"];
    let pings = hosts.ping(to);
    let lines = to.map(|to| format!("route add prohibit {to}"));
    hosts.near.ip(lines).unwrap();
    pings.wait_for_requests(REQUESTS).unwrap();
    for (to, report) in pings.stop().unwrap() {
        assert!(report.lost() > 0, "{to}: {report}");
        let words = "could not be sent: Permission denied";
        assert!(has_error(&report, words), "{to}: {report}");
    }
}

#[test]
fn a_ping_without_any_answer_does_not_start() {
    let lab = Lab::new().unwrap();
    let hosts = Hosts::new(&lab);
    let nobody: IpAddr = "10.9.0.99".parse().unwrap();
    let socket = hosts.near.enter(|| EchoSocket::open(nobody)).unwrap();
    let pings = [("to nobody".to_owned(), socket.unwrap())];
    let limit = Duration::from_secs(1);
    let error = Pings::start_within(limit, pings).unwrap_err().to_string();
    assert!(error.contains("to nobody: 0 of "), "{error}");
}
