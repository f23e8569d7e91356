//! What is printed: lines and tables for people, or JSON. Names that others have given never
//! reach a terminal with control characters.

use std::io::{self, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::answered::{Answered, Unanswered};

/// How answers are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Lines and tables, for people
    #[default]
    Table,
    /// The same with more columns
    Wide,
    /// JSON, for programs: its schema is in docs/cli.md
    Json,
}

/// Where a verb prints, and how.
pub struct Page<'a> {
    out: &'a mut dyn Write,
    /// The format.
    pub format: Format,
    /// Whether words may have colours.
    pub has_colours: bool,
}

/// What a word means, for its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// All is well.
    Good,
    /// To be looked at.
    Warning,
    /// Something is wrong.
    Bad,
}

impl<'a> Page<'a> {
    /// A page of this format without colours.
    pub fn new(out: &'a mut dyn Write, format: Format) -> Self {
        Self {
            out,
            format,
            has_colours: false,
        }
    }

    /// Prints a line. A control character in it is shown as `?`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", clean(text))
    }

    /// The same in the colour of `tone`, where there are colours.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn toned(&mut self, tone: Tone, text: &str) -> io::Result<()> {
        let number = match tone {
            _ if !self.has_colours => return self.line(text),
            Tone::Good => 32,
            Tone::Warning => 33,
            Tone::Bad => 31,
        };
        writeln!(self.out, "\x1b[{number}m{}\x1b[0m", clean(text))
    }

    /// Says that a node has not answered.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn unanswered(&mut self, node: &str, why: &Unanswered) -> io::Result<()> {
        let on = if node.is_empty() {
            String::new()
        } else {
            format!("node {node}: ")
        };
        self.toned(Tone::Bad, &format!("{on}{why}"))
    }

    /// Says which nodes have not answered.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn all_unanswered<R>(&mut self, answers: &[Answered<R>]) -> io::Result<()> {
        answers
            .iter()
            .filter_map(|(node, one)| Some((node, one.as_ref().err()?)))
            .try_for_each(|(node, why)| self.unanswered(node, why))
    }

    /// Prints rows below their header, each column as wide as its widest cell.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn table(&mut self, header: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
        let all = || std::iter::once(&header).chain(rows);
        let width = |column: usize| {
            let cells = all().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..header.len()).map(width).collect();
        for row in all() {
            let cells = row.iter().zip(&widths);
            let padded = cells.map(|(cell, width)| format!("{cell:<width$}"));
            let line = padded.collect::<Vec<_>>().join("  ");
            self.line(line.trim_end())?;
        }
        Ok(())
    }

    /// Prints a value as JSON.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer_pretty(&mut *self.out, value)?;
        writeln!(self.out)
    }

    /// Has what was printed seen now.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    /// Prints a text as it is, such as a script.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn raw(&mut self, text: &[u8]) -> io::Result<()> {
        self.out.write_all(text)
    }
}

/// A text without control characters.
#[must_use]
pub fn clean(text: &str) -> String {
    text.replace(char::is_control, "?")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(print: impl FnOnce(&mut Page<'_>)) -> String {
        let mut out = Vec::new();
        print(&mut Page::new(&mut out, Format::Table));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn names_of_others_cannot_write_to_the_terminal() {
        let shown = printed(|page| {
            page.line("a\u{1b}[2J\nb").unwrap();
            let row = vec!["x\r".to_owned(), "y".to_owned()];
            page.table(&["ONE", "TWO"], &[row]).unwrap();
        });
        assert_eq!(shown, "a?[2J?b\nONE  TWO\nx?   y\n");
    }

    #[test]
    fn colours_are_only_there_if_wanted() {
        let shown = printed(|page| {
            page.toned(Tone::Bad, "no").unwrap();
            page.has_colours = true;
            page.toned(Tone::Bad, "no\u{7}").unwrap();
        });
        assert_eq!(shown, "no\n\u{1b}[31mno?\u{1b}[0m\n");
    }
}
