//! Workers that announce themselves.

use std::time::Duration;

use taskharbor_core::{
    Admin, Driver, Timestamp,
    admin::{Cursor, ListWorkers, Prune},
    driver::{Announce, Incarnation, Limits},
    error::InvalidRequest,
};

use super::name::hostile;
use crate::{
    driver_under_test::{DriverUnderTest, at_once},
    fixture::{T0, TICK, ack, after, at, before, fail, invalid, job},
    workers_under_test::{VALID, announcement, names, start, worker},
};

group! {
    worker {
        an_announcement_is_read_back_as_it_was_given ["WRK-1"]
        a_worker_may_say_anything_about_itself ["WRK-1" "WRK-5"]
        any_name_can_announce_itself ["WRK-1" "WRK-2" "JOB-3"]
        a_later_announcement_replaces_the_one_before ["WRK-1"]
        an_announcement_goes_by_the_time_it_is_given ["WRK-1" "TIM-1"]
        two_starts_of_a_worker_are_two_records ["WRK-1"]
        racing_announcements_leave_one_record ["WRK-1"]
        workers_are_listed_by_name_and_start_byte_by_byte ["WRK-2"]
        workers_come_in_pages ["WRK-2"]
        pages_pass_by_announcements_that_are_not_asked_for ["WRK-2"]
        a_page_of_workers_has_one_to_a_thousand ["WRK-2"]
        a_cursor_of_another_list_is_refused ["WRK-2" "ADM-13"]
        an_announcement_is_valid_until_its_last_instant ["WRK-2" "TIM-2"]
        valid_and_overdue_workers_can_be_asked_for ["WRK-2"]
        a_withdrawn_announcement_is_removed ["WRK-3"]
        less_than_a_microsecond_is_no_time ["WRK-3" "TIM-2"]
        prune_removes_announcements_a_day_after_their_end ["WRK-4"]
        a_pruned_worker_that_announces_itself_again_starts_over ["WRK-4" "WRK-1"]
        an_announcement_that_is_too_large_or_too_long_is_refused ["WRK-5"]
        a_refused_announcement_leaves_the_stored_one ["WRK-5"]
        a_worker_that_never_announced_itself_works ["WRK-6"]
        the_end_of_an_announcement_ends_no_lease ["WRK-6"]
        announcements_change_nothing_about_jobs ["WRK-6" "MOV-1"]
    }
    flows {}
}

const DAY: Duration = Limits::MAX_ANNOUNCED_FOR;

/// The end of an announcement that is made at the beginning.
const END: Timestamp = match Timestamp::from_micros(T0.as_micros() + 30_000_000) {
    Ok(end) => end,
    Err(_) => panic!("within the range"),
};

async fn an_announcement_is_read_back_as_it_was_given(t: DriverUnderTest) {
    let now = after(at(7));
    let valid_for = Duration::from_micros(1_234_567);
    let number = Incarnation::from_bits(0xfedc_ba98_7654_3210);
    let said = Announce::new(worker("w"), number, b"{\"queues\":[\"q\"]}".into(), valid_for, now);
    t.driver.announce(said).await.expect("announce");
    let workers = t.workers(now).await;
    let [read] = workers.as_slice() else { panic!("one worker: {workers:?}") };
    assert_eq!((&read.holder, read.incarnation), (&worker("w"), number));
    assert_eq!(read.info.as_ref(), b"{\"queues\":[\"q\"]}");
    assert_eq!((read.started_at, read.seen_at), (now, now));
    assert_eq!(read.expires_at, now.saturating_add(valid_for));
}

async fn a_worker_may_say_anything_about_itself(t: DriverUnderTest) {
    let every_byte: Vec<u8> = (0..=u8::MAX).collect();
    let said: [Vec<u8>; 6] = [
        Vec::new(),
        vec![0],
        every_byte,
        b"\xff\xfe not a text".to_vec(),
        b"'; DROP TABLE th_worker; --\\x00".to_vec(),
        vec![b'\''; Limits::MAX_WORKER_INFO_BYTES],
    ];
    for (number, info) in (0..).zip(&said) {
        let mut announced = announcement("w", number, T0);
        announced.info = info.clone().into();
        t.driver.announce(announced).await.expect("announce");
    }
    let read: Vec<Vec<u8>> = t.workers(T0).await.iter().map(|it| it.info.to_vec()).collect();
    assert_eq!(read, said);
}

async fn any_name_can_announce_itself(t: DriverUnderTest) {
    let mut expected = hostile();
    for name in &expected {
        t.announce(name, 1, T0).await;
    }
    expected.sort();
    let read = t.all_workers(ListWorkers::new(3, T0)).await;
    let listed: Vec<String> = read.iter().map(|it| it.holder.to_string()).collect();
    assert_eq!(listed, expected);
    assert!(read.iter().all(|it| it.info.as_ref() == it.holder.as_str().as_bytes()));
    for name in &expected {
        t.withdraw(name, 1, T0).await;
    }
    assert_eq!(t.stored_workers(T0).await, []);
}

async fn a_later_announcement_replaces_the_one_before(t: DriverUnderTest) {
    t.announce("w", 1, T0).await;
    // While it is valid, for less time than was left; and long after its end.
    for (now, valid_for) in [(at(10), TICK), (at(5_000), DAY), (at(5_001), VALID)] {
        let mut announced = announcement("w", 1, now);
        announced.info = format!("at {now}").into_bytes().into();
        announced.valid_for = valid_for;
        t.driver.announce(announced).await.expect("announce");
        let workers = t.workers(now).await;
        assert_eq!(names(&workers), [("w".to_owned(), start(1))]);
        assert_eq!(workers[0].info.as_ref(), format!("at {now}").as_bytes());
        assert_eq!((workers[0].started_at, workers[0].seen_at), (T0, now));
        assert_eq!(workers[0].expires_at, now.saturating_add(valid_for));
    }
}

async fn an_announcement_goes_by_the_time_it_is_given(t: DriverUnderTest) {
    t.announce("w", 1, at(100)).await;
    t.announce("w", 1, T0).await;
    let workers = t.stored_workers(T0).await;
    assert_eq!(workers.len(), 1);
    assert_eq!((workers[0].started_at, workers[0].seen_at), (at(100), T0));
    assert_eq!(workers[0].expires_at, END);
    assert_eq!(t.workers(at(100)).await, []);
}

async fn two_starts_of_a_worker_are_two_records(t: DriverUnderTest) {
    t.announce("w", 1, T0).await;
    t.announce("w", 2, at(5)).await;
    t.announce("w", 1, at(10)).await;
    let workers = t.workers(at(10)).await;
    let times: Vec<_> = workers.iter().map(|it| (it.started_at, it.seen_at)).collect();
    assert_eq!(times, [(T0, at(10)), (at(5), at(5))]);
    t.withdraw("w", 1, at(10)).await;
    assert_eq!(names(&t.workers(at(10)).await), [("w".to_owned(), start(2))]);
}

async fn racing_announcements_leave_one_record(t: DriverUnderTest) {
    for round in 0..20 {
        let name = format!("w{round}");
        at_once((0..8).map(|nth| {
            let (t, mut announced) = (t.clone(), announcement(&name, 1, at(nth)));
            announced.info = nth.to_string().into_bytes().into();
            async move { t.driver.announce(announced).await.expect("announce") }
        }))
        .await;
        let workers = t.workers(at(8)).await;
        let of_round: Vec<_> = workers.iter().filter(|it| it.holder == worker(&name)).collect();
        let [one] = of_round.as_slice() else { panic!("one record: {of_round:?}") };
        let nth = one.seen_at.as_micros() - T0.as_micros();
        assert_eq!(one.info.as_ref(), (nth / 1_000_000).to_string().as_bytes(), "a mixture");
        assert_eq!(one.expires_at, one.seen_at.saturating_add(VALID), "a mixture");
        assert!(T0 <= one.started_at && one.started_at <= at(7));
    }
}

async fn workers_are_listed_by_name_and_start_byte_by_byte(t: DriverUnderTest) {
    // A signed comparison, or one of the digits as a text without leading zeros, has another order.
    let starts = [0, 7, 0x10, u64::MAX >> 1, 1 << 63, u64::MAX];
    let holders = ["A", "B", "a", "a b", "a!", "a-1", "aa", "b", "é", "🦀"];
    let mut expected = Vec::new();
    for name in holders {
        for number in starts {
            expected.push((name.to_owned(), start(number)));
        }
    }
    expected.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()).then(a.1.cmp(&b.1)));
    for number in [3, 0, 5, 1, 4, 2] {
        for name in holders.iter().rev() {
            t.announce(name, starts[number], T0).await;
        }
    }
    for limit in [1, 7, 1_000] {
        let read = t.all_workers(ListWorkers::new(limit, T0)).await;
        assert_eq!(names(&read), expected, "pages of {limit}");
    }
}

async fn workers_come_in_pages(t: DriverUnderTest) {
    let workers: Vec<String> = (10..17).map(|n| format!("w{n}")).collect();
    for name in &workers {
        t.announce(name, 1, T0).await;
    }
    for limit in 1..=8 {
        let mut request = ListWorkers::new(limit, T0);
        let mut read = Vec::new();
        loop {
            let page = t.driver.workers(request.clone()).await.expect("workers");
            read.extend(page.items.iter().map(|it| it.holder.to_string()));
            let is_last = read.len() == workers.len();
            assert_eq!(page.next.is_none(), is_last, "a page of {limit} after {read:?}");
            assert!(is_last || page.items.len() == limit, "a page that is not full");
            let Some(cursor) = page.next else { break };
            request = request.after(cursor);
        }
        assert_eq!(read, workers, "pages of {limit}");
    }
    // A worker after which a page begins may be gone by then.
    let page = t.driver.workers(ListWorkers::new(3, T0)).await.expect("workers");
    t.withdraw("w12", 1, T0).await;
    let rest = ListWorkers::new(9, T0).after(page.next.expect("another page"));
    let rest = t.driver.workers(rest).await.expect("workers").items;
    assert_eq!(rest.iter().map(|it| it.holder.as_str()).collect::<Vec<_>>(), &workers[3..]);
}

async fn pages_pass_by_announcements_that_are_not_asked_for(t: DriverUnderTest) {
    for n in 0..30 {
        let now = if n % 10 == 9 { at(100) } else { T0 };
        t.announce(&format!("w{n:02}"), 1, now).await;
    }
    let valid = ListWorkers::new(1, at(100));
    let read = t.all_workers(valid.clone()).await;
    assert_eq!(names(&read), ["w09", "w19", "w29"].map(|name| (name.to_owned(), start(1))));
    let over = t.all_workers(ListWorkers::new(4, at(100)).only_overdue()).await;
    assert_eq!(over.len(), 27);
    // No worker that is asked for comes after the last, so there is no other page.
    let mut pages = 0;
    let mut request = valid;
    while let Some(next) = t.driver.workers(request.clone()).await.expect("workers").next {
        request = request.after(next);
        pages += 1;
    }
    assert_eq!(pages, 2);
}

async fn a_page_of_workers_has_one_to_a_thousand(t: DriverUnderTest) {
    t.announce("w", 1, T0).await;
    for limit in [0, 1_001, usize::MAX] {
        let rule = invalid(t.driver.workers(ListWorkers::new(limit, T0)).await);
        assert!(matches!(rule, InvalidRequest::OutOfRange { .. }), "{rule:?}");
    }
    for limit in [1, 1_000] {
        let page = t.driver.workers(ListWorkers::new(limit, T0)).await.expect("workers");
        assert_eq!((page.items.len(), page.next), (1, None));
    }
}

async fn a_cursor_of_another_list_is_refused(t: DriverUnderTest) {
    t.announce("w", 1, T0).await;
    for text in ["", "w", "lane-w", "worker-", "worker-1-w", "worker-0000000000000001"] {
        let request = ListWorkers::new(10, T0).after(Cursor::new(text));
        assert_eq!(invalid(t.driver.workers(request).await), InvalidRequest::Cursor, "{text}");
    }
}

async fn an_announcement_is_valid_until_its_last_instant(t: DriverUnderTest) {
    t.announce("w", 1, T0).await;
    for now in [Timestamp::EPOCH, T0, before(END)] {
        assert_eq!(t.workers(now).await.len(), 1, "at {now}");
    }
    for now in [END, after(END), Timestamp::MAX] {
        assert_eq!(t.workers(now).await, [], "at {now}");
    }
    t.announce("w", 1, END).await;
    assert_eq!(t.workers(END).await.len(), 1);
}

async fn valid_and_overdue_workers_can_be_asked_for(t: DriverUnderTest) {
    t.announce("a", 1, T0).await;
    t.announce("b", 1, at(1)).await;
    let list = ListWorkers::new(10, END);
    let of = async |request| {
        let read = t.all_workers(request).await;
        read.iter().map(|it| it.holder.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of(list.clone()).await, ["b"]);
    assert_eq!(of(list.clone().only_overdue()).await, ["a"]);
    assert_eq!(of(list.clone().with_overdue()).await, ["a", "b"]);
    let mut neither = list;
    neither.valid = false;
    assert_eq!(of(neither).await, [""; 0]);
}

async fn a_withdrawn_announcement_is_removed(t: DriverUnderTest) {
    for (name, number) in [("v", 1), ("w", 1), ("w", 2)] {
        t.announce(name, number, T0).await;
    }
    t.withdraw("w", 1, T0).await;
    let left = [("v".to_owned(), start(1)), ("w".to_owned(), start(2))];
    assert_eq!(names(&t.stored_workers(T0).await), left);
    // Withdrawing what is not announced changes nothing.
    t.withdraw("w", 1, T0).await;
    t.withdraw("unknown", 1, T0).await;
    assert_eq!(names(&t.stored_workers(T0).await), left);
    // One that is over can be withdrawn too.
    t.withdraw("v", 1, at(9_000)).await;
    assert_eq!(names(&t.stored_workers(T0).await), left[1..]);
    t.announce("w", 1, at(5)).await;
    assert_eq!(t.workers(at(5)).await[0].started_at, at(5));
}

async fn less_than_a_microsecond_is_no_time(t: DriverUnderTest) {
    t.announce("w", 1, T0).await;
    let mut announced = announcement("w", 1, T0);
    announced.valid_for = Duration::from_nanos(999);
    t.driver.announce(announced.clone()).await.expect("announce");
    assert_eq!(t.stored_workers(T0).await, []);
    announced.valid_for = Duration::from_nanos(1_999);
    t.driver.announce(announced).await.expect("announce");
    let workers = t.workers(T0).await;
    assert_eq!(workers.iter().map(|it| it.expires_at).collect::<Vec<_>>(), [after(T0)]);
}

async fn prune(t: &DriverUnderTest, now: Timestamp) -> usize {
    t.driver.prune(Prune::new(1, now)).await.expect("prune")
}

async fn prune_removes_announcements_a_day_after_their_end(t: DriverUnderTest) {
    t.announce("earlier", 1, before(T0)).await;
    t.announce("now", 1, T0).await;
    t.announce("now", 2, T0).await;
    t.announce("later", 1, after(T0)).await;
    let day_later = END.saturating_add(DAY);
    for (now, left) in [
        (Timestamp::EPOCH, 4),
        (END, 4),
        (before(before(day_later)), 4),
        (before(day_later), 3),
        (day_later, 1),
        (after(day_later), 0),
    ] {
        // It is jobs that Prune counts.
        assert_eq!(prune(&t, now).await, 0);
        assert_eq!(t.stored_workers(T0).await.len(), left, "at {now}");
    }
}

async fn a_pruned_worker_that_announces_itself_again_starts_over(t: DriverUnderTest) {
    t.announce("w", 1, T0).await;
    let now = at(200_000);
    prune(&t, now).await;
    t.announce("w", 1, now).await;
    prune(&t, now).await;
    let workers = t.workers(now).await;
    let times: Vec<_> = workers.iter().map(|it| (it.started_at, it.seen_at)).collect();
    assert_eq!(times, [(now, now)]);
}

async fn an_announcement_that_is_too_large_or_too_long_is_refused(t: DriverUnderTest) {
    let mut large = announcement("large", 1, T0);
    large.info = vec![b' '; Limits::MAX_WORKER_INFO_BYTES + 1].into();
    let mut long = announcement("long", 1, T0);
    long.valid_for = DAY + Duration::from_micros(1);
    let mut endless = announcement("endless", 1, T0);
    endless.valid_for = Duration::MAX;
    for announced in [large, long, endless] {
        let rule = invalid(t.driver.announce(announced).await);
        assert!(matches!(rule, InvalidRequest::OutOfRange { .. }), "{rule:?}");
    }
    assert_eq!(t.stored_workers(T0).await, []);
    let mut most = announcement("most", 1, T0);
    (most.info, most.valid_for) = (vec![0; Limits::MAX_WORKER_INFO_BYTES].into(), DAY);
    t.driver.announce(most).await.expect("announce");
    assert_eq!(t.workers(before(T0.saturating_add(DAY))).await.len(), 1);
}

async fn a_refused_announcement_leaves_the_stored_one(t: DriverUnderTest) {
    t.announce("w", 1, T0).await;
    let stored = t.stored_workers(T0).await;
    let mut withdrawn = Announce::withdraw(worker("w"), start(1), at(1));
    withdrawn.info = vec![b' '; Limits::MAX_WORKER_INFO_BYTES + 1].into();
    let mut long = announcement("w", 1, at(1));
    long.valid_for = Duration::MAX;
    for announced in [withdrawn, long] {
        invalid(t.driver.announce(announced).await);
        assert_eq!(t.stored_workers(T0).await, stored);
    }
}

async fn a_worker_that_never_announced_itself_works(t: DriverUnderTest) {
    t.announce("other", 1, T0).await;
    t.put_all(["a", "b"].map(job), T0).await;
    let a = t.take_the_as("w", "a", T0).await;
    let b = t.take_the_as("w", "b", T0).await;
    let a = t.keep(&a, at(1), VALID).await;
    t.apply(&a, ack(), at(2)).await;
    t.apply(&b, fail(at(2)), at(2)).await;
    assert_eq!(names(&t.stored_workers(T0).await), [("other".to_owned(), start(1))]);
}

async fn the_end_of_an_announcement_ends_no_lease(t: DriverUnderTest) {
    t.put_all(["a", "b", "c"].map(job), T0).await;
    t.announce("w", 1, T0).await;
    let held = t.take_as("w", "q", 3, T0).await;
    // It is over.
    t.apply(&held[0], ack(), END).await;
    assert_eq!(t.take(END).await, None);
    // It is withdrawn, and another start announces itself.
    t.withdraw("w", 1, END).await;
    t.announce("w", 2, END).await;
    t.apply(&held[1], ack(), after(END)).await;
    // It is pruned.
    prune(&t, Timestamp::MAX).await;
    assert_eq!(t.take(before(held[2].lease.expires_at)).await, None);
    t.apply(&held[2], ack(), before(held[2].lease.expires_at)).await;
}

async fn announcements_change_nothing_about_jobs(t: DriverUnderTest) {
    t.put_all(["a", "b"].map(job), T0).await;
    t.take_the_as("w", "a", T0).await;
    let (stored, units) = (t.snapshot(T0).await, t.export(10).await);
    for number in 0..20 {
        t.announce("w", number, T0).await;
    }
    t.withdraw("w", 3, T0).await;
    assert_eq!(t.snapshot(T0).await, stored);
    assert_eq!(t.export(10).await, units);
}
