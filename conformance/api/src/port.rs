//! A port in a network namespace, with TLS or without.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::serve::Listener;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

/// What a server shows of itself.
#[derive(Clone)]
pub struct Identity {
    pub(super) acceptor: TlsAcceptor,
    /// The certificate that a client has to trust.
    pub(super) certificate: String,
}

impl Identity {
    /// A new key and its certificate for 127.0.0.1.
    pub fn new() -> anyhow::Result<Self> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).context("a certificate")?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            certificate: cert.pem(),
        })
    }
}

/// Where connections come in.
pub struct Port {
    pub listener: TcpListener,
    pub tls: Option<TlsAcceptor>,
}

impl Listener for Port {
    type Io = Either<TcpStream, TlsStream<TcpStream>>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (connection, from) = Listener::accept(&mut self.listener).await;
            // Without it answers wait for each other's acknowledgements.
            let _ = connection.set_nodelay(true);
            let Some(tls) = &self.tls else {
                return (Either::Left(connection), from);
            };
            // A client that goes away has no connection.
            if let Ok(stream) = tls.accept(connection).await {
                return (Either::Right(stream), from);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}
