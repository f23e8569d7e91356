//! Tests of continuous pings: exactly the lost requests are counted.
#![expect(
    clippy::unwrap_used,
    reason = "clippy knows tests by their attribute, not their helpers"
)]

use std::net::IpAddr;
use std::time::Duration;

use tweed_lab::{Cluster, EchoSocket, Lab, Netns, Pings, wait_until};

/// Two hosts with a switch between them: `near` is `10.9.0.1` and `fd09::1`, `far` is
/// `10.9.0.2` and `fd09::2`.
struct Hosts {
    near: Netns,
    _far: Netns,
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
        Self {
            near,
            _far: far,
            switch,
        }
    }

    fn ping(&self, to: [&str; 2]) -> Pings {
        let open = |to: &str| {
            let address: IpAddr = to.parse().unwrap();
            let socket = self.near.enter(|| EchoSocket::open(address)).unwrap();
            (to.to_owned(), socket.unwrap())
        };
        Pings::start(to.map(open)).unwrap()
    }
}

/// Waits for so many requests of each that most of them meet what was changed before.
fn wait_for_requests(pings: &Pings) {
    let before = pings.requests();
    let waited = wait_until("requests of each ping", Duration::from_secs(30), || {
        let more = pings.requests() - before;
        (more >= 30).then_some(()).ok_or_else(|| more.to_string())
    });
    waited.unwrap();
}

#[test]
fn requests_are_lost_only_while_the_link_is_down() {
    let lab = Lab::new().unwrap();
    let hosts = Hosts::new(&lab);
    let to = ["10.9.0.2", "fd09::2"];
    let (whole, broken) = (hosts.ping(to), hosts.ping(to));
    wait_for_requests(&whole);
    for (to, report) in whole.stop() {
        assert_eq!(report.lost(), 0, "{to}: {report}");
        assert_eq!(report.errors, [""; 0], "{to}");
        assert!(report.sent >= 2, "{to}: {report}");
        assert!(report.average_ms.unwrap() > 0.0, "{to}: {report}");
    }

    hosts.switch.ip(["link set far down"]).unwrap();
    wait_for_requests(&broken);
    hosts.switch.ip(["link set far up"]).unwrap();
    for to in to {
        Cluster::wait_for_path(&hosts.near, to.parse().unwrap()).unwrap();
    }
    wait_for_requests(&broken);
    for (to, report) in broken.stop() {
        assert!(report.lost() > 0, "{to}: {report}");
        let last = report.sent;
        let is_answered = [1, last].map(|number| report.answered.contains(&number));
        assert_eq!(is_answered, [true; 2], "{to}, 1 and {last}: {report}");
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
    wait_for_requests(&pings);
    for (to, report) in pings.stop() {
        assert!(report.lost() > 0, "{to}: {report}");
        let words = "could not be sent: Permission denied";
        assert!(report.errors[0].contains(words), "{to}: {report}");
    }
}
