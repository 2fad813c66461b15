//! Runs the program above on a store, from the first call to the last output.

use taskharbor::{Admin, AnyDriver, Client, FlowState, ListFlows, Worker};

use super::{Import, handlers, publish};

pub(crate) async fn all(driver: &AnyDriver) {
    let client = Client::new(driver);
    let worker = Worker::builder(driver)
        .handlers(handlers())
        .queue("default", 8)
        .queue("images", 2)
        .build()
        .expect("a worker");
    let running = worker.start();
    for _ in 0..2 {
        // The second time it is the same flow.
        let album = publish(&client, "a photo of a cat".to_owned()).await.expect("an album");
        assert_eq!(album, "cats: 3 sizes");
    }
    let csv = "1\n 20\n300".to_owned();
    let import = client.enqueue(Import { csv }).await.expect("enqueued");
    assert_eq!(import.wait().await.expect("a total"), 321);
    let nothing = client.enqueue(Import { csv: String::new() }).await.expect("enqueued");
    assert_eq!(nothing.wait().await.expect("a total"), 0);
    let now = driver.now().await.expect("a time");
    let flows = driver.list_flows(ListFlows::new(10, now)).await.expect("flows");
    let states: Vec<_> = flows.items.iter().map(|flow| flow.state).collect();
    assert_eq!(states, [FlowState::Done; 3]);
    running.shutdown().await.expect("an end");
}
