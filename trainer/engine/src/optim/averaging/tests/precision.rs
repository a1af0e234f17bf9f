//! Kinds of numbers: averages of parameters in half precision, and of shards.

use super::*;
use crate::optim::averaging::Tail;

/// Weights around 1 in bfloat16, averaged over 5,000 steps. In single precision their average is within 5e-6 of the exact one at the worst of 64
/// places, and 1e-6 off in the mean. In bfloat16 it would be 1e-2 off in the mean, and 3e-2 to 5e-2 at the worst of 64 places: it stops moving
/// once (θ - w) / n is below half a unit in the last place. The worst place is chance, so that its mean over four draws is looked at: single
/// ones of a second program have 2.8e-2 to 4.9e-2, and means of all places 0.8e-2 to 1.3e-2.
/// Row A7.
#[test]
fn averages_of_half_precision_weights_are_kept_in_single_precision() {
    const PLACES: usize = 64;
    let (places, steps) = (4 * PLACES, 5000);
    let live = parameters(&vec![0.0; places], Kind::BFloat16);
    let mut tail = Tail::new(1, 0, 1);
    let mut sums = vec![0.0; places];
    let mut naive = Tensor::zeros([places as i64], (Kind::BFloat16, tch::Device::Cpu));
    for step in 1..=steps {
        let noise = stream(7, step);
        set(&live, &(0..places as u64).map(|i| 1.0 + 0.1 * noise.normal(i)).collect::<Vec<_>>());
        // The first step is before the tail.
        tail.fold(step + 1, &live);
        let share = 1.0 / step as f64;
        naive = tch::no_grad(|| &naive + (&live.tensors()[0] - &naive) * share);
        sums.iter_mut().zip(values(live.tensors())).for_each(|(sum, w)| *sum += w);
    }
    let exact: Vec<f64> = sums.iter().map(|sum| sum / steps as f64).collect();
    let tables = tail.chosen().unwrap();
    assert_eq!(tables[0].kind(), Kind::Float);
    let off =
        |found: Vec<f64>| -> Vec<f64> { found.iter().zip(&exact).map(|(a, b)| (a - b).abs()).collect() };
    let (single, half) = (off(values(tables)), off(values(&[naive])));
    let worst = |off: &[f64]| off.iter().fold(0.0, |a: f64, b| a.max(*b));
    let worsts = |off: &[f64]| -> Vec<f64> { off.chunks(PLACES).map(worst).collect() };
    let (of_single, of_half) = (worsts(&single), worsts(&half));
    assert!(mean(&of_single) < 5e-6 && mean(&single) < 1e-6, "{of_single:?} {}", mean(&single));
    assert!((8e-3..1.3e-2).contains(&mean(&half)), "{}", mean(&half));
    assert!((3e-2..5e-2).contains(&mean(&of_half)), "{of_half:?}");
}

/// Neither the trained weights nor the average lose a bit when one of another precision stands in.
/// Row A7.
#[test]
fn a_stand_in_of_another_precision_is_undone_exactly() {
    let live = parameters(&[1.0, -2.0, 3.0], Kind::BFloat16);
    let mut tail = Tail::new(1, 0, 1);
    for step in 2..=4 {
        set(&live, &[step as f64, 0.3 * step as f64, -1.0]);
        tail.fold(step, &live);
    }
    let (before, average) = (values(live.tensors()), values(tail.chosen().unwrap()));
    {
        let _stand_in = StandIn::new(tail.candidates()[0].weights, &live, &live);
        let seen = values(live.tensors());
        assert!(seen != before && seen[0] == 3.0);
    }
    assert_eq!((values(live.tensors()), values(tail.chosen().unwrap())), (before, average));
}

/// Each rank may fold the shard it owns: the shards together are the whole average, bit for bit.
/// Row A7.
#[test]
fn averages_of_shards_are_those_of_the_whole() {
    let shapes = [5, 11, 64, 37];
    let size: usize = shapes.iter().sum();
    for kind in [Kind::Float, Kind::BFloat16, Kind::Double] {
        let whole = parameters(&vec![0.0; size], kind);
        let shards = shapes.map(|n| parameters(&vec![0.0; n], kind));
        let mut averaging = two_tailed(TwoTailedVariant::Core, 4);
        let mut sharded = shapes.map(|_| two_tailed(TwoTailedVariant::Core, 4));
        for step in 1..=50 {
            let weights: Vec<f64> = (0..size as u64).map(|i| stream(8, step).normal(i)).collect();
            set(&whole, &weights);
            averaging.fold(step, &whole);
            let mut rest = &weights[..];
            for (shard, averaging) in shards.iter().zip(&mut sharded) {
                let (own, others) = rest.split_at(values(shard.tensors()).len());
                set(shard, own);
                averaging.fold(step, shard);
                rest = others;
            }
            if step % 4 == 0 {
                // The loss of gathered weights, which every rank is told.
                let losses: Vec<CandidateLoss> =
                    averaging.candidates().iter().map(|c| mean(&values(c.weights.unwrap())).into()).collect();
                averaging.observe(step, &losses, &whole);
                for (shard, averaging) in shards.iter().zip(&mut sharded) {
                    averaging.observe(step, &losses, shard);
                }
            }
            let tables = averaging.named_tables(&whole);
            for (i, (name, table)) in tables.iter().enumerate() {
                let parts: Vec<Tensor> =
                    shards.iter().zip(&sharded).map(|(p, a)| a.named_tables(p).remove(i).1).collect();
                assert_eq!(
                    values(&[Tensor::cat(&parts, 0)]),
                    values(&[table.shallow_clone()]),
                    "{name}, {kind:?}"
                );
            }
        }
        assert!(averaging.lengths().1 > 4);
    }
}
