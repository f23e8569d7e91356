//! The checked paths as a table.

use std::fmt::Write;

use super::path::{Checked, Seen};

/// Width of a cell: `0.123~` and a space.
const CELL: usize = 8;

/// The explanation below the table.
pub(crate) const LEGEND: &str = "  \
  Round-trip time in ms, and what a server sees as the source:
    the client's own address; ~ its node's address (masqueraded);
    ^ its node's address on the overlay (the first of the pod CIDR).
";

/// Prints a row for each start and a column for each end.
pub(crate) fn render(checked: &Checked) -> String {
    let mut text = String::new();
    let mut line = format!("  {:<6}", "from");
    for name in &checked.names {
        // Writing to a string cannot fail.
        let _ = write!(line, "{name:>CELL$}");
    }
    text.push_str(&line);
    for (from, row) in &checked.rows {
        let mut line = format!("\n  {from:<6}");
        for outcome in row {
            let cell = match outcome {
                None => "· ".to_owned(),
                Some(Err(_)) => "FAIL ".to_owned(),
                Some(Ok(works)) => format!("{:.3}{}", works.ms, sign(works.seen)),
            };
            let _ = write!(line, "{cell:>CELL$}");
        }
        text.push_str(line.trim_end());
    }
    text.push('\n');
    text
}

fn sign(seen: Seen) -> char {
    match seen {
        Seen::Own => ' ',
        Seen::Node => '~',
        Seen::Overlay => '^',
    }
}
