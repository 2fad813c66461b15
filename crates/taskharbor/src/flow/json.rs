//! A small JSON form of flows, so that any language can start one. Its documentation is in
//! `json.md`.
#![doc = include_str!("json.md")]

mod compile;
mod parse;
mod strict;

use taskharbor_core::{Blob, driver::Limits};

use super::{Flow, plan::Plan};

/// A flow as a JSON document describes it, checked and ready to be started.
#[derive(Debug)]
pub struct Document {
    /// The jobs. The output type is not known to the compiler.
    pub flow: Flow<Blob>,
    /// The flow's name, for lists and diagrams.
    pub name: Option<String>,
    /// The flow's key.
    pub key: Option<String>,
}

/// Why a JSON document is not a flow. Nothing was stored.
#[derive(thiserror::Error)]
#[error("{place}: {fault}")]
pub struct DocumentError {
    /// The place in the document, as in `$.nodes[2].after[0]`.
    pub place: String,
    /// What is wrong there.
    pub fault: Fault,
}

taskharbor_core::debug_as_display!(DocumentError);

/// What is wrong at one place of a document.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The document is not JSON.
    #[error("this is not JSON: {0}")]
    Syntax(serde_json::Error),
    /// A value of another kind is expected here.
    #[error("expected {0}")]
    Expected(&'static str),
    /// A field that a flow does not have.
    #[error("unknown field {0:?}: {1}")]
    UnknownField(String, &'static str),
    /// An object has two fields of the same name.
    #[error("duplicate field: keep one of the two")]
    DuplicateField,
    /// A field is missing.
    #[error("the field {0:?} is missing")]
    Missing(&'static str),
    /// A node waits for a node that the document does not have.
    #[error("unknown node {0:?}: name a node of this document")]
    UnknownNode(String),
    /// Two nodes have the same id.
    #[error("duplicate node id {0:?}: choose another id")]
    DuplicateNode(String),
    /// A node names the same parent twice.
    #[error("{0:?} is named twice")]
    DuplicateParent(String),
    /// Nodes wait for each other in a cycle.
    #[error("node {0:?} waits for itself through other nodes")]
    Cycle(String),
    /// There are no nodes.
    #[error("the list is empty: a flow has at least one node")]
    NoNodes,
    /// A number is out of range.
    #[error("{0}")]
    OutOfRange(&'static str),
    /// A name, a header or a payload is invalid.
    #[error("{0}")]
    Refused(String),
    /// The document has more jobs than a flow may have.
    #[error(
        "more than {} jobs: split the flow, or let a handler return the rest as a flow",
        Limits::MAX_FLOW_JOBS
    )]
    TooLarge,
    /// Steps are nested too deeply.
    #[error("more than {} nested steps: use fewer levels", parse::MAX_DEPTH)]
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
