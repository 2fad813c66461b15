//! The client library of the application in these tests: `deadpool_postgres`, whose transactions are those of
//! `tokio_postgres`. Tests of a bridge to another library have a file like this one.

use taskharbor::Transaction;
use taskharbor_postgres::{
    PostgresDriver,
    deadpool_postgres::{self, Manager},
    tokio_postgres::{self, NoTls},
};

pub(crate) type Pool = deadpool_postgres::Pool;
pub(crate) type Db = deadpool_postgres::Object;
pub(crate) type Open<'a> = deadpool_postgres::Transaction<'a>;

pub(crate) fn pool(url: &str, application: &str, schema: &str, size: usize) -> Pool {
    let mut config: tokio_postgres::Config = url.parse().unwrap();
    config.application_name(application).options(format!("-c search_path={schema}"));
    Pool::builder(Manager::new(config, NoTls)).max_size(size).build().unwrap()
}

pub(crate) async fn connect(pool: &Pool) -> Result<Db, deadpool_postgres::PoolError> {
    pool.get().await
}

pub(crate) async fn begin(db: &mut Db) -> Result<Open<'_>, tokio_postgres::Error> {
    db.transaction().await
}

pub(crate) fn tx<'a>(pg: &PostgresDriver, open: &'a mut Open<'_>) -> impl Transaction + 'a {
    pg.tx(open)
}

/// Runs a statement; answers how many rows it touched.
pub(crate) async fn execute(open: &mut Open<'_>, sql: &str) -> Result<u64, tokio_postgres::Error> {
    open.execute(sql, &[]).await
}
