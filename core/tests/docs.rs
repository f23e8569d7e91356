//! What the documents show of problems as `tweedctl` prints them is what the code has.

use std::fs;
use std::path::Path;

use tweed_core::problem::{Problem, ProblemKind};

const PAGES: [&str; 2] = ["docs/night-call.md", "docs/pod-cidr.md"];
/// What follows a kind in the output of `tweedctl status`.
const EFFECTS: [&str; 3] = [
    "warning",
    "new pods are not served",
    "running pods are affected",
];

#[test]
fn each_problem_that_a_page_prints_is_one_with_its_cure() {
    let mut seen = 0;
    for page in PAGES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(page);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut cure = None;
        for line in text.lines() {
            let printed = line.split_once(": ");
            if let Some((word, _)) = printed.filter(|(_, effect)| EFFECTS.contains(effect)) {
                let kind = ProblemKind::ALL.iter().find(|kind| kind.word() == word);
                assert!(kind.is_some(), "{page}: there is no kind {word}");
                cure = kind.map(|kind| Problem::new(*kind, "", "").cure);
                seen += 1;
            }
            if let Some(said) = line.strip_prefix("  → ") {
                assert_eq!(cure.as_deref(), Some(said), "{page}");
            }
        }
    }
    assert!(seen > 4, "{seen} problems are printed");
}
