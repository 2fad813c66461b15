//! The access of callers: by a token file, or the same for all callers.

use std::path::Path;

use taskharbor_web::{Access, Role, TokenFile, TokenFileError};

use crate::{
    failure::{Exit, Failure, Outcome},
    stderr,
};

/// The name of all callers where there are no tokens.
const ANONYMOUS: &str = "anonymous";

/// A role as it is written on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RoleName {
    /// Sees everything except payloads and outputs
    Viewer,
    /// Also enqueues, cancels, requeues and runs jobs, pauses queues and schedules
    Operator,
    /// Also purges jobs, evicts workers, changes limits and schedules
    Admin,
}

impl From<RoleName> for Role {
    fn from(name: RoleName) -> Self {
        match name {
            RoleName::Viewer => Self::Viewer,
            RoleName::Operator => Self::Operator,
            RoleName::Admin => Self::Admin,
        }
    }
}

/// The access of all callers where there are no tokens.
pub(super) fn anonymous(role: Option<RoleName>, payloads: bool) -> Access {
    let role = role.map_or(Role::Admin, Role::from);
    let mut access = Access::new(ANONYMOUS, role);
    if payloads {
        access = access.with_payloads();
    }
    // A worker changes every job that it takes.
    if role == Role::Admin { access.with_workers() } else { access }
}

/// The tokens in this file, which has to be readable.
pub(super) fn tokens(path: &Path) -> Outcome<TokenFile> {
    let file = TokenFile::new(path);
    if file.tokens().map_err(|error| unusable(&error))?.is_empty() {
        stderr::tell(&format!(
            "{} has no tokens, so all requests are refused: run taskharbor token add NAME --tokens {0}",
            path.display()
        ));
    }
    Ok(file)
}

/// Why a file of tokens cannot be used.
pub(crate) fn unusable(error: &TokenFileError) -> Failure {
    let exit = match error {
        TokenFileError::Name(_) => Exit::Usage,
        TokenFileError::Duplicate(_) | TokenFileError::Busy(_) => Exit::Refused,
        _ => Exit::Error,
    };
    Failure::new(exit, "tokens", error.to_string())
}

/// A host as a browser sends it: a name or an address, with or without a port.
pub(super) fn host(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if text.is_empty() || text.len() > 260 || !text.chars().all(is_plain) {
        return Err("write a host as in jobs.example.com or jobs.example.com:8443".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_no_scheme_and_no_path() {
        for good in ["jobs.example.com", "jobs.example.com:8443", "[::1]:7450", "10.0.0.7"] {
            assert_eq!(host(good).as_deref(), Ok(good));
        }
        for bad in ["", "https://jobs.example.com", "jobs.example.com/jobs", "*", "a b"] {
            assert!(host(bad).is_err(), "{bad}");
        }
    }
}
