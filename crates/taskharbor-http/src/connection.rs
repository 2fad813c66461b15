//! [`Target`]: the server, opening connections to it and building requests.

use std::{io, sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::{
    Method, Request, Uri,
    client::conn::http1::{self, SendRequest},
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{Config, ConfigError, body::Whole, failure::Failure, tls};

/// How long it may take until a connection stands, with all its lookups and handshakes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The side of a connection that sends requests.
pub(crate) type Sender = SendRequest<Whole>;

/// The server.
pub(crate) struct Target {
    pub(crate) config: Config,
    /// The server in words.
    pub(crate) shown: Arc<str>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
}

impl Target {
    pub(crate) fn new(config: Config) -> Result<Self, ConfigError> {
        const HOST: ConfigError =
            ConfigError::Value { parameter: "host", expected: "a name or an address" };
        let tls = if config.is_tls {
            let name = ServerName::try_from(config.host.clone()).map_err(|_| HOST)?;
            Some((tls::connector(config.certificates.as_ref())?, name))
        } else {
            None
        };
        let authorization = config.token.as_ref().map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))?;
            value.set_sensitive(true);
            Ok::<_, header::InvalidHeaderValue>(value)
        });
        let token = ConfigError::Value { parameter: "token", expected: "printable ASCII" };
        let is_local = matches!(config.host.as_str(), "localhost" | "127.0.0.1" | "::1");
        if authorization.is_some() && tls.is_none() && !is_local {
            tracing::warn!(
                "the token is sent to {} unencrypted: use https, unless the network is private",
                config.shown()
            );
        }
        Ok(Self {
            host: HeaderValue::try_from(config.authority()).map_err(|_| HOST)?,
            authorization: authorization.transpose().map_err(|_| token)?,
            shown: config.shown().into(),
            tls,
            config,
        })
    }

    /// A new connection.
    pub(crate) async fn dial(&self) -> Result<Sender, Failure> {
        match timeout(CONNECT_TIMEOUT, self.dial_without_a_limit()).await {
            Ok(dialled) => dialled,
            Err(_) => Err(self.not_connected(&io::ErrorKind::TimedOut.into())),
        }
    }

    async fn dial_without_a_limit(&self) -> Result<Sender, Failure> {
        let address = (self.config.host.as_str(), self.config.port);
        let stream = TcpStream::connect(address).await.map_err(|it| self.not_connected(&it))?;
        // A caller waits for each request.
        stream.set_nodelay(true).map_err(|it| self.not_connected(&it))?;
        match &self.tls {
            None => self.speak(stream).await,
            Some((connector, name)) => {
                let encrypted = connector.connect(name.clone(), stream).await;
                self.speak(encrypted.map_err(|it| self.not_connected(&it))?).await
            }
        }
    }

    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Sender, Failure> {
        let spoken = http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = spoken.map_err(|it| self.lost(&it))?;
        // It ends with its sender, and its errors reach the request that waits.
        tokio::spawn(connection);
        Ok(sender)
    }

    /// A request to this path below the store.
    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Whole>, Failure> {
        let Config { prefix, store, .. } = &self.config;
        let uri = Uri::try_from(format!("{prefix}/v1/{store}/{path}"));
        let mut request = Request::new(Whole::new(body));
        *request.uri_mut() =
            uri.map_err(|_| Failure::Address { server: Arc::clone(&self.shown) })?;
        if method == Method::POST {
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        *request.method_mut() = method;
        request.headers_mut().insert(header::HOST, self.host.clone());
        if let Some(value) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, value.clone());
        }
        Ok(request)
    }

    fn not_connected(&self, cause: &io::Error) -> Failure {
        Failure::not_connected(Arc::clone(&self.shown), cause)
    }

    pub(crate) fn lost(&self, cause: &hyper::Error) -> Failure {
        Failure::lost(Arc::clone(&self.shown), cause)
    }
}
