//! The addresses that the agent listens on for metrics and probes.

use std::net::{SocketAddr, TcpListener};
use std::{io, path::Path};

use tweed_core::instance_lock::{InstanceLock, InstanceLockError};
use tweed_core::problem::{Problem, ProblemKind};

use super::{Outcome, ok};

pub(super) fn find(run_dir: &Path, metrics: SocketAddr, health: SocketAddr) -> Vec<Outcome> {
    if let Err(InstanceLockError::Taken { .. }) = InstanceLock::take_existing(run_dir) {
        return vec![ok(
            "tweed-agent runs: tweedctl status says if an address that it listens on is taken",
        )];
    }
    vec![
        judge(
            metrics,
            ProblemKind::MetricsAddr,
            "--metrics-addr",
            "nobody could read the agent's metrics",
        ),
        judge(
            health,
            ProblemKind::HealthAddr,
            "--health-addr",
            "on Kubernetes the probes would ask another program, and the kubelet would restart \
             the agent again and again",
        ),
    ]
}

/// `kind` is the problem if the address is taken, `flag` gives the agent another one, and
/// `without` says what does not work then.
fn judge(address: SocketAddr, kind: ProblemKind, flag: &str, without: &str) -> Outcome {
    let Err(error) = TcpListener::bind(address) else {
        return ok(format!("tweed can listen on {address}"));
    };
    let message = format!("tweed cannot listen on {address}: {error}; {without}");
    let port = address.port();
    let cure = match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "`ss -ltnp 'sport = :{port}'` names the program: stop it, or give {flag} another \
             address (by Helm the probes follow it)"
        ),
        _ => format!("give {flag} an address of this machine"),
    };
    Err(Problem::new(kind, address.to_string(), message).with_cure(cure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_another_program_is_named() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let kind = ProblemKind::HealthAddr;
        let taken = judge(address, kind, "--health-addr", "nobody asks").unwrap_err();
        assert_eq!(taken.kind, kind);
        assert!(taken.message.contains("nobody asks"), "{taken}");
        let names = format!("'sport = :{}'", address.port());
        assert!(taken.cure.contains(&names), "{taken}");
    }

    #[test]
    fn a_running_agent_has_its_ports_itself() {
        let dir = tempfile::tempdir().unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let wrong = || {
            let findings = find(dir.path(), address, address);
            findings.iter().filter(|finding| finding.is_err()).count()
        };
        assert_eq!(wrong(), 2);
        let agent = InstanceLock::take(dir.path()).unwrap();
        assert_eq!(wrong(), 0);
        drop(agent);
        assert_eq!(wrong(), 2);
    }
}
