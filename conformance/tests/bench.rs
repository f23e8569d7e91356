//! The bench at its smallest: it runs to its end, and what it writes is
//! well-formed. How fast anything was is none of a test's business.

use std::process::Command;

use serde_json::Value;
use tweed_lab::Programs;

const SUBJECTS: [&str; 6] = [
    "tweed",
    "ptp + host-local",
    "bridge + host-local",
    "macvlan + host-local",
    "floor",
    "floor, waiting",
];

#[test]
fn a_smoke_run_measures_every_subject_and_writes_all_three_files() {
    let folder = tempfile::tempdir().unwrap();
    let program = Programs::find().unwrap().own("tweed-bench").unwrap();
    let output = Command::new(program)
        .args(["--smoke", "attach", "--out"])
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();

    let json: Value = serde_json::from_str(&read("attach.json")).unwrap();
    let cells = json["cells"].as_array().unwrap();
    // ADD and DEL, one and two at once, on an empty node and beside two pods.
    assert_eq!(cells.len(), 8, "{json:#}");
    for cell in cells {
        let measured = cell["measured"].as_array().unwrap();
        let names: Vec<&str> = measured
            .iter()
            .map(|one| one["subject"].as_str().unwrap())
            .collect();
        assert_eq!(names, SUBJECTS);
        for one in measured {
            for number in [&one["ms"]["median"], &one["times_tweed"]["median"]] {
                assert!(number.as_f64().unwrap() > 0.0, "{one}");
            }
        }
    }
    assert_eq!(json["churn"].as_array().unwrap().len(), 5);
    assert_eq!(json["footprints"].as_array().unwrap().len(), 4);

    let markdown = read("attach.md");
    for line in markdown.lines().filter(|line| line.starts_with('|')) {
        assert!(line.ends_with('|'), "a row without an end: {line}");
    }
    for subject in SUBJECTS {
        let row = format!("| {subject} | ");
        assert!(markdown.contains(&row), "no {row} in {markdown}");
    }
    let svg = read("attach.svg");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("NaN"), "{svg}");
    assert_eq!(svg.matches("<rect class=").count(), 8 * SUBJECTS.len());
}
