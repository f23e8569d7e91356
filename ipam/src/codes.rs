//! The CNI error codes of the store.

use tweed_cni::{CniError, Code};

use crate::store::StoreError;

impl From<StoreError> for CniError {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::Io { .. } => Code::Io,
            StoreError::NoBootId { .. } | StoreError::Damaged { .. } => Code::StoreDamaged,
            StoreError::LockTimeout { .. }
            | StoreError::AddInProgress { .. }
            | StoreError::DelInProgress { .. }
            | StoreError::RecordLost { .. } => Code::TryAgainLater,
            StoreError::Attached { .. } => Code::InterfaceExists,
            StoreError::Exhausted { .. } => Code::RangeExhausted,
            StoreError::RequestedTaken { .. } | StoreError::RequestedOutside { .. } => {
                Code::AddressNotAvailable
            }
        };
        Self::new(code, error.to_string())
    }
}
