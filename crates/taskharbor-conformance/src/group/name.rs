//! Names: taken byte for byte, or refused with the reason.

use taskharbor_core::{
    Admin, Driver, JobId, JobType, NewJob, QueueName, State,
    admin::{Action, Filter},
    driver::{Demand, Enqueued, Reserve},
    flow::ListFlows,
    job::{HeaderError, Headers, JobSet},
    name::{FlowName, Holder, IdempotencyKey, NameError, NameProblem},
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{LEASE, T0, ack, child, id, job, job_in, key, queue},
};

group! {
    name {
        any_name_can_be_an_id ["JOB-3"]
        any_name_can_be_a_queue ["JOB-3"]
        any_name_can_be_a_type ["JOB-3"]
        any_name_can_be_a_key ["JOB-3"]
        any_name_can_be_a_holder ["JOB-3"]
        any_name_can_be_a_header_and_its_value ["JOB-3"]
        names_that_are_none_are_refused_with_the_reason ["JOB-3"]
        headers_that_are_none_are_refused_with_the_reason ["JOB-3"]
    }
    flows {
        any_name_can_be_that_of_a_flow_and_of_its_members ["JOB-3"]
    }
}

/// Names that mean something to a language, a terminal, a file system or a human eye.
pub(super) fn hostile() -> Vec<String> {
    let longest = "x".repeat(255);
    let longest_wide = format!("{}xyz", "🦀".repeat(63));
    let texts = [
        "'",
        "''",
        "\"",
        "`",
        "\\",
        "\\'",
        "'; DROP TABLE th_jobs; --",
        "' OR '1'='1",
        "$1",
        "?1",
        ":name",
        "@p1",
        "%",
        "_",
        "a%b",
        "a_b",
        "*",
        "[a-z]",
        "{}",
        "{0}",
        "%s%n",
        "${HOME}",
        "$(reboot)",
        "../../etc/passwd",
        "<script>alert(1)</script>",
        "a,b",
        "a:b",
        "a/b",
        "a|b",
        "a\u{a0}b",
        " leading",
        "trailing ",
        "  both  ",
        "two  spaces",
        "NULL",
        "null",
        "true",
        "0",
        "-1",
        "1e3",
        "é",
        "e\u{301}",
        "ﬀ",
        "ß",
        "İ",
        "日本語",
        "עברית",
        "\u{202e}drow",
        "\u{2066}isolated\u{2069}",
        "👩‍👩‍👧‍👦",
        "𝔘𝔫𝔦",
        "\u{200b}zero width",
        "\u{feff}mark",
        "\u{fffd}",
        "\u{10ffff}",
        "a\u{2028}b",
        "Mail",
        "mail",
        longest.as_str(),
        longest_wide.as_str(),
    ];
    texts.map(String::from).to_vec()
}

async fn any_name_can_be_an_id(t: DriverUnderTest) {
    let names = hostile();
    let answers = t.put_all(names.iter().map(|name| job(name)), T0).await;
    assert!(answers.iter().all(Enqueued::is_new), "{answers:?}");
    assert_eq!(t.take_order(T0).await, names);
    for name in &names {
        assert_eq!(t.record(name, T0).await.job.id.as_str(), name);
    }
    for leased in t.take_many(1_000, T0.saturating_add(LEASE)).await {
        t.apply(&leased, ack(), T0).await;
        let purged = t.act(leased.job.id.as_str(), Action::Purge, T0).await;
        assert_eq!(purged, State::Done);
    }
    assert_eq!(t.snapshot(T0).await.counts, []);
}

async fn any_name_can_be_a_queue(t: DriverUnderTest) {
    let names = hostile();
    t.put_all(names.iter().map(|name| job_in(name, name)), T0).await;
    let counts = t.counts(T0).await;
    assert_eq!(counts.len(), names.len());
    assert!(counts.iter().all(|it| it.states.total() == 1));
    for name in &names {
        let listed = t.list(Filter::all().queue(queue(name)), 10, T0).await;
        assert_eq!(listed.len(), 1, "{name:?}");
        t.driver.pause(queue(name), T0).await.expect("pause");
        assert_eq!(t.take_from(name, T0).await, None);
        t.driver.resume(queue(name), T0).await.expect("resume");
        let leased = t.take_from(name, T0).await.expect("a grant");
        assert_eq!((leased.job.queue.as_str(), leased.job.id.as_str()), (&**name, &**name));
    }
}

async fn any_name_can_be_a_type(t: DriverUnderTest) {
    let names = hostile();
    let typed = |name: &String| {
        let job_type = JobType::new(name).expect("a valid type");
        NewJob::new(id(name), queue("q"), job_type, b"")
    };
    t.put_all(names.iter().map(typed), T0).await;
    for name in &names {
        let job_type = JobType::new(name).expect("a valid type");
        let listed = t.list(Filter::all().job_type(job_type), 10, T0).await;
        let listed: Vec<_> = listed.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(listed, [name]);
    }
    for (leased, name) in t.take_many(1_000, T0).await.iter().zip(&names) {
        assert_eq!(leased.job.job_type.as_str(), name);
    }
}

async fn any_name_can_be_a_key(t: DriverUnderTest) {
    let mut names = hostile();
    names.push("k".repeat(1_024));
    names.push("🦀".repeat(256));
    let keyed = |n: usize, name: &String| job(&n.to_string()).idempotency_key(key(name));
    for (n, name) in names.iter().enumerate() {
        let answer = t.put(keyed(n, name), T0).await;
        assert_eq!(answer, Enqueued::Inserted(id(&n.to_string())), "{name:?}");
    }
    for (n, name) in names.iter().enumerate() {
        let answer = t.put(keyed(1_000, name), T0).await;
        assert_eq!(answer, Enqueued::Existing(id(&n.to_string())), "{name:?}");
        let stored = t.record(&n.to_string(), T0).await.job.idempotency_key;
        assert_eq!(stored, Some(key(name)));
    }
}

async fn any_name_can_be_a_holder(t: DriverUnderTest) {
    for name in hostile() {
        t.put(job_in(&name, &name), T0).await;
        let holder = Holder::new(&name).expect("a valid holder");
        let demands = vec![Demand::new(queue(&name), 1)];
        let request = Reserve::new(demands, holder.clone(), T0, LEASE);
        t.driver.reserve(request).await.expect("reserve");
        let held = t.record(&name, T0).await.held.expect("held");
        assert_eq!(held.holder, holder);
    }
}

async fn any_name_can_be_a_header_and_its_value(t: DriverUnderTest) {
    let with = |all: Headers, name: &str, value: &str| all.with(name, value).expect("valid");
    let names: Vec<_> = hostile().into_iter().filter(|name| name.len() < 100).collect();
    for (n, names) in names.chunks(Headers::MAX_ENTRIES).enumerate() {
        let pairs = names.iter().zip(names.iter().rev());
        let headers = pairs.fold(Headers::new(), |all, (name, value)| with(all, name, value));
        t.put(job(&n.to_string()).headers(headers.clone()), T0).await;
        assert_eq!(t.take_the(&n.to_string(), T0).await.job.headers, headers);
    }
    let values = ["", " ", "\n", "\t\r\n", "\u{1b}[31m", "\u{7f}", "\\u0000", "a=b; c=\"d\""];
    let named = values.iter().enumerate();
    let headers = named.fold(Headers::new(), |all, (n, it)| with(all, &n.to_string(), it));
    t.put(job("values").headers(headers.clone()), T0).await;
    assert_eq!(t.record("values", T0).await.job.headers, headers);
    assert_eq!(t.take_the("values", T0).await.job.headers, headers);
}

async fn any_name_can_be_that_of_a_flow_and_of_its_members(t: DriverUnderTest) {
    for name in hostile().iter().filter(|name| name.len() < 240) {
        let flow_name = FlowName::new(name).expect("a valid name");
        let parent = format!("{name} parent");
        let jobs = vec![job(&parent), child(name, &[&parent])];
        let set = JobSet::named_flow(flow_name.clone(), jobs);
        t.enqueue_set(set, T0).await.expect("not rejected");
        let request = ListFlows::new(10, T0).name(flow_name.clone());
        let listed = t.driver.list_flows(request).await.expect("list_flows").items;
        assert_eq!(listed.len(), 1, "{name:?}");
        assert_eq!((&listed[0].name, listed[0].id.as_str()), (&Some(flow_name), &**name));
        assert_eq!(t.flow(name, T0).await, listed[0]);
        assert_eq!(t.record(name, T0).await.parents, [id(&parent)]);
        t.run(&parent, ack(), T0).await;
        t.run(name, ack(), T0).await;
    }
}

/// What is wrong with these bytes as a name of some kind, if anything.
type Judge = fn(&[u8]) -> Option<NameProblem>;

/// Each kind of name, by its greatest length.
fn kinds() -> [(usize, Judge); 6] {
    fn problem<T>(made: Result<T, NameError>) -> Option<NameProblem> {
        made.err().map(|error| error.problem().clone())
    }
    [
        (255, |bytes| problem(JobId::from_utf8(bytes))),
        (255, |bytes| problem(QueueName::from_utf8(bytes))),
        (255, |bytes| problem(JobType::from_utf8(bytes))),
        (1_024, |bytes| problem(IdempotencyKey::from_utf8(bytes))),
        (255, |bytes| problem(Holder::from_utf8(bytes))),
        (255, |bytes| problem(FlowName::from_utf8(bytes))),
    ]
}

async fn names_that_are_none_are_refused_with_the_reason(t: DriverUnderTest) {
    for (max, problem) in kinds() {
        assert_eq!(problem(b""), Some(NameProblem::Empty));
        for blank in [" ", "   ", "\u{a0}", "\u{3000}", " \u{2003} "] {
            assert_eq!(problem(blank.as_bytes()), Some(NameProblem::Blank), "{blank:?}");
        }
        for (text, at) in [("\0", 0), ("a\0", 1), ("a\nb", 1), ("\t", 0), ("é\u{7f}", 2)] {
            let refused = Some(NameProblem::Control { at });
            assert_eq!(problem(text.as_bytes()), refused, "{text:?}");
        }
        for (bytes, at) in [(&b"\xff"[..], 0), (b"ab\xc0\x80", 2), (b"\xed\xa0\x80", 0)] {
            assert_eq!(problem(bytes), Some(NameProblem::NotUtf8 { at }), "{bytes:?}");
        }
        let bytes = max + 1;
        let too_long = Some(NameProblem::TooLong { bytes, max });
        assert_eq!(problem("x".repeat(bytes).as_bytes()), too_long);
        assert_eq!(problem("x".repeat(max).as_bytes()), None);
    }
    assert_eq!(t.snapshot(T0).await.counts, []);
}

async fn headers_that_are_none_are_refused_with_the_reason(t: DriverUnderTest) {
    for (name, value) in [("", "v"), (" ", "v"), ("a\nb", "v"), ("a\0b", "v")] {
        let refused = Headers::new().with(name, value);
        assert!(matches!(refused, Err(HeaderError::Name(_))), "{refused:?}");
    }
    let refused = Headers::new().with("n", "a\0b");
    assert_eq!(refused, Err(HeaderError::Nul("n".to_owned())));
    let refused = Headers::new().with("th-mine", "v");
    assert_eq!(refused, Err(HeaderError::Reserved("th-mine".to_owned())));
    let long = "x".repeat(Headers::MAX_BYTES);
    assert_eq!(Headers::new().with("n", &long), Err(HeaderError::TooLarge));
    assert_eq!(t.snapshot(T0).await.counts, []);
}
