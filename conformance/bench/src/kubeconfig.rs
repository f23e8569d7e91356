//! How programs on a node reach the API server of a benchmark.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::json;
use tweed_lab::Node;

/// Writes a kubeconfig for this server, whose certificate is in the file `authority` if it
/// has one.
pub fn write(node: &Node, server: &str, authority: Option<&Path>) -> anyhow::Result<PathBuf> {
    let mut cluster = json!({ "server": server });
    if let Some(authority) = authority {
        cluster["certificate-authority"] = json!(authority);
    }
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": "bench" } }],
        "clusters": [{ "name": "bench", "cluster": cluster }],
        "users": [{ "name": "bench", "user": { "token": "bench" } }],
    });
    let path = node.folder().join("kubeconfig");
    fs::write(&path, text.to_string()).with_context(|| path.display().to_string())?;
    Ok(path)
}
