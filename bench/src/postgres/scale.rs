//! Large numbers and their effect on one call: dead rows that cannot be removed, leased jobs in front of the
//! queue, leases that ran out together, idle workers, and a transaction that was left open.

pub(crate) mod expired;
pub(crate) mod held;
pub(crate) mod herd;
pub(crate) mod key;
pub(crate) mod leased;
