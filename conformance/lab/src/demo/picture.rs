//! The topology as text.

use std::fmt::Write;

/// The content of the picture.
#[derive(Debug)]
pub(crate) struct Topology {
    /// Address of the host outside.
    pub(crate) outside: String,
    /// The overlay's parameters: `VNI 1, UDP 8472, MTU 1450`.
    pub(crate) vxlan: String,
    pub(crate) nodes: Vec<NodePicture>,
}

/// A node in the picture.
#[derive(Debug)]
pub(crate) struct NodePicture {
    pub(crate) name: String,
    /// Address on the underlay.
    pub(crate) address: String,
    /// Address on the overlay.
    pub(crate) overlay: String,
    /// MAC of its VXLAN device.
    pub(crate) mac: String,
    pub(crate) pods: Vec<PodPicture>,
}

/// A pod in the picture.
#[derive(Debug)]
pub(crate) struct PodPicture {
    pub(crate) name: String,
    pub(crate) address: String,
}

/// Width of the inside of a node's box, in columns.
const INNER: usize = 22;

/// Width of the gap between two boxes, in columns.
const GAP: usize = 3;

/// Draws boxes for the nodes below the switch, connected by the overlay.
pub(crate) fn render(topology: &Topology) -> String {
    let count = topology.nodes.len();
    let width = count * (INNER + 2) + count.saturating_sub(1) * GAP;
    let mut text = String::new();
    let mut centred = |line: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {}", format!("{line:^width$}").trim_end());
    };
    centred(&format!("outside {}", topology.outside));
    centred("│");
    centred("router 198.51.100.1 / 192.0.2.1");
    centred("│");
    let switch = " switch 192.0.2.0/24, drops foreign sources ";
    let edge = width.saturating_sub(2);
    centred(&format!("╞{switch:═^edge$}╡"));

    let pods = topology.nodes.iter().map(|node| node.pods.len()).max();
    let mut rows = vec![
        columns(topology, " ", |_| format!("{:^1$}", "│", INNER + 2)),
        columns(topology, " ", |_| format!("┌{:─^INNER$}┐", "┴")),
        columns(topology, " ", |node| cell(&node.name, "")),
        columns(topology, " ", |node| cell("eth0", &node.address)),
        columns(topology, "═", |node| {
            let text = cell("tweed.1", &node.overlay);
            // The overlay leaves the box on both sides.
            format!("╞{}╡", &text["│".len()..text.len() - "│".len()])
        }),
    ];
    for number in 0..pods.unwrap_or_default() {
        rows.push(columns(topology, " ", |node| {
            let pod = node.pods.get(number);
            pod.map_or_else(
                || cell("", ""),
                |pod| cell(&format!("pod {}", pod.name), &pod.address),
            )
        }));
    }
    rows.push(columns(topology, " ", |_| format!("└{:─^INNER$}┘", "")));
    for row in rows {
        let _ = writeln!(text, "  {}", row.trim_end());
    }
    let _ = writeln!(text, "  ═══ the overlay: VXLAN, {}", topology.vxlan);
    text
}

fn columns(topology: &Topology, gap: &str, draw: impl Fn(&NodePicture) -> String) -> String {
    let boxes: Vec<String> = topology.nodes.iter().map(draw).collect();
    boxes.join(&gap.repeat(GAP))
}

fn cell(key: &str, value: &str) -> String {
    format!(
        "│ {:<INNER$}│",
        format!("{key:<8} {value}"),
        INNER = INNER - 1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(index: u8) -> NodePicture {
        let pod = |number: u8| PodPicture {
            name: format!("p{number}"),
            address: format!("10.244.{index}.{number}"),
        };
        NodePicture {
            name: format!("node{index}"),
            address: format!("192.0.2.{index}"),
            overlay: format!("10.244.{index}.0"),
            mac: "02:00:00:00:00:01".to_owned(),
            pods: (1..=index).map(pod).collect(),
        }
    }

    #[test]
    fn boxes_of_nodes_with_different_pods_line_up() {
        let picture = render(&Topology {
            outside: "198.51.100.10".to_owned(),
            vxlan: "VNI 1, UDP 8472, MTU 1450".to_owned(),
            nodes: vec![node(1), node(2)],
        });
        let expected = r"
                 outside 198.51.100.10
                           │
            router 198.51.100.1 / 192.0.2.1
                           │
  ╞══ switch 192.0.2.0/24, drops foreign sources ═══╡
             │                          │
  ┌──────────┴───────────┐   ┌──────────┴───────────┐
  │ node1                │   │ node2                │
  │ eth0     192.0.2.1   │   │ eth0     192.0.2.2   │
  ╞ tweed.1  10.244.1.0  ╡═══╞ tweed.1  10.244.2.0  ╡
  │ pod p1   10.244.1.1  │   │ pod p1   10.244.2.1  │
  │                      │   │ pod p2   10.244.2.2  │
  └──────────────────────┘   └──────────────────────┘
  ═══ the overlay: VXLAN, VNI 1, UDP 8472, MTU 1450
";
        assert_eq!(format!("\n{picture}"), expected, "{picture}");
    }
}
