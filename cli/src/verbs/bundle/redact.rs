//! Takes out of texts and objects what may be a secret. Pure.
//!
//! Objects lose what may hold anything: annotations, variables, data. Texts lose what looks
//! like a password, a token or a key; what is taken out too much does no harm.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

const REMOVED: &str = "(removed)";

/// Words in the names of values that are secret.
const SECRET_NAME: &str = r"passw(?:or)?d|passphrase|pwd|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key|key-data|cookie";

/// What is looked for, and what stands there instead.
static PATTERNS: LazyLock<Vec<(Regex, String)>> = LazyLock::new(|| {
    let patterns = [
        // Keys and certificates, with line ends or with their escapes.
        (
            r"(?s)-----BEGIN.*?-----END[^-]*-----".to_owned(),
            REMOVED.to_owned(),
        ),
        // The rest of the line: the scheme and what follows.
        (
            r#"(?i)(authorization\\?["']?\s*[:=]\s*\\?["']?)[^"'\\\n]+"#.to_owned(),
            format!("${{1}}{REMOVED}"),
        ),
        (
            r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}".to_owned(),
            format!("${{1}} {REMOVED}"),
        ),
        // JSON web tokens.
        (
            r"\beyJ[A-Za-z0-9_-]{10,}[A-Za-z0-9_.=-]*".to_owned(),
            REMOVED.to_owned(),
        ),
        // The user of a URL.
        (r#"://[^/@\s"']+@"#.to_owned(), format!("://{REMOVED}@")),
        // A quoted value, which may have spaces, in JSON within JSON too.
        (
            format!(
                r#"(?i)([\w.-]*(?:{SECRET_NAME})[\w.-]*\\?["']?\s*[:=]\s*(\\?["']))[^"'\\\n]*"#
            ),
            format!("${{1}}{REMOVED}"),
        ),
        (
            format!(r#"(?i)((?:\b|--)[\w.-]*(?:{SECRET_NAME})[\w.-]*\s*[:=]\s*)[^\s"',;&(]+"#),
            format!("${{1}}{REMOVED}"),
        ),
        // The value after a flag.
        (
            format!(r"(?i)(--[\w-]*(?:{SECRET_NAME})[\w-]*\s+)[^\s-][^\s]*"),
            format!("${{1}}{REMOVED}"),
        ),
    ];
    let compiled = patterns.into_iter().filter_map(|(pattern, with)| {
        // The test below says that none is left out.
        Some((Regex::new(&pattern).ok()?, with))
    });
    compiled.collect()
});

/// A text without what looks like a secret.
pub(super) fn text(text: &str) -> String {
    let mut text = text.to_owned();
    for (pattern, with) in PATTERNS.iter() {
        text = pattern.replace_all(&text, with.as_str()).into_owned();
    }
    text
}

/// An object of the API as text, without what may be secret.
pub(super) fn object(mut value: Value) -> String {
    clean(&mut value);
    format!("{value:#}")
}

fn clean(value: &mut Value) {
    match value {
        Value::Array(items) => {
            clean_flags(items);
            items.iter_mut().for_each(clean);
        }
        Value::Object(object) => {
            if object.get("kind").is_some_and(|kind| kind == "Secret") {
                object.clear();
            }
            object.remove("managedFields");
            clean_variable(object);
            for (key, value) in object.iter_mut() {
                match key.as_str() {
                    "annotations" | "data" | "binaryData" | "stringData" => remove_values(value),
                    name if is_secret(name) && value.is_string() => *value = REMOVED.into(),
                    _ => clean(value),
                }
            }
        }
        _ => {}
    }
}

/// Removes the value of a variable of a container, unless it is one of tweed's own flags.
fn clean_variable(object: &mut Map<String, Value>) {
    let name = object
        .get("name")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let is_ours = name.starts_with("TWEED_") && !is_secret(name);
    if let Some(value) = object.get_mut("value")
        && !is_ours
    {
        *value = REMOVED.into();
    }
}

/// Removes the words that follow a flag for a secret.
fn clean_flags(words: &mut [Value]) {
    let is_flag = |word: &Value| {
        let flag = word.as_str().and_then(|word| word.strip_prefix('-'));
        flag.is_some_and(|flag| is_secret(flag) && !flag.contains('='))
    };
    for at in 1..words.len() {
        let after_flag = words.get(at - 1).is_some_and(is_flag);
        if let Some(word) = words
            .get_mut(at)
            .filter(|word| after_flag && word.is_string())
        {
            *word = REMOVED.into();
        }
    }
}

fn remove_values(value: &mut Value) {
    match value {
        Value::Object(object) => object
            .values_mut()
            .for_each(|value| *value = REMOVED.into()),
        other => *other = REMOVED.into(),
    }
}

fn is_secret(name: &str) -> bool {
    static NAME: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(&format!("(?i){SECRET_NAME}")).ok());
    NAME.as_ref().is_some_and(|secret| secret.is_match(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_is_one() {
        assert_eq!(PATTERNS.len(), 8);
        assert!(is_secret("client-key-data") && !is_secret("podCIDR"));
    }

    #[test]
    fn what_is_no_secret_stays() {
        for line in [
            r#"{"level":"info","message":"put back what something else changed","count":3}"#,
            "tweed_drift_repaired_total{kind=\"fdb\"} 2",
            "https://192.0.2.1:6443/api: connection refused",
            "the token is not accepted",
            "  \"podCIDRs\": [\"10.244.1.0/24\"],",
        ] {
            assert_eq!(text(line), line);
        }
        let pod = serde_json::json!({ "env": [{ "name": "TWEED_MTU", "value": "1450" }] });
        assert!(object(pod).contains("1450"));
    }
}
