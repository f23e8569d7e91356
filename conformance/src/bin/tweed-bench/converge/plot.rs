//! The results as a picture: for each aim a bar, as a share of what was aimed
//! at.

use std::fmt::Write;

use super::aims::Goal;
use super::report::Report;

const LEFT: f64 = 510.0;
/// Pixels for what was aimed at.
const WHOLE: f64 = 300.0;
/// No bar is longer than this.
const MOST: f64 = 1.5 * WHOLE;
const WIDTH: f64 = LEFT + MOST + 80.0;
const ROW: f64 = 24.0;
const HEAD: f64 = 34.0;

const STYLE: &str = r##"<style>
  text { font-family: ui-monospace, monospace; font-size: 12px; fill: #1c2733; }
  .title { font-weight: bold; font-size: 14px; }
  .met { fill: #4c9a63; }
  .short { fill: #c8553d; }
  .aim { stroke: #1c2733; stroke-dasharray: 4 3; }
</style>
<rect width="100%" height="100%" fill="white"/>
"##;

/// A document that a browser shows as it is.
pub fn render(report: &Report) -> String {
    let mut body = String::new();
    let goals = report.goals();
    let height = HEAD + ROW * goals.len() as f64 + 10.0;
    for (row, Goal { aim, limit }) in goals.iter().enumerate() {
        let y = HEAD + ROW * row as f64;
        let length = (aim.measured.median / limit * WHOLE).min(MOST);
        let class = if aim.is_met { "met" } else { "short" };
        // Writing to a string cannot fail.
        let _ = writeln!(
            body,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text><rect class="{class}" x="{LEFT}" y="{:.1}" width="{length:.1}" height="{:.1}"/><text x="{:.1}" y="{:.1}">{:.2}</text>"#,
            LEFT - 8.0,
            y + 15.0,
            aim.what,
            y + 3.0,
            ROW - 8.0,
            LEFT + length + 6.0,
            y + 15.0,
            aim.measured.median
        );
    }
    let line = LEFT + WHOLE;
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}">
{STYLE}<text class="title" x="10" y="18">{} Nodes: each aim, and what it came to (the line is the aim)</text>
{body}<line class="aim" x1="{line}" y1="{HEAD}" x2="{line}" y2="{:.1}"/>
</svg>
"#,
        report.nodes,
        height - 6.0
    )
}
