//! The supported versions of the protocol.

use std::fmt;

use crate::error::{CniError, Code};

/// A version of the CNI specification, older ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CniVersion {
    /// 0.3.1: ADD, DEL, VERSION.
    V0_3_1,
    /// 0.4.0: adds CHECK, and prevResult for DEL.
    V0_4_0,
    /// 1.0.0: `ips` lose their `version`.
    V1_0_0,
    /// 1.1.0: adds STATUS and GC, and more of interfaces and routes.
    V1_1_0,
}

impl CniVersion {
    /// All supported versions, oldest first, as VERSION lists them.
    pub const ALL: [Self; 4] = [Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];
    /// The newest supported version.
    pub const LATEST: Self = Self::V1_1_0;

    /// The version as in `cniVersion`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Parses a version; none if it is not supported.
    pub fn find(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|v| v.as_str() == text)
    }

    /// The version that a config names. A config without one means 0.1.0, as in the
    /// reference.
    ///
    /// # Errors
    /// Code 1, with the supported versions.
    pub fn negotiate(named: Option<&str>) -> Result<Self, CniError> {
        let version = named.filter(|text| !text.is_empty());
        version.and_then(Self::find).ok_or_else(|| {
            let supported = Self::ALL.map(Self::as_str).join(", ");
            let problem = match version {
                Some(text) => format!("cniVersion {text:?} is not supported"),
                None => "cniVersion is missing, which means 0.1.0: not supported".to_owned(),
            };
            CniError::new(Code::IncompatibleVersion, problem)
                .details(format!("supported versions: {supported}"))
        })
    }
}

impl fmt::Display for CniVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_is_code_1_and_lists_the_known_ones() {
        for named in [
            None,
            Some(""),
            Some("0.1.0"),
            Some("0.3.0"),
            Some("2.0.0"),
            Some("1.0"),
        ] {
            let error = CniVersion::negotiate(named).unwrap_err();
            assert_eq!(error.code, 1, "{named:?}");
            assert_eq!(
                error.details,
                "supported versions: 0.3.1, 0.4.0, 1.0.0, 1.1.0"
            );
        }
    }

    #[test]
    fn every_known_version_is_accepted() {
        for version in CniVersion::ALL {
            assert_eq!(CniVersion::negotiate(Some(version.as_str())), Ok(version));
        }
    }
}
