//! The client library of the application in these tests: sqlx.

use sqlx::{
    AssertSqlSafe, Connection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use taskharbor::Transaction;
use taskharbor_postgres::PostgresDriver;

pub(crate) type Pool = PgPool;
pub(crate) type Db = PoolConnection<Postgres>;
pub(crate) type Open<'a> = sqlx::Transaction<'a, Postgres>;

pub(crate) fn pool(url: &str, application: &str, schema: &str, size: usize) -> Pool {
    let options: PgConnectOptions = url.parse().unwrap();
    let options = options.application_name(application).options([("search_path", schema)]);
    PgPoolOptions::new().max_connections(u32::try_from(size).unwrap()).connect_lazy_with(options)
}

pub(crate) async fn connect(pool: &Pool) -> Result<Db, sqlx::Error> {
    pool.acquire().await
}

pub(crate) async fn begin(db: &mut Db) -> Result<Open<'_>, sqlx::Error> {
    db.begin().await
}

pub(crate) fn tx<'a>(pg: &PostgresDriver, open: &'a mut Open<'_>) -> impl Transaction + 'a {
    taskharbor_sqlx::tx(pg, open)
}

/// Runs a statement; answers how many rows it touched.
pub(crate) async fn execute(open: &mut Open<'_>, sql: &str) -> Result<u64, sqlx::Error> {
    let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut **open).await?;
    Ok(done.rows_affected())
}
