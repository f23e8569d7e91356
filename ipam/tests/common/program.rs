//! The program `tweed-ipam`, as a main plugin calls it.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// A call of the program, before it is started.
pub struct Call {
    pub program: String,
    pub verb: &'static str,
    pub container_id: String,
    pub config: Value,
    pub args: String,
}

/// Exit code and output.
pub struct Answer {
    pub success: bool,
    pub stdout: String,
    pub stderr: String,
}

/// A config of version 1.1.0 for `subnet`, with its state in `run_dir`.
pub fn config(run_dir: &Path, subnet: &str) -> Value {
    json!({
        "cniVersion": "1.1.0",
        "name": "net",
        "type": "ptp",
        "runDir": run_dir,
        "ipam": { "type": "tweed-ipam", "subnet": subnet },
    })
}

pub fn call(verb: &'static str, container_id: &str, config: &Value) -> Call {
    Call {
        program: program(),
        verb,
        container_id: container_id.to_owned(),
        config: config.clone(),
        args: String::new(),
    }
}

impl Call {
    /// Starts the program. Its config is in the pipe when this returns.
    pub fn start(&self) -> Child {
        let mut child = self.start_with(Stdio::piped());
        let mut stdin = child.stdin.take().unwrap();
        // A killed program does not read.
        let _ = stdin.write_all(self.config.to_string().as_bytes());
        child
    }

    /// Starts the program with this as its stdin.
    pub fn start_with(&self, stdin: Stdio) -> Child {
        Command::new(&self.program)
            .env_clear()
            .env("CNI_COMMAND", self.verb)
            .env("CNI_CONTAINERID", &self.container_id)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", "/run/netns/none")
            .env("CNI_ARGS", &self.args)
            .env("CNI_PATH", "/opt/cni/bin")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    pub fn make(&self) -> Answer {
        finish(self.start())
    }
}

/// The reference plugin, where `conformance/setup.sh` puts it.
pub fn host_local() -> String {
    // This program is in target/<profile>/deps.
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(3).unwrap().join("tools/bin/host-local");
    assert!(path.exists(), "run conformance/setup.sh first");
    path.into_os_string().into_string().unwrap()
}

pub fn finish(child: Child) -> Answer {
    let output = child.wait_with_output().unwrap();
    Answer {
        success: output.status.success(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Answer {
    /// Asserts success, and returns the document.
    pub fn result(&self) -> Value {
        assert!(self.success, "{} {}", self.stdout, self.stderr);
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Asserts success without a document.
    pub fn done(&self) {
        assert!(self.success, "{} {}", self.stdout, self.stderr);
        assert_eq!(self.stdout, "");
    }

    /// The error document's code and message.
    pub fn error(&self) -> (u64, String) {
        assert!(!self.success, "{}", self.stdout);
        let document: Value = serde_json::from_str(&self.stdout).unwrap();
        let code = document["code"].as_u64().unwrap();
        (code, document["msg"].as_str().unwrap().to_owned())
    }

    /// The addresses of an ADD, without their prefix lengths.
    pub fn addresses(&self) -> Vec<String> {
        let result = self.result();
        let ips = result["ips"].as_array().unwrap();
        ips.iter()
            .map(|ip| ip["address"].as_str().unwrap())
            .map(|address| address.split('/').next().unwrap().to_owned())
            .collect()
    }
}

/// Cargo says where, at run time: the variable's name is no shell's, and does not
/// come through the wrapper that `.cargo/config.toml` puts around rustc.
fn program() -> String {
    std::env::var("CARGO_BIN_EXE_tweed-ipam").expect("run by `cargo test` or `cargo nextest`")
}
