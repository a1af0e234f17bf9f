use std::collections::BTreeSet;
use std::ops::Range;

use segue_collectives::Communicator;
use segue_collectives::tree::aligned_blocks;
use segue_configs::{TrainConfig, counted};
use segue_kernels::TrainError;

/// Which lanes and micro-steps of the global step are this rank's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Lanes of the whole job.
    pub lanes: usize,
    /// Lanes of one micro-step.
    pub micro_batch: usize,
    /// This rank's micro-steps, numbered over the job.
    pub micro_steps: Range<usize>,
}

impl Layout {
    /// Contiguous equal blocks of micro-steps. With `train.exact` each block is a subtree of the
    /// reduction tree, so that sums do not depend on the number of ranks.
    pub fn new(train: &TrainConfig, comm: &dyn Communicator) -> Result<Self, TrainError> {
        let each = check_ranks(train, comm.world_size())?;
        let first = comm.rank() * each;
        Ok(Self { lanes: train.lanes, micro_batch: train.micro_batch, micro_steps: first..first + each })
    }

    /// This rank's micro-steps of step `step`: the place of each among the rank's, and its number in the job.
    pub fn taking_part(&self, train: &TrainConfig, step: u64) -> Vec<(usize, usize)> {
        self.micro_steps.clone().enumerate().filter(|(_, number)| train.takes_part(step, *number)).collect()
    }

    /// This rank's lanes, numbered over the job.
    pub fn lane_range(&self) -> Range<usize> {
        self.micro_steps.start * self.micro_batch..self.micro_steps.end * self.micro_batch
    }
}

/// Micro-steps of each of `world` ranks, if that many can share a step.
pub fn check_ranks(train: &TrainConfig, world: usize) -> Result<usize, TrainError> {
    let micro_steps = train.lanes / train.micro_batch;
    let each = micro_steps.checked_div(world).unwrap_or(0);
    let refuse = |why: String| Err(TrainError::Layout(format!("{why}\nhint: {}", what_fits(train, world))));
    if each == 0 || each * world != micro_steps {
        return refuse(format!(
            "{world} ranks do not divide the {} of a step ({} in micro-batches of {})",
            counted(micro_steps, "micro-step"),
            counted(train.lanes, "lane"),
            train.micro_batch
        ));
    }
    if train.exact
        && let Err(why) = aligned_blocks(micro_steps, world)
    {
        return refuse(why.to_string());
    }
    if !each.is_multiple_of(train.batch_warmup_from) {
        return refuse(format!(
            "each of {world} ranks has {each} micro-steps, of which not one in train.batch_warmup_from = {} can take part",
            train.batch_warmup_from
        ));
    }
    Ok(each)
}

/// Whether `world` ranks can share a step if each has `each` micro-steps.
fn can_share(train: &TrainConfig, each: usize, world: usize) -> bool {
    let aligned = || each.checked_mul(world).is_some_and(|steps| aligned_blocks(steps, world).is_ok());
    each > 0 && world > 0 && (!train.exact || aligned()) && each.is_multiple_of(train.batch_warmup_from)
}

/// What to change where a layout does not fit: the largest micro-batch below that keeps batch and ranks; the numbers of ranks that can share these
/// lanes and the numbers of lanes that these ranks can share, next to those asked for. Each can be followed as it stands.
fn what_fits(train: &TrainConfig, world: usize) -> String {
    let micro_steps = train.lanes / train.micro_batch;
    let fits =
        |world: &usize| micro_steps.is_multiple_of(*world) && can_share(train, micro_steps / *world, *world);
    // Divisors come in pairs, of which one is no larger than the root.
    let small = (1..=micro_steps.isqrt()).filter(|small| micro_steps.is_multiple_of(*small));
    let divisors = small.flat_map(|small| [small, micro_steps / small]).filter(|ranks| fits(ranks));
    let divisors: BTreeSet<usize> = divisors.collect();
    let fewer = divisors.range(..world).next_back();
    let more = divisors.range(world..).find(|ranks| **ranks > world);
    let ranks: Vec<String> = fewer.into_iter().chain(more).map(usize::to_string).collect();
    let most = micro_steps.checked_div(world).unwrap_or(0);
    let shares = |each: &usize| can_share(train, *each, world);
    let below = (1..=most).rev().find(shares);
    // Some number of this range is both a power of two and a multiple, if any number is.
    let last = (most + 1).saturating_mul(2).saturating_mul(train.batch_warmup_from);
    let above = (most + 1..=last).find(shares);
    let lanes = |each: usize| each.checked_mul(world)?.checked_mul(train.micro_batch);
    let lanes = below.into_iter().chain(above).filter_map(lanes).map(|lanes| format!("train.lanes={lanes}"));
    let lanes: Vec<String> = lanes.collect();
    // A divisor of the lanes of a rank, which come in pairs too.
    let own = train.lanes.checked_div(world).filter(|own| own * world == train.lanes).unwrap_or(0);
    let small = (1..=own.isqrt()).filter(|small| own.is_multiple_of(*small));
    let smaller = small.flat_map(|small| [small, own / small]).filter(|micro_batch| {
        let holds_groups = train.group == 0 || micro_batch.is_multiple_of(train.group);
        *micro_batch < train.micro_batch && holds_groups && shares(&(own / micro_batch))
    });
    let smaller = smaller.max();
    let mut advice = Vec::new();
    if !ranks.is_empty() {
        advice.push(format!("start {} rank{}", ranks.join(" or "), if ranks == ["1"] { "" } else { "s" }));
    }
    advice.extend(smaller.map(|micro_batch| format!("set train.micro_batch={micro_batch}")));
    if !lanes.is_empty() {
        advice.push(format!("set {}", lanes.join(" or ")));
    }
    let inexact = TrainConfig { exact: false, ..train.clone() };
    if train.exact && micro_steps.checked_rem(world) == Some(0) && can_share(&inexact, most, world) {
        advice.push("give up equal bits at any number of ranks with train.exact=false".into());
    }
    advice.join(", or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the hint says is followed, and fits.
    #[test]
    fn every_number_that_a_hint_names_fits() {
        let (mut refused, mut smaller_batches) = (0, 0);
        for (lanes, micro_batch, warmup) in
            [(24, 1, 1), (22, 11, 1), (8, 2, 1), (48, 2, 4), (60, 3, 1), (6, 1, 3)]
        {
            for world in 1..=40 {
                for exact in [true, false] {
                    let train = TrainConfig {
                        lanes,
                        micro_batch,
                        batch_warmup_from: warmup,
                        exact,
                        ..TrainConfig::default()
                    };
                    let Err(error) = check_ranks(&train, world) else { continue };
                    refused += 1;
                    let hint = error.hint().expect("a hint");
                    assert!(!hint.is_empty(), "{error}");
                    let numbers = |text: &str| -> Vec<usize> {
                        text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
                    };
                    for part in hint.split(", or ") {
                        if let Some(smaller) = part.strip_prefix("set train.micro_batch=") {
                            let micro_batch = smaller.parse().unwrap();
                            let other = TrainConfig { micro_batch, ..train.clone() };
                            assert!(check_ranks(&other, world).is_ok(), "{error}");
                            smaller_batches += 1;
                            continue;
                        }
                        let rest = part.strip_prefix("start ").map(|part| (part, true));
                        let rest = rest.or(part.strip_prefix("set ").map(|part| (part, false)));
                        match rest {
                            Some((part, true)) => numbers(part).into_iter().for_each(|ranks| {
                                assert!(check_ranks(&train, ranks).is_ok(), "{error}");
                            }),
                            Some((part, false)) => numbers(part).into_iter().for_each(|lanes| {
                                let other = TrainConfig { lanes, ..train.clone() };
                                assert!(check_ranks(&other, world).is_ok(), "{error}");
                            }),
                            None => {
                                let other = TrainConfig { exact: false, ..train.clone() };
                                assert!(part.contains("train.exact=false"), "{error}");
                                assert!(check_ranks(&other, world).is_ok(), "{error}");
                            }
                        }
                    }
                }
            }
        }
        assert!(refused > 100 && smaller_batches > 10, "{refused} {smaller_batches}");
    }

    /// Sixteen lanes in micro-batches of eight are two micro-steps: four ranks need four of them.
    #[test]
    fn a_smaller_micro_batch_keeps_the_batch_and_the_ranks() {
        let train = TrainConfig { lanes: 16, micro_batch: 8, ..TrainConfig::default() };
        let hint = check_ranks(&train, 4).unwrap_err().hint().unwrap();
        assert!(hint.starts_with("start 2 ranks, or set train.micro_batch=4"), "{hint}");
    }
}
