//! A test of the programs on the kernel that is to run them, before they are attached: each
//! sees packets of flows that are let in, and others, and has to do to each what the kernel
//! would (`BPF_PROG_RUN`). The programs and maps are others than those that are attached, and
//! no packet leaves.
//!
//! A flow through namespaces would show more, but to make one the agent would need
//! CAP_SYS_ADMIN.

use std::net::IpAddr;
use std::os::fd::AsFd as _;

use aya::maps::{HashMap, Map, MapData, MapError};
use aya::{Btf, Ebpf, EbpfLoader};

use crate::error::Error;
use crate::hooks::{self, Hook};
use crate::layout::{FlowKey, FlowValue, WAY_LOCAL, WAY_VXLAN_IN, WAY_VXLAN_OUT, address};
use crate::packet::{ETHERNET, OUTER, Packet, TCP, UDP, is_outer};
use crate::plan::{Plan, Vxlan};
use crate::programs::OBJECT;
use crate::settings::Settings;
use crate::sys;

/// Number of flows that are remembered here.
const FLOWS: u32 = 1024;
/// The loopback link, by which the packets of a test come.
const LOOPBACK: u32 = 1;
/// An index that no link has: nothing is sent.
const NOWHERE: u32 = 0x7fff_ffff;
/// `TC_ACT_REDIRECT`
const REDIRECT: u32 = 7;
/// `TCX_NEXT`
const NEXT: u32 = u32::MAX;
const VNI: u32 = 0x0012_3456;
const PORT: u16 = 8472;
const OWN: [u8; 4] = [192, 0, 2, 1];
const OTHER: [u8; 4] = [192, 0, 2, 2];

/// Tests the programs, with the kernel's `types`.
///
/// # Errors
/// The kernel refuses them, or a program does something else to a packet.
pub(crate) fn run(types: &Btf) -> Result<(), Error> {
    let mut loader = EbpfLoader::new();
    loader.btf(Some(types)).map_max_entries("flows", FLOWS);
    let mut loaded = loader
        .load(OBJECT)
        .map_err(|error| Error::of("the maps", &error))?;
    hooks::load(&mut loaded)?;
    Test::new(loaded)?.run()
}

fn of_flows(error: MapError) -> Error {
    Error::of("the map of flows", &error)
}

struct Test {
    loaded: Ebpf,
    flows: HashMap<MapData, FlowKey, FlowValue>,
}

impl Test {
    fn new(mut loaded: Ebpf) -> Result<Self, Error> {
        let missing = |name: &str| Error::SelfTest(format!("there is no map {name}"));
        let settings = match loaded.map("settings") {
            Some(Map::Array(map)) => Settings::map(map.fd())?,
            _ => return Err(missing("settings")),
        };
        let all = ["0.0.0.0/0", "::/0"].iter();
        settings.set(&Plan {
            vxlan: Some(Vxlan {
                link: LOOPBACK,
                vni: VNI,
                port: PORT,
                node: OWN.into(),
                source_ports: (32_768, 61_000),
                underlay: None,
            }),
            ranges: all.filter_map(|range| range.parse().ok()).collect(),
            ..Plan::default()
        });
        let map = loaded.take_map("flows").ok_or_else(|| missing("flows"))?;
        let flows = map.try_into().map_err(of_flows)?;
        Ok(Self { loaded, flows })
    }

    /// Lets a direction of a flow in: packets like `before` become such as `after`.
    fn admit(&mut self, before: &Packet, after: &Packet, way: u32) -> Result<(), Error> {
        let key = FlowKey {
            source: address(before.source),
            destination: address(before.destination),
            source_port: before.ports.0.to_be(),
            destination_port: before.ports.1.to_be(),
            link: LOOPBACK,
            protocol: before.protocol.into(),
        };
        let value = FlowValue {
            epoch: 0,
            expires: u64::MAX,
            way,
            link: NOWHERE,
            node: u32::from_ne_bytes(OTHER),
            mtu: 1450,
            destination_mac: after.macs.0,
            source_mac: after.macs.1,
            source: address(after.source),
            destination: address(after.destination),
            source_port: after.ports.0.to_be(),
            destination_port: after.ports.1.to_be(),
            translates: u32::from(before.ends() != after.ends()),
            unused: 0,
        };
        self.flows.insert(key, value, 0).map_err(of_flows)
    }

    fn pass(&mut self, hook: Hook, packet: &[u8]) -> Result<(u32, Vec<u8>), Error> {
        let program = hooks::program(&mut self.loaded, hook)?;
        let failed = |error| Error::of(hook.program(), &error);
        let fd = program.fd().map_err(failed)?;
        let passed = sys::run_program(fd.as_fd(), packet);
        passed.map_err(|error| Error::of("a test of a program", &error))
    }

    /// Has a program see `packet`, and compares its verdict and what becomes of the packet.
    fn expect(
        &mut self,
        what: &str,
        hook: Hook,
        packet: &[u8],
        expected: (u32, &[u8]),
    ) -> Result<(), Error> {
        let (verdict, after) = self.pass(hook, packet)?;
        if (verdict, after.as_slice()) == expected {
            return Ok(());
        }
        let at = after
            .iter()
            .zip(expected.1)
            .position(|(one, other)| one != other);
        let (verdict, length) = (verdict.cast_signed(), after.len());
        Err(Error::SelfTest(format!(
            "{what}: verdict {verdict}, {length} bytes, the first wrong one {at:?}"
        )))
    }

    fn run(&mut self) -> Result<(), Error> {
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        for (source, service, pod) in [
            ("10.244.1.2", "10.96.0.1", "10.244.2.3"),
            ("fd00:1::2", "fd00:9::1", "fd00:2::3"),
        ] {
            let (Some(source), Some(service), Some(pod)) = (ip(source), ip(service), ip(pod))
            else {
                continue;
            };
            for protocol in [TCP, UDP] {
                let sent = Packet::new((source, 40_000), (service, 80), protocol);
                self.local(&sent, pod)?;
                self.vxlan(&sent, pod)?;
                self.left(&sent)?;
            }
        }
        Ok(())
    }

    /// To a pod of this node, behind a Service.
    fn local(&mut self, sent: &Packet, pod: IpAddr) -> Result<(), Error> {
        let mut delivered = sent.clone().to((pod, 8080));
        delivered.hops -= 1;
        delivered.macs = ([2; 6], [4; 6]);
        self.admit(sent, &delivered, WAY_LOCAL)?;
        let expected = (REDIRECT, &*delivered.bytes());
        self.expect(
            "to a pod of this node",
            Hook::PodIn,
            &sent.bytes(),
            expected,
        )
    }

    /// To another node, and what that node makes of it.
    fn vxlan(&mut self, sent: &Packet, pod: IpAddr) -> Result<(), Error> {
        let mut inner = sent.clone().to((pod, 8080));
        inner.hops -= 1;
        inner.macs = ([6; 6], [8; 6]);
        self.admit(sent, &inner, WAY_VXLAN_OUT)?;
        let (verdict, outer) = self.pass(Hook::PodIn, &sent.bytes())?;
        let inside = outer.get(ETHERNET + OUTER..).unwrap_or_default();
        let is_right = is_outer(&outer, OWN, OTHER, PORT, VNI);
        if verdict != REDIRECT || !is_right || inside != inner.bytes() {
            return Err(Error::SelfTest(format!("to another node: {outer:02x?}")));
        }
        // The other way round it is a packet from that node.
        let mut arrived = outer;
        arrived.splice(..12, [0; 12]);
        arrived.splice(ETHERNET + 12..ETHERNET + 20, [OTHER, OWN].concat());
        let mut delivered = inner.clone();
        delivered.hops -= 1;
        delivered.macs = ([2; 6], [4; 6]);
        self.admit(&inner, &delivered, WAY_VXLAN_IN)?;
        let expected = (REDIRECT, &*delivered.bytes());
        self.expect("from another node", Hook::NicIn, &arrived, expected)?;
        // From any other node it is left to the kernel.
        arrived.splice(ETHERNET + 12..ETHERNET + 16, [192, 0, 2, 3]);
        let expected = (NEXT, &*arrived.clone());
        self.expect("from a stranger", Hook::NicIn, &arrived, expected)
    }

    /// What is left to the kernel, unchanged: other flows, and packets that end one.
    fn left(&mut self, sent: &Packet) -> Result<(), Error> {
        let mut other = sent.clone();
        other.ports.0 += 1;
        let mut last_hop = sent.clone();
        last_hop.hops = 1;
        let mut large = sent.clone();
        large.payload = vec![7; 1450];
        for (what, packet) in [
            ("another flow", other),
            ("the last hop", last_hop),
            ("too large", large),
        ] {
            let bytes = packet.bytes();
            self.expect(what, Hook::PodIn, &bytes, (NEXT, &bytes))?;
        }
        Ok(())
    }
}
