//! Environment files of systemd, as far as tweed's have to be understood: `NAME=value`, one a
//! line, of which the last one counts.

/// The value of a variable, which may be empty, without the quotes around it; none if it is
/// not set.
pub fn value<'a>(text: &'a str, variable: &str) -> Option<&'a str> {
    let mut values = text.lines().filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == variable).then_some(value.trim())
    });
    let value = values.next_back()?;
    let unquoted = ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote));
    Some(unquoted.unwrap_or(value))
}

/// The names of the variables that are set.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'));
    lines.filter_map(|line| Some(line.split_once('=')?.0.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts_and_comments_do_not() {
        let text = "#A=0\nA=1\nAB=2\n A = '/x y' \nB=\"\nC=\n";
        assert_eq!(value(text, "A"), Some("/x y"));
        assert_eq!(value(text, "AB"), Some("2"));
        assert_eq!(value(text, "B"), Some("\""));
        assert_eq!(value(text, "C"), Some(""));
        for unset in ["D", ""] {
            assert_eq!(value(text, unset), None, "{unset}");
        }
    }
}
