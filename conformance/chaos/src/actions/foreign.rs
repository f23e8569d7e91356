//! Objects of others that are in tweed's way; the end of the burst takes them away.

use super::{Kind, Run};

pub const KINDS: &[Kind] = &[
    Kind {
        name: "foreign route in the place of one to a node",
        weight: 4,
        run: Run::Fault(
            &[
                "ip route del {far.cidr4}",
                "ip route add {far.cidr4} via 192.0.2.1 proto static",
            ],
            &["ip route del {far.cidr4} proto static"],
        ),
    },
    Kind {
        name: "foreign route in the place of a pod's",
        weight: 4,
        run: Run::Fault(
            &[
                "ip route del {pod4}",
                "ip route add {pod4} via 192.0.2.1 proto static",
            ],
            &["ip route del {pod4} proto static"],
        ),
    },
    Kind {
        name: "foreign route of IPv6 beside one to a node",
        weight: 3,
        run: Run::Fault(
            &["ip -6 route add unreachable {far.cidr6} proto static metric 9"],
            &["ip -6 route del unreachable {far.cidr6} proto static metric 9"],
        ),
    },
    Kind {
        name: "foreign link with the VXLAN device's name",
        weight: 4,
        run: Run::Fault(
            &[
                "ip link del tweed.1",
                "ip link add tweed.1 type veth peer name hidden2",
            ],
            &["ip link del hidden2"],
        ),
    },
    Kind {
        name: "foreign VXLAN device with the VNI",
        weight: 4,
        run: Run::Fault(
            &[
                "ip link del tweed.1",
                "ip link add hidden3 type vxlan id 1 dstport 8472 nolearning",
                "ip link set hidden3 up",
            ],
            &["ip link del hidden3"],
        ),
    },
    Kind {
        name: "foreign table that drops what is forwarded",
        weight: 4,
        run: Run::Fault(
            &[
                "nft add table inet hidden",
                "nft add chain inet hidden forward { type filter hook forward priority 0 ; policy drop ; }",
            ],
            &["nft delete table inet hidden"],
        ),
    },
    Kind {
        name: "foreign rule that hides the routes to pods",
        weight: 4,
        run: Run::Fault(
            &["ip rule add to {cidr4} lookup 99 pref 50"],
            &["ip rule del to {cidr4} lookup 99 pref 50"],
        ),
    },
    Kind {
        name: "foreign neighbour and FDB entry in the place of tweed's",
        weight: 3,
        run: Run::Lines(&[
            "ip neigh replace {far.net4} lladdr 02:00:00:00:00:97 dev tweed.1 nud reachable",
            "bridge fdb replace {far.mac} dev tweed.1 dst 192.0.2.98 self dynamic",
        ]),
    },
    Kind {
        name: "foreign address that is a node's",
        weight: 3,
        run: Run::Fault(
            &["ip addr add {far.address}/32 dev lo"],
            &["ip addr del {far.address}/32 dev lo"],
        ),
    },
    Kind {
        name: "foreign network over the pod CIDR",
        weight: 3,
        run: Run::Fault(
            &["ip addr add {far.net4}/24 dev foreign2"],
            &["ip addr del {far.net4}/24 dev foreign2"],
        ),
    },
];
