//! The suite, and what is this driver's own.

use super::MemoryDriver;

async fn open() -> MemoryDriver {
    MemoryDriver::new()
}

taskharbor_conformance::tests!(open);
