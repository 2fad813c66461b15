//! A store behind a server of ours, in this process.

use std::{future::Future, net::SocketAddr, sync::Arc};

use taskharbor_core::{Admin, AnyDriver, Driver};
use taskharbor_http::HttpDriver;
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Intercept, KeepAlive};
use taskharbor_web::{Access, Role, StoreKind, Stores, Web, serve};
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};

/// A driver whose server ends when the last clone of it is dropped.
pub(crate) type Served = Intercept<HttpDriver, KeepAlive<Arc<oneshot::Sender<()>>>>;

/// The driver of a server that serves this store to all callers and takes any time for the current one.
pub(crate) async fn served(store: impl Driver + Admin) -> Served {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (alive, ended) = oneshot::channel();
    drop(spawn(listener, &AnyDriver::new(store), async { drop(ended.await) }));
    Intercept::new(connect(address).await, KeepAlive(Arc::new(alive)))
}

/// Serves a store until `shutdown` completes.
pub(crate) fn spawn(
    listener: TcpListener,
    store: &AnyDriver,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let stores = Stores::new().add("main", StoreKind::Other, store).unwrap();
    let access = Access::new("test", Role::Admin).with_payloads().with_workers();
    let config = Web::new().anonymous(access).any_clock();
    tokio::spawn(async move { serve(listener, stores, config, shutdown).await.unwrap() })
}

pub(crate) async fn connect(address: SocketAddr) -> HttpDriver {
    HttpDriver::connect(&format!("http://{address}?store=main")).await.unwrap()
}

/// A server on a store in memory.
pub(crate) async fn memory() -> Served {
    served(MemoryDriver::new()).await
}
