//! The topology as an SVG drawing.

use tweed_drawing::Drawing;

use super::picture::{NodePicture, Topology};

const NODE_WIDTH: usize = 220;
const NODE_GAP: usize = 40;
const MARGIN: usize = 30;
const SWITCH_TOP: usize = 160;
const NODE_TOP: usize = 230;
const POD_TOP: usize = 96;
const POD_STEP: usize = 44;

const STYLE: &str = "\
  .pod { fill: #dff3e4; stroke: #4c9a63; }
  .vtep { fill: #e5ecff; stroke: #4667c8; }
  .host { fill: #fff3dc; stroke: #c2912e; }
  .switch { fill: #d8dee6; stroke: #7f93a8; }
  .wire { stroke: #7f93a8; stroke-width: 2; }
  .overlay { stroke: #4667c8; stroke-width: 3; stroke-dasharray: 7 5; fill: none; }
";

/// The whole SVG document.
pub(crate) fn render(topology: &Topology) -> String {
    let count = topology.nodes.len();
    let pods = topology.nodes.iter().map(|node| node.pods.len()).max();
    let node_height = POD_TOP + pods.unwrap_or_default() * POD_STEP + 8;
    let width = 2 * MARGIN + count * NODE_WIDTH + count.saturating_sub(1) * NODE_GAP;
    let overlay_y = NODE_TOP + node_height + 46;
    let height = overlay_y + 36;
    let middle = width / 2;

    let mut svg = Picture(Drawing::new((width, height), STYLE));
    svg.0.line("wire", (middle, 56), (middle, SWITCH_TOP));
    svg.labelled("host", middle - 110, 20, "outside", &topology.outside);
    svg.labelled(
        "host",
        middle - 110,
        88,
        "router",
        "198.51.100.1 / 192.0.2.1",
    );
    svg.0
        .rect("switch", (MARGIN, SWITCH_TOP), (width - 2 * MARGIN, 30));
    let switch = "switch 192.0.2.0/24: drops frames with a foreign source";
    svg.0.text("", "middle", (middle, SWITCH_TOP + 20), switch);
    for (number, node) in topology.nodes.iter().enumerate() {
        let left = MARGIN + number * (NODE_WIDTH + NODE_GAP);
        svg.node(node, left, node_height);
    }
    svg.overlay(count, NODE_TOP + node_height, overlay_y);
    let overlay = format!("the overlay: VXLAN, {}", topology.vxlan);
    svg.0.text("", "middle", (middle, overlay_y + 20), &overlay);
    svg.0.end()
}

struct Picture(Drawing);

impl Picture {
    fn labelled(&mut self, class: &str, x: usize, y: usize, title: &str, detail: &str) {
        self.0.rect(class, (x, y), (NODE_WIDTH, 40));
        self.0
            .text("title", "middle", (x + NODE_WIDTH / 2, y + 17), title);
        self.0
            .text("small", "middle", (x + NODE_WIDTH / 2, y + 32), detail);
    }

    fn node(&mut self, node: &NodePicture, left: usize, height: usize) {
        let middle = left + NODE_WIDTH / 2;
        self.0
            .line("wire", (middle, SWITCH_TOP + 30), (middle, NODE_TOP));
        self.0.rect("node", (left, NODE_TOP), (NODE_WIDTH, height));
        self.0
            .text("title", "start", (left + 12, NODE_TOP + 22), &node.name);
        let address = format!("eth0 {}", node.address);
        self.0
            .text("", "end", (left + NODE_WIDTH - 12, NODE_TOP + 22), &address);
        let vtep = format!("tweed.1 {}", node.overlay);
        self.inner("vtep", left, NODE_TOP + 34, (&vtep, &node.mac), 50);
        for (number, pod) in node.pods.iter().enumerate() {
            let top = NODE_TOP + POD_TOP + number * POD_STEP;
            let name = format!("pod {}", pod.name);
            self.inner("pod", left, top, (&name, &pod.address), 38);
        }
    }

    fn inner(
        &mut self,
        class: &str,
        left: usize,
        top: usize,
        (title, detail): (&str, &str),
        height: usize,
    ) {
        let middle = left + NODE_WIDTH / 2;
        self.0
            .rect(class, (left + 12, top), (NODE_WIDTH - 24, height));
        self.0
            .text("", "middle", (middle, top + height / 2 - 3), title);
        self.0
            .text("small", "middle", (middle, top + height / 2 + 12), detail);
    }

    /// A horizontal line below the nodes with a vertical one to each node.
    fn overlay(&mut self, count: usize, top: usize, bottom: usize) {
        let middle = |number: usize| MARGIN + number * (NODE_WIDTH + NODE_GAP) + NODE_WIDTH / 2;
        for number in 0..count {
            self.0
                .line("overlay", (middle(number), top), (middle(number), bottom));
        }
        let last = middle(count.saturating_sub(1));
        self.0.line("overlay", (middle(0), bottom), (last, bottom));
    }
}
