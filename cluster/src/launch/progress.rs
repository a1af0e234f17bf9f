//! How the ranks of an attempt get on: whether any does, and which one holds the others up.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::pulse::Beat;

/// A job hangs where no rank gets on for so many times the longest pause before, and for no less than [`LEAST_STALL`]: a file server may be
/// gone for minutes, and a checkpoint of gigabytes is written without a point on its way.
const PAUSES: u32 = 10;
const LEAST_STALL: Duration = Duration::from_secs(900);
/// Nothing is learnt from the pauses of a job that has not made so many steps: what is slow once may come still. Until then it has longer.
const STEPS_TO_LEARN: u64 = 3;
const BEFORE_LEARNING: Duration = Duration::from_secs(3600);
/// Over how long it is looked at who waits for whom.
const WINDOW: Duration = Duration::from_secs(30);
/// The others have to wait for so much of their time, and the rank that they wait for, for less than a part of that.
const WAITING: f64 = 0.25;
const LESS: f64 = 0.25;

/// A rank that the others wait for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Straggler {
    /// The rank.
    pub rank: usize,
    /// Its host, where that is known.
    pub host: Option<String>,
    /// For which part of their time the others wait: the median over them.
    pub others_wait: f64,
    /// For which part of its time it waits.
    pub waits: f64,
}

/// What is known of the ranks' progress.
pub struct Progress {
    ranks: Vec<Option<Rank>>,
    /// When any rank got on last.
    moved: Option<Instant>,
    longest_pause: Duration,
    first_step: Option<u64>,
    /// Steps that the attempt has made, at most.
    made: u64,
    told: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Rank {
    progress: u64,
    /// Where the window began, and the wait by then.
    from: (Instant, f64),
    /// The part of waiting in the last whole window, and in the one before.
    waits: Option<f64>,
    before: Option<f64>,
}

impl Progress {
    /// Of `ranks` ranks that nothing was heard of yet.
    pub fn new(ranks: usize) -> Self {
        Self {
            ranks: vec![None; ranks],
            moved: None,
            longest_pause: Duration::ZERO,
            first_step: None,
            made: 0,
            told: Vec::new(),
        }
    }

    /// Takes note of what a rank said at `at`.
    pub fn take(&mut self, rank: usize, beat: &Beat, at: Instant) {
        let Some(known) = self.ranks.get_mut(rank) else { return };
        let known =
            known.get_or_insert(Rank { progress: 0, from: (at, beat.waited), waits: None, before: None });
        if known.progress != beat.progress {
            known.progress = beat.progress;
            let pause = self.moved.map_or(Duration::ZERO, |moved| at.saturating_duration_since(moved));
            self.longest_pause = self.longest_pause.max(pause);
            self.moved = Some(at);
        }
        let (begun, waited) = known.from;
        let window = at.saturating_duration_since(begun);
        if window >= WINDOW {
            // A wait counts where it ends, though it may have begun long before.
            known.before = known.waits;
            known.waits = Some(((beat.waited - waited) / window.as_secs_f64()).min(1.0));
            known.from = (at, beat.waited);
        }
        if beat.step > 0 {
            let first = *self.first_step.get_or_insert(beat.step);
            self.made = self.made.max(beat.step.saturating_sub(first));
        }
    }

    /// What a pause may last, and how long this one has, where that is more.
    pub fn stall(&self, now: Instant) -> Option<(Duration, Duration)> {
        let least = if self.made >= STEPS_TO_LEARN { LEAST_STALL } else { BEFORE_LEARNING };
        let limit = (self.longest_pause * PAUSES).max(least);
        let still = now.saturating_duration_since(self.moved?);
        (still > limit).then_some((limit, still))
    }

    /// A rank that the others wait for, over the last [`WINDOW`]; each is told of once.
    pub fn straggler(&mut self) -> Option<Straggler> {
        let found = straggler_of(self.ranks.iter().map(|rank| rank.as_ref()?.waits))?;
        // What is so once may be an evaluation, or a file that one rank writes.
        let before = straggler_of(self.ranks.iter().map(|rank| rank.as_ref()?.before))?;
        let is_one = before.rank == found.rank && !self.told.contains(&found.rank);
        is_one.then(|| {
            self.told.push(found.rank);
            found
        })
    }
}

/// The rank that the others wait for, by which part of its time each waits.
fn straggler_of(waits: impl Iterator<Item = Option<f64>>) -> Option<Straggler> {
    let waits: Vec<f64> = waits.collect::<Option<Vec<f64>>>().filter(|waits| waits.len() > 1)?;
    let least = |one: &usize, other: &usize| waits[*one].total_cmp(&waits[*other]);
    let rank = (0..waits.len()).min_by(least)?;
    let mut others: Vec<f64> =
        waits.iter().enumerate().filter(|(other, _)| *other != rank).map(|(_, part)| *part).collect();
    others.sort_by(f64::total_cmp);
    let others_wait = others[others.len() / 2];
    let is_one = others_wait > WAITING && waits[rank] < LESS * others_wait;
    is_one.then_some(Straggler { rank, host: None, others_wait, waits: waits[rank] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(step: u64, progress: u64, waited: f64) -> Beat {
        Beat { step, progress, waited, ..Beat::default() }
    }

    #[test]
    fn a_job_hangs_after_ten_times_its_longest_pause() {
        let (begun, mut progress) = (Instant::now(), Progress::new(2));
        let at = |seconds: u64| begun + Duration::from_secs(seconds);
        for step in 1..=2 {
            progress.take(0, &beat(step, step, 0.0), at(step));
        }
        // Two steps teach little.
        assert_eq!(progress.stall(at(3600)), None);
        assert!(progress.stall(at(3603)).is_some());
        // An evaluation took 200 s.
        for (step, seconds) in [(3, 202), (4, 203), (5, 204)] {
            progress.take(0, &beat(step, step, 0.0), at(seconds));
            progress.take(1, &beat(step, 0, 0.0), at(seconds));
        }
        let limit = Duration::from_secs(2000);
        assert_eq!(progress.stall(at(2204)), None);
        assert_eq!(progress.stall(at(2205)), Some((limit, Duration::from_secs(2001))));
        let mut short = Progress::new(1);
        (1..9).for_each(|step| short.take(0, &beat(step, step, 0.0), at(step)));
        assert_eq!((short.stall(at(908)), short.stall(at(909)).is_some()), (None, true));
    }

    #[test]
    fn whoever_the_others_wait_for_is_told_of_once() {
        let (begun, mut progress) = (Instant::now(), Progress::new(4));
        for second in 0..=100_u64 {
            for rank in 0..4 {
                // Rank 2 computes all the time, the others wait for two fifths of theirs.
                let waited = if rank == 2 { 0.01 } else { 0.4 } * second as f64;
                progress.take(rank, &beat(second, second, waited), begun + Duration::from_secs(second));
            }
        }
        let found = progress.straggler().expect("rank 2 is slow");
        assert_eq!((found.rank, (found.others_wait * 100.0).round()), (2, 40.0));
        assert_eq!(progress.straggler(), None);
        let mut alike = Progress::new(2);
        for second in 0..=100_u64 {
            for rank in 0..2 {
                alike.take(
                    rank,
                    &beat(second, second, 0.3 * second as f64),
                    begun + Duration::from_secs(second),
                );
            }
        }
        assert_eq!(alike.straggler(), None);
    }
}
