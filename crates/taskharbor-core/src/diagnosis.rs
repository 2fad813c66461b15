//! What a driver finds out about its store for people: [`Diagnosis`].

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What was looked at, in a word or two: `durability`, `oldest snapshot`.
    pub what: &'static str,
    /// How it is.
    pub level: DiagnosisLevel,
    /// What was found.
    pub found: String,
    /// What to do about it, unless it is fine.
    pub advice: Option<String>,
}

/// The severity of a diagnosis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    pub fn fine(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, level: DiagnosisLevel::Fine, found: found.into(), advice: None }
    }

    /// It is worth a look.
    pub fn warning(
        what: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (found, advice) = (found.into(), Some(advice.into()));
        Self { what, level: DiagnosisLevel::Warning, found, advice }
    }

    /// Jobs are lost, late or do not run because of it.
    pub fn problem(
        what: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let (found, advice) = (found.into(), Some(advice.into()));
        Self { what, level: DiagnosisLevel::Problem, found, advice }
    }
}
