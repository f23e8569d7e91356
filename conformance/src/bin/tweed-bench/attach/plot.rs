//! The results as a picture: a panel for each verb and node, a bar for each
//! subject and number of calls at once, on a logarithmic scale.

use std::fmt::Write;

use super::report::{Cell, Report};
use super::subject::{Subject, Verb};

const LEFT: f64 = 190.0;
const BARS: f64 = 480.0;
const WIDTH: f64 = LEFT + BARS + 90.0;
const ROW: f64 = 16.0;
const GAP: f64 = 10.0;
const HEAD: f64 = 34.0;
/// The scale, in milliseconds.
const SCALE: (f64, f64) = (0.1, 100.0);

const STYLE: &str = r##"<style>
  text { font-family: ui-monospace, monospace; font-size: 12px; fill: #1c2733; }
  .title { font-weight: bold; font-size: 14px; }
  .small { font-size: 11px; fill: #5b6b7b; }
  .peer { fill: #a9b8c8; }
  .tweed { fill: #4c9a63; }
  .floor { fill: #d9a441; }
  .spread { stroke: #1c2733; stroke-width: 1.2; }
  .grid { stroke: #e3e8ee; }
</style>
<rect width="100%" height="100%" fill="white"/>
"##;

/// A document that a browser shows as it is.
pub fn render(report: &Report) -> String {
    let mut body = String::new();
    let mut top = 10.0;
    let mut nodes: Vec<usize> = report.cells.iter().map(|cell| cell.pods).collect();
    nodes.dedup();
    for pods in nodes {
        for verb in [Verb::Add, Verb::Del] {
            let cells: Vec<&Cell> = report
                .cells
                .iter()
                .filter(|cell| cell.pods == pods && cell.verb == verb)
                .collect();
            // Writing to a string cannot fail.
            let _ = panel(&mut body, &cells, pods, verb, &mut top);
        }
    }
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">
{STYLE}{body}</svg>
"#
    )
}

fn panel(
    out: &mut String,
    cells: &[&Cell],
    pods: usize,
    verb: Verb,
    top: &mut f64,
) -> std::fmt::Result {
    let rows: usize = cells.iter().map(|cell| cell.measured.len()).sum();
    let height = HEAD + rows as f64 * ROW + cells.len() as f64 * GAP;
    writeln!(
        out,
        r#"<text class="title" x="10" y="{:.1}">{}, {pods} pods on the node: ms for each call</text>"#,
        *top + 14.0,
        verb.as_str()
    )?;
    for ms in [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0] {
        let x = place(ms);
        writeln!(
            out,
            r#"<line class="grid" x1="{x:.1}" y1="{:.1}" x2="{x:.1}" y2="{:.1}"/><text class="small" x="{x:.1}" y="{:.1}" text-anchor="middle">{ms}</text>"#,
            *top + HEAD - 2.0,
            *top + height - GAP,
            *top + HEAD - 6.0
        )?;
    }
    let mut y = *top + HEAD;
    for cell in cells {
        for one in &cell.measured {
            let Some(ms) = one.ms else { continue };
            let class = match one.subject {
                Subject::Tweed => "tweed",
                Subject::Floor | Subject::FloorWaiting => "floor",
                _ => "peer",
            };
            let middle = y + ROW / 2.0;
            writeln!(
                out,
                r#"<text class="small" x="{:.1}" y="{:.1}" text-anchor="end">{} × {}</text><rect class="{class}" x="{LEFT}" y="{:.1}" width="{:.1}" height="{:.1}"/><line class="spread" x1="{:.1}" y1="{middle:.1}" x2="{:.1}" y2="{middle:.1}"/><text class="small" x="{:.1}" y="{:.1}">{:.2}</text>"#,
                LEFT - 6.0,
                y + 12.0,
                one.subject.name(),
                cell.at_once,
                y + 2.0,
                place(ms.median) - LEFT,
                ROW - 4.0,
                place(ms.low),
                place(ms.high),
                place(ms.high.max(ms.median)) + 6.0,
                y + 12.0,
                ms.median
            )?;
            y += ROW;
        }
        y += GAP;
    }
    *top += height + GAP;
    Ok(())
}

fn place(ms: f64) -> f64 {
    let (from, to) = (SCALE.0.log10(), SCALE.1.log10());
    let share = (ms.max(SCALE.0).log10() - from) / (to - from);
    LEFT + BARS * share.clamp(0.0, 1.0)
}
