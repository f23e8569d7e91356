//! TLS for the metrics listener. The certificate is signed by nobody and made anew
//! at each start: it keeps tokens from whoever only listens on the network, and
//! says nothing about who answers.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// A key and its certificate.
#[derive(Clone)]
pub struct Identity {
    pub(super) acceptor: TlsAcceptor,
    #[cfg(test)]
    pub(super) certificate: rustls::pki_types::CertificateDer<'static>,
}

impl Identity {
    /// A new key, and a certificate with the node's name.
    ///
    /// # Errors
    /// There is no randomness, or the name cannot stand in a certificate.
    pub fn self_signed(node_name: &str) -> Result<Self> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed([node_name.to_owned()])
                .context("cannot make a certificate for --metrics-auth")?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_no_client_auth())
            .and_then(|builder| builder.with_single_cert(vec![cert.der().clone()], key))
            .context("cannot serve TLS for --metrics-auth")?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            #[cfg(test)]
            certificate: cert.der().clone(),
        })
    }
}
