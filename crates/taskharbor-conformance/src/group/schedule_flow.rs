//! Schedules whose slots are flows.

use taskharbor_core::{
    NewJob, State,
    admin::{Action, ScheduleRecord},
    driver::SlotJobs,
    error::{FireRefused, Rejected},
    job::{FailurePolicy, JobSet},
};

use super::schedule::{fire, firing, inserted, keyed, put, stored};
use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, ack, at, child, fail, id, job, requeue},
};

group! {
    schedule_flow {}
    flows {
        a_flow_is_fired_whole_and_its_tail_stands_for_it ["SCH-2"]
        a_flow_that_overlaps_a_stored_one_is_rejected ["SCH-4"]
        a_flow_waits_for_the_key_of_its_tail ["SCH-15"]
        a_flow_whose_failed_member_cancels_its_tail_does_not_hold_up_the_next_slot ["SCH-15" "KEY-7" "POL-2"]
        a_flow_that_a_failed_member_blocks_holds_its_key_until_it_goes_on ["SCH-15" "KEY-7" "POL-1"]
    }
}

/// A flow of two, whose tail is `text`.
fn flow(text: &str, tail: NewJob) -> JobSet {
    JobSet::flow(vec![job(&format!("{text}/1")), tail])
}

async fn a_flow_is_fired_whole_and_its_tail_stands_for_it(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    // The tail comes first in the list: where it stands in the set must not matter.
    let set = JobSet::flow(vec![child("s@10", &["s@10/1"]), job("s@10/1")]);
    let item = firing(&t, "s", Some(at(20))).await.slots([SlotJobs::new(at(10), set)]);
    assert_eq!(fire(&t, item, at(10)).await, Ok(vec![inserted("s@10")]));
    assert_eq!(stored(&t, "s").await.firings[0].job, inserted("s@10"));
    t.run("s@10/1", ack(), at(10)).await;
    t.run("s@10", ack(), at(10)).await;
}

async fn a_flow_that_overlaps_a_stored_one_is_rejected(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let before: ScheduleRecord = stored(&t, "s").await;
    t.put(job("s@20/1"), T0).await;
    let slots = ["s@10", "s@20"].map(|text| {
        let tail = child(text, &[&format!("{text}/1")]);
        SlotJobs::new(at(10), flow(text, tail))
    });
    let item = firing(&t, "s", Some(at(30))).await.slots(slots);
    let rejected = Rejected::Overlap { job: id("s@20/1") };
    assert_eq!(fire(&t, item, at(20)).await, Err(FireRefused::Rejected(rejected)));
    assert_eq!(stored(&t, "s").await, before);
    assert_eq!(t.find("s@10", at(20)).await, None);
}

async fn a_flow_waits_for_the_key_of_its_tail(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    for (n, now, is_held) in [(10, 10, false), (20, 20, true), (20, 21, false)] {
        let text = format!("s@{n}");
        let tail = keyed(&text).after([id(&format!("{text}/1"))]);
        let slots = [SlotJobs::new(at(n), flow(&text, tail))];
        let item = firing(&t, "s", Some(at(n + 10))).await.slots(slots).waits_for_key();
        let answer = fire(&t, item, at(now)).await;
        if is_held {
            assert_eq!(answer, Err(FireRefused::KeyHeld(id("s@10"))));
            t.act("s@10", Action::CancelFlow, at(now)).await;
        } else {
            assert_eq!(answer, Ok(vec![inserted(&text)]));
        }
    }
}

/// A flow of two that has the key of the schedule.
fn keyed_flow(text: &str, policy: FailurePolicy) -> JobSet {
    let first = job(&format!("{text}/1")).on_failure(policy);
    JobSet::flow(vec![first, keyed(text).after([id(&format!("{text}/1"))])])
}

/// TRAPS F7.
async fn a_flow_whose_failed_member_cancels_its_tail_does_not_hold_up_the_next_slot(
    t: DriverUnderTest,
) {
    put(&t, "s", "daily", Some(at(10))).await;
    for n in [10, 20] {
        let text = format!("s@{n}");
        let set = keyed_flow(&text, FailurePolicy::Cancel);
        let item = firing(&t, "s", Some(at(n + 10))).await.slots([SlotJobs::new(at(n), set)]);
        assert_eq!(fire(&t, item.waits_for_key(), at(n)).await, Ok(vec![inserted(&text)]));
        t.run(&format!("{text}/1"), fail(at(n)), at(n)).await;
    }
    let states = t.states(&["s@10/1", "s@10", "s@20/1", "s@20"], at(20)).await;
    assert_eq!(states, [State::Dlq, State::Cancelled, State::Dlq, State::Cancelled]);
}

async fn a_flow_that_a_failed_member_blocks_holds_its_key_until_it_goes_on(t: DriverUnderTest) {
    put(&t, "s", "daily", Some(at(10))).await;
    let set = keyed_flow("s@10", FailurePolicy::Block);
    let item = firing(&t, "s", Some(at(20))).await.slots([SlotJobs::new(at(10), set)]);
    fire(&t, item, at(10)).await.expect("fired");
    t.run("s@10/1", fail(at(10)), at(10)).await;
    let later = async |now| {
        let set = keyed_flow("s@20", FailurePolicy::Block);
        let item = firing(&t, "s", Some(at(30))).await.slots([SlotJobs::new(at(20), set)]);
        fire(&t, item.waits_for_key(), now).await
    };
    assert_eq!(later(at(20)).await, Err(FireRefused::KeyHeld(id("s@10"))));
    t.manage("s@10/1", requeue(), at(21)).await.expect("not denied");
    t.run("s@10/1", ack(), at(21)).await;
    assert_eq!(later(at(22)).await, Err(FireRefused::KeyHeld(id("s@10"))));
    t.run("s@10", ack(), at(22)).await;
    assert_eq!(later(at(23)).await, Ok(vec![inserted("s@20")]));
}
