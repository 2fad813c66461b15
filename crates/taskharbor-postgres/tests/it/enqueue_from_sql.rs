//! Enqueueing from plain SQL: it accepts and refuses what the client accepts and refuses, and
//! stores the same.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, JobId, JobType, NewJob, QueueName, Timestamp,
    driver::{Demand, Enqueue, Enqueued, Limits, Reserve},
    job::{Headers, JobView, KeyHold},
    name::{Holder, IdempotencyKey},
};
use tokio_postgres::{Client, error::SqlState};

use crate::{
    fixture::store_at,
    guide::Example,
    harness::store::{self, Store},
};

/// The unchecked arguments of an enqueue.
#[derive(Clone, Debug)]
struct Ask {
    job_type: String,
    payload: Vec<u8>,
    codec: String,
    queue: String,
    run_at: Option<i64>,
    priority: i32,
    max_attempts: Option<i32>,
    timeout_us: Option<i64>,
    key: Option<String>,
    headers: Vec<(String, String)>,
    id: String,
}

type Answer<T> = Result<T, Box<dyn std::error::Error>>;

impl Ask {
    fn new(id: usize) -> Self {
        Self {
            job_type: "work".to_owned(),
            payload: b"{}".to_vec(),
            codec: "json".to_owned(),
            queue: "default".to_owned(),
            run_at: None,
            priority: 0,
            max_attempts: None,
            timeout_us: None,
            key: None,
            headers: Vec::new(),
            id: format!("job-{id}"),
        }
    }

    /// As a Rust program asks a driver.
    async fn by_rust(&self, store: &Store) -> Answer<Enqueued> {
        let mut headers = Headers::new();
        if self.codec != "json" {
            // A codec is named like anything else, and its name is stored as a header.
            Headers::new().with_any(&self.codec, "")?;
            headers = headers.with_any("th-codec", &self.codec)?;
        }
        for (name, value) in &self.headers {
            headers = headers.with(name, value)?;
        }
        let (id, queue) = (JobId::new(&self.id)?, QueueName::new(&self.queue)?);
        let mut job = NewJob::new(id, queue, JobType::new(&self.job_type)?, &self.payload[..]);
        job.headers = headers;
        job.run_at = self.run_at.map(Timestamp::from_micros).transpose()?;
        job.priority = self.priority.try_into()?;
        job.max_attempts = self.max_attempts.map(u32::try_from).transpose()?;
        let timeout = self.timeout_us.map(u64::try_from).transpose()?;
        job.timeout = timeout.map(Duration::from_micros);
        job.idempotency_key = self.key.as_ref().map(IdempotencyKey::new).transpose()?;
        let now = store.store_time().await?;
        let mut answers = store.enqueue(Enqueue::new(vec![job.into()], now)).await?;
        Ok(answers.remove(0)?.remove(0))
    }

    /// Enqueues with SQL, as any client of the database can.
    async fn by_sql(&self, sql: &Client) -> Result<(String, bool), tokio_postgres::Error> {
        let headers: serde_json::Map<_, _> =
            self.headers.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let headers = serde_json::Value::from(headers).to_string();
        let enqueue = "SELECT job_id, inserted FROM th_enqueue_bytes(
            type => $1, payload => $2, codec => $3, queue => $4,
            run_at => timestamptz 'epoch' + ($5::bigint::text || ' microseconds')::interval,
            priority => $6, max_attempts => $7,
            timeout => ($8::bigint::text || ' microseconds')::interval,
            idempotency_key => $9, headers => $10::text::jsonb, id => $11)";
        let row = sql
            .query_one(
                enqueue,
                &[
                    &self.job_type,
                    &self.payload,
                    &self.codec,
                    &self.queue,
                    &self.run_at,
                    &self.priority,
                    &self.max_attempts,
                    &self.timeout_us,
                    &self.key,
                    &headers,
                    &self.id,
                ],
            )
            .await?;
        Ok((row.get(0), row.get(1)))
    }
}

/// Names of every kind, and whether they are ones.
fn names() -> Vec<String> {
    let mut names: Vec<String> = [
        "",
        " ",
        "   ",
        "\t",
        "a\nb",
        "a\u{0}b",
        "\u{1}",
        "a\u{1f}",
        "\u{7f}",
        "a\u{85}",
        "\u{9f}b",
        "\u{a0}",
        "\u{1680}",
        "\u{2000}\u{200a}",
        "\u{2028}",
        "\u{2029}",
        "\u{202f}",
        "\u{205f}",
        "\u{3000} ",
        "a",
        " padded ",
        "a\u{a0}",
        "\u{ad}",
        "\u{180e}",
        "\u{200b}",
        "\u{200e}",
        "\u{2060}",
        "\u{feff}",
        "\u{fffd}",
        "\u{10ffff}",
        "e\u{301}",
        "ümläut",
        "日本",
        "👩‍👩‍👧",
        "Case",
        "th",
        "'; --",
        "%",
        "_",
        "\\",
        "\"",
        "$1",
        "{a,b}",
        "NULL",
    ]
    .map(str::to_owned)
    .to_vec();
    for length in [254, 255, 256, 1_023, 1_024, 1_025] {
        names.push("x".repeat(length));
        // Two bytes each, so that bytes and characters are told apart.
        names.push("ä".repeat(length / 2));
    }
    names
}

/// Everything that is asked of both.
fn asks() -> Vec<Ask> {
    let mut asks = Vec::new();
    let mut ask = |change: &dyn Fn(&mut Ask)| {
        let mut ask = Ask::new(asks.len());
        change(&mut ask);
        asks.push(ask);
    };
    ask(&|_| {});
    for name in names() {
        ask(&|ask| ask.job_type = name.clone());
        ask(&|ask| ask.queue = name.clone());
        ask(&|ask| ask.codec = name.clone());
        ask(&|ask| ask.key = Some(name.clone()));
        ask(&|ask| ask.headers = vec![(name.clone(), "value".to_owned())]);
        ask(&|ask| ask.headers = vec![("name".to_owned(), name.clone())]);
        ask(&|ask| ask.id = name.clone());
    }
    for bytes in [0, 1, Limits::DEFAULT_PAYLOAD_BYTES, Limits::DEFAULT_PAYLOAD_BYTES + 1] {
        ask(&|ask| ask.payload = vec![0xFF; bytes]);
    }
    for name in ["th-", "th-codec", "th-x", "TH-x", "thx", "x-th-"] {
        ask(&|ask| ask.headers = vec![(name.to_owned(), String::new())]);
    }
    let many = |count: usize| (0..count).map(|n| (format!("h{n}"), String::new())).collect();
    for count in [31, 32, 33] {
        ask(&|ask| ask.headers = many(count));
        ask(&|ask| (ask.headers, ask.codec) = (many(count), "msgpack".to_owned()));
    }
    for bytes in [8_190, 8_191, 8_192] {
        ask(&|ask| ask.headers = vec![("h".to_owned(), "x".repeat(bytes))]);
        ask(&|ask| ask.headers = vec![("h".to_owned(), "ä".repeat(bytes / 2))]);
    }
    // The name of the codec counts: eight bytes and those of "m".
    for bytes in [8_181, 8_182, 8_183] {
        let headers = vec![("h".to_owned(), "x".repeat(bytes))];
        ask(&|ask| (ask.headers, ask.codec) = (headers.clone(), "m".to_owned()));
    }
    for priority in [i32::MIN, -32_769, -32_768, -1, 1, 32_767, 32_768, i32::MAX] {
        ask(&|ask| ask.priority = priority);
    }
    for attempts in [i32::MIN, -1, 0, 1, i32::MAX] {
        ask(&|ask| ask.max_attempts = Some(attempts));
    }
    for timeout in [-1, 0, 1, 999_999, 9_223_372_036_854_775, 9_223_372_036_854_776] {
        ask(&|ask| ask.timeout_us = Some(timeout));
    }
    for run_at in
        [-1, 0, 1, 1_794_744_000_123_456, 253_402_300_799_999_999, 253_402_300_800_000_000]
    {
        ask(&|ask| ask.run_at = Some(run_at));
    }
    asks
}

/// The stored job, but for when it was stored.
async fn stored(store: &Store, id: &str) -> JobView {
    let now = store.store_time().await.unwrap();
    let id = JobId::new(id).unwrap();
    let mut job = store.inspect(id, now).await.unwrap().unwrap().job;
    job.created_at = Timestamp::EPOCH;
    job.available_at = Timestamp::EPOCH;
    job
}

#[tokio::test]
async fn sql_accepts_what_the_client_accepts_and_stores_the_same() {
    let (rust, plain) = tokio::join!(store::named(), store::named());
    let sql = plain.sql().await;
    let (mut accepted, mut refused) = (0, 0);
    for ask in asks() {
        let shown = format!("{ask:?}");
        let shown = &shown[..shown.floor_char_boundary(300)];
        match (ask.by_rust(&rust).await, ask.by_sql(&sql).await) {
            (Ok(enqueued), Ok((id, inserted))) => {
                let (Enqueued::Inserted(same) | Enqueued::Existing(same)) = &enqueued;
                assert_eq!((same.as_str(), enqueued.is_new()), (id.as_str(), inserted), "{shown}");
                assert_eq!(stored(&rust, &id).await, stored(&plain, &id).await, "{shown}");
                accepted += 1;
            }
            (Err(_), Err(error)) => {
                // What PostgreSQL cannot take as a text at all does not come as far as the
                // function.
                let codes = [
                    SqlState::INVALID_PARAMETER_VALUE,
                    SqlState::CHARACTER_NOT_IN_REPERTOIRE,
                    SqlState::UNTRANSLATABLE_CHARACTER,
                ];
                let code = error.code().unwrap_or_else(|| panic!("{error:?}: {shown}"));
                assert!(codes.contains(code), "{error:?}: {shown}");
                refused += 1;
            }
            (by_rust, by_sql) => panic!("{by_rust:?}, but {by_sql:?}: {shown}"),
        }
    }
    assert!(accepted > 150 && refused > 100, "{accepted} accepted, {refused} refused");
    assert_eq!(plain.check().await.unwrap(), []);
}

#[tokio::test]
async fn what_has_no_meaning_is_refused_with_what_to_do() {
    let store = store::named().await;
    let sql = store.sql().await;
    for (arguments, message) in [
        ("type => NULL", "job type is empty"),
        ("type => 'a', queue => NULL", "queue name is empty"),
        ("type => 'a', payload => NULL", "the payload is NULL"),
        ("type => 'a', priority => NULL", "the priority is out of range"),
        ("type => 'a', key_hold => NULL", "key_hold is unknown"),
        ("type => 'a', key_hold => 'for ever'", "choose until_pruned, until_done, until_terminal"),
        ("type => 'a', key_hold => '0'", "a time such as '1 day'"),
        ("type => 'a', key_hold => '-1 day'", "out of range"),
        ("type => 'a', key_hold => '300 years'", "out of range"),
        ("type => 'a', headers => '[]'", "the headers must be a JSON object"),
        ("type => 'a', headers => '{\"a\": 1}'", "the value of header \"a\" must be a text"),
        ("type => 'a', headers => '{\"a\": null}'", "the value of header \"a\" must be a text"),
        ("type => 'a', run_at => '-infinity'", "run_at is out of range"),
        ("type => 'a', run_at => 'infinity'", "run_at is out of range"),
        ("type => 'a', run_at => '1969-12-31 23:59:59Z'", "choose a time from 1970 to 9999"),
        ("type => 'a', run_at => '294276-01-01Z'", "choose a time from 1970 to 9999"),
        ("type => 'a', timeout => '-1 second'", "the timeout is out of range"),
        ("type => 'a', timeout => '178000000 years'", "the timeout is out of range"),
    ] {
        let error = sql.query(&format!("SELECT th_enqueue({arguments})"), &[]).await;
        let error = error.expect_err(arguments);
        let refusal = error.as_db_error().unwrap();
        assert_eq!(*refusal.code(), SqlState::INVALID_PARAMETER_VALUE, "{arguments}: {refusal}");
        assert!(refusal.message().contains(message), "{arguments}: {refusal}");
    }
}

#[tokio::test]
async fn a_job_of_nothing_but_its_type_has_all_defaults() {
    let store = store::named().await;
    let sql = store.sql().await;
    let row = sql.query_one("SELECT * FROM th_enqueue(type => 'a', headers => NULL)", &[]);
    let (id, inserted): (String, bool) = row.await.map(|row| (row.get(0), row.get(1))).unwrap();
    assert!(inserted);
    let job = stored(&store, &id).await;
    let (queue, job_type) = (QueueName::new("default").unwrap(), JobType::new("a").unwrap());
    let new = NewJob::new(JobId::new("b").unwrap(), queue, job_type, &b"null"[..]);
    store_at(&store, new, store.store_time().await.unwrap()).await;
    let mut by_rust = stored(&store, "b").await;
    by_rust.id = job.id.clone();
    assert_eq!(by_rust, job);
    // Ids sort by time, as those of the client do.
    let another = sql.query_one("SELECT job_id FROM th_enqueue(type => 'a')", &[]).await.unwrap();
    assert!(another.get::<_, &str>(0)[..13] >= id[..13]);
    assert_eq!((id.len(), &id[14..15]), (36, "7"));
}

#[tokio::test]
async fn a_lane_is_stored_and_takes_its_turns_however_it_came() {
    let store = store::named().await;
    let sql = store.sql().await;
    sql.batch_execute(
        "SELECT th_enqueue(type => 'a', lane => 'blue', id => 'first');
         SELECT th_enqueue(type => 'a', lane => 'blue', id => 'later', run_at => now() + interval '1 hour');
         SELECT th_enqueue(type => 'a', lane => 'blue', id => 'keyed', idempotency_key => 'k');
         SELECT th_enqueue_bytes('a', '', 'raw', lane => 'green', id => 'bytes')",
    )
    .await
    .unwrap();
    let many = "SELECT th_enqueue_many('a', ARRAY['1', '2']::jsonb[], lane => 'red')";
    let many: Vec<String> =
        sql.query(many, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    let lane_of = async |id: &str| stored(&store, id).await.lane.map(|lane| lane.to_string());
    for (id, lane) in [
        ("first", "blue"),
        ("later", "blue"),
        ("keyed", "blue"),
        ("bytes", "green"),
        (&many[1], "red"),
    ] {
        assert_eq!(lane_of(id).await.as_deref(), Some(lane), "{id}");
    }
    // Two of each lane would come first if there were no turns.
    let now = store.store_time().await.unwrap();
    let demand = Demand::new(QueueName::new("default").unwrap(), 3);
    let reserve = |demand| {
        Reserve::new(vec![demand], Holder::new("w").unwrap(), now, Duration::from_secs(60))
    };
    let first = store.reserve(reserve(demand.clone())).await.unwrap().jobs;
    let ids: Vec<&str> = first.iter().map(|leased| leased.job.id.as_str()).collect();
    assert_eq!(ids, ["first", "bytes", &many[0]]);
    let second = store.reserve(reserve(demand)).await.unwrap().jobs;
    let ids: Vec<&str> = second.iter().map(|leased| leased.job.id.as_str()).collect();
    assert_eq!(ids, ["keyed", &many[1]]);
    let refused = sql.query("SELECT th_enqueue(type => 'a', lane => '')", &[]).await.unwrap_err();
    assert!(refused.as_db_error().unwrap().message().contains("lane name is empty"), "{refused:?}");
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_key_that_is_held_answers_who_holds_it() {
    let store = store::named().await;
    let sql = store.sql().await;
    let enqueue = async |arguments: &str| {
        let enqueue = format!("SELECT job_id, inserted FROM th_enqueue(type => 'a', {arguments})");
        let row = sql.query_one(&enqueue, &[]).await.unwrap();
        (row.get::<_, String>(0), row.get::<_, bool>(1))
    };
    let (holder, inserted) = enqueue("idempotency_key => 'k', key_hold => 'until_done'").await;
    assert!(inserted);
    assert_eq!(enqueue("idempotency_key => 'k'").await, (holder.clone(), false));
    assert_eq!(enqueue("idempotency_key => 'k', id => 'x'").await, (holder.clone(), false));
    assert_eq!(enqueue(&format!("id => '{holder}'")).await, (holder.clone(), false));
    assert!(enqueue("idempotency_key => 'k', queue => 'other'").await.1);

    // A client and SQL meet by the same keys.
    let now = store.store_time().await.unwrap();
    let names = (QueueName::new("default").unwrap(), JobType::new("a").unwrap());
    let job = NewJob::new(JobId::new("y").unwrap(), names.0, names.1, &b"1"[..]);
    let job = job.idempotency_key(IdempotencyKey::new("k").unwrap()).key_hold(KeyHold::UntilDone);
    let answer = store_at(&store, job, now).await;
    assert_eq!(answer, Enqueued::Existing(JobId::new(&holder).unwrap()));

    // A key may be held until the job is terminal, or for a time.
    for hold in ["until_terminal", "1 day", "0.5 seconds"] {
        let (id, inserted) =
            enqueue(&format!("idempotency_key => '{hold}', key_hold => '{hold}'")).await;
        assert!(inserted, "{hold}");
        let record = store.inspect(JobId::new(&id).unwrap(), now).await.unwrap().unwrap();
        let expected = match hold {
            "1 day" => KeyHold::For(Duration::from_secs(86_400)),
            "0.5 seconds" => KeyHold::For(Duration::from_millis(500)),
            _ => KeyHold::UntilTerminal,
        };
        assert_eq!(record.key_hold, expected);
    }
    assert_eq!(store.check().await.unwrap(), []);

    // The transaction of a caller that met a held key goes on.
    sql.batch_execute(
        "BEGIN; SELECT th_enqueue(type => 'a', idempotency_key => 'k'); SELECT th_enqueue(type => 'b'); COMMIT",
    )
    .await
    .unwrap();
    let count = sql.query_one("SELECT count(*) FROM th_job", &[]).await.unwrap();
    assert_eq!(count.get::<_, i64>(0), 6);
}

#[tokio::test]
async fn the_trigger_of_the_guide_enqueues_with_the_row_and_not_without() {
    let example = Example::new().await;
    let sql = &example.sql;
    sql.batch_execute(&example.text("trigger")).await.unwrap();
    let insert = "INSERT INTO orders (customer) VALUES ('Ada'), ('Grace')";
    sql.batch_execute(&format!("BEGIN; {insert}; ROLLBACK")).await.unwrap();
    sql.batch_execute(insert).await.unwrap();
    let jobs = "SELECT queue, type, convert_from(payload, 'UTF8'), idempotency_key FROM th_job ORDER BY seq";
    let jobs = sql.query(jobs, &[]).await.unwrap();
    let texts = |row: &tokio_postgres::Row| [0, 1, 2, 3].map(|at| row.get::<_, String>(at));
    let order = |id: i32| {
        ["mail", "order:confirm", &format!("{{\"order\": {id}}}"), &format!("confirm-{id}")]
            .map(str::to_owned)
    };
    // The numbers of the first two were used up when they were rolled back.
    assert_eq!(jobs.iter().map(texts).collect::<Vec<_>>(), [order(3), order(4)]);
}
