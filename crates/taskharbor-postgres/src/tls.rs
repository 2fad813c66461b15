//! TLS to the server, by the meaning that libpq gives to `sslmode`.
//!
//! The cryptography is named here and not taken from the process: a program may use this crate
//! beside others that choose differently, and there is no moment at which a library could choose
//! for all of them.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_cert_signed_by_trust_anchor,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use tokio_postgres::config::SslNegotiation;
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::config::{Config, ConfigError};

/// How much a connection must be protected, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TlsMode {
    Disable,
    /// Encrypted if the server can, and not verified: it keeps out who can only listen.
    Prefer,
    /// Encrypted, and not verified.
    Require,
    /// Encrypted, to a server that some authority we trust knows.
    VerifyCa,
    /// Encrypted, to the server that we mean.
    VerifyFull,
}

/// Which authorities are trusted.
#[derive(Clone, Debug)]
pub(crate) enum Roots {
    System,
    File(PathBuf),
}

/// What makes the TLS side of connections.
pub(crate) fn connector(config: &Config) -> Result<MakeRustlsConnect, ConfigError> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match config.tls_mode {
        TlsMode::Disable | TlsMode::Prefer | TlsMode::Require => {
            Arc::new(Lenient { roots: None, provider: Arc::clone(&provider) })
        }
        TlsMode::VerifyCa => {
            let roots = Some(trusted(config.roots.as_ref())?);
            Arc::new(Lenient { roots, provider: Arc::clone(&provider) })
        }
        TlsMode::VerifyFull => {
            let roots = Arc::new(trusted(config.roots.as_ref())?);
            WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .build()
                .map_err(|error| ConfigError::Setup(error.into()))?
        }
    };
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::Setup(error.into()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    // Without a negotiation of PostgreSQL's own this is how the server tells its protocol.
    if config.server.get_ssl_negotiation() == SslNegotiation::Direct {
        client.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(MakeRustlsConnect::new(client))
}

fn trusted(roots: Option<&Roots>) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    match roots {
        None | Some(Roots::System) => {
            // Some of a system's certificates may be unreadable, and the rest do.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(ConfigError::NoCertificates);
            }
        }
        Some(Roots::File(path)) => {
            let failed = |cause| ConfigError::Certificates { path: path.clone(), cause };
            let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
            let found: Vec<_> = found.map_err(|error| failed(Some(error.into())))?;
            for certificate in found {
                store.add(certificate).map_err(|error| failed(Some(error.into())))?;
            }
            if store.is_empty() {
                return Err(failed(None));
            }
        }
    }
    Ok(store)
}

/// Verifies less than everything: the chain of authorities if there are roots, and never the name.
///
/// That the server has the key of the certificate it shows is verified all the same.
#[derive(Debug)]
struct Lenient {
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Lenient {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(roots) = &self.roots {
            let algorithms = self.provider.signature_verification_algorithms.all;
            let certificate = ParsedCertificate::try_from(end_entity)?;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let answer = verify_tls12_signature(message, certificate, signature, algorithms);
        self.excuse(answer)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        let answer = verify_tls13_signature(message, certificate, signature, algorithms);
        self.excuse(answer)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl Lenient {
    /// Old servers have certificates of a form that cannot be read here. Where nothing about the
    /// certificate is verified, that is no reason to refuse what would pass if it were forged.
    fn excuse(
        &self,
        answer: Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        match answer {
            Err(Error::InvalidCertificate(
                CertificateError::BadEncoding | CertificateError::Other(_),
            )) if self.roots.is_none() => Ok(HandshakeSignatureValid::assertion()),
            answer => answer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_cannot_be_read_are_refused() {
        let none = std::env::temp_dir().join("taskharbor-no-such.pem");
        for path in [none, std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")] {
            let url = format!("postgres://h?sslmode=verify-ca&sslrootcert={}", path.display());
            let error = connector(&Config::from_url(&url).unwrap()).err().unwrap();
            assert!(matches!(error, ConfigError::Certificates { .. }), "{error:?}");
        }
    }

    #[test]
    fn what_is_not_verified_needs_no_certificates() {
        for mode in ["disable", "prefer", "require"] {
            let config = Config::from_url(&format!("postgres://h?sslmode={mode}")).unwrap();
            connector(&config).unwrap();
        }
    }
}
