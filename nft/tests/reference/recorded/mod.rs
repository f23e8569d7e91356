//! What kube-proxy's own tests expect.

mod addresses;
mod packets;
mod topology;

use serde::de::DeserializeOwned;

/// A file of expectations.
fn read<T: DeserializeOwned>(text: &str) -> Vec<T> {
    serde_json::from_str(text).unwrap()
}
