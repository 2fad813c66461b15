//! The order of pruning.

use crate::{State, Timestamp, admin::Prune};

/// The job without a flow and the flow that may go first: until when each is kept, its number in the
/// order of insertion, and itself.
pub type Oldest<U> = [Option<(Timestamp, u64, U)>; 2];

/// Terminal records of a store, in the order in which they are pruned.
pub trait Shelf {
    /// A job without a flow, or a whole flow.
    type Unit;
    /// Why the store failed.
    type Error;

    /// Of the jobs without a flow and of the flows that ended in `state`, the ones that may go first,
    /// at most one of each.
    fn oldest(&self, state: State) -> Result<Oldest<Self::Unit>, Self::Error>;

    /// Removes a unit; how many jobs it had.
    fn remove(&mut self, unit: Self::Unit) -> Result<usize, Self::Error>;
}

/// Removes records that are old enough, oldest first, up to the limit. Returns how many jobs were removed.
///
/// # Errors
///
/// What the store answers.
pub fn prune<S: Shelf>(shelf: &mut S, request: &Prune) -> Result<usize, S::Error> {
    let mut removed = 0;
    while removed < request.limit {
        let mut oldest: Option<(Timestamp, u64, S::Unit)> = None;
        for state in [State::Done, State::Dlq, State::Cancelled] {
            let Some(before) = request.before(state) else { continue };
            // PRU-1, PRU-4
            for unit in shelf.oldest(state)?.into_iter().flatten() {
                let is_older =
                    oldest.as_ref().is_none_or(|(at, seq, _)| (unit.0, unit.1) < (*at, *seq));
                if unit.0 <= before && is_older {
                    oldest = Some(unit);
                }
            }
        }
        match oldest {
            Some((.., unit)) => removed += shelf.remove(unit)?,
            None => break,
        }
    }
    Ok(removed)
}
