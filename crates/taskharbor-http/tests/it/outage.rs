//! Servers that are away, come back or refuse.

use taskharbor_core::{AnyDriver, Driver, DriverError};
use taskharbor_http::{HttpDriver, OpenError};
use taskharbor_memory::MemoryDriver;
use taskharbor_web::{Access, Role, StoreKind, Stores, TokenFile, Web, serve};
use tokio::{net::TcpListener, sync::oneshot};

use crate::{call::enqueue, served};

#[tokio::test]
async fn a_server_that_refuses_connections_is_named_with_the_cause() {
    // The port was free a moment ago, and nothing listens on it now.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = HttpDriver::connect(&format!("http://{free}?token=hunter2")).await.unwrap_err();
    assert!(matches!(error, OpenError::Failed(DriverError::Unavailable(_))), "{error}");
    let expected = format!("cannot connect to http://{free}: connection refused");
    assert_eq!((error.to_string(), format!("{error:?}")), (expected.clone(), expected));
}

#[tokio::test]
async fn a_driver_goes_on_when_its_server_is_back() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = AnyDriver::new(MemoryDriver::new());
    let (stop, stopped) = oneshot::channel::<()>();
    let first = served::spawn(listener, &store, async { drop(stopped.await) });
    let driver = served::connect(address).await;
    let now = driver.store_time().await.unwrap();
    driver.enqueue(enqueue("a", now)).await.unwrap();

    stop.send(()).unwrap();
    first.await.unwrap();
    let error = driver.enqueue(enqueue("b", now)).await.unwrap_err();
    assert!(matches!(error, DriverError::Unavailable(_)), "{error}");

    let listener = TcpListener::bind(address).await.unwrap();
    drop(served::spawn(listener, &store, std::future::pending()));
    driver.enqueue(enqueue("b", now)).await.unwrap();
}

#[tokio::test]
async fn a_wrong_token_and_an_unknown_store_come_with_advice() {
    let directory = std::env::temp_dir().join(format!("taskharbor-http-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("tokens.json");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let store = AnyDriver::new(MemoryDriver::new());
    let stores = Stores::new().add("main", StoreKind::Memory, &store).unwrap();
    let tokens = TokenFile::new(&file);
    let viewer = Access::new("ada", Role::Viewer);
    let token = tokens.add(&viewer, "2026-11-15T10:44:34Z".to_owned()).unwrap();
    let config = Web::new().tokens(tokens);
    drop(tokio::spawn(serve(listener, stores, config, std::future::pending())));
    for (query, text) in [
        ("", "set TASKHARBOR_TOKEN"),
        ("?token=hunter2", "set TASKHARBOR_TOKEN"),
        (&format!("?store=other&token={token}"), "store=…"),
    ] {
        let error = HttpDriver::connect(&format!("http://{address}{query}")).await.unwrap_err();
        let message = format!("{error} {error:?}");
        assert!(message.contains(text) && !message.contains("hunter2"), "{message}");
        assert!(!message.contains(&token), "{message}");
    }
    let driver = HttpDriver::connect(&format!("http://{address}?token={token}")).await.unwrap();
    let now = store.now().await.unwrap();
    let error = driver.enqueue(enqueue("a", now)).await.unwrap_err();
    assert!(matches!(error, DriverError::Backend(_)), "{error}");
    assert!(error.to_string().contains("use a token that may do this"), "{error}");
    std::fs::remove_dir_all(&directory).unwrap();
}
