//! Whom connections are made to, by address: the API server or the proxy before it. A name is
//! looked up for each connection, so they are told when that has happened and not only once
//! the connection is there: who keeps the way open has to know it before.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tokio::sync::watch;
use tower::Service;

/// The addresses that the last lookup found, or that the URL has.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peers(Arc<watch::Sender<BTreeSet<SocketAddr>>>);

impl Peers {
    /// Follows the addresses. They are none before the first connection.
    pub(crate) fn subscribe(&self) -> watch::Receiver<BTreeSet<SocketAddr>> {
        self.0.subscribe()
    }

    /// Looks names up for connections to `uri`, which are made next.
    pub(super) fn resolver(&self, uri: &Uri) -> Resolver {
        let default = match uri.scheme_str() {
            Some("http") => 80,
            _ => 443,
        };
        let resolver = Resolver {
            port: uri.port_u16().unwrap_or(default),
            peers: self.clone(),
            inner: GaiResolver::new(),
        };
        // An address is not looked up.
        let host = uri.host().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if let Ok(address) = bare.parse::<IpAddr>() {
            resolver.tell([address]);
        }
        resolver
    }

    fn set(&self, addresses: BTreeSet<SocketAddr>) {
        self.0.send_if_modified(|known| {
            let changed = *known != addresses;
            *known = addresses;
            changed
        });
    }
}

/// Looks names up as the system does, and tells what it found.
#[derive(Debug, Clone)]
pub(super) struct Resolver {
    port: u16,
    peers: Peers,
    inner: GaiResolver,
}

impl Resolver {
    fn tell(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let at = |address: IpAddr| SocketAddr::new(address.to_canonical(), self.port);
        self.peers.set(addresses.into_iter().map(at).collect());
    }
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let lookup = self.inner.call(name);
        let resolver = self.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = lookup.await?.collect();
            resolver.tell(found.iter().map(SocketAddr::ip));
            Ok(found.into_iter())
        })
    }
}
