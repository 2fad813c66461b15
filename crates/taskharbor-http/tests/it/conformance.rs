//! The suite, through a server of ours.

/// On a store in memory.
mod memory {
    use crate::served::memory;
    taskharbor_conformance::tests!(memory);
}

/// On PostgreSQL.
mod postgres {
    use taskharbor_testkit::postgres::store;

    use crate::served::{Served, served};

    async fn postgres() -> Served {
        served(store::named().await).await
    }

    taskharbor_conformance::tests!(postgres);
}
