//! Averages of weights that an evaluation chooses from, and ranks that have parts of them.

use segue_collectives::local::Local;
use segue_collectives::{Communicator, simulated};
use segue_engine::{Better, Engine, Measures};
use segue_kernels::Parameters;
use serde_json::json;
use tch::{Kind, Tensor};

use super::{batches, config, start};

/// What ranks find may differ in the last bit, where processors do. Averages must not.
/// Row A6.
#[test]
fn averages_of_all_ranks_follow_the_losses_of_the_first() {
    let config = config(&["average.kind=two_tailed", "eval.every=1"]);
    let states = simulated::run(2, |comm| {
        let mut engine = start(&config, comm);
        let mut switched = Vec::new();
        for step in 1..=6 {
            engine.step(step, &batches(&config, &engine, step)).unwrap();
            // Equal losses let the short average take the place of the long one, one that is worse does not.
            let mut loss = 1.0;
            let work = |_: &mut _| {
                loss += if comm.rank() == 0 { 0.0 } else { -f64::EPSILON };
                Ok(Some(measures(loss)))
            };
            let chosen = engine.evaluate(step, true, work).unwrap().unwrap();
            switched.push(chosen.choice.events);
        }
        (engine.networks[0].averaging.state(), format!("{switched:?}"))
    });
    assert_eq!(states[0], states[1]);
    assert!(states[0].1.contains("Switched"), "{}", states[0].1);
}

/// Row S27: the curve of the trained weights beside that of an average, of which nothing in the run depends.
/// Row S27.
#[test]
fn the_trained_weights_are_told_beside_an_average() {
    let states = [false, true].map(|beside| {
        let beside = format!("average.beside_trained={beside}");
        let config = config(&["average.kind=exponential", "average.beta=0.5", "eval.every=1", &beside]);
        let mut engine = start(&config, &Local);
        engine.step(1, &batches(&config, &engine, 1)).unwrap();
        let sum = |parameters: &Parameters| {
            parameters.tensors().iter().map(|t| t.sum(Kind::Double).double_value(&[])).sum::<f64>()
        };
        let trained = sum(engine.learner.parameters());
        let chosen = engine.evaluate(1, true, |learner| Ok(Some(measures(sum(learner.parameters())))));
        let chosen = chosen.unwrap().unwrap();
        assert_ne!(chosen.candidates[0].1.lead, trained);
        assert_eq!(chosen.trained.map(|found| found.lead), config.average.beside_trained.then_some(trained));
        (engine.networks[0].averaging.state(), chosen.choice)
    });
    assert_eq!(states[0], states[1]);
}

/// A family may give another loss to decide by: the short average takes the long one's place where that says so, whatever is reported.
/// Row A9.
#[test]
fn averages_decide_by_the_loss_that_is_given_for_it() {
    let config = config(&["average.kind=two_tailed", "average.variant=core", "eval.every=1"]);
    for switches in [false, true] {
        let events = simulated::run(2, |comm| {
            let mut engine = start(&config, comm);
            let mut last = Vec::new();
            for step in 1..=2 {
                engine.step(step, &batches(&config, &engine, step)).unwrap();
                // The short average first, then the long one; the other rank finds the opposite.
                let mut nth = 0.0;
                let work = |_: &mut _| {
                    nth += 1.0;
                    let decides = if switches == (comm.rank() == 0) { nth } else { -nth };
                    Ok(Some(Measures { decide: Some(decides), ..measures(-nth) }))
                };
                last = engine.evaluate(step, true, work).unwrap().unwrap().choice.events;
            }
            format!("{last:?}")
        });
        assert_eq!(events, [if switches { "[Switched]" } else { "[]" }; 2]);
    }
}

/// Row A7: each rank has its part of every average, and all together what one rank has.
/// Row A7.
#[test]
fn each_rank_holds_an_equal_part_of_the_averages() {
    let values = |kind: &str, shard: &str, ranks: usize| {
        let kind = format!("average.kind={kind}");
        let config = config(&["model.vocab_size=3000", &kind, shard, "eval.every=2"]);
        simulated::run(ranks, |comm| {
            let mut engine = start(&config, comm);
            engine.step(1, &batches(&config, &engine, 1)).unwrap();
            let candidates = engine.networks[0].averaging.candidates();
            let averages = candidates.iter().filter_map(|candidate| candidate.weights);
            averages.flatten().map(Tensor::numel).sum::<usize>()
        })
    };
    for kind in ["exponential", "polyak", "two_tailed"] {
        let whole = values(kind, "train.shard=none", 2);
        assert!(whole[0] > 3000 * 16 && whole[0] == whole[1]);
        for shard in ["train.shard=optimizer", "train.shard=gradients"] {
            for ranks in [2, 4] {
                let parts = values(kind, shard, ranks);
                assert_eq!(parts.iter().sum::<usize>(), whole[0]);
                assert!(parts.iter().all(|part| part.abs_diff(whole[0] / ranks) * 100 < whole[0] / ranks));
            }
        }
    }
}

/// Row A7: where an average has come to hold what is no number in the part of one rank, all ranks drop it.
/// Row A7.
#[test]
fn all_ranks_drop_an_average_that_one_of_them_has_broken() {
    let config = config(&["average.kind=two_tailed", "eval.every=1", "train.shard=optimizer"]);
    for last in [false, true] {
        let told = simulated::run(4, |comm| {
            let mut engine = start(&config, comm);
            let tensors = engine.learner.parameters().tensors();
            let leaf = tensors[if last { tensors.len() - 1 } else { 0 }].detach().view([-1]);
            let place = if last { leaf.numel() as i64 - 1 } else { 0 };
            let _ = tch::no_grad(|| leaf.narrow(0, place, 1).fill_(f64::NAN));
            let Engine { networks, learner, .. } = &mut engine;
            networks[0].average(1, learner.parameters());
            let chosen = engine.evaluate(1, true, |_| Ok(Some(measures(f64::NAN)))).unwrap().unwrap();
            (format!("{:?}", chosen.choice.events), engine.networks[0].averaging.state())
        });
        assert!(told.iter().all(|found| *found == told[0]), "{told:?}");
        assert!(told[0].0.contains("Dropped"), "{told:?}");
    }
}

fn measures(loss: f64) -> Measures {
    Measures {
        lead: loss,
        better: Better::Lower,
        decide: None,
        tie: None,
        row: json!({}),
        scalars: Vec::new(),
        lines: Vec::new(),
    }
}
