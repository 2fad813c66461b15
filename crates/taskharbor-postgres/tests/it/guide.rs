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

/// The blocks of SQL that no other test runs, as they stand in the guide.
fn unmarked_blocks() -> Vec<&'static str> {
    let fences = GUIDE.split("\n```sql\n");
    let mut blocks = Vec::new();
    let mut before = "";
    for part in fences {
        let (code, rest) = part.split_once("\n```").unwrap_or(("", part));
        let is_marked = before.lines().next_back().is_some_and(|line| line.starts_with("<!--"));
        if !before.is_empty() && !is_marked {
            blocks.push(code);
        }
        before = if code.is_empty() { part } else { rest };
    }
    blocks
}

#[tokio::test]
async fn every_statement_of_the_guide_runs() {
    let example = Example::new().await;
    let (sql, schema) = (&example.sql, &example.schema);
    let roles = ["worker", "web", "analyst"].map(|part| format!("{schema}_{part}"));
    for role in &roles {
        sql.batch_execute(&format!("CREATE ROLE {role}")).await.unwrap();
    }
    let store = "SELECT th_enqueue(type => 't', id => 'job-id', run_at => now() + interval '1 h')";
    sql.batch_execute(store).await.unwrap();
    let blocks = unmarked_blocks();
    assert!(blocks.len() >= 7, "{blocks:#?}");
    for block in blocks {
        let block = block.replace("taskharbor.th_", &format!("{schema}.th_"));
        let block = block.replace("shop_", &format!("{schema}_"));
        if let Err(error) = sql.batch_execute(&block).await {
            panic!("{block}\n{error:?}");
        }
    }
    for role in &roles {
        sql.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await.unwrap();
    }
}

#[tokio::test]
async fn a_job_is_enqueued_by_the_statement_for_other_libraries() {
    let example = Example::new().await;
    let statement = example.text("orm");
    let run = format!(
        "PREPARE orm (text, jsonb) AS {statement}; EXECUTE orm('order:confirm', '{{\"order\": 7}}')"
    );
    example.sql.batch_execute(&run).await.unwrap();
    let stored = "SELECT type || ' ' || queue || ' ' || convert_from(payload, 'UTF8') FROM th_job";
    let stored: String = example.sql.query_one(stored, &[]).await.unwrap().get(0);
    assert_eq!(stored, "order:confirm mail {\"order\": 7}");
}
