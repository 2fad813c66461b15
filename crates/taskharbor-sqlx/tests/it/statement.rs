//! The bridge leaves nothing on a connection of the application.

use sqlx::Connection;
use taskharbor::{AnyDriver, Client};
use taskharbor_testkit::transaction::Library;

use crate::{
    harness::{environment, store},
    library::Sqlx,
};

#[tokio::test]
async fn nothing_stays_prepared_on_the_connection() {
    let store = store::named().await;
    let client = Client::new(&AnyDriver::new(store.driver().clone()));
    let url = environment::required("TASKHARBOR_TEST_POSTGRES");
    let pool = Sqlx::pool(&url, store.application(), store.schema(), 1);
    let mut db = Sqlx::connect(&pool).await.unwrap();
    for _ in 0..3 {
        let mut open = Sqlx::begin(&mut db).await.unwrap();
        client.enqueue_raw("work", b"").within(&mut open).await.unwrap();
        client.enqueue_raw("work", b"").within(&mut *open).await.unwrap();
        open.commit().await.unwrap();
    }
    let stored = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM th_job").persistent(false);
    assert_eq!(stored.fetch_one(&mut *db).await.unwrap(), 6);
    assert_eq!(db.cached_statements_size(), 0);
    let prepared = "SELECT count(*) FROM pg_prepared_statements";
    let prepared = sqlx::query_scalar::<_, i64>(prepared).persistent(false);
    assert_eq!(prepared.fetch_one(&mut *db).await.unwrap(), 0);
}
