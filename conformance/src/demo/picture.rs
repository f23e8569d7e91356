//! The topology as text.

use std::fmt::Write;

/// What there is to draw.
#[derive(Debug)]
pub(crate) struct Topology {
    /// Address of the host outside.
    pub(crate) outside: String,
    /// What the overlay is made of: `VNI 1, UDP 8472, MTU 1450`.
    pub(crate) vxlan: String,
    pub(crate) nodes: Vec<NodePicture>,
}

/// A node in the picture.
#[derive(Debug)]
pub(crate) struct NodePicture {
    pub(crate) name: String,
    /// On the underlay.
    pub(crate) address: String,
    /// On the overlay.
    pub(crate) overlay: String,
    /// Of its VXLAN device.
    pub(crate) mac: String,
    pub(crate) pods: Vec<PodPicture>,
}

/// A pod in the picture.
#[derive(Debug)]
pub(crate) struct PodPicture {
    pub(crate) name: String,
    pub(crate) address: String,
}

/// Columns inside a node's box, and between two boxes.
const INNER: usize = 22;
const GAP: usize = 3;

/// Boxes for the nodes below the switch, joined by the overlay.
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
