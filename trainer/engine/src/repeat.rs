//! Micro-steps that are made twice: what a processor that now and then computes wrongly gives itself away by (Dixit et al. 2021,
//! "Silent Data Corruptions at Scale").

use segue_kernels::{Carry, TrainError};

use super::digest::{Digest, digest};
use super::learner::Loss;
use super::micro_step::read_at_once;

/// What a micro-step has come to, bit by bit.
#[derive(PartialEq, Eq)]
pub struct Made {
    /// The reported sum, the statistics, and the weight.
    sums: Vec<u64>,
    carry: Vec<(String, Digest)>,
    /// Of each network of the turn, by parameter.
    gradients: Vec<Vec<Option<Digest>>>,
}

impl Made {
    /// Of a micro-step whose backward gave these gradients.
    pub fn of<C: Carry>(loss: &Loss<C>, gradients: Vec<Vec<Option<Digest>>>) -> Result<Self, TrainError> {
        let tables = loss.carry.tables().into_iter();
        let computed = read_at_once([&loss.reported].into_iter().chain(&loss.statistics))?;
        let sums = computed.into_iter().flatten().chain([loss.weight]);
        Ok(Self {
            sums: sums.map(f64::to_bits).collect(),
            carry: tables.map(|(name, table)| (name, digest(&table))).collect(),
            gradients,
        })
    }

    /// What differs first between two times, if anything does; `name` gives the name of a network's parameter.
    pub fn difference(&self, other: &Self, name: impl Fn(usize, usize) -> String) -> Option<String> {
        if self.sums != other.sums {
            let shown = |made: &Self| made.sums.iter().map(|sum| f64::from_bits(*sum)).collect::<Vec<_>>();
            return Some(format!("loss, statistics and weight ({:?} and {:?})", shown(self), shown(other)));
        }
        let tables = self.carry.iter().zip(&other.carry);
        if let Some(((table, _), _)) = tables.into_iter().find(|(one, other)| one != other) {
            return Some(format!("the carry `{table}`"));
        }
        self.gradients.iter().zip(&other.gradients).enumerate().find_map(|(network, (one, other))| {
            let parameter = one.iter().zip(other).position(|(one, other)| one != other)?;
            Some(format!("the gradient of `{}`", name(network, parameter)))
        })
    }
}
