//! Three pods on two nodes, and flows between them that are in.

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use tweed_lab::{ClusterPod, LabError, wait_until};

use super::datagrams::Datagrams;
use super::scene::{LIMIT, Pods, Scene};

const PORT: u16 = 7010;
const PAUSE: Duration = Duration::from_millis(1);
/// The ways of both flows on node 1.
pub const WAYS: [&str; 3] = ["local", "vxlan-in", "vxlan-out"];

/// A server and a client beside it on node 1, one on node 2, and flows that are in.
pub struct Three {
    pub scene: Scene,
    pub server: ClusterPod,
    _near: ClusterPod,
    _far: ClusterPod,
    pub to_near: Datagrams,
    pub to_far: Datagrams,
}

impl Three {
    pub fn new() -> Result<Self, LabError> {
        let mut scene = Scene::new(&[], Pods::Ipv4)?;
        let server = scene.cluster.pod(1, "server")?;
        let near = scene.cluster.pod(1, "near")?;
        let far = scene.cluster.pod(2, "far")?;
        let at = |port| SocketAddr::new(server.address(), port);
        let to_near = Datagrams::open(near.netns(), at(PORT), &server, PORT, PAUSE)?;
        let to_far = Datagrams::open(far.netns(), at(PORT + 1), &server, PORT + 1, PAUSE)?;
        let three = Self {
            scene,
            to_near,
            to_far,
            server,
            _near: near,
            _far: far,
        };
        three.are_in()?;
        Ok(three)
    }

    /// The node's end of the server's link.
    pub fn link(&self) -> &str {
        self.server.result().host_link()
    }

    /// Runs a line of `tc` on node 1.
    pub fn tc(&self, line: &str) -> Result<(), LabError> {
        self.scene.node(1).sh(&format!("tc {line}")).map(drop)
    }

    pub fn are_in(&self) -> Result<(), LabError> {
        WAYS.iter().try_for_each(|way| self.scene.wait_for(1, way))
    }

    /// Waits until none of these ways is taken for a second.
    pub fn wait_until_out(&self, ways: &[&str]) -> Result<(), LabError> {
        let sum = || -> Result<f64, LabError> {
            let each = ways.iter().map(|way| self.scene.packets(1, way));
            each.sum()
        };
        wait_until("flows to take the kernel's path", LIMIT, || {
            let before = sum().map_err(|error| error.chain())?;
            sleep(Duration::from_secs(1));
            let more = sum().map_err(|error| error.chain())? - before;
            if more < 1.0 {
                Ok(())
            } else {
                Err(format!("{more} more"))
            }
        })
    }

    /// Nothing of both flows is lost. Where a queueing discipline comes or goes, the kernel
    /// itself drops what is sent meanwhile (`qdisc_graft` in `net/sched/sch_api.c`).
    pub fn end(self) {
        for flow in [self.to_near, self.to_far] {
            let [sent, arrived, answered] = flow.end();
            assert_eq!((sent, sent), (arrived, answered));
        }
    }
}
