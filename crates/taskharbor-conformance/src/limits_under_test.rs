//! Short calls about lanes and limits, for cases: part of [`DriverUnderTest`].

use taskharbor_core::{
    Admin, NewJob, Timestamp,
    admin::{
        Change, Configure, HeldBack, HeldJob, LaneStatus, LimitsRecord, ListLanes, ListSettings,
        QueueLimits, Setting, SettingKind,
    },
    driver::Leased,
    error::Denied,
    name::LaneName,
};

use crate::{
    driver_under_test::DriverUnderTest,
    fixture::{T0, job, queue},
};

pub(crate) fn lane(text: &str) -> LaneName {
    LaneName::new(text).expect("a valid lane name")
}

/// A job in a lane of the queue `q`.
pub(crate) fn in_lane(name: &str, text: &str) -> NewJob {
    job(text).lane(lane(name))
}

/// This many jobs in a lane of the queue `q`: `a1`, `a2`… in lane `a`. Without a name, jobs without a
/// lane: `1`, `2`…
pub(crate) fn jobs_of(name: &str, count: usize) -> Vec<NewJob> {
    let text = |n: usize| format!("{name}{n}");
    let new = |n| if name.is_empty() { job(&text(n)) } else { in_lane(name, &text(n)) };
    (1..=count).map(new).collect()
}

pub(crate) fn texts(jobs: &[Leased]) -> Vec<String> {
    jobs.iter().map(|leased| leased.job.id.to_string()).collect()
}

impl DriverUnderTest {
    /// Makes one change; the answer as it is.
    pub(crate) async fn change(&self, change: Change, now: Timestamp) -> Result<(), Denied> {
        let request = Configure::new(vec![change], now);
        let mut answers = self.driver.configure(request).await.expect("configure");
        assert_eq!(answers.len(), 1, "one change, one answer");
        answers.remove(0)
    }

    /// Sets the limits of a queue, which have no owner.
    pub(crate) async fn limit_queue(&self, name: &str, limits: QueueLimits) {
        let set = Change::SetLimits { queue: queue(name), limits: Some(limits) };
        self.change(set, T0).await.expect("not denied");
    }

    /// Sets the limits of the queue `q`.
    pub(crate) async fn limit(&self, limits: QueueLimits) {
        self.limit_queue("q", limits).await;
    }

    /// Removes the limits of the queue `q`.
    pub(crate) async fn remove_limits(&self) {
        let removed = Change::SetLimits { queue: queue("q"), limits: None };
        self.change(removed, T0).await.expect("not denied");
    }

    /// Holds the queue `q`, or a lane of it, until an instant; `None` ends the hold.
    pub(crate) async fn hold(&self, of: Option<&str>, until: Option<Timestamp>) {
        let hold = Change::Hold { queue: queue("q"), lane: of.map(lane), until };
        self.change(hold, T0).await.expect("not denied");
    }

    /// The limits of all queues.
    pub(crate) async fn all_limits(&self) -> Vec<LimitsRecord> {
        let request = ListSettings::new(1_000).kind(SettingKind::Limits);
        let page = self.driver.settings(request).await.expect("settings");
        let records = page.items.into_iter().map(|setting| match setting {
            Setting::Limits(record) => *record,
            other => panic!("not limits: {other:?}"),
        });
        records.collect()
    }

    /// All lanes of a queue, in pages of this size.
    pub(crate) async fn lanes(&self, name: &str, limit: usize, now: Timestamp) -> Vec<LaneStatus> {
        let (mut all, mut request) = (Vec::new(), ListLanes::new(queue(name), limit, now));
        loop {
            let page = self.driver.lanes(request.clone()).await.expect("lanes");
            assert!(page.items.len() <= limit, "more than a page");
            all.extend(page.items);
            match page.next {
                Some(cursor) => request = request.after(cursor),
                None => return all,
            }
        }
    }

    /// Reserves jobs of the queue `q` one by one, at most this many; the ids in the order of the
    /// grants.
    pub(crate) async fn take_each(&self, count: usize, now: Timestamp) -> Vec<String> {
        let mut taken = Vec::new();
        while taken.len() < count
            && let Some(leased) = self.take(now).await
        {
            taken.push(leased.job.id.to_string());
        }
        taken
    }

    /// Reserves at most this many jobs of the queue `q` in one call; the ids.
    pub(crate) async fn take_texts(&self, count: usize, now: Timestamp) -> Vec<String> {
        texts(&self.take_many(count, now).await)
    }

    /// What holds a job back.
    pub(crate) async fn held_back(&self, text: &str, now: Timestamp) -> Option<HeldJob> {
        self.record(text, now).await.held_back
    }
}

/// Held back because as many jobs are inflight as may be.
pub(crate) fn full(by_lane: bool, inflight: usize, limit: u32) -> Option<HeldJob> {
    Some(HeldJob::new(by_lane, HeldBack::Full { inflight, limit }))
}

/// Held back until the end of a hold.
pub(crate) fn on_hold(by_lane: bool, until: Timestamp) -> Option<HeldJob> {
    Some(HeldJob::new(by_lane, HeldBack::OnHold { until }))
}

/// Held back by a rate.
pub(crate) fn rate_held(by_lane: bool, next: Timestamp) -> Option<HeldJob> {
    Some(HeldJob::new(by_lane, HeldBack::Rate { next }))
}
