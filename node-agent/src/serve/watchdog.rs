//! systemd's watchdog: as long as the agent's loop runs systemd is told so, and it restarts an
//! agent that has said nothing for the unit's `WatchdogSec`. On Kubernetes kubelet asks
//! `/healthz` for the same reason.
//!
//! The protocol is that of sd_notify(3) and sd_watchdog_enabled(3): `WATCHDOG_USEC` is the
//! time in microseconds, `NOTIFY_SOCKET` a datagram socket by its path, or by its abstract
//! name after `@`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::status::StatusBoard;

/// Whoever started the agent wants to hear of it.
#[derive(Debug)]
pub struct Watchdog {
    socket: UnixDatagram,
    listener: SocketAddr,
    /// Time between two messages.
    period: Duration,
}

impl Watchdog {
    /// The one that these variables of the environment ask for; none if they ask for none, or
    /// for that of the process with another ID.
    ///
    /// # Errors
    /// There can be no such socket.
    pub fn asked_for(
        variable: impl Fn(&str) -> Option<OsString>,
        own_pid: u32,
    ) -> io::Result<Option<Self>> {
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_other = |pid| pid != u64::from(own_pid);
        if number("WATCHDOG_PID").is_some_and(is_other) {
            return Ok(None);
        }
        let limit = number("WATCHDOG_USEC").filter(|limit| *limit > 0);
        let (Some(limit), Some(listener)) = (limit, variable("NOTIFY_SOCKET")) else {
            return Ok(None);
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Some(Self {
            socket,
            listener: address(&listener)?,
            // Half of it is what sd_watchdog_enabled(3) recommends.
            period: Duration::from_micros(limit / 2).max(Duration::from_millis(1)),
        }))
    }

    /// Says that the agent's loop runs, whenever it is time to and while it does.
    pub async fn run(self, board: Arc<StatusBoard>) {
        let mut times = tokio::time::interval(self.period);
        let mut failed = false;
        loop {
            times.tick().await;
            let result = self.tell(&board, Instant::now());
            if let Err(error) = &result
                && !failed
            {
                tracing::warn!(%error, "systemd's watchdog cannot be told that the agent runs, and will restart it");
            }
            failed = result.is_err();
        }
    }

    /// Says that the agent's loop runs, if it does.
    fn tell(&self, board: &StatusBoard, now: Instant) -> io::Result<()> {
        if board.alive(now).is_ok() {
            self.socket.send_to_addr(b"WATCHDOG=1", &self.listener)?;
        }
        Ok(())
    }
}

fn address(listener: &OsStr) -> io::Result<SocketAddr> {
    match listener.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(listener),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_for(variables: &[(&str, &str)]) -> Option<Watchdog> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(*value))
        };
        Watchdog::asked_for(variable, 7).unwrap()
    }

    fn heard(listener: &UnixDatagram) -> Option<String> {
        let mut message = [0; 64];
        let length = listener.recv(&mut message).ok()?;
        Some(String::from_utf8_lossy(&message[..length]).into_owned())
    }

    #[test]
    fn it_is_told_only_while_the_loop_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("tweed-watchdog-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (listener, socket) in [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.to_str().unwrap().to_owned(),
            ),
            (
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
                format!("@{name}"),
            ),
        ] {
            listener.set_nonblocking(true).unwrap();
            let variables = [("WATCHDOG_USEC", "60000000"), ("NOTIFY_SOCKET", &socket)];
            let watchdog = asked_for(&variables).unwrap();
            assert_eq!(watchdog.period, Duration::from_secs(30));
            let start = Instant::now();
            let board = StatusBoard::new(start);
            watchdog.tell(&board, start).unwrap();
            assert_eq!(heard(&listener).as_deref(), Some("WATCHDOG=1"));
            let stuck = start + Duration::from_secs(100);
            watchdog.tell(&board, stuck).unwrap();
            assert_eq!(heard(&listener), None);
            board.heartbeat(stuck);
            watchdog.tell(&board, stuck).unwrap();
            assert_eq!(heard(&listener).as_deref(), Some("WATCHDOG=1"));
            drop(listener);
            assert!(watchdog.tell(&board, stuck).is_err());
        }
    }

    #[test]
    fn without_systemd_or_for_another_process_there_is_none() {
        let complete = [("WATCHDOG_USEC", "1"), ("NOTIFY_SOCKET", "/x")];
        assert!(asked_for(&complete).is_some());
        for missing in 0..2 {
            let mut variables = complete.to_vec();
            variables.remove(missing);
            assert!(asked_for(&variables).is_none());
        }
        for (pid, is_meant) in [("7", true), ("8", false)] {
            let variables = [&complete[..], &[("WATCHDOG_PID", pid)]].concat();
            assert_eq!(asked_for(&variables).is_some(), is_meant, "{pid}");
        }
        let disabled = [("WATCHDOG_USEC", "0"), ("NOTIFY_SOCKET", "/x")];
        assert!(asked_for(&disabled).is_none());
    }
}
