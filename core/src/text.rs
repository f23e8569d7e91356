//! Words of others in a sentence of ours.

/// As much of `text` as belongs into a sentence: one line, nothing that moves a
/// cursor, and cut where no reader goes on.
pub fn one_line(text: &str) -> String {
    const LONGEST: usize = 200;
    let harmless = |c: char| {
        if c.is_ascii_graphic() || c.is_alphanumeric() {
            c
        } else {
            ' '
        }
    };
    let text: String = text.chars().map(harmless).collect();
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = line.char_indices().nth(LONGEST) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

/// A Node's own words, fit for a log line: nothing that moves a cursor, and not
/// longer than anything that could be right.
pub fn printable(text: &str) -> String {
    const LONGEST: usize = 64;
    let mut printable: String = text.chars().take(LONGEST).collect();
    if printable.len() < text.len() {
        printable.push('…');
    }
    if printable.is_empty() || printable.contains(|c: char| !c.is_ascii_graphic()) {
        printable = format!("\"{}\"", printable.escape_debug());
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn words_of_others_stay_in_their_line() {
        assert_eq!(one_line("a\n\u{1b}[2J\tb \u{202e}c"), "a [2J b c");
        assert_eq!(one_line(""), "");
        assert_eq!(one_line(&"ä".repeat(1000)).chars().count(), 201);
    }
}
