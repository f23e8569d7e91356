//! TLS for the server, as a real one has it: it costs the agent CPU and memory.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use anyhow::Context;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A connection to a client.
pub type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Who the server is.
#[derive(Clone)]
pub struct Identity {
    config: Arc<ServerConfig>,
    /// What a client has to trust.
    pub certificate: String,
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
            config: Arc::new(config),
            certificate: cert.pem(),
        })
    }

    /// The server's end of a new connection; the handshake comes with the
    /// first bytes.
    pub fn accept(&self, connection: TcpStream) -> io::Result<Stream> {
        let session = ServerConnection::new(Arc::clone(&self.config)).map_err(io::Error::other)?;
        Ok(StreamOwned::new(session, connection))
    }
}
