//! Waits until a path is open or closed: a policy takes effect some time after kubectl
//! has applied it.

use std::net::SocketAddr;

use anyhow::Result;
use tweed_lab::{Transport, wait_until};

use super::LIMIT;
use super::cast::{Server, UDP_PORT};
use crate::at_once::at_once;
use crate::endpoint::Endpoint;
use crate::netexec::{expect_no_reply, request};

/// A path to a server.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    from: &'a Endpoint,
    to: SocketAddr,
    transport: Transport,
}

impl<'a> Path<'a> {
    /// To the server's named TCP port.
    pub fn web(from: &'a Endpoint, server: &Server) -> Self {
        Self::tcp(from, server, server.web)
    }

    /// To its other TCP port.
    pub fn other(from: &'a Endpoint, server: &Server) -> Self {
        Self::tcp(from, server, server.other)
    }

    /// To its UDP port.
    pub fn udp(from: &'a Endpoint, server: &Server) -> Self {
        Self {
            from,
            to: SocketAddr::new(server.endpoint.address, UDP_PORT),
            transport: Transport::Udp,
        }
    }

    fn tcp(from: &'a Endpoint, server: &Server, port: u16) -> Self {
        Self {
            from,
            to: SocketAddr::new(server.endpoint.address, port),
            transport: Transport::Tcp,
        }
    }

    fn name(&self) -> String {
        let Self {
            from,
            to,
            transport,
        } = self;
        format!("{to} by {transport:?} from {}", from.name)
    }

    /// Waits until it is open.
    pub fn becomes_open(&self) -> Result<()> {
        wait_until(&format!("{} to be open", self.name()), LIMIT, || {
            let reply = request(self.from, self.transport, self.to);
            reply.map(drop).map_err(|error| format!("{error:#}"))
        })?;
        Ok(())
    }

    /// Waits until it is closed: no reply, not even an error.
    pub fn becomes_closed(&self) -> Result<()> {
        wait_until(&format!("{} to be closed", self.name()), LIMIT, || {
            self.is_closed().map_err(|error| format!("{error:#}"))
        })?;
        Ok(())
    }

    /// Checks that it is closed.
    pub fn is_closed(&self) -> Result<()> {
        expect_no_reply(self.from, self.transport, self.to)
    }
}

/// Waits until these paths are open and those closed. The closed ones are first: a policy
/// that closes a path must not be taken for one that has no effect yet. They are asked at
/// the same time, since each takes as long as there is no reply.
pub fn become_open_and_closed(open: &[Path<'_>], closed: &[Path<'_>]) -> Result<()> {
    at_once(closed, Path::becomes_closed)?;
    open.iter().try_for_each(Path::becomes_open)
}
