//! `PAINS.md` names tests: they are there.

use std::fs;
use std::path::Path;

const LIST: &str = include_str!("../PAINS.md");

/// The words in backticks that are `file::name`.
fn named_tests() -> impl Iterator<Item = (&'static str, &'static str)> {
    let quoted = LIST.split('`').skip(1).step_by(2);
    quoted.filter_map(|text| text.split_once(".rs::"))
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .any(|found| found == word)
}

#[test]
fn every_named_test_exists() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.parent().and_then(Path::parent).unwrap();
    let missing: Vec<String> = named_tests()
        .filter(|(file, name)| {
            let text = fs::read_to_string(root.join(format!("{file}.rs")));
            !has_word(&text.unwrap_or_default(), name)
        })
        .map(|(file, name)| format!("{file}.rs::{name}"))
        .collect();
    assert_eq!(missing, [""; 0]);
    assert!(named_tests().count() > 80);
}

#[test]
fn every_row_is_there_once() {
    let mut found: Vec<u32> = Vec::new();
    for line in LIST.lines().filter(|line| line.starts_with("| ")) {
        let numbers = line.split('|').nth(1).unwrap();
        for part in numbers.split(',').map(str::trim) {
            let (first, last) = part.split_once('–').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
                found.extend(first..=last);
            }
        }
    }
    found.sort_unstable();
    assert_eq!(found, (1..=88).collect::<Vec<_>>());
}
