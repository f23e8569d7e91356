//! The content of the file [`FOUND`](super::FOUND): pure.
//!
//! It is one flat object: older versions read the boot ID as one more path, which leads to
//! no sysctl, and keep it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The values that sysctls had before tweed, in one boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Found {
    /// The boot in which they were found; none in a file of an older version.
    #[serde(default, rename = "bootId", skip_serializing_if = "Option::is_none")]
    pub boot_id: Option<String>,
    /// The values by path below `/proc/sys`.
    #[serde(flatten)]
    pub values: BTreeMap<String, String>,
}

impl Found {
    /// Those of a boot in which none is known yet.
    pub fn none_in(boot_id: &str) -> Self {
        Self {
            boot_id: Some(boot_id.to_owned()),
            values: BTreeMap::new(),
        }
    }

    /// From the content of the file.
    ///
    /// # Errors
    /// It is damaged.
    pub fn parse(content: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(content)
    }

    /// Whether they are of this boot. Where the file does not say it, they are taken for it.
    pub fn is_of(&self, boot_id: &str) -> bool {
        self.boot_id.as_deref().is_none_or(|id| id == boot_id)
    }

    /// The content of the file.
    pub fn content(&self) -> String {
        format!("{:#}\n", serde_json::json!(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_OLDER_VERSION: &str = "{\n  \"net/ipv4/ip_forward\": \"0\"\n}\n";

    #[test]
    fn a_file_without_a_boot_id_is_of_this_boot() {
        let mut found = Found::parse(OF_OLDER_VERSION.as_bytes()).unwrap();
        assert!(found.is_of("b"));
        assert_eq!(found.values["net/ipv4/ip_forward"], "0");
        assert_eq!(found.values.len(), 1);
        assert_eq!(found.content(), OF_OLDER_VERSION);
        found.boot_id = Some("a".to_owned());
        assert!(!found.is_of("b"));
    }

    /// Agents and installers of neighbouring versions read each other's files.
    #[test]
    fn an_older_version_reads_it_as_one_map() {
        let mut found = Found::none_in("b");
        let path = "net/ipv4/ip_forward".to_owned();
        found.values.insert(path.clone(), "0".to_owned());
        let content = found.content();
        let older: BTreeMap<String, String> = serde_json::from_str(&content).unwrap();
        assert_eq!(older[&path], "0");
        let kept = serde_json::to_vec(&older).unwrap();
        assert_eq!(Found::parse(&kept).unwrap(), found);
    }

    #[test]
    fn anything_else_is_damaged() {
        for content in ["", "{", "[]", r#"{"net/ipv4/ip_forward": 0}"#] {
            assert!(Found::parse(content.as_bytes()).is_err(), "{content:?}");
        }
    }
}
