//! Every request and answer travels as JSON and comes back the same; what no code could make is refused.

use std::{fmt::Debug, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use super::*;
use crate::{
    JobId, NewJob, State,
    admin::*,
    driver::*,
    error::{Denied, FireRefused, InvalidRequest, InvalidTransition, Refusal, Rejected},
    export::*,
    flow::*,
    job::*,
    life::{ActiveLease, Finish, Life, Stage},
    wire::{Bounds, CallFailure, Each, WakeEvent, WatchRequest},
};

fn id(text: &str) -> JobId {
    JobId::new(text).unwrap()
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros).unwrap()
}

fn lane(text: &str) -> LaneName {
    LaneName::new(text).unwrap()
}

fn queue(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

fn schedule(text: &str) -> ScheduleName {
    ScheduleName::new(text).unwrap()
}

/// Texts that are hard to keep: quotes, braces, what looks like JSON, other scripts.
const HOSTILE: [&str; 6] = [
    " lead and trail ",
    "\"},{\"a\":[\\",
    "<script>alert(1)</script>",
    "日本語 🦀 \u{202e}gnp.exe",
    "null",
    "a,b=c&d#e?f/../g%00",
];

#[track_caller]
fn returns<T: Serialize + DeserializeOwned + Debug>(value: &T) -> String {
    let json = serde_json::to_string(value).unwrap();
    let back: T = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{json}: {error}"));
    assert_eq!(format!("{back:?}"), format!("{value:?}"), "{json}");
    assert_eq!(serde_json::to_string(&back).unwrap(), json);
    json
}

#[track_caller]
fn refused<T: DeserializeOwned + Debug>(json: &str) -> String {
    serde_json::from_str::<T>(json).expect_err(json).to_string()
}

fn full_job(text: &str) -> NewJob {
    let headers = Headers::new().with(text, text).unwrap().with_any("th-codec", text).unwrap();
    NewJob::new(id(text), queue(text), JobType::new(text).unwrap(), text.as_bytes())
        .run_at(Timestamp::MAX)
        .timeout(Duration::from_micros(1))
        .max_attempts(u32::MAX)
        .priority(i16::MIN)
        .lane(lane(text))
        .headers(headers)
        .idempotency_key(IdempotencyKey::new(text).unwrap())
        .key_hold(KeyHold::For(Duration::from_secs(u64::MAX)))
        .after_failure_of([id("a"), id(text)])
        .on_failure(FailurePolicy::FailFast)
}

fn note() -> ReleaseNote {
    ReleaseNote::new(ReleaseReason::KeptApart, "w: waits").unfit_since(Some(at(7)))
}

fn lease() -> Lease {
    Lease::new(LeaseToken::from_bits(u128::MAX - 5), at(9))
}

fn full_life(text: &str, stage: Stage) -> Life {
    let mut life = Life::in_stage(stage, at(3));
    life.run_at = Some(at(4));
    life.priority = i16::MAX;
    life.attempts = 2;
    life.attempt_limit = Some(3);
    life.errors = vec![FailedAttempt::new(u32::MAX, text, at(5))];
    life.deliveries = 4;
    life.started_at = Some(at(6));
    life.expirations = 5;
    life.epoch = 6;
    life.released = Some(note());
    life.pending = usize::MAX;
    life.progress = Some(text.into());
    life.output = Some(text.as_bytes().into());
    life.reason = Some(text.into());
    life.flow = Some(id(text));
    life.expanded_into = Some(id("x"));
    life
}

fn stages() -> Vec<Stage> {
    let hold = ActiveLease::new(lease(), Holder::new("w").unwrap(), true);
    vec![
        Stage::Blocked,
        Stage::Waiting,
        Stage::Inflight(hold.marked(Some(LeaseMark::Leaving))),
        Stage::Finished(Finish::new(State::Dlq, at(8), Some(lease()))),
    ]
}

fn record(text: &str) -> JobRecord {
    let life = full_life(text, stages().remove(2));
    JobRecord::assemble(&full_job(text), at(1), &life, vec![id("p")], at(2))
}

fn schedule_record(text: &str) -> ScheduleRecord {
    let new = NewSchedule::new(schedule(text), text.as_bytes(), Some(at(5))).keep_slot();
    let mut record = ScheduleRecord::new(new, OwnerName::new(text).ok(), u64::MAX);
    record.paused_since = Some(at(6));
    record.totals = SlotTotals::new(1, 2, u64::MAX);
    record.error = Some(text.into());
    record.firings = vec![
        Firing::new(at(1), at(2), Enqueued::Inserted(id("a"))),
        Firing::new(at(1), at(2), Enqueued::Existing(id(text))),
    ];
    record
}

fn limits(text: &str) -> QueueLimits {
    QueueLimits::new()
        .inflight(1)
        .rate(Rate::per(3, Duration::from_secs(2)).burst(4))
        .per_lane(5)
        .lane_rate(Rate::per(1, Duration::from_micros(1)))
        .lane(text, LaneLimits::new().inflight(6).weight(7))
}

fn transitions(text: &str) -> Vec<Transition> {
    let failure = FailedAttempt::new(3, text, at(4));
    vec![
        Transition::Ack { output: None },
        Transition::Ack { output: Some(text.as_bytes().into()) },
        Transition::Expand(Expansion::new(vec![
            full_job(text),
            NewJob::join(id("j"), queue("q"), []),
        ])),
        Transition::Retry { failure: failure.clone(), run_at: None },
        Transition::Retry { failure: failure.clone(), run_at: Some(Timestamp::MAX) },
        Transition::Fail { failure, reason: text.into() },
        Transition::Release { run_at: Some(at(1)), started: true, note: Some(note()) },
        Transition::Release { run_at: None, started: false, note: None },
    ]
}

#[test]
fn requests_of_workers_and_clients_travel() {
    for text in HOSTILE {
        let flow = JobSet::named_flow(FlowName::new(text).unwrap(), vec![full_job(text)]);
        returns(&Enqueue::new(vec![JobSet::from(full_job(text)), flow], Timestamp::MAX));
        let holder = Holder::new(text).unwrap();
        let demands = vec![Demand::new(queue(text), usize::MAX)];
        returns(&Reserve::new(demands, holder.clone(), at(0), Duration::MAX));
        let item = Extension::new(id(text), lease().token).progress(text.into());
        let items = vec![item.mark(LeaseMark::Started), Extension::new(id("a"), lease().token)];
        returns(&ExtendLeases::new(items, at(1), Duration::ZERO));
        let settled = transitions(text).into_iter();
        let items = settled.map(|it| Settlement::new(id(text), lease().token, it)).collect();
        returns(&Settle::new(items, at(1)).lock_wait(LockWait::Short));
        let queries =
            [OutputQuery::of(id(text)), OutputQuery::parents_of(id("a")).from(usize::MAX)];
        returns(&Outputs::new(queries.to_vec(), 5));
        returns(&DueSchedules::new(5, at(1)).after(at(2), schedule(text)));
        let slot = SlotJobs::new(at(1), JobSet::flow(vec![full_job(text)]));
        let fire = FireSchedule::new(schedule(text), u64::MAX, Some(at(4)))
            .slots([slot])
            .missed(u64::MAX)
            .error(text.into())
            .waits_for_key();
        returns(&Fire::new(vec![fire, FireSchedule::new(schedule("b"), 0, None)], at(2)));
        let incarnation = Incarnation::from_bits(u64::MAX);
        let info = Blob::from(text.as_bytes());
        returns(&Announce::new(holder, incarnation, info, Duration::from_nanos(1), at(2)));
        returns(&WatchRequest { queues: vec![queue(text)], jobs: vec![id(text)] });
    }
}

#[test]
fn requests_of_people_travel() {
    for text in HOSTILE {
        let range = TimeRange::new(Some(at(1)), Some(Timestamp::MAX));
        let filter = Filter::all()
            .queue(queue(text))
            .state(State::Dlq)
            .job_type(JobType::new(text).unwrap())
            .lane(lane(text))
            .flow(id(text))
            .key(IdempotencyKey::new(text).unwrap())
            .header(text, text)
            .error(text)
            .created(range)
            .finished(range);
        let list = List::new(filter, usize::MAX, at(1)).after(Cursor::new(text)).newest_first();
        returns(&list.scan(7));
        returns(&Counts::new(at(1)).at_most(usize::MAX));
        let requeue = Requeue::new().run_at(at(3)).reset_attempts().detach();
        for action in [
            Action::Requeue(requeue),
            Action::Cancel,
            Action::RunNow,
            Action::SetPriority(i16::MIN),
            Action::Purge,
            Action::CancelFlow,
            Action::PurgeFlow,
        ] {
            returns(&Manage::new(vec![id(text)], action, at(1)));
        }
        returns(&Prune::new(7, at(9)).done_before(at(1)).cancelled_before(at(2)).dlq_before(at(3)));
        returns(&Configure::new(changes(text), at(1)));
        let settings = ListSettings::new(1).kind(SettingKind::PausedQueue).name(text);
        returns(&settings.after(Cursor::new(text)));
        returns(&ListLanes::new(queue(text), 1, at(1)).after(Cursor::new(text)));
        returns(&ListWorkers::new(1, at(1)).only_overdue().after(Cursor::new(text)));
        let evict = Evict::new(Holder::new(text).unwrap(), at(1));
        returns(&evict.incarnation(Incarnation::from_bits(1)));
        let flows = ListFlows::new(1, at(1)).state(FlowState::Blocked).newest_first();
        returns(&flows.name(FlowName::new(text).unwrap()).after(Cursor::new(text)));
        returns(&crate::wire::Export { after: Some(Cursor::new(text)), limit: usize::MAX });
        returns(&crate::wire::Import { units: units(text) });
        returns(&crate::wire::One { id: id(text), now: at(1) });
    }
}

fn changes(text: &str) -> Vec<Change> {
    let new = NewSchedule::new(schedule(text), text.as_bytes(), None).keep_slot();
    let owner = OwnerName::new(text).unwrap();
    let limits = limits(text);
    vec![
        Change::PauseQueue(queue(text)),
        Change::ResumeQueue(queue(text)),
        Change::PutSchedule(new.clone()),
        Change::DeclareSchedules(Declaration::new(owner.clone(), Some(u64::MAX), vec![new])),
        Change::PauseSchedule(schedule(text)),
        Change::ResumeSchedule { name: schedule(text), revision: u64::MAX, next_slot: None },
        Change::RemoveSchedule(schedule(text)),
        Change::ImportSchedule(Box::new(schedule_record(text))),
        Change::SetLimits { queue: queue(text), limits: Some(limits.clone()) },
        Change::SetLimits { queue: queue(text), limits: None },
        Change::DeclareLimits(LimitsDeclaration::new(
            owner.clone(),
            None,
            vec![(queue(text), limits.clone())],
        )),
        Change::ImportLimits(Box::new(LimitsRecord::new(queue(text), Some(owner.clone()), limits))),
        Change::Hold { queue: queue(text), lane: Some(lane(text)), until: Some(at(1)) },
        Change::SetOwnerVersion { owner, version: Some(u64::MAX) },
    ]
}

fn units(text: &str) -> Vec<ExportUnit> {
    let edges = vec![
        EdgeState::Open,
        EdgeState::Closed,
        EdgeState::Spent { state: State::Cancelled, reason: Some(text.into()) },
    ];
    let jobs = stages().into_iter();
    let jobs: Vec<_> = jobs
        .map(|stage| {
            ExportedJob::new(full_job(text), at(1), full_life(text, stage), edges.clone(), true)
        })
        .collect();
    let flow = ExportedFlow::new(id(text), FlowName::new(text).ok(), at(2), id("t"));
    let key = IdempotencyKey::new(text).unwrap();
    vec![
        ExportUnit::job(jobs[0].clone()),
        ExportUnit::flow(flow, jobs),
        ExportUnit::key(ExportedKey::new(queue(text), key, id(text), Timestamp::MAX)),
    ]
}

#[test]
fn answers_travel() {
    for text in HOSTILE {
        let record = record(text);
        let leased = Leased::new(record.job.clone(), lease());
        returns(&Reserved::new(vec![leased], Some(at(7))));
        returns(&Extended::new(lease(), true));
        returns(&Some(record.clone()));
        returns(&Page::new(vec![record.summary()], Some(Cursor::new(text))).looked_at(Some(at(5))));
        let list = JoinList::new(id(text), usize::MAX, JoinReading::Gather);
        let entries = vec![
            OutputEntry::List(list.clone()),
            OutputEntry::Done(None),
            OutputEntry::Done(Some(text.as_bytes().into())),
            OutputEntry::Failed { state: State::Dlq, reason: Some(text.into()) },
            OutputEntry::Pending,
            OutputEntry::Missing,
        ];
        returns(&OutputPage::new(entries, Some(7)).of_join(list));
        returns(&Due::new(vec![schedule_record(text)], Some(at(1))));
        let owner = OwnerName::new(text).unwrap();
        let settings = vec![
            Setting::PausedQueue { queue: queue(text), since: at(1) },
            Setting::Owner { owner: owner.clone(), version: u64::MAX },
            Setting::Schedule(Box::new(schedule_record(text))),
            Setting::Limits(Box::new(LimitsRecord::new(queue(text), Some(owner), limits(text)))),
        ];
        returns(&Page::new(settings, None));
        let whys = [
            HeldBack::OnHold { until: at(1) },
            HeldBack::Full { inflight: 3, limit: 2 },
            HeldBack::Rate { next: at(2) },
        ];
        let lanes = whys.map(|why| {
            LaneStatus::new(Some(lane(text)), 1, usize::MAX, Some(HeldJob::new(true, why)))
        });
        returns(&Page::new(lanes.to_vec(), None));
        let holder = Holder::new(text).unwrap();
        let announced = Announce::withdraw(holder, Incarnation::from_bits(3), at(1));
        returns(&Page::new(vec![WorkerRecord::new(announced, at(1), at(2))], None));
        let flow =
            FlowRecord::new(id(text), at(1), (id("t"), State::Done), StateCounts::default(), None);
        returns(&Page::new(vec![flow.named(FlowName::new(text).ok())], None));
        returns(&vec![QueueCounts::new(queue(text))]);
        returns(&Page::new(units(text), None));
        returns(&vec![
            Diagnosis::fine("a", text),
            Diagnosis::warning("b", text, text),
            Diagnosis::problem("c", text, text),
        ]);
        returns(&vec![Inconsistency::new(text)]);
        returns(&Bounds { limits: Limits::default().without_flows(), request_bytes: 1 });
        returns(&[
            WakeEvent::Queues(vec![queue(text)]),
            WakeEvent::Job(id(text)),
            WakeEvent::All,
            WakeEvent::Reaching { reaching: false, problem: Some(text.into()) },
        ]);
    }
    returns(&[Evicted::Leases(3), Evicted::Replaced]);
    returns(&[Settled::Applied, Settled::AlreadyTerminal]);
    returns(&[Imported::Stored, Imported::Existing]);
}

#[test]
fn errors_travel() {
    for text in HOSTILE {
        let job = || id(text);
        let rejected = vec![
            Rejected::PayloadTooLarge { job: job(), bytes: 1, max: 2 },
            Rejected::TimeoutOutOfRange { job: job() },
            Rejected::EmptyFlow,
            Rejected::SeveralTails { first: job(), second: id("b") },
            Rejected::UnknownParent { job: job(), parent: id("b") },
            Rejected::FlowsNotSupported,
            Rejected::ExpansionTooLarge { count: usize::MAX },
            Rejected::Overlap { job: job() },
        ];
        for rejected in rejected {
            let invalid = InvalidTransition::Expansion(rejected.clone());
            let answers = vec![
                Ok(vec![Enqueued::Inserted(job()), Enqueued::Existing(job())]),
                Err(rejected.clone()),
            ];
            returns(&Each::from(answers));
            returns(&Each::<Settled, _>::from(vec![Err(Refusal::Invalid(invalid))]));
            returns(&FireRefused::Rejected(rejected.clone()));
            returns(&ImportRefused::Damaged(Damage::Job(rejected)));
        }
        returns(&[
            Refusal::JobNotFound,
            Refusal::Busy,
            Refusal::Invalid(InvalidTransition::OutputTooLarge { bytes: 1, max: 2 }),
            Refusal::Invalid(InvalidTransition::AttemptsOutOfRange(u32::MAX)),
        ]);
        returns(&vec![
            Denied::JobNotFound,
            Denied::WrongState(State::Inflight),
            Denied::KeyHeld(job()),
            Denied::ScheduleOwned { name: schedule(text), owner: None },
            Denied::LimitsOwned { queue: queue(text), owner: OwnerName::new(text).ok() },
            Denied::NewerVersion { stored: u64::MAX },
        ]);
        returns(&[FireRefused::Changed, FireRefused::KeyHeld(job())]);
        returns(&[ImportRefused::Overlap(job()), ImportRefused::Damaged(Damage::Edges(job()))]);
        let name = LaneName::new("").unwrap_err();
        returns(&[
            CallFailure::Invalid(InvalidRequest::OutOfRange {
                what: text.to_owned().into(),
                value: usize::MAX,
                min: 0,
                max: 1,
            }),
            CallFailure::Invalid(InvalidRequest::DuplicateJob(job())),
            CallFailure::Invalid(InvalidRequest::Lane(name)),
            CallFailure::Invalid(InvalidRequest::Rate(Rate::per(1, Duration::MAX))),
            CallFailure::Invalid(InvalidRequest::EmptyRange("created".into())),
            CallFailure::InvalidLeaseDuration,
            CallFailure::ContractViolation,
        ]);
    }
}

#[test]
fn the_json_is_as_documented() {
    let job =
        NewJob::new(id("a"), queue("mail"), JobType::new("email:send").unwrap(), b"{\"to\": 1}");
    let request = Enqueue::new(vec![job.timeout(Duration::from_secs(1)).into()], at(1));
    let json = serde_json::to_string(&request).unwrap();
    assert_eq!(
        json,
        "{\"sets\":[{\"jobs\":[{\"id\":\"a\",\"queue\":\"mail\",\"type\":\"email:send\",\
         \"payload\":{\"json\":{\"to\": 1}},\"kind\":\"work\",\"timeout_nanos\":1000000000,\
         \"priority\":0,\"key_hold\":\"until_pruned\",\"condition\":\"parents_done\",\
         \"on_failure\":\"block\"}],\"kind\":\"plain\"}],\"now\":\"1970-01-01T00:00:00.000001Z\"}"
    );
    let short = "{\"sets\":[{\"jobs\":[{\"id\":\"a\",\"queue\":\"mail\",\"type\":\"email:send\",\
         \"payload\":{\"json\":{\"to\": 1}},\"timeout_nanos\":1000000000}]}],\
         \"now\":\"1970-01-01T00:00:00.000001Z\"}";
    let read: Enqueue = serde_json::from_str(short).unwrap();
    assert_eq!(read.sets, request.sets);
    let answers: Vec<Result<Settled, Refusal>> =
        vec![Ok(Settled::Applied), Err(Refusal::LeaseExpired)];
    let json = serde_json::to_string(&Each::from(answers)).unwrap();
    assert_eq!(json, "[{\"ok\":\"applied\"},{\"err\":\"lease_expired\"}]");
    let json = serde_json::to_string(&lease()).unwrap();
    assert!(json.contains("\"fffffffffffffffffffffffffffffffa\""), "{json}");
}

#[test]
fn payloads_keep_their_bytes() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    for (bytes, is_json) in [
        (b"".as_slice(), false),
        (b"{}", true),
        (b" {}", false),
        (b"{}\n", false),
        (b"{ \"a\" : [ 1e400, -0, \"\\u0000\\ud800\" ] }", true),
        (b"{\"a\":1,\"a\":2}", true),
        (b"18446744073709551616", true),
        (b"\"[[[[\"", true),
        (b"{\"a\":", false),
        (b"\xff\xfe\0", false),
        (b"\"\xff\"", false),
        (deep.as_bytes(), false),
    ] {
        let json = returns(&Blob::from(bytes));
        assert_eq!(json.starts_with("{\"json\":"), is_json, "{json:.80}");
        let back: Blob = serde_json::from_str(&json).unwrap();
        assert_eq!(&*back, bytes);
    }
    // A caller that sends deep JSON all the same gets it back.
    let read: Blob = serde_json::from_str(&format!("{{\"json\":{deep}}}")).unwrap();
    assert_eq!(&*read, deep.as_bytes());
    for bad in ["{}", "null", "\"a\"", "{\"base64\":\"!\"}", "{\"base64\":1}", "{\"text\":\"a\"}"] {
        refused::<Blob>(bad);
    }
    refused::<Blob>("{\"json\":1,\"base64\":\"\"}");
}

#[test]
fn what_no_code_could_make_is_refused() {
    for name in ["\"\"", "\" \"", "\"a\\u0000b\"", "7", "null", "{}"] {
        refused::<JobId>(name);
        refused::<QueueName>(name);
    }
    refused::<JobId>(&format!("{:?}", "x".repeat(256)));
    for time in ["\"1969-12-31T23:59:59Z\"", "\"10000-01-01T00:00:00Z\"", "\"now\"", "0", "-1"] {
        refused::<Timestamp>(time);
    }
    for token in ["\"\"", "\"ff\"", "\"zz\"", "\"+0000000000000000000000000000000\""] {
        refused::<LeaseToken>(token);
    }
    refused::<Incarnation>("\"0123456789ABCDEF\"");
    for headers in ["{\"\":\"a\"}", "{\"a\":\"\\u0000\"}", "[]", "{\"a\":1}"] {
        refused::<Headers>(headers);
    }
    let many: Vec<_> = (0..33).map(|n| format!("\"{n}\":\"\"")).collect();
    refused::<Headers>(&format!("{{{}}}", many.join(",")));
    refused::<Limits>("{\"payload_bytes\":99999999999,\"flows\":true}");
    let text: Text = serde_json::from_str("\"a\\u0000b\"").unwrap();
    assert_eq!(text.as_str(), "a\u{FFFD}b");
}

#[test]
fn numbers_out_of_range_are_refused() {
    let demand = |limit: &str| format!("{{\"queue\":\"q\",\"limit\":{limit}}}");
    for limit in ["-1", "1.5", "1e3", "18446744073709551616", "\"1\"", "null", "NaN"] {
        refused::<Demand>(&demand(limit));
    }
    assert!(serde_json::from_str::<Demand>(&demand("9223372036854775808")).is_ok());
    refused::<Action>("{\"set_priority\":32768}");
    let rate = |per: &str| format!("{{\"jobs\":1,\"per_nanos\":{per}}}");
    refused::<Rate>(&rate("-1"));
    refused::<Rate>(&rate("1.0"));
    refused::<Rate>(&rate("99999999999999999999999999999999"));
    let long: Rate = serde_json::from_str(&rate("9223372036854775808")).unwrap();
    assert_eq!((long.per.as_nanos(), long.burst), (1 << 63, 1));
}

#[test]
fn unknown_fields_of_requests_are_refused_and_of_answers_ignored() {
    let now = "\"now\":\"2026-11-15T10:44:34Z\"";
    assert!(refused::<Enqueue>(&format!("{{\"sets\":[],{now},\"extra\":1}}")).contains("extra"));
    let job = "\"id\":\"a\",\"queue\":\"q\",\"type\":\"t\",\"payload\":{\"json\":1}";
    assert!(refused::<NewJob>(&format!("{{{job},\"prioritty\":1}}")).contains("prioritty"));
    refused::<QueueLimits>("{\"per_lan\":1}");
    refused::<Transition>("{\"ack\":{\"output\":null,\"extra\":1}}");
    refused::<Transition>("{\"ack\":{\"output\":null},\"retry\":{}}");
    refused::<Transition>("\"vanish\"");
    let reserved = "{\"jobs\":[],\"next_due\":null,\"extra\":{\"a\":[1]}}";
    assert!(serde_json::from_str::<Reserved>(reserved).is_ok());
    assert!(serde_json::from_str::<Lease>(
        "{\"token\":\"00000000000000000000000000000001\",\"expires_at\":\"2026-11-15T10:44:34Z\",\"a\":1}"
    )
    .is_ok());
}

#[cfg(feature = "schema")]
#[test]
fn every_operation_has_schemas() {
    use crate::wire::{Operation, Visitor, operation};

    struct Schemas(schemars::SchemaGenerator, Vec<String>);
    impl Visitor for Schemas {
        fn visit<O: Operation>(&mut self) {
            self.0.subschema_for::<O::Request>();
            self.0.subschema_for::<O::Answer>();
            self.1.push(format!("{}/{}: {}", O::FACE, O::NAME, O::SUMMARY));
        }
    }
    let mut schemas = Schemas(schemars::SchemaGenerator::default(), Vec::new());
    operation::visit(&mut schemas);
    let Schemas(mut generator, operations) = schemas;
    assert_eq!(operations.len(), 26);
    assert_eq!(operations[1], "driver/reserve: Leases jobs to the caller.");
    let definitions = generator.take_definitions(true);
    for name in ["NewJob", "JobRecord", "Blob", "Timestamp", "ExportUnit", "QueueLimits"] {
        assert!(definitions.contains_key(name), "{name}");
    }
}
