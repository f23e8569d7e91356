//! Sockets that are used again and again, and not closed in between.
//!
//! When a socket of nfnetlink is closed, the kernel locks the nf_tables of its network
//! namespace and waits until what the last transactions have removed is freed, a grace
//! period of RCU (`nft_rcv_nl_event` and `nf_tables_trans_destroy_flush_work`,
//! `net/netfilter/nf_tables_api.c`). For these 10 ms and more every transaction waits, and so
//! does every new link of the machine, whose maker holds the lock of rtnetlink meanwhile
//! (`nf_tables_netdev_event`). So whoever asks again and again keeps what it asks with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Socket;
use super::conntrack::Conntrack;
use crate::error::Error;

/// What is opened in the calling thread's network namespace.
pub trait Open: Sized {
    /// # Errors
    /// When the kernel gives no netlink socket.
    fn open() -> Result<Self, Error>;
}

impl Open for Socket {
    fn open() -> Result<Self, Error> {
        Self::open()
    }
}

impl Open for Conntrack {
    fn open() -> Result<Self, Error> {
        Self::open()
    }
}

/// At most one socket that nobody uses. A clone keeps the same one, for a thread that is
/// given it.
#[derive(Debug)]
pub struct Idle<S>(Arc<Mutex<Option<S>>>);

impl<S> Default for Idle<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S> Clone for Idle<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Open> Idle<S> {
    /// The one that is kept, or a new one in the calling thread's network namespace: all that
    /// are taken from here belong to one namespace.
    ///
    /// # Errors
    /// As of [`Open::open`].
    pub fn take(&self) -> Result<S, Error> {
        let idle = self.idle().take();
        idle.map_or_else(S::open, Ok)
    }

    /// Keeps one for the next use. One that has failed is not given back: answers to what it
    /// was asked may still come.
    pub fn give_back(&self, socket: S) {
        *self.idle() = Some(socket);
    }

    fn idle(&self) -> MutexGuard<'_, Option<S>> {
        // No panic leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_taken_again() {
        let idle: Idle<Socket> = Idle::default();
        let first = idle.take().unwrap();
        let port = first.port().unwrap();
        idle.clone().give_back(first);
        let again = idle.take().unwrap();
        assert_eq!(again.port().unwrap(), port);
        assert_ne!(idle.take().unwrap().port().unwrap(), port);
    }
}
