//! The pages in a real browser, as a person uses them.

mod act;
mod dlq;
mod flow;
mod frame;
mod job;
mod list;
mod safety;
mod site;
