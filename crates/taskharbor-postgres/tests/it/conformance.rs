//! The suite, in every way in which the driver reaches its store.

/// As applications run it: straight to the server, with statements that stay prepared.
mod named {
    use crate::harness::store::named;
    taskharbor_conformance::tests!(named);
}

/// Without statements that stay prepared, and with no rights but those of a worker.
mod unnamed {
    use crate::harness::store::unnamed;
    taskharbor_conformance::tests!(unnamed);
}

/// Through pgbouncer.
mod pooled {
    use crate::harness::store::pooled;
    taskharbor_conformance::tests!(pooled);
}

/// Beside an open transaction of the application.
mod locked {
    use taskharbor_conformance::LockedJob;

    use crate::harness::store;

    #[tokio::test]
    async fn a_job_that_another_transaction_settles_is_settled_after_it() {
        for commits in [false, true] {
            let store = store::named().await;
            let locked = LockedJob::new(store.clone()).await;
            let mut sql = store.sql().await;
            let open = sql.transaction().await.unwrap();
            locked.settle_in(&mut store.driver().tx(&open)).await;
            if commits {
                open.commit().await.unwrap();
                locked.after_commit().await;
            } else {
                open.rollback().await.unwrap();
                locked.after_rollback().await;
            }
        }
    }
}
