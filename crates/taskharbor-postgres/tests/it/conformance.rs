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
