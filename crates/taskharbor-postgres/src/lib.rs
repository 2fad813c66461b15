//! The PostgreSQL driver of TaskHarbor: durable jobs in a database that you already run.
