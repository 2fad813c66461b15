//! The suite of transactions with `deadpool_postgres` as the application's client, whose transactions
//! are those of `tokio_postgres`.

use taskharbor::Transaction;
use taskharbor_postgres::{
    PostgresDriver,
    deadpool_postgres::{self, Manager},
    tokio_postgres::{self, NoTls},
};
use taskharbor_testkit::transaction::{Failure, Library};

struct Deadpool;

impl Library for Deadpool {
    type Pool = deadpool_postgres::Pool;
    type Db = deadpool_postgres::Object;
    type Open<'a> = deadpool_postgres::Transaction<'a>;

    fn pool(url: &str, application: &str, schema: &str, size: usize) -> Self::Pool {
        let mut config: tokio_postgres::Config = url.parse().unwrap();
        config.application_name(application).options(format!("-c search_path={schema}"));
        Self::Pool::builder(Manager::new(config, NoTls)).max_size(size).build().unwrap()
    }

    async fn connect(pool: &Self::Pool) -> Result<Self::Db, Failure> {
        Ok(pool.get().await?)
    }

    async fn begin(db: &mut Self::Db) -> Result<Self::Open<'_>, Failure> {
        Ok(db.transaction().await?)
    }

    fn tx<'a>(pg: &PostgresDriver, open: &'a mut Self::Open<'_>) -> impl Transaction + 'a {
        pg.tx(open)
    }

    async fn execute(open: &mut Self::Open<'_>, sql: &str) -> Result<u64, Failure> {
        Ok(open.execute(sql, &[]).await?)
    }

    async fn commit(open: Self::Open<'_>) -> Result<(), Failure> {
        Ok(open.commit().await?)
    }

    async fn rollback(open: Self::Open<'_>) -> Result<(), Failure> {
        Ok(open.rollback().await?)
    }
}

taskharbor_testkit::transaction_tests!(Deadpool);
