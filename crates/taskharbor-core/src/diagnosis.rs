//! The result of a driver's check of its store, for operators: [`Diagnosis`].

use std::borrow::Cow;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Diagnosis {
    /// The subject of the check, in a word or two: `durability`, `oldest snapshot`.
    pub what: Cow<'static, str>,
    /// How serious the result is.
    pub level: DiagnosisLevel,
    /// What was found.
    pub found: String,
    /// What to do about it, unless it is fine.
    pub advice: Option<String>,
}

/// The severity of a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "snake_case")
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum DiagnosisLevel {
    /// As it should be.
    Fine,
    /// Worth a look.
    Warning,
    /// Jobs are lost, late or do not run.
    Problem,
}

impl DiagnosisLevel {
    /// The name of the level.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Diagnosis {
    /// It is as it should be.
    pub fn fine(what: impl Into<Cow<'static, str>>, found: impl Into<String>) -> Self {
        Self { what: what.into(), level: DiagnosisLevel::Fine, found: found.into(), advice: None }
    }

    /// It is worth a look.
    pub fn warning(
        what: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (found, advice) = (found.into(), Some(advice.into()));
        Self { what: what.into(), level: DiagnosisLevel::Warning, found, advice }
    }

    /// Jobs are lost, late or do not run because of it.
    pub fn problem(
        what: impl Into<Cow<'static, str>>,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (found, advice) = (found.into(), Some(advice.into()));
        Self { what: what.into(), level: DiagnosisLevel::Problem, found, advice }
    }
}
