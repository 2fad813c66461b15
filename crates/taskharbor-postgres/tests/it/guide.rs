//! The programs in `docs/guides/postgres.md`, as the tests run them.

use taskharbor_core::Admin;
use taskharbor_postgres::PostgresDriver;
use tokio_postgres::{Client, NoTls};

use crate::harness::{environment, store};

const GUIDE: &str = include_str!("../../../../docs/guides/postgres.md");

/// A store of its own in which the guide's examples find their table. It is not one that other
/// tests get after this.
pub(crate) struct Example {
    pub(crate) schema: String,
    pub(crate) driver: PostgresDriver,
    pub(crate) sql: Client,
    /// Where the example's own program connects to.
    pub(crate) url: String,
}

impl Example {
    pub(crate) async fn new() -> Self {
        let (schema, config) = store::blank();
        let driver = PostgresDriver::open(config).await.unwrap();
        driver.migrate().await.unwrap();
        let url = environment::required("TASKHARBOR_TEST_POSTGRES");
        // Beside the jobs, so that nothing of it stays; the examples themselves name the schema of
        // the jobs.
        let url = format!("{url}?options=-csearch_path%3D{schema}");
        let (sql, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let orders = "CREATE TABLE orders (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer text NOT NULL)";
        sql.batch_execute(orders).await.unwrap();
        Self { schema, driver, sql, url }
    }

    /// The example with this name, for the schema of this test.
    pub(crate) fn text(&self, name: &str) -> String {
        let marker = format!("<!-- tested: {name} -->\n```");
        let (_, after) = GUIDE.split_once(&marker).expect("the guide marks its example");
        let (_, code) = after.split_once('\n').expect("the fence ends its line");
        let (code, _) = code.split_once("\n```").expect("the example ends");
        code.replace("taskharbor.th_", &format!("{}.th_", self.schema))
    }
}
