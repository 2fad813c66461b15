//! Jobs: lists, records, contents and actions.
