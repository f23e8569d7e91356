//! A drawing as SVG: boxes, lines and texts, each with a class that a style gives its look.

use std::fmt::Write as _;

/// A place or a size, in pixels: from left to right, and downwards.
pub type Point = (usize, usize);

/// What all drawings have in common.
const STYLE: &str = "\
  text { font-family: ui-monospace, monospace; font-size: 13px; fill: #1c2733; }
  .title { font-weight: bold; }
  .small { font-size: 11px; fill: #5b6b7b; }
  .node { fill: #f4f7fa; stroke: #7f93a8; stroke-width: 1.5; }
";

/// A drawing that is being made.
#[derive(Debug)]
pub struct Drawing {
    text: String,
}

impl Drawing {
    /// A white drawing of this size; `style` is the CSS of its own classes.
    #[must_use]
    pub fn new((width, height): Point, style: &str) -> Self {
        let text = format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">
<style>
{STYLE}{style}</style>
<rect width="100%" height="100%" fill="white"/>
"#
        );
        Self { text }
    }

    /// Adds a box with its left upper corner at this place.
    pub fn rect(&mut self, class: &str, (x, y): Point, (width, height): Point) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            self.text,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="6"/>"#
        );
    }

    /// Adds a line.
    pub fn line(&mut self, class: &str, (x1, y1): Point, (x2, y2): Point) {
        let _ = writeln!(
            self.text,
            r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#
        );
    }

    /// Adds a text, whatever characters it has. `anchor` is what of it is at the place:
    /// `start`, `middle` or `end`.
    pub fn text(&mut self, class: &str, anchor: &str, (x, y): Point, text: &str) {
        let text = escaped(text);
        let _ = writeln!(
            self.text,
            r#"<text class="{class}" text-anchor="{anchor}" x="{x}" y="{y}">{text}</text>"#
        );
    }

    /// The whole document.
    #[must_use]
    pub fn end(self) -> String {
        self.text + "</svg>\n"
    }
}

/// A text as the content of an element: names of others must not become elements.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_is_a_document_and_a_name_stays_a_text() {
        let mut drawing = Drawing::new((100, 50), "  .own { fill: red; }\n");
        drawing.rect("own", (1, 2), (3, 4));
        drawing.line("own", (1, 2), (3, 4));
        drawing.text("title", "middle", (5, 6), "<a>&\n");
        let text = drawing.end();
        for part in [
            r#"viewBox="0 0 100 50""#,
            ".own { fill: red; }\n</style>",
            r#"<rect class="own" x="1" y="2" width="3" height="4" rx="6"/>"#,
            r#"<line class="own" x1="1" y1="2" x2="3" y2="4"/>"#,
            r#"x="5" y="6">&lt;a&gt;&amp;?</text>"#,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.ends_with("</svg>\n"));
    }
}
