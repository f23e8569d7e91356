//! A part of an ADD that failed: by the datapath or by another plugin.

use tweed_cni::CniError;

/// Why it failed, and whether something of it is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDone {
    /// Why.
    pub error: CniError,
    /// Whether a part of it may have been done. Otherwise what is there is somebody else's.
    pub needs_undo: bool,
}

impl NotDone {
    pub(crate) fn before_start(error: CniError) -> Self {
        Self {
            error,
            needs_undo: false,
        }
    }

    pub(crate) fn after_start(error: CniError) -> Self {
        Self {
            error,
            needs_undo: true,
        }
    }
}

impl From<NotDone> for CniError {
    fn from(failed: NotDone) -> Self {
        failed.error
    }
}
