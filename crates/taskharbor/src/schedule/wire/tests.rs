//! Definitions as bytes.

use super::*;

const MICROS_OF_YEARS: u64 = 10 * 366 * 86_400 * 1_000_000;

fn time(random: &mut fastrand::Rng) -> Duration {
    match random.u8(..3) {
        0 => Duration::from_secs(random.u64(1..100_000)),
        1 => Duration::from_millis(random.u64(1..100_000)),
        _ => Duration::from_micros(random.u64(1..MICROS_OF_YEARS)),
    }
}

fn job(random: &mut fastrand::Rng, at: usize, ids: &[JobId]) -> NewJob {
    const PAYLOADS: [&[u8]; 8] = [
        b"null",
        b"{\"b\": 1,\"a\":[1.0]}",
        b" 1",
        b"\xff\x00",
        b"",
        b"\"\xc3\xa9\"",
        b"1 2",
        b"0",
    ];
    let payload = PAYLOADS[random.usize(..8)];
    let queue = QueueName::new(format!("q{}", random.u8(..3))).unwrap();
    let mut job = NewJob::new(ids[at].clone(), queue, JobType::new("a:b").unwrap(), payload);
    if random.u8(..4) == 0 {
        let reading = JoinReading::ALL[random.usize(..5)];
        job = NewJob::join(job.id, job.queue, []).read_as(reading);
    }
    for n in 0..random.u8(..3) {
        job.headers = job.headers.with_any(&format!("h{n}"), "é\"\\\n").unwrap();
    }
    job.run_at = random.bool().then(|| Timestamp::EPOCH.saturating_add(time(random)));
    job.timeout = random.bool().then(|| time(random));
    job.max_attempts = random.bool().then(|| random.u32(1..9));
    job.priority = random.i16(..);
    job.lane = random.bool().then(|| LaneName::new(format!("tenant {}", random.u8(..3))).unwrap());
    job.key_hold = match random.u8(..4) {
        0 => KeyHold::UntilPruned,
        1 => KeyHold::UntilDone,
        2 => KeyHold::UntilTerminal,
        _ => KeyHold::For(time(random)),
    };
    let parents: Vec<_> = ids[..at].iter().filter(|_| random.u8(..3) == 0).cloned().collect();
    let is_failure_job = random.bool() && !parents.is_empty();
    job = if is_failure_job { job.after_failure_of(parents) } else { job.after(parents) };
    job.on_failure(FailurePolicy::ALL[random.usize(..4)])
}

fn definition(random: &mut fastrand::Rng) -> Definition {
    let zone = ["UTC", "Europe/Berlin", "Australia/Lord_Howe"][random.usize(..3)];
    let expression = ["0 3 * * *", "*/5 * * * * *", "@weekly"][random.usize(..3)];
    let timing = match random.bool() {
        true => Timing::cron(expression, timing::zone(zone).unwrap()),
        false => Timing::every(time(random) + Duration::from_secs(1)),
    };
    let ids = positions(random.usize(1..6)).unwrap();
    let start = Timestamp::EPOCH.saturating_add(time(random));
    Definition {
        calendar: Calendar {
            timing: timing.unwrap(),
            starts_at: random.bool().then_some(start),
            ends_at: random.bool().then(|| start.saturating_add(time(random))),
        },
        missed: match random.u8(..3) {
            0 => Missed::Latest,
            1 => Missed::Skip,
            _ => Missed::All { at_most: random.u32(1..=1_000) },
        },
        within: time(random),
        overlap: Overlap::ALL[random.usize(..4)],
        jitter: if random.bool() { Duration::ZERO } else { time(random) },
        template: Template {
            jobs: (0..ids.len()).map(|at| job(random, at, &ids)).collect(),
            is_flow: ids.len() > 1,
        },
    }
}

#[test]
fn every_definition_is_read_back_as_it_was() {
    let seed = 0xdef1;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..2_000 {
        let definition = definition(&mut random);
        let bytes = definition.encode();
        let read = Definition::decode(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        let read = read.unwrap_or_else(|it| panic!("{it}: {text}"));
        assert_eq!(read, definition, "{text}");
        assert_eq!(read.encode(), bytes);
    }
}

const EXAMPLE: &str = r#"{"v":1,"cron":"0 3 * * *","zone":"Europe/Berlin","missed":"all","at_most":5,"within":"21600s","overlap":"skip","jitter":"1.5s","starts_at":"2026-11-16T00:00:00Z","flow":false,"jobs":[{"type":"invoices:make","queue":"default","payload":{"region": "eu"},"headers":{"th-codec":"json"},"timeout":"60s","priority":0,"on_failure":"block"}]}"#;

/// The bytes are stored, so they may change only together with the version.
#[test]
fn people_and_later_programs_can_read_the_stored_form() {
    let read = Definition::decode(&EXAMPLE.as_bytes().into()).unwrap();
    assert_eq!(read.missed, Missed::All { at_most: 5 });
    assert_eq!(
        (read.within, read.jitter),
        (Duration::from_secs(21_600), Duration::from_millis(1_500))
    );
    assert_eq!(&*read.template.jobs[0].payload, br#"{"region": "eu"}"#);
    assert_eq!(String::from_utf8_lossy(&read.encode()), EXAMPLE);
    let in_lane = EXAMPLE.replace(r#""priority":0"#, r#""priority":0,"lane":"acme""#);
    let read = Definition::decode(&in_lane.as_bytes().into()).unwrap();
    assert_eq!(read.template.jobs[0].lane.as_ref().map(LaneName::as_str), Some("acme"));
    assert_eq!(String::from_utf8_lossy(&read.encode()), in_lane);
}

#[test]
fn bytes_that_are_no_definition_are_refused_with_the_reason() {
    for end in 0..EXAMPLE.len() {
        let error = Definition::decode(&EXAMPLE.as_bytes()[..end].into()).unwrap_err();
        assert!(matches!(error, DefinitionError::Malformed(_)), "{end}: {error}");
    }
    for (old, new, expected) in [
        (r#""v":1"#, r#""v":2"#, "version 2, and this worker reads version 1: update this worker"),
        ("Europe/Berlin", "Mars/Olympus", "time zone \"Mars/Olympus\": update this worker"),
        (r#""v":1"#, r#""v":0"#, "unknown version 0"),
        (r#""v":1"#, r#""v":1,"more":1"#, "unknown field `more`"),
        ("0 3 * * *", "0 3 * *", "is not a cron expression"),
        (r#""cron":"0 3 * * *","#, "", "either cron or every"),
        (r#""at_most":5"#, r#""at_most":0"#, "missed: 0 is out of range"),
        (r#""at_most":5,"#, "", "missed: unknown value \"all\""),
        ("21600s", "6h", "\"6h\" is not a time in seconds"),
        ("21600s", "0s", "within: 0ns is out of range"),
        ("21600s", "1.0000001s", "is not a time in seconds"),
        ("21600s", "99999999999999999999s", "is not a time in seconds"),
        ("skip", "wait", "overlap: unknown value"),
        ("2026-11-16T00:00:00Z", "soon", "\"soon\" is not a time"),
        ("\"block\"", "\"block\",\"after\":[1]", "unknown parent"),
        ("\"block\"", "\"block\",\"payload_base64\":\"\"", "exclude each other"),
        ("\"block\"", "\"block\",\"idempotency_key\":\"k\"", "overlap: Overlap::Skip needs"),
        (r#""priority":0"#, r#""priority":0,"lane":"""#, "lane name is empty"),
        ("default", "\\u0000", "queue name has a control character"),
    ] {
        let text = EXAMPLE.replacen(old, new, 1);
        assert_ne!(text, EXAMPLE, "{old}");
        let error = Definition::decode(&text.as_bytes().into()).unwrap_err().to_string();
        assert!(error.contains(expected), "{old} -> {new}: {error}");
    }
    let empty = format!("{}\"jobs\":[]}}", EXAMPLE.split("\"jobs\"").next().unwrap());
    let error = Definition::decode(&empty.as_bytes().into()).unwrap_err().to_string();
    assert!(error.contains("needs a job"), "{error}");
}
