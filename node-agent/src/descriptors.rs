//! How many files, sockets and pipes the agent may have open at once, and how many of
//! them what others ask for may use.
//!
//! Without a descriptor nothing can be read or written any more: no sysctl, no probe is
//! answered, `nft` cannot be started. What tenants create and strangers open is therefore
//! bounded, and all bounds together leave a part to the agent itself.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Maximum number of descriptors that the agent keeps for itself: files, netlink sockets,
/// pipes to `nft` and connections to the API server are a few dozen.
const MAX_OWN: usize = 1024;
/// The number of listeners for metrics and probes, with those for Services.
const PAGES: usize = 4;

/// What may be used for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// The limit that they are shares of.
    pub limit: usize,
    /// Maximum number of connections to each of the listeners for metrics and probes.
    pub page_connections: usize,
    /// Maximum number of connections to `agent.sock`.
    pub agent_socket_connections: usize,
    /// Maximum number of connections to all health checks of Services together.
    pub health_check_connections: usize,
    /// Maximum number of health checks of Services that are listened for.
    pub health_checks: usize,
}

impl Shares {
    /// Those of this limit. Of a small one half is for connections, and a quarter each for
    /// health checks and the agent itself.
    pub fn of(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let page_connections = (limit / 16).clamp(1, 64);
        let agent_socket_connections = (limit / 8).clamp(1, 512);
        let health_check_connections = (limit / 8).clamp(1, 256);
        let own = (limit / 4).min(MAX_OWN);
        let others = PAGES * page_connections + agent_socket_connections + health_check_connections;
        Self {
            limit,
            page_connections,
            agent_socket_connections,
            health_check_connections,
            health_checks: limit.saturating_sub(own + others),
        }
    }

    /// Those of the limit that this process has now.
    pub fn of_process() -> Self {
        // Linux knows this limit.
        let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
        Self::of(limit)
    }
}

/// Raises the limit as far as the process may. The low one that systemd gives is for
/// programs that use select(2), which the agent does not. Programs that it starts inherit
/// the limit, but none of its descriptors, so that theirs have small numbers.
///
/// # Errors
/// The kernel's.
pub fn raise_limit() -> nix::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_leave_some_for_the_agent() {
        for limit in [256, 512, 1024, 4096, 65_536, 524_288, u64::MAX] {
            let shares = Shares::of(limit);
            let used = PAGES * shares.page_connections
                + shares.agent_socket_connections
                + shares.health_check_connections
                + shares.health_checks;
            let own = shares.limit - used;
            assert_eq!(own, (shares.limit / 4).min(MAX_OWN), "{shares:?}");
        }
        // What most machines allow is enough for every port that Services can have.
        assert!(Shares::of(524_288).health_checks > usize::from(u16::MAX));
        assert_eq!(Shares::of(1024).health_checks, 256);
        assert_eq!(Shares::of(0).health_checks, 0);
    }
}
