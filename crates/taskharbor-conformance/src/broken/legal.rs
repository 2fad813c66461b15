//! Not broken: what a driver may do otherwise than ours.

use taskharbor_core::{
    DriverError,
    driver::{Answers, ExtendLeases, Extended, LeaseToken, Reserve, Reserved},
    error::Refusal,
};

use crate::{model::Model, reference::Behaviour};

/// Every extension changes the token.
pub(super) struct RotatesTokens;

impl Behaviour for RotatesTokens {
    fn extend(&self, model: &mut Model, request: ExtendLeases) -> Answers<Extended, Refusal> {
        let ids: Vec<_> = request.items.iter().map(|item| item.id.clone()).collect();
        let mut answers = model.extend(request)?;
        for (id, answer) in ids.iter().zip(&mut answers) {
            if let Ok(extended) = answer {
                extended.lease.token = LeaseToken::random()?;
                model.adopt(id, extended.lease.token);
            }
        }
        Ok(answers)
    }
}

/// Asks its callers to come back sooner than they need to.
pub(super) struct WakesEarly;

impl Behaviour for WakesEarly {
    fn reserve(&self, model: &mut Model, request: Reserve) -> Result<Reserved, DriverError> {
        let reserved = model.reserve(&request)?;
        let soon = request.now.saturating_add(std::time::Duration::from_micros(1));
        Ok(Reserved::new(reserved.jobs, reserved.next_due.map(|due| due.min(soon))))
    }
}
