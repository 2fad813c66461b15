//! Transactions of `tokio_postgres` and `deadpool_postgres` as they are, for
//! `client.enqueue(job).within(&mut tx)` and `context.ack_in(&mut tx, output)`.

use taskharbor_core::{AnyDriver, driver::OpenTransaction};
use tokio_postgres::Transaction;

use crate::{PostgresDriver, Tx};

fn tx<'a, 'b>(driver: &AnyDriver, tx: &'a Transaction<'b>) -> Option<Tx<&'a Transaction<'b>>> {
    driver.downcast_ref::<PostgresDriver>().map(|pg| Tx::new(pg, tx))
}

macro_rules! open_transaction {
    ($($borrowed:ty),+) => {$(
        impl<'a, 'b> OpenTransaction<PostgresDriver> for $borrowed {
            type Transaction = Tx<&'a Transaction<'b>>;

            fn on(self, driver: &AnyDriver) -> Option<Self::Transaction> {
                tx(driver, self)
            }
        }
    )+};
}

open_transaction! {
    &'a Transaction<'b>,
    &'a mut Transaction<'b>,
    &'a deadpool_postgres::Transaction<'b>,
    &'a mut deadpool_postgres::Transaction<'b>
}
