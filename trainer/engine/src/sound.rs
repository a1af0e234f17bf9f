//! Whether what a run goes on from is made of numbers. A loss and a gradient that are finite do not say so: the update after them may
//! overflow, and a broken processor or memory leaves anything behind.

use segue_collectives::Communicator;
use segue_configs::NonFinite;
use segue_kernels::libtorch::is_finite;
use segue_kernels::{NoWayBack, Parameters, TrainError};
use serde::{Deserialize, Serialize};
use tch::Tensor;

use super::family::Family;
use super::learner::Learner;
use super::network::Network;
use super::run::Run;
use super::search::all_say;
use super::step::Engine;

/// What a rank says of what it holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Look {
    /// The first tensor with a value that is not finite, in words.
    not_finite: Option<String>,
}

impl<L: Learner> Engine<'_, L> {
    /// The first tensor of a checkpoint that holds a value that is not finite, of those that this rank has at least a part of: weights, moments, the
    /// average that is the model, tables of the learner, what lanes carry. Averages that are not the model may hold one: the next evaluation drops those.
    pub(super) fn first_spoiled(&self) -> Option<String> {
        let spoiled = |kind: &str, name: &str, tensor: &Tensor| {
            (!is_finite(tensor)).then(|| format!("the {kind} `{name}`"))
        };
        let of_network = |(network, (_, parameters)): (&Network, (&str, &Parameters))| {
            let names = || parameters.specs().iter().map(|spec| spec.name.as_str());
            let weights = names().zip(parameters.tensors());
            let own = network.averaged(parameters).specs().iter().map(|spec| spec.name.as_str());
            let averages = own.zip(network.averaging.chosen().unwrap_or_default());
            let pieces = network.optimizer.pieces();
            let mut moments = network.optimizer.tables().into_iter().flat_map(|(table, tensors)| {
                pieces.iter().zip(tensors).map(move |(piece, tensor)| (table, piece.parameter, tensor))
            });
            weights
                .map(|(name, tensor)| spoiled("weight", name, tensor))
                .chain(averages.map(|(name, tensor)| spoiled("average", name, tensor)))
                .find_map(|found| found)
                .or_else(|| {
                    moments.find_map(|(table, parameter, tensor)| {
                        spoiled("moment", &format!("{table}.{}", parameters.specs()[parameter].name), tensor)
                    })
                })
        };
        let of_lanes = || {
            let mut tables = self.carry_tables().into_iter().flat_map(|(_, tables)| tables);
            tables.find_map(|(name, table)| spoiled("memory", &name, &table))
        };
        let of_learner = || {
            let tables = self.learner.tables().into_iter().filter(|(_, table)| table.is_floating_point());
            tables.into_iter().find_map(|(name, table)| spoiled("table", &name, &table))
        };
        let of_frozen = || {
            let mut frozen =
                self.learner.frozen().into_iter().flat_map(|own| own.specs().iter().zip(own.tensors()));
            frozen.find_map(|(spec, tensor)| spoiled("weight", &spec.name, tensor))
        };
        let networks = self.networks.iter().zip(self.learner.networks());
        networks.into_iter().find_map(of_network).or_else(of_frozen).or_else(of_learner).or_else(of_lanes)
    }
}

impl<F: Family> Run<'_, F> {
    /// The error of a state that is not to be written: one with a value that is not finite on any rank. A collective call.
    pub(super) fn spoiled(&self) -> Result<Option<TrainError>, TrainError> {
        self.engine.settle()?;
        let what = agreed(self.engine.first_spoiled(), self.comm)?;
        let recovery = &self.config.recovery;
        let because = match recovery.non_finite {
            NonFinite::Stop | NonFinite::Skip => NoWayBack::NotAsked,
            _ if self.state.recoveries >= recovery.at_most => NoWayBack::UsedUp,
            _ => NoWayBack::NoCheckpoint,
        };
        Ok(what.map(|what| TrainError::Spoiled { step: self.state.step, what, because }))
    }
}

/// What the first rank says that has found anything, with its number where others have not.
fn agreed(own: Option<String>, comm: &dyn Communicator) -> Result<Option<String>, TrainError> {
    let said = all_say(comm, Some(&Look { not_finite: own }))?;
    let found: Vec<Option<String>> =
        said.into_iter().map(|look| look.and_then(|look| look.not_finite)).collect();
    let alike = found.iter().all(Option::is_some);
    let first = found.into_iter().enumerate().find_map(|(rank, what)| Some((rank, what?)));
    Ok(first.map(|(rank, what)| if alike { what } else { format!("{what} of rank {rank}") }))
}

#[cfg(test)]
mod tests {
    use segue_collectives::simulated;
    use segue_kernels::noise::Noise;
    use segue_kernels::{Carry, Init, ParameterSpec};
    use segue_testing::MODELS;
    use tch::{Device, Kind};

    use super::*;
    use crate::{Loss, Turn};

    /// One weight, and a sum that each lane carries.
    struct Sum(Parameters);

    struct Carried(Tensor);

    impl Carry for Carried {
        fn tables(&self) -> Vec<(String, Tensor)> {
            vec![("sum".into(), self.0.shallow_clone())]
        }

        fn of_tables(&self, mut tables: Vec<Tensor>) -> Self {
            Self(tables.remove(0))
        }

        fn forget(&mut self, _: &[bool], fresh: Self) {
            *self = fresh;
        }
    }

    impl Learner for Sum {
        type Batch = ();
        type Carry = Carried;

        fn networks(&self) -> Vec<(&'static str, &Parameters)> {
            vec![("model", &self.0)]
        }

        fn start(&self, lanes: i64) -> Carried {
            Carried(Tensor::zeros([lanes, 1], (Kind::Float, Device::Cpu)))
        }

        fn loss(&self, _: &Turn, (): &(), _: usize, carry: &Carried, _: &Noise) -> Loss<Carried> {
            Loss::of(self.0.get("w").sum(Kind::Float), 1.0, None, Carried(&carry.0 + 1.0))
        }
    }

    /// Makes the last value of a tensor a NaN.
    fn spoil(tensor: &Tensor) {
        let values = tensor.detach().view([-1]);
        let _ = tch::no_grad(|| values.narrow(0, values.size()[0] - 1, 1).fill_(f64::NAN));
    }

    /// Whatever a checkpoint is made of is looked at, by each rank that has a part of it.
    #[test]
    fn weights_moments_the_model_s_average_and_memory_are_looked_at() {
        let of = |what: usize, shard: &str, average: &str| {
            let keys = ["train.lanes=4", "train.micro_batch=1", "eval.every=1", shard, average];
            let keys: Vec<String> = keys.into_iter().map(String::from).collect();
            let config = MODELS.load(None, &keys).unwrap().config;
            simulated::run(2, |comm| {
                let spec = ParameterSpec { name: "w".into(), shape: vec![40, 25], init: Init::Zeros };
                let sum = Sum(Parameters::initialise(vec![spec], 1, Kind::Float));
                let mut engine = Engine::new(&config, sum, comm).unwrap();
                let Engine { networks, learner, .. } = &mut engine;
                networks[0].average(1, &learner.0);
                assert_eq!(engine.first_spoiled(), None);
                let Engine { networks, learner, carries, .. } = &engine;
                match what {
                    0 => spoil(&learner.0.tensors()[0]),
                    1 => spoil(networks[0].optimizer.tables()[1].1.last().unwrap()),
                    2 => spoil(networks[0].averaging.chosen().unwrap().last().unwrap()),
                    3 => networks[0].averaging.tables().iter().for_each(|(_, tables)| spoil(&tables[0])),
                    _ => spoil(&carries[1].tables()[0].1),
                }
                engine.first_spoiled().unwrap_or_default()
            })
        };
        for shard in ["none", "optimizer", "gradients"].map(|shard| format!("train.shard={shard}")) {
            for (what, begins) in [
                (0, "the weight `"),
                (1, "the moment `exp_avg_sq."),
                (2, "the average `"),
                (4, "the memory `sum`"),
            ] {
                let found = of(what, &shard, "average.kind=exponential");
                assert!(found.iter().all(|found| found.starts_with(begins)), "{shard}: {found:?}");
            }
            // The next evaluation drops these.
            assert_eq!(of(3, &shard, "average.kind=two_tailed"), [""; 2]);
        }
    }

    #[test]
    fn ranks_agree_on_what_is_not_finite() {
        let agreed = |found: [Option<&str>; 3]| {
            let all = simulated::run(3, |comm| agreed(found[comm.rank()].map(String::from), comm).unwrap());
            assert!(all.iter().all(|other| *other == all[0]), "{all:?}");
            all[0].clone()
        };
        assert_eq!(agreed([None; 3]), None);
        assert_eq!(agreed([Some("a"), Some("a"), Some("b")]).as_deref(), Some("a"));
        assert_eq!(agreed([None, Some("b"), Some("c")]).as_deref(), Some("b of rank 1"));
    }
}
