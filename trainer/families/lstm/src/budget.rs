//! The width that a budget of parameters gives a model.

use segue_configs::ConfigError;
use segue_configs::model::out_of_range;
use segue_kernels::ParameterSpec;

use super::keys::LstmConfig;
use super::parameters;

impl LstmConfig {
    /// Number of trained values.
    pub(super) fn count(&self) -> usize {
        parameters::specs(self).iter().map(ParameterSpec::numel).sum()
    }

    /// Sets `d_model` to the largest whose model stays within `parameters`. Count and width rise together, but for one width: states as wide as
    /// embeddings of a width of their own need no projection, and have fewer values than those around them.
    pub(super) fn fit_budget(&mut self) -> Result<(), ConfigError> {
        let count = |d_model: usize| Self { d_model, ..self.clone() }.count();
        if count(1) > self.parameters {
            let why =
                format!("is too little for {} words: the narrowest model has {}", self.vocab_size, count(1));
            return Err(out_of_range("model.parameters", self.parameters, &why));
        }
        let plain = [self.d_embed, self.d_last]
            .into_iter()
            .filter(|width| *width > 0 && count(*width) <= self.parameters);
        self.d_model = plain.chain([widest(self.parameters, count)]).max().unwrap_or(1);
        Ok(())
    }
}

/// The largest width whose `count` of parameters, which rises with it, stays within `budget`; 1 where none does. A recurrent layer has a
/// matrix of as many values as its width squared.
pub fn widest(budget: usize, count: impl Fn(usize) -> usize) -> usize {
    let (mut fits, mut exceeds) = (1, budget.isqrt() + 2);
    while exceeds - fits > 1 {
        let middle = fits + (exceeds - fits) / 2;
        if count(middle) <= budget {
            fits = middle;
        } else {
            exceeds = middle;
        }
    }
    fits
}
