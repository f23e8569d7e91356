//! The results as a picture: a panel for each load and place, a bar for each
//! subject, from nothing to the fastest.

use std::fmt::Write;

use super::report::{Cell, Report, Row};
use super::subject::Subject;

const LEFT: f64 = 230.0;
const BARS: f64 = 420.0;
const WIDTH: f64 = LEFT + BARS + 110.0;
const ROW: f64 = 16.0;
const GAP: f64 = 14.0;
const HEAD: f64 = 22.0;

const STYLE: &str = r##"<style>
  text { font-family: ui-monospace, monospace; font-size: 11px; fill: #5b6b7b; }
  .title { font-weight: bold; font-size: 14px; fill: #1c2733; }
  .peer { fill: #a9b8c8; }
  .tweed { fill: #4c9a63; }
  .variant { fill: #b7d6c0; }
  .bound { fill: #d9a441; }
  .spread { stroke: #1c2733; stroke-width: 1.2; }
</style>
<rect width="100%" height="100%" fill="white"/>
"##;

/// A document that a browser shows as it is.
pub fn render(report: &Report<'_>) -> String {
    let mut body = String::new();
    let mut top = 10.0;
    for cell in &report.cells {
        // Writing to a string cannot fail.
        let _ = panel(&mut body, cell, &mut top);
    }
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}">
{STYLE}{body}</svg>
"#
    )
}

fn panel(out: &mut String, cell: &Cell, top: &mut f64) -> std::fmt::Result {
    let highs = cell.rows.iter().filter_map(|row| Some(row.rate?.high));
    let most = highs.fold(f64::MIN_POSITIVE, f64::max);
    writeln!(
        out,
        r#"<text class="title" x="10" y="{:.1}">{}, {}: {}</text>"#,
        *top + 14.0,
        cell.load.name(),
        cell.place.name(),
        cell.unit
    )?;
    *top += HEAD;
    for row in &cell.rows {
        bar(out, row, most, *top)?;
        *top += ROW;
    }
    *top += GAP;
    Ok(())
}

fn bar(out: &mut String, row: &Row, most: f64, top: f64) -> std::fmt::Result {
    let Some(rate) = row.rate else { return Ok(()) };
    let class = match row.subject {
        Subject::Tweed | Subject::SameTweed => "tweed",
        Subject::Nodes => "bound",
        Subject::HandMade | Subject::SameHandMade | Subject::SamePtp | Subject::SameBridge => {
            "peer"
        }
        Subject::TweedAgain
        | Subject::Direct
        | Subject::OnlyMasquerade
        | Subject::NoTable
        | Subject::NoConntrack
        | Subject::Crowded
        | Subject::CrowdedNoTable
        | Subject::SameTweedAgain
        | Subject::SameOnlyMasquerade
        | Subject::SameNoTable
        | Subject::SameNoConntrack => "variant",
    };
    let wide = |rate: f64| BARS * rate / most;
    let middle = top + ROW / 2.0;
    writeln!(
        out,
        r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{}</text><rect class="{class}" x="{LEFT}" y="{:.1}" width="{:.1}" height="{:.1}"/><line class="spread" x1="{:.1}" y1="{middle:.1}" x2="{:.1}" y2="{middle:.1}"/><text x="{:.1}" y="{:.1}">{:.2}</text>"#,
        LEFT - 6.0,
        top + 12.0,
        row.subject.name(),
        top + 2.0,
        wide(rate.median),
        ROW - 4.0,
        LEFT + wide(rate.low),
        LEFT + wide(rate.high),
        LEFT + wide(rate.high.max(rate.median)) + 6.0,
        top + 12.0,
        rate.median
    )
}
