//! Foreign text (of Nodes, servers, plugins) in messages of tweed, and digests as text.

/// `text` on one line, without control characters, cut to 200 characters.
pub fn one_line(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    let harmful = |c: char| !c.is_ascii_graphic() && !c.is_alphanumeric();
    let words = text.split(harmful).filter(|word| !word.is_empty());
    let mut line = words.collect::<Vec<_>>().join(" ");
    if let Some((cut, _)) = line.char_indices().nth(MAX_CHARS) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

/// A value from a Node, for a log line: quoted and escaped if it contains anything
/// but visible ASCII, and cut to 64 characters, which every valid value fits in.
pub fn printable(text: &str) -> String {
    const MAX_CHARS: usize = 64;
    let mut printable: String = text.chars().take(MAX_CHARS).collect();
    if printable.len() < text.len() {
        printable.push('…');
    }
    if printable.is_empty() || printable.contains(|c: char| !c.is_ascii_graphic()) {
        printable = format!("\"{}\"", printable.escape_debug());
    }
    printable
}

/// Hex digits. Without `format!`, which is slower: an ADD calls this some ten times.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(value.into(), 16);
    let digits = bytes.iter().flat_map(|b| [digit(b >> 4), digit(b & 0xf)]);
    digits.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn foreign_text_stays_on_its_line() {
        assert_eq!(one_line("a\n\u{1b}[2J\tb \u{202e}c"), "a [2J b c");
        assert_eq!(one_line(""), "");
        assert_eq!(one_line(&"ä".repeat(1000)).chars().count(), 201);
    }
}
