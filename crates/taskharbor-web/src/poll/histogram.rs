//! Times that were counted in buckets, and percentiles of them.

use taskharbor::QueueInfo;

const BUCKETS: usize = QueueInfo::BUCKETS.len() + 1;

/// How many times lie in each bucket of [`QueueInfo::BUCKETS`], and last those beyond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Histogram([u64; BUCKETS]);

impl Histogram {
    /// What a worker has announced; `None` if it left the buckets out or has others.
    pub(super) fn read(buckets: &[u64]) -> Option<Self> {
        buckets.try_into().ok().map(Self)
    }

    /// What was counted since `earlier`. Counts never fall, so a lower one says nothing.
    pub(super) fn since(&self, earlier: &Self) -> Self {
        let mut new = *self;
        for (count, before) in new.0.iter_mut().zip(earlier.0) {
            *count = count.saturating_sub(before);
        }
        new
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// The time in milliseconds that this share of all times does not exceed, between 0 and 1. Inside
    /// a bucket times are taken to be spread evenly; those beyond the last are taken for its end.
    pub(super) fn percentile(&self, share: f64) -> Option<f64> {
        let total: f64 = self.0.iter().map(|count| to_f64(*count)).sum();
        if total <= 0.0 {
            return None;
        }
        let (mut below, mut start) = (0.0, 0.0);
        let wanted = total * share;
        for (count, end) in self.0.iter().zip(QueueInfo::BUCKETS) {
            let (count, end) = (to_f64(*count), to_f64(end));
            if count > 0.0 && below + count >= wanted {
                return Some(start + (end - start) * ((wanted - below) / count).clamp(0.0, 1.0));
            }
            (below, start) = (below + count, end);
        }
        Some(start)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate or a share of a count needs no last digit")]
pub(super) const fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(counts: &[(usize, u64)]) -> Histogram {
        let mut histogram = Histogram::default();
        for (bucket, count) in counts {
            histogram.0[*bucket] = *count;
        }
        histogram
    }

    #[test]
    fn a_percentile_lies_in_the_bucket_that_it_falls_into() {
        assert_eq!(Histogram::default().percentile(0.5), None);
        let even = histogram(&[(0, 50), (1, 50)]);
        assert_eq!(even.percentile(0.5), Some(1.0));
        assert_eq!(even.percentile(0.25), Some(0.5));
        assert_eq!(even.percentile(1.0), Some(5.0));
        let far = histogram(&[(0, 1), (11, 9)]);
        assert_eq!(far.percentile(0.95), Some(600_000.0));
        assert_eq!(histogram(&[(3, 10)]).percentile(0.5), Some(62.5));
    }

    #[test]
    fn counts_that_fall_say_nothing_and_huge_ones_do_no_harm() {
        let (low, high) = (histogram(&[(2, 3)]), histogram(&[(2, u64::MAX), (11, u64::MAX)]));
        assert_eq!(low.since(&high), Histogram::default());
        let mut sum = high;
        sum.add(&high);
        assert_eq!(sum, high);
        assert!(sum.percentile(0.5).is_some_and(f64::is_finite));
        assert_eq!(Histogram::read(&[1; 11]), None);
        assert_eq!(Histogram::read(&[0; 12]), Some(Histogram::default()));
    }
}
