//! The suite of transactions with sqlx as the application's client.

use sqlx::{
    AssertSqlSafe, Connection, PgPool, Postgres,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use taskharbor::Transaction;
use taskharbor_postgres::PostgresDriver;
use taskharbor_testkit::transaction::{Failure, Library};

pub(crate) struct Sqlx;

impl Library for Sqlx {
    type Pool = PgPool;
    type Db = PoolConnection<Postgres>;
    type Open<'a> = sqlx::Transaction<'a, Postgres>;

    fn pool(url: &str, application: &str, schema: &str, size: usize) -> Self::Pool {
        let options: PgConnectOptions = url.parse().unwrap();
        let options = options.application_name(application).options([("search_path", schema)]);
        let size = u32::try_from(size).unwrap();
        PgPoolOptions::new().max_connections(size).connect_lazy_with(options)
    }

    async fn connect(pool: &Self::Pool) -> Result<Self::Db, Failure> {
        Ok(pool.acquire().await?)
    }

    async fn begin(db: &mut Self::Db) -> Result<Self::Open<'_>, Failure> {
        Ok(db.begin().await?)
    }

    fn tx<'a>(pg: &PostgresDriver, open: &'a mut Self::Open<'_>) -> impl Transaction + 'a {
        taskharbor_sqlx::tx(pg, open)
    }

    async fn execute(open: &mut Self::Open<'_>, sql: &str) -> Result<u64, Failure> {
        let done = sqlx::query(AssertSqlSafe(sql)).execute(&mut **open).await?;
        Ok(done.rows_affected())
    }

    async fn commit(open: Self::Open<'_>) -> Result<(), Failure> {
        Ok(open.commit().await?)
    }

    async fn rollback(open: Self::Open<'_>) -> Result<(), Failure> {
        Ok(open.rollback().await?)
    }
}

taskharbor_testkit::transaction_tests!(Sqlx);
