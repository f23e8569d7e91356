//! Prints findings as text or as JSON.

use std::io::{self, Write};

use serde_json::json;

use super::{Finding, Level, Output};

/// The level of the worst finding.
pub(super) fn worst(findings: &[Finding]) -> Level {
    let levels = findings.iter().map(|finding| finding.level);
    levels.max().unwrap_or(Level::Ok)
}

pub(super) fn print(findings: &[Finding], output: Output, out: &mut dyn Write) -> io::Result<()> {
    match output {
        Output::Json => {
            let document = json!({ "result": worst(findings), "findings": findings });
            writeln!(out, "{document:#}")
        }
        Output::Text => text(findings, out),
    }
}

fn text(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for finding in findings {
        let (level, check) = (word(finding.level), finding.check);
        writeln!(out, "{level:<8} {check:<11} {}", finding.message)?;
        if let Some(cure) = &finding.cure {
            writeln!(out, "{:<8} {:<11} → {cure}", "", "")?;
        }
    }
    let count = |level| findings.iter().filter(|f| f.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    match worst(findings) {
        Level::Ok => writeln!(out, "nothing is in tweed's way"),
        _ => writeln!(out, "errors: {errors}, warnings: {warnings}"),
    }
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Ok => "ok",
        Level::Warning => "warning",
        Level::Error => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Outcome;
    use tweed_core::problem::{Problem, ProblemKind};

    fn finding(check: &'static str, outcome: Outcome) -> Finding {
        Finding::new(check, outcome)
    }

    fn printed(findings: &[Finding], output: Output) -> String {
        let mut out = Vec::new();
        print(findings, output, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_finding_is_a_line_and_its_cure_another() {
        let findings = [
            finding("kernel", Ok("Linux 6.18".to_owned())),
            finding(
                "mtu",
                Err(Problem::new(ProblemKind::MtuTooBig, "eth0", "it is small")
                    .with_cure("make it larger")),
            ),
        ];
        let expected = "\
ok       kernel      Linux 6.18
warning  mtu         it is small
                     → make it larger
errors: 0, warnings: 1
";
        assert_eq!(printed(&findings, Output::Text), expected);
    }

    #[test]
    fn json_says_the_worst_and_all() {
        let findings = [
            finding("kernel", Ok("x".to_owned())),
            finding(
                "cni-config",
                Err(Problem::new(ProblemKind::CniConfigInvalid, "x", "y").with_cure("z")),
            ),
        ];
        let text = printed(&findings, Output::Json);
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(document["result"], "error");
        assert_eq!(document["findings"][1]["kind"], "cni-config-invalid");
        assert_eq!(document["findings"][1]["cure"], "z");
        assert_eq!(document["findings"][0].get("cure"), None);
    }
}
