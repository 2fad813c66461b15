//! Histories in which a promise is broken.

use super::*;

fn fired(totals: SlotTotals) -> Fired {
    let time = |text: &str| text.parse().unwrap();
    let (first, next) = (time("2030-01-01T00:00:00Z"), time("2030-01-01T00:00:03Z"));
    Fired { name: "s", first, next, totals }
}

fn jobs(ids: &[&str]) -> Jobs {
    ids.iter().map(|id| (JobId::new(*id).unwrap(), fired(TOTALS).next)).collect()
}

const TOTALS: SlotTotals = SlotTotals::new(3, 0, 0);
const ALL: [&str; 3] =
    ["s@2030-01-01T00:00:00Z", "s@2030-01-01T00:00:01Z", "s@2030-01-01T00:00:02Z"];

#[test]
fn one_job_for_each_slot_is_right() {
    assert_eq!(fired(TOTALS).problems(&jobs(&ALL)).unwrap(), [""; 0]);
    let acknowledged = acknowledged(&[fired(TOTALS)]).unwrap();
    assert_eq!(acknowledged.jobs.len(), 3);
}

#[test]
fn a_slot_without_a_job_is_found() {
    // Another in its place does not hide it.
    let other = [ALL[0], ALL[2], "s@2030-01-01T00:00:07Z"];
    let problems = fired(TOTALS).problems(&jobs(&other)).unwrap();
    assert_eq!(problems, ["s@2030-01-01T00:00:01Z: the slot has no job"]);
}

#[test]
fn a_job_without_a_slot_is_found() {
    let more = [ALL[0], ALL[1], ALL[2], "s@2030-01-01T00:00:03Z"];
    let problems = fired(TOTALS).problems(&jobs(&more)).unwrap();
    assert_eq!(problems, ["s: 4 jobs for 3 slots"]);
}

#[test]
fn slots_that_are_missed_skipped_or_counted_twice_are_found() {
    for totals in [(2, 0, 1), (2, 1, 0), (4, 0, 0)] {
        let totals = SlotTotals::new(totals.0, totals.1, totals.2);
        assert_eq!(fired(totals).problems(&jobs(&ALL)).unwrap().len(), 1, "{totals:?}");
    }
}
