//! TLS to the server.
//!
//! The cryptography is named here and not taken from the process: a program may use this crate beside
//! others that choose differently.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_rustls::TlsConnector;

use crate::ConfigError;

/// What makes the TLS side of connections to a server with a certificate that these authorities, or
/// those of the system, have signed.
pub(crate) fn connector(certificates: Option<&PathBuf>) -> Result<TlsConnector, ConfigError> {
    let roots = trusted(certificates)?;
    let mut client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::Tls(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(client)))
}

fn trusted(certificates: Option<&PathBuf>) -> Result<RootCertStore, ConfigError> {
    let mut store = RootCertStore::empty();
    let Some(path) = certificates else {
        // Some of a system's certificates may be unreadable, and the rest do.
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return if store.is_empty() { Err(ConfigError::NoCertificates) } else { Ok(store) };
    };
    let failed = |cause| ConfigError::Certificates { path: path.clone(), cause };
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found: Vec<_> = found.map_err(|error| failed(Some(error.into())))?;
    for certificate in found {
        store.add(certificate).map_err(|error| failed(Some(error.into())))?;
    }
    if store.is_empty() { Err(failed(None)) } else { Ok(store) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_cannot_be_read_are_refused() {
        let none = std::env::temp_dir().join("taskharbor-no-such.pem");
        for path in [none, std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")] {
            let error = connector(Some(&path)).err().unwrap();
            assert!(matches!(error, ConfigError::Certificates { .. }), "{error:?}");
        }
    }
}
