//! Drivers that are broken on purpose: a checker that has never failed is not a checker.
//!
//! Each is the model with one mistake that a real queue has made or easily could. The suite must
//! catch every one, and must find nothing wrong with the model itself.

mod admin;
mod enqueue;
mod failure_job;
mod flow;
mod key;
mod lease;
mod legal;
mod limit;
mod schedule;
mod settle;
mod worker;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use taskharbor_core::{
    AnyDriver, Driver, DriverError,
    driver::{Demand, Enqueue, Reserve, Settle},
    job::JobSet,
};

use crate::{
    Case, Level, Through,
    case::{BoxFuture, Opener},
    cases,
    fixture::{LEASE, T0, ack, holder, job, queue, settlement},
    reference::{Behaviour, Honest, ModelDriver},
    run, script,
};

/// Makes a bent driver's behaviour.
type Make = fn() -> Box<dyn Behaviour>;

/// Whether a driver with this behaviour fails a case.
fn fails(case: &Case, make: Make) -> bool {
    let open = move || async move { ModelDriver::new(make()) };
    let attempt = || run(case.group, case.name, Through::Plain, open);
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}

/// Whether a driver with this behaviour differs from the model in 1,500 scripts.
fn scripts_fail(make: Make) -> bool {
    let open = move || -> BoxFuture<AnyDriver> {
        Box::pin(async move { AnyDriver::unchecked(ModelDriver::new(make())) })
    };
    let open: Opener = Arc::new(open);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be built");
    let attempt = || {
        runtime.block_on(async { script::run_seeds(&open().await, &open, 0..1_500).await });
    };
    catch_unwind(AssertUnwindSafe(attempt)).is_err()
}

/// The cases whose names contain `TASKHARBOR_CASES`; all if it is not set.
fn chosen() -> impl Iterator<Item = &'static Case> {
    let part = std::env::var("TASKHARBOR_CASES").unwrap_or_default();
    cases().filter(move |case| format!("{}::{}", case.group, case.name).contains(&part))
}

#[test]
fn the_model_itself_passes() {
    let failed: Vec<_> = chosen().filter(|case| fails(case, || Box::new(Honest))).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// Passes all cases but those about masses of jobs, for which the model is slow.
fn passes(make: Make) {
    let is_small = |case: &&Case| !matches!(case.group, "flow_mass" | "call");
    let failed: Vec<_> = chosen().filter(is_small).filter(|case| fails(case, make)).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// The contract leaves some things open, and the suite must accept every choice.
mod drivers_that_use_their_freedom_pass {
    use super::{legal, passes};

    #[test]
    fn tokens_change_with_every_extension() {
        passes(|| Box::new(legal::RotatesTokens));
    }

    #[test]
    fn callers_are_asked_to_come_back_early() {
        passes(|| Box::new(legal::WakesEarly));
    }

    #[test]
    fn reclaimed_jobs_keep_their_positions() {
        passes(|| Box::new(legal::ReclaimedKeepPosition));
    }

    #[test]
    fn reclaimed_jobs_stand_in_between() {
        passes(|| Box::new(legal::ReclaimedBetween));
    }

    #[test]
    fn turns_of_empty_queues_are_forgotten() {
        passes(|| Box::new(legal::ForgetsTurns));
    }

    #[test]
    fn counts_stop_at_their_cap() {
        passes(|| Box::new(legal::CountsUpToCap));
    }
}

#[test]
fn a_driver_without_flows_passes_the_cases_about_single_jobs() {
    let of_jobs = chosen().filter(|case| case.level == Level::Jobs);
    let of_jobs = of_jobs.filter(|case| !matches!(case.group, "flow_mass" | "call"));
    let failed: Vec<_> =
        of_jobs.filter(|case| fails(case, || Box::new(legal::WithoutFlows))).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

macro_rules! caught {
    ($($name:ident: $behaviour:expr;)*) => {
        const BROKEN: &[(&str, Make)] = &[$((stringify!($name), || Box::new($behaviour))),*];

        $(#[test]
        fn $name() {
            let caught_by = cases().find(|case| fails(case, || Box::new($behaviour)));
            assert!(caught_by.is_some(), "no case catches this");
        })*
    };
}

caught! {
    token_not_compared: settle::TokenNotCompared;
    expiry_not_compared: settle::ExpiryNotCompared;
    holder_still_accepted_at_expiry: settle::AcceptedAtExpiry;
    ack_deletes_before_it_checks: settle::AckDeletesFirst;
    dead_letter_overwrites_done: settle::FailOverwritesDone;
    refused_retry_still_counts_an_attempt: settle::RefusedRetryCounts;
    batch_stops_at_the_first_error: settle::StopsAtFirstError;
    last_answer_missing: settle::ForgetsLastAnswer;
    released_job_never_comes_back: settle::ReleasedForever;
    release_charges_an_attempt: settle::ReleaseCharges;
    note_of_a_release_forgotten: settle::ForgetsReleaseNote;
    any_token_may_repeat_an_ack: settle::AnyTokenRepeats;
    retry_goes_to_the_front: settle::RetryToTheFront;
    cancel_mark_forgotten_on_retry: settle::ForgetsCancelMark;
    settlement_refused_at_times: settle::RefusesAtTimes::default();
    reclaimed_only_after_expiry: lease::ReclaimsTooLate;
    token_used_again: lease::ReusesTokens;
    done_job_reclaimed: lease::ReclaimsDone;
    extend_shortens: lease::ExtendShortens;
    late_heartbeat_revives_a_lease: lease::ExtendRevives;
    attempts_reset_on_reclaim: lease::ResetsAttempts;
    expiration_not_counted: lease::ExpirationNotCounted;
    every_expiration_counted: lease::CountsEveryExpiration;
    snooze_does_not_end_a_row_of_expirations: settle::StartedLikeUnstarted;
    deliveries_not_counted: lease::DeliveriesNotCounted;
    reclaimed_job_goes_to_the_front: lease::ReclaimedToTheFront;
    reclaimed_job_goes_to_the_end: lease::ReclaimedToTheEnd;
    reclaimed_job_keeps_its_time: lease::ReclaimKeepsRunAt;
    paused_queue_still_served: lease::IgnoresPause;
    next_due_time_not_told: lease::NextDueForgotten;
    limit_not_kept: lease::IgnoresLimit;
    key_checked_then_inserted: enqueue::CheckThenInsert;
    key_and_queue_run_together: enqueue::KeysRunTogether;
    run_at_ignored: enqueue::IgnoresRunAt;
    id_enqueued_twice_starts_over: enqueue::StartsOver;
    rejected_set_half_stored: enqueue::HalfStored;
    times_rounded_to_milliseconds: enqueue::Milliseconds;
    payload_ends_at_nul: enqueue::CutsAtNul;
    names_lose_their_case: enqueue::LowersCase;
    newest_first: enqueue::NewestFirst;
    repeated_ack_unblocks_again: flow::RepeatUnblocks;
    fan_in_checked_then_fired: flow::CheckThenFire;
    first_parent_is_enough: flow::FirstParentIsEnough;
    expansion_forgets_the_dependants: flow::ExpansionForgets;
    failed_member_unblocks_twice: flow::FailedUnblocksTwice;
    cancel_stops_at_direct_dependants: flow::CancelsOnlyDirect;
    outputs_in_order_of_completion: flow::OutputsUnordered;
    list_by_offset: admin::ListsByOffset;
    prune_ignores_the_lease: admin::PrunesTooSoon;
    prune_splits_flows: admin::PrunesMembers;
    requeue_keeps_old_tokens_alive: admin::RequeueKeepsToken::default();
    requeue_gives_all_attempts_back: admin::RequeueResets;
    purge_takes_live_jobs: admin::PurgesLive;
    contradicting_settlement_recognised: settle::ContradictionRecognised;
    failure_job_runs_although_its_parent_is_done: failure_job::RunsAnyway;
    failure_job_not_cancelled_when_not_needed: failure_job::NeverDropped;
    fail_fast_cancels_failure_jobs: failure_job::FailFastStopsHandlers;
    key_until_terminal_kept_after_dead_letter: key::DeadLetterKeepsKey;
    requeue_ignores_a_taken_key: key::RequeueIgnoresKey;
    timed_key_dies_with_its_record: key::TimedKeyDiesWithRecord;
    time_of_a_key_ignored: key::TimeOfKeyIgnored;
    newest_first_list_repeats_a_job: admin::NewestFirstRepeats;
    list_ends_at_its_scan_budget: admin::StopsAtScanBudget;
    import_half_stored: key::HalfImported;
    import_forgets_the_token: key::ImportForgetsToken;
    import_overwrites: key::ImportOverwrites;
    schedule_fired_without_comparing_its_revision: schedule::RevisionNotCompared;
    schedule_moves_on_without_its_job: schedule::MovesWithoutJob;
    job_stored_and_schedule_does_not_move: schedule::JobWithoutMove;
    jobs_stored_by_a_refused_firing: schedule::StoresBeforeItLooks;
    paused_schedule_fired: schedule::FiresWhilePaused;
    paused_schedule_is_due: schedule::PausedIsDue;
    equal_definition_starts_over: schedule::EqualDefinitionResets;
    replaced_schedule_never_keeps_its_slot: schedule::SlotNotKept;
    declaring_removes_schedules_of_others: schedule::DeclaringRemovesAll;
    version_of_a_declaration_ignored: schedule::VersionIgnored;
    revisions_start_over: schedule::RevisionsStartOver;
    firing_never_waits_for_a_key: schedule::NeverWaitsForKey;
    eviction_ends_leases_of_others: worker::EvictsEverything;
    eviction_ends_no_lease: worker::EvictsNothing;
    eviction_compares_names_without_case: worker::EvictsNamesakes;
    eviction_counts_leases_that_were_over: worker::CountsExpiredLeases;
    eviction_moves_leases_that_were_over: worker::MovesExpiredLeases;
    eviction_ignores_another_start: worker::EvictsItsSuccessor;
    overdue_start_stops_an_eviction: worker::OverdueStartProtects;
    eviction_counts_no_expiration: worker::PutsBackWithoutExpiration;
    eviction_comes_a_moment_later: worker::EvictsAMomentLater;
    eviction_keeps_the_announcement: worker::KeepsEvictedRecord;
    eviction_forgets_moved_positions: worker::ForgetsMovedPositions::default();
    eviction_wakes_no_watch: worker::EvictionWakesNoWatch;
    announcement_never_ends: worker::AnnouncementNeverEnds;
    announcement_ends_late: worker::AnnouncementEndsLate;
    announcement_starts_over: worker::AnnounceStartsOver;
    one_record_for_each_name: worker::OneRecordForEachName;
    withdrawn_announcement_stays: worker::WithdrawnStays;
    leases_counted_by_position: limit::CountsByPosition;
    place_not_freed_when_a_lease_ends: limit::PlaceNotFreedOnExpiry;
    limit_ignored_after_a_requeue: limit::LimitIgnoredOnRequeue;
    first_job_held_back_blocks_the_queue: limit::HeadOfLineBlocks;
    jobs_without_a_lane_starve: limit::JobsWithoutLaneStarve;
    turns_start_over_with_each_call: limit::TurnsStartOver;
    weight_of_a_lane_ignored: limit::WeightIgnored;
    interval_of_a_rate_rounded_down: limit::IntervalRoundedDown;
    hold_ignored: limit::HoldIgnored;
    hold_shortened: limit::HoldShortened;
    refused_settlement_frees_a_place: limit::RefusedSettlementFreesPlace::default();
    leases_counted_then_jobs_granted: limit::CountsThenGrants;
    freed_place_wakes_no_watch: limit::FreedPlaceWakesNoWatch;
    ended_lease_asked_for_at_once: limit::AsksForExpiredLeases;
}

/// Random scripts reach deep enough to find nearly all of these on their own. What they miss
/// needs a race, values that they do not use, or more luck than a few hundred scripts have.
#[test]
fn random_scripts_alone_catch_all_but_a_few() {
    let missed = BROKEN.iter().filter(|(_, make)| !scripts_fail(*make));
    let missed: Vec<&str> = missed.map(|(name, _)| *name).collect();
    let out_of_reach = [
        "key_checked_then_inserted",
        "names_lose_their_case",
        "failed_member_unblocks_twice",
        "import_half_stored",
        "import_overwrites",
        "revisions_start_over",
        "eviction_wakes_no_watch",
        "leases_counted_then_jobs_granted",
        "freed_place_wakes_no_watch",
        "ended_lease_asked_for_at_once",
    ];
    assert_eq!(missed, out_of_reach);
}

/// The cases about workers and evictions catch these without the help of others.
#[test]
fn cases_about_workers_catch_what_breaks_announcements_and_evictions() {
    let groups = ["worker", "evict", "evict_flow", "evict_race"];
    let of_workers = |case: &&Case| groups.contains(&case.group);
    let at = |wanted| BROKEN.iter().position(|(name, _)| *name == wanted);
    let from = at("eviction_ends_leases_of_others").expect("one of the broken");
    let to = at("withdrawn_announcement_stays").expect("one of the broken");
    for (name, make) in &BROKEN[from..=to] {
        let caught = cases().filter(of_workers).any(|case| fails(case, *make));
        assert!(caught, "{name} is not seen by the cases about workers");
    }
}

/// The cases about lanes and limits catch these without the help of others.
#[test]
fn cases_about_limits_catch_what_breaks_limits() {
    let groups = [
        "lane",
        "lane_turn",
        "limit",
        "limit_place",
        "rate",
        "hold",
        "idle",
        "limit_wake",
        "limit_race",
    ];
    let of_limits = |case: &&Case| groups.contains(&case.group);
    let from = BROKEN.iter().position(|(name, _)| *name == "leases_counted_by_position");
    for (name, make) in BROKEN.iter().skip(from.expect("one of the broken")) {
        let caught = cases().filter(of_limits).any(|case| fails(case, *make));
        assert!(caught, "{name} is not seen by the cases about limits");
    }
}

/// The history of a race shows these by itself: what many tasks saw cannot have been so.
#[test]
fn races_alone_catch_what_breaks_their_invariants() {
    let breaks_an_invariant = [
        "token_not_compared",
        "expiry_not_compared",
        "settlement_refused_at_times",
        "token_used_again",
        "done_job_reclaimed",
        "extend_shortens",
        "attempts_reset_on_reclaim",
        "deliveries_not_counted",
        "run_at_ignored",
        "id_enqueued_twice_starts_over",
        "rejected_set_half_stored",
        "first_parent_is_enough",
        "eviction_ends_leases_of_others",
        "eviction_ends_no_lease",
    ];
    for name in breaks_an_invariant {
        let (_, make) = BROKEN.iter().find(|(it, _)| *it == name).expect("one of the broken");
        let caught = cases().filter(|case| case.group == "race").any(|case| fails(case, *make));
        assert!(caught, "{name} is not seen in a race");
    }
}

/// What a handle answers when the driver behind it does not keep to the shape of its answers.
async fn through_handle(behaviour: impl Behaviour) -> Vec<DriverError> {
    let driver = AnyDriver::new(ModelDriver::new(Box::new(behaviour)));
    let sets = ["a", "b", "c"].map(|text| JobSet::from(job(text))).into();
    driver.enqueue(Enqueue::new(sets, T0)).await.expect("enqueue");
    let demands = vec![Demand::new(queue("q"), 2)];
    let (jobs, mut errors) = match driver.reserve(Reserve::new(demands, holder(), T0, LEASE)).await
    {
        Ok(reserved) => (reserved.jobs, Vec::new()),
        Err(error) => (Vec::new(), vec![error]),
    };
    let items = jobs.iter().map(|leased| settlement(leased, ack())).collect();
    errors.extend(driver.settle(Settle::new(items, T0)).await.err());
    errors
}

#[tokio::test]
async fn the_handle_notices_answers_that_are_missing_or_not_asked_for() {
    assert!(through_handle(Honest).await.is_empty());
    for errors in
        [through_handle(settle::ForgetsLastAnswer).await, through_handle(lease::IgnoresLimit).await]
    {
        assert!(matches!(errors.as_slice(), [DriverError::ContractViolation(_)]), "{errors:?}");
    }
}
