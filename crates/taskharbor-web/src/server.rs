//! [`serve`]: the router on a socket, for a server that is a program of its own.

mod stall;

use std::{fmt, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use taskharbor_core::debug_as_display;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use self::stall::EndStalled;
use crate::{Stores, Web, app::App, config::Callers};

/// How long a client may take to send the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// What the head of a request may take in memory.
const HEAD_BYTES: usize = 64 * 1024;
/// How long requests may take to end after the server was asked to.
const END_TIME: Duration = Duration::from_secs(10);
/// How long to wait when no connection can be accepted, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The server cannot be started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Without tokens, every client that reaches the address would have access.
    #[error(
        "refusing to serve {0} without tokens: other machines may reach it; make a token \
         (taskharbor token add) and name its file, or bind 127.0.0.1"
    )]
    NeedsTokens(SocketAddr),
    /// The socket cannot be used.
    #[error("the socket cannot be used: {0}")]
    Socket(io::Error),
}

debug_as_display!(ServeError);

/// Serves these stores on a socket until `shutdown` completes. Then it finishes the requests that are in
/// progress, for at most 10 s.
///
/// ```
/// # use taskharbor::AnyDriver;
/// use taskharbor_web::{Access, Role, StoreKind, Stores, Web, serve};
/// use tokio::net::TcpListener;
///
/// # async fn run(driver: AnyDriver) -> Result<(), Box<dyn std::error::Error>> {
/// let stores = Stores::new().add("main", StoreKind::Sqlite, &driver)?;
/// let config = Web::new().anonymous(Access::new("me", Role::Admin));
/// let socket = TcpListener::bind("127.0.0.1:7450").await?;
/// let interrupted = async { drop(tokio::signal::ctrl_c().await) };
/// serve(socket, stores, config, interrupted).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`ServeError::NeedsTokens`] if the socket is not bound to a loopback address and the configuration has
/// no [`Web::tokens`].
///
/// # Cancel safety
///
/// Dropping the future ends the server and all its connections at once.
pub async fn serve(
    listener: TcpListener,
    stores: Stores,
    config: Web,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let address = listener.local_addr().map_err(ServeError::Socket)?;
    let has_tokens = matches!(config.callers, Callers::Tokens(_));
    if !has_tokens && !address.ip().to_canonical().is_loopback() {
        return Err(ServeError::NeedsTokens(address));
    }
    let app = App::new(stores, with_hosts(config, address));
    // Requests, waits and streams are limited separately.
    let connections = app.config.max_requests.saturating_mul(4);
    let server = Server {
        router: crate::routes(&app),
        room: Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS))),
        open: GracefulShutdown::new(),
    };
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            (accepted, permit) = server.accept(&listener) => match accepted {
                Ok(stream) => server.start(stream, permit),
                // Mostly a lack of file descriptors, which other connections free when they end.
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    app.end();
    let all_ended = async {
        server.open.shutdown().await;
        for store in &app.stores {
            store.sweeps.idle().await;
        }
    };
    if timeout(END_TIME, all_ended).await.is_err() {
        tracing::warn!("requests or sweeps were cut off because they took too long to end");
    }
    Ok(())
}

/// The names under which a browser of this machine reaches the server, beside those that were allowed.
fn with_hosts(config: Web, address: SocketAddr) -> Web {
    let ip = address.ip();
    let ip = if ip.is_ipv6() { format!("[{ip}]") } else { ip.to_string() };
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned(), "[::1]".to_owned(), ip];
    names.into_iter().fold(config, Web::allow_host)
}

struct Server {
    router: Router,
    /// One permit for each connection.
    room: Arc<Semaphore>,
    open: GracefulShutdown,
}

impl Server {
    /// The next connection, when there is room for it.
    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> (io::Result<TcpStream>, Option<OwnedSemaphorePermit>) {
        // It is never closed, so there always is a permit in the end.
        let permit = Arc::clone(&self.room).acquire_owned().await.ok();
        (listener.accept().await.map(|(stream, _)| stream), permit)
    }

    fn start(&self, stream: TcpStream, permit: Option<OwnedSemaphorePermit>) {
        // Answers are small, and a client waits for each.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(self.router.clone());
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(EndStalled::new(stream)), service);
        let connection = self.open.watch(connection);
        tokio::spawn(async move {
            // A client that disconnects is not an error.
            let _ = connection.await;
            drop(permit);
        });
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
