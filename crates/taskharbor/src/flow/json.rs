//! A small JSON form of flows, so that any language can start one; what people see of it is in `json.md`.
#![doc = include_str!("json.md")]

mod compile;
mod parse;
mod strict;

use taskharbor_core::{Blob, driver::Limits};

use super::{Flow, plan::Plan};

/// A flow as a JSON document describes it, checked and ready to be started.
#[derive(Debug)]
pub struct Document {
    /// The jobs. What the last one produces is not known to the compiler.
    pub flow: Flow<Blob>,
    /// What people call it.
    pub name: Option<String>,
    /// The flow's key.
    pub key: Option<String>,
}

/// Why a JSON document is not a flow. Nothing was stored.
#[derive(thiserror::Error)]
#[error("{place}: {fault}")]
pub struct DocumentError {
    /// Where in the document, as in `$.nodes[2].after[0]`.
    pub place: String,
    /// What is wrong there.
    pub fault: Fault,
}

taskharbor_core::debug_as_display!(DocumentError);

/// What is wrong at one place of a document.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It is not JSON.
    #[error("this is not JSON: {0}")]
    Syntax(serde_json::Error),
    /// Something else is expected here.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A field that a flow does not have.
    #[error("there is no field {0:?}: {1}")]
    UnknownField(String, &'static str),
    /// A field of an object has the name of one before it.
    #[error("there is a field of this name before it: choose one of them")]
    DuplicateField,
    /// A field is missing.
    #[error("the field {0:?} is missing")]
    Missing(&'static str),
    /// A node waits for one that the document does not have.
    #[error("there is no node {0:?}: name one of this document")]
    UnknownNode(String),
    /// Two nodes have one name.
    #[error("a node {0:?} was named before: choose another name")]
    DuplicateNode(String),
    /// A node names one it waits for twice.
    #[error("{0:?} is named twice")]
    DuplicateParent(String),
    /// Nodes wait for each other in a circle.
    #[error("node {0:?} waits, through others, for itself")]
    Cycle(String),
    /// There are no nodes.
    #[error("a flow has at least one node")]
    NoNodes,
    /// A number is not one that can be stored.
    #[error("{0}")]
    OutOfRange(&'static str),
    /// A name, a header or a payload is not one that can be stored.
    #[error("{0}")]
    Refused(String),
    /// More jobs than a flow may have.
    #[error(
        "more than {} jobs: split the flow, or let a handler return the rest as a flow",
        Limits::MAX_FLOW_JOBS
    )]
    TooLarge,
    /// Groups in groups, deeper than is read.
    #[error("more than {} steps inside one another: write the flow flatter", parse::MAX_DEPTH)]
    TooDeep,
}

taskharbor_core::debug_as_display!(Fault);

/// Reads a flow from its JSON form.
///
/// ```
/// let document = taskharbor::flow_json::parse(
///     br#"{
///         "name": "album",
///         "flow": { "chain": [
///             { "type": "photo:fetch", "payload": { "url": "cats" } },
///             { "group": [
///                 { "type": "photo:resize", "payload": { "width": 64 }, "label": "small" },
///                 { "type": "photo:resize", "payload": { "width": 256 }, "queue": "images" }
///             ] },
///             { "type": "photo:album", "payload": { "title": "cats" } }
///         ] }
///     }"#,
/// )?;
/// assert_eq!(document.name.as_deref(), Some("album"));
/// assert_eq!(document.flow.len(), 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`DocumentError`], which names the place.
pub fn parse(text: &[u8]) -> Result<Document, DocumentError> {
    parse::document(&strict::value(text)?)
}

fn at(place: &str, fault: Fault) -> DocumentError {
    DocumentError { place: place.to_owned(), fault }
}

fn flow(plan: Plan) -> Flow<Blob> {
    Flow::of(plan)
}
