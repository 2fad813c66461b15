//! Schedules that are refused, and stored definitions.

use serde::{Deserialize, Serialize};

use super::*;
use crate::{Job, Step};

#[derive(Serialize, Deserialize)]
struct Report {
    region: String,
}

impl Job for Report {
    const TYPE: &'static str = "report:make";
    type Input = ();
    type Output = ();
    fn options() -> Options {
        Options::new().queue("reports").max_attempts(3)
    }
}

fn report() -> Report {
    Report { region: "eu".to_owned() }
}

fn now() -> Timestamp {
    "2026-11-16T10:44:34Z".parse().unwrap()
}

fn stored(schedule: Schedule) -> Result<NewSchedule, InvalidSchedule> {
    schedule.into_new(&Format::json(), &Limits::default(), now())
}

fn daily() -> Schedule {
    Schedule::cron("daily", "0 3 * * *").job(report())
}

fn second(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn invalid_schedules_are_refused_with_the_field_and_what_to_do() {
    let cron = |expression: &str| Schedule::cron("s", expression).job(report());
    let flow = || Flow::group([report()]);
    let long = "n".repeat(201);
    let large = vec![b'1'; Limits::DEFAULT_PAYLOAD_BYTES + 1];
    let medium = vec![b'1'; Limits::MAX_DEFINITION_BYTES];
    for (schedule, field, expected) in [
        (Schedule::cron("", "0 3 * * *").job(report()), "name", "is empty: give it"),
        (Schedule::cron(long, "0 3 * * *").job(report()), "name", "shorten it to 200"),
        (cron("0 3 * *"), "cron", "\"0 3 * *\" is not a cron expression"),
        (cron("0 3 * * * * 2026"), "cron", "six with the second first"),
        (cron("@reboot"), "cron", "@hourly"),
        (cron("61 * * * *"), "cron", "write five fields"),
        (cron(""), "cron", "write five fields"),
        (cron("0 0 31 2 *"), "cron", "would never be due"),
        (cron("0 0 30,31 FEB *"), "cron", "would never be due"),
        (daily().zone("Berlin"), "zone", "unknown time zone \"Berlin\": use an IANA name"),
        (daily().zone(""), "zone", "use an IANA name"),
        (Schedule::every("s", Duration::ZERO).job(report()), "every", "choose 1 second"),
        (Schedule::every("s", second(1) / 2).job(report()), "every", "500ms is out of range"),
        (Schedule::every("s", second(1)).zone("UTC").job(report()), "zone", "elapsed time"),
        (daily().missed(Missed::All { at_most: 0 }), "missed", "choose 1 to 1000"),
        (daily().missed(Missed::All { at_most: 1_001 }), "missed", "choose 1 to 1000"),
        (daily().within(Duration::ZERO), "within", "or use Missed::Skip"),
        (daily().within(Duration::MAX), "within", "100 years"),
        (daily().jitter(Duration::MAX), "jitter", "at most 100 years"),
        (daily().starts_at(now()).ends_at(Timestamp::EPOCH), "ends_at", "choose a later end"),
        (daily().starts_at(now()).ends_at(now()), "cron", "from its start to its end"),
        (Schedule::cron("s", "0 3 * * *"), "job", "add one with job, flow or raw"),
        (daily().options(Options::new().run_at(now())), "options", "use delay"),
        (
            Schedule::cron("s", "0 3 * * *").flow(report().with(Options::new().run_at(now()))),
            "options",
            "use delay",
        ),
        (
            Schedule::cron("s", "0 3 * * *").flow(flow()).options(Options::new().priority(1)),
            "options",
            "give them to its steps",
        ),
        (
            daily().options(Options::new().idempotency_key("k")).overlap(Overlap::Queue),
            "overlap",
            "Overlap::Queue needs the job's idempotency key",
        ),
        (daily().options(Options::new().queue("")), "job", "queue name is empty"),
        (daily().options(Options::new().header("th-slot", "")), "job", "reserved"),
        (daily().options(Options::new().header("h", "x".repeat(8_150))), "job", "bytes of headers"),
        (daily().options(Options::new().max_attempts(0)), "job", "max_attempts of job"),
        (daily().raw("", b"{}"), "job", "job type is empty"),
        (daily().raw("a", large), "job", "store it elsewhere"),
        (daily().raw("a", medium), "job", "of at most 262144"),
    ] {
        let name = schedule.name.clone();
        let error = stored(schedule).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.field, field, "{text}");
        assert!(text.contains(expected), "{text}");
        let begin = format!("schedule {:?}: {field}: ", &name);
        assert!(text.starts_with(&begin), "{text}");
    }
}

#[test]
fn a_schedule_is_stored_with_its_first_slot() {
    let slot = |schedule| stored(schedule).unwrap().next_slot.map(template::text);
    assert_eq!(slot(daily()).as_deref(), Some("2026-11-17T03:00:00Z"));
    let berlin = slot(daily().zone("Europe/Berlin"));
    assert_eq!(berlin.as_deref(), Some("2026-11-17T02:00:00Z"));
    let starts = daily().starts_at("2027-01-01T00:00Z".parse().unwrap());
    assert_eq!(slot(starts).as_deref(), Some("2027-01-01T03:00:00Z"));
    // A program that still declares a schedule whose end has come goes on starting.
    assert_eq!(slot(daily().ends_at("2026-11-16T10:00Z".parse().unwrap())), None);
}

#[test]
fn equal_schedules_give_equal_bytes_and_others_do_not() {
    let bytes = |schedule| stored(schedule).unwrap().definition;
    assert_eq!(bytes(daily()), bytes(daily()));
    assert_eq!(bytes(daily()), bytes(daily().zone("UTC").missed(Missed::Latest)));
    let flow = || Schedule::cron("daily", "0 3 * * *").flow(Flow::group([report(), report()]));
    assert_eq!(bytes(flow()), bytes(flow()), "the ids of members are no part of it");
    assert_ne!(bytes(daily()), bytes(daily().overlap(Overlap::Skip)));
    assert_ne!(bytes(daily()), bytes(daily().zone("Europe/Berlin")));
}

fn job(schedule: Schedule, format: &Format) -> taskharbor_core::NewJob {
    let new = schedule.into_new(format, &Limits::default(), now()).unwrap();
    Definition::decode(&new.definition).unwrap().template.jobs.remove(0)
}

#[test]
fn the_job_is_written_as_a_client_would_write_it() {
    let json = Format::json();
    let options = Options::new().queue("other").header("tenant", "acme").label("nightly");
    let written = job(daily().options(options), &json);
    assert_eq!(written.job_type.as_str(), "report:make");
    assert_eq!((written.queue.as_str(), written.max_attempts), ("other", Some(3)));
    assert_eq!(&*written.payload, br#"{"region":"eu"}"#);
    let headers: Vec<_> = written.headers.iter().collect();
    assert_eq!(headers, [("tenant", "acme"), ("th-label", "nightly")]);
    let step: Step<Report> = report().with(Options::new().priority(5));
    assert_eq!(job(Schedule::cron("s", "@daily").job(step), &json).priority, 5);
}

#[cfg(feature = "messagepack")]
#[test]
fn the_codec_is_that_of_the_client_and_json_for_raw_bytes() {
    let packed = Format::new(crate::MessagePack).unwrap();
    let written = job(daily(), &packed);
    assert_eq!(written.headers.get(crate::header::CODEC), Some("messagepack"));
    assert_eq!(packed.decode::<Report>(&written.payload).unwrap().region, "eu");
    let raw = job(daily().raw("a", b"{}"), &packed);
    assert_eq!(raw.headers.get(crate::header::CODEC), None);
}

#[test]
fn a_declaration_has_all_schedules_of_its_owner() {
    let declare = |schedules: Schedules| {
        schedules.into_declaration(&Format::json(), &Limits::default(), now())
    };
    let two = || {
        Schedules::owned_by("billing").add(daily()).add(Schedule::cron("b", "@daily").job(report()))
    };
    let declaration = declare(two().version(7)).unwrap();
    assert_eq!((declaration.owner.as_str(), declaration.version), ("billing", Some(7)));
    let names: Vec<_> = declaration.schedules.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["daily", "b"]);
    for (schedules, expected) in [
        (two().add(daily()), "schedule \"daily\": name: two schedules"),
        (two().version(u64::MAX), "schedule \"billing\": version: "),
        (Schedules::owned_by("\n"), "owned_by: owner name has a control character"),
        (two().add(Schedule::cron("c", "x")), "schedule \"c\": cron: "),
    ] {
        let error = declare(schedules).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
