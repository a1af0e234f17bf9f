//! What a model knows of sentences that it is not trained on, and whether its latent variables tell anything of them (Melis 2023, §5.7.1).

use segue_collectives::Communicator;
use segue_engine::{Better, Measures, Share, Watch};
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_random::{Purpose, derive};
use serde_json::{Value, json};
use tch::{Kind, Tensor};

use crate::data::{Examples, sentences};
use crate::keys::{LatentConfig, LatentEvalConfig};
use crate::learner::{Model, divergence};
use crate::network::{Masks, Posterior, Sentences};
use crate::running::Running;

/// Sentences that are scored side by side.
const SIDE_BY_SIDE: usize = 50;
/// Below as many nats a sentence, latents tell nothing of it: they have collapsed.
const COLLAPSED: f64 = 0.1;
/// What a latent variable tells of sentences at least where it is active: the variance of its mean (Burda et al. 2016), or nats.
const ACTIVE: f64 = 0.01;

/// Estimates over a split, in nats a sentence but for the tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Sentences.
    pub sentences: f64,
    /// Tokens that were predicted, ends among them.
    pub tokens: f64,
    /// Samples of a sentence.
    pub samples: i64,
    /// −ln p(x), by the bound of importance-weighted autoencoders, with the standard error of the mean. Of a codebook: by the one code that is used.
    pub nll: [f64; 2],
    /// The same by the evidence lower bound, from the same samples.
    pub evidence: [f64; 2],
    /// KL(p(z | x) ‖ p(z)): the information between sentences and latents, with the standard error of the mean. Of a codebook: its rate, which its size fixes.
    pub information: [f64; 2],
    /// KL(q(z | x) ‖ p(z)).
    pub divergence: f64,
    /// Latent variables that tell something of sentences.
    pub active: usize,
    /// Of latents of several values: the perplexity of the values that sentences use, a mean over latents.
    pub usage: Option<f64>,
}

/// What is estimated of sentences, `[sentences]` each.
struct Estimated {
    nll: Tensor,
    evidence: Tensor,
    information: Tensor,
}

/// Sums over sentences, and after them those that tell which latents are active.
const SUMS: usize = 9;

/// What each latent variable tells of sentences, as sums over these: of normal ones the means and their squares; of others the probabilities of each value and Σ q ln q.
fn told(model: &Model, posterior: &Posterior) -> Tensor {
    let of = |values: Tensor| values.sum_dim_intlist(0, false, Kind::Double).flatten(0, -1);
    match posterior {
        Posterior::Gaussian(q) => Tensor::cat(&[of(q.mean.shallow_clone()), of(q.mean.square())], 0),
        Posterior::Categorical(q) => {
            let log = q.logits.log_softmax(-1, None::<Kind>);
            let products = (log.exp() * &log).sum_dim_intlist(-1, false, None::<Kind>);
            Tensor::cat(&[of(log.exp()), of(products)], 0)
        }
        Posterior::Codebook(states) => {
            let codes = model.codebook().nearest(states);
            let uses = codes.one_hot(model.config.latent_values as i64);
            Tensor::cat(&[of(uses), of(codes.zeros_like())], 0)
        }
    }
}

/// How many latents tell something, and the perplexity of the values of those that have some, by the means over sentences of what [`told`] sums up.
fn active(config: &LatentConfig, means: &[f64]) -> (usize, Option<f64>) {
    let count = config.latent_count;
    let (first, second) = means.split_at(means.len() - count);
    let values = first.len() / count;
    let entropy = |latent: usize| {
        let own = &first[latent * values..][..values];
        -own.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum::<f64>()
    };
    let tells = |latent: usize| match values {
        // The variance of the mean.
        1 => second[latent] - first[latent] * first[latent],
        // H(mean q) − mean H(q).
        _ => second[latent] + entropy(latent),
    };
    let usage =
        (values > 1).then(|| (0..count).map(|latent| entropy(latent).exp()).sum::<f64>() / count as f64);
    ((0..count).filter(|latent| tells(*latent) > ACTIVE).count(), usage)
}

/// Estimates of sentences by `eval.samples` samples, some at a time.
fn estimated(
    model: &Model,
    sentences: &Sentences,
    posterior: &Posterior,
    eval: &LatentEvalConfig,
    noise: &Noise,
) -> Estimated {
    if let Posterior::Codebook(_) = posterior {
        let z = model.draws(posterior, 1, noise);
        let likelihood = tch::no_grad(|| model.decoder().likelihood(sentences, &z, &Masks::default()));
        let rate = divergence(posterior, &model.config).to_kind(Kind::Double);
        let nll = &rate - likelihood.squeeze_dim(1).to_kind(Kind::Double);
        return Estimated { evidence: nll.shallow_clone(), nll, information: rate };
    }
    let each = (eval.together as i64 / sentences.ids.size()[0]).max(1);
    let parts = (0..eval.samples).step_by(each as usize).map(|from| each.min(eval.samples - from));
    let estimates = parts.map(|count| Running::of(&model.scores(sentences, posterior, count, noise)));
    let Some(estimate) = estimates.reduce(Running::merged) else {
        unreachable!("a sentence has a sample at least");
    };
    Estimated { nll: -estimate.bound(), evidence: -estimate.evidence(), information: estimate.information() }
}

/// Estimates of the sentences of a split. Noise is that of (seed, group of sentences): the same at any number of ranks. A collective call.
pub fn estimate(
    model: &Model,
    examples: &Examples,
    eval: &LatentEvalConfig,
    seed: u64,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Found, TrainError> {
    let groups = examples.groups(SIDE_BY_SIDE);
    let share = Share::new(comm, groups.len());
    let end = model.config.eos_token_id as i64;
    let own = share.each(1, watch, |part, done| {
        let sentences = sentences(examples, &groups[part], end)?;
        let noise = Noise::new(derive(seed, Purpose::Evaluation, &[part as u64]));
        let posterior = tch::no_grad(|| model.encoder().posterior(&sentences));
        let found = estimated(model, &sentences, &posterior, eval, &noise);
        let sum = |values: &Tensor| values.sum(Kind::Double).double_value(&[]);
        let mut sums = vec![groups[part].len() as f64, sum(&sentences.lengths)];
        let estimates = [&found.nll, &found.evidence, &found.information];
        sums.extend(estimates.iter().flat_map(|values| [sum(values), sum(&values.square())]));
        sums.push(sum(&tch::no_grad(|| divergence(&posterior, &model.config))));
        sums.extend(Vec::<f64>::try_from(tch::no_grad(|| told(model, &posterior)))?);
        done()?;
        Ok(sums)
    })?;
    let parts = share.numbers(&own)?;
    let mut sums = vec![0.0; parts.first().map_or(0, Vec::len)];
    for part in &parts {
        sums.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    let count = sums[0];
    let mean = |at: usize| sums[at] / count;
    let with_error = |at: usize| [mean(at), ((mean(at + 1) - mean(at).powi(2)).max(0.0) / count).sqrt()];
    let told: Vec<f64> = sums[SUMS..].iter().map(|sum| sum / count).collect();
    let (active, usage) = active(&model.config, &told);
    Ok(Found {
        sentences: count,
        tokens: sums[1],
        samples: eval.samples,
        nll: with_error(2),
        evidence: with_error(4),
        information: with_error(6),
        divergence: mean(8),
        active,
        usage,
    })
}

impl Found {
    /// Its numbers: `loss` and `ppl` are of tokens, all others of sentences.
    pub fn row(&self) -> Value {
        let per_sentence = self.sentences / self.tokens;
        let loss = self.nll[0] * per_sentence;
        let [information, error] = self.information;
        json!({
            "loss": loss, "ppl": loss.exp(), "sentences": self.sentences, "tokens": self.tokens, "samples": self.samples,
            "nll": self.nll[0], "nll_error": self.nll[1],
            "evidence_nll": self.evidence[0], "evidence_nll_error": self.evidence[1],
            "information": information, "information_error": error,
            "information_per_token": information * per_sentence, "distortion": self.nll[0] - information,
            "divergence": self.divergence, "active": self.active, "usage": self.usage, "collapsed": self.is_collapsed(),
        })
    }

    /// The report for people, in lines.
    pub fn lines(&self) -> Vec<String> {
        let loss = self.nll[0] * self.sentences / self.tokens;
        let ([information, error], [evidence, _], [nll, nll_error]) =
            (self.information, self.evidence, self.nll);
        let usage = self.usage.map_or(String::new(), |usage| format!(", {usage:.1} values of each in use"));
        let mut lines = vec![
            format!(
                "loss {loss:.4}, ppl {:.3}: −ln p(x) of a sentence {nll:.3} ± {nll_error:.3} by {} samples, {evidence:.3} by the evidence lower bound",
                loss.exp(),
                self.samples
            ),
            format!(
                "information {information:.3} ± {error:.3} nats a sentence, KL of q {:.3}, active latents {}{usage}",
                self.divergence, self.active
            ),
        ];
        if self.is_collapsed() {
            lines.push(format!(
                "the latents have collapsed: they tell less than {COLLAPSED} nats of a sentence\nhint: raise objective.information, with objective.kind=renyi or kl"
            ));
        }
        lines
    }

    /// As an evaluation reports them.
    pub fn measures(&self) -> Measures {
        let loss = self.nll[0] * self.sentences / self.tokens;
        let scalars = [
            ("loss", loss),
            ("ppl", loss.exp()),
            ("information", self.information[0]),
            ("divergence", self.divergence),
            ("active", self.active as f64),
        ];
        let mut lines = self.lines();
        lines[0].insert_str(0, "validation: ");
        Measures {
            lead: loss,
            better: Better::Lower,
            decide: None,
            tie: None,
            row: self.row(),
            scalars: scalars.map(|(name, value)| (format!("valid/{name}"), value)).into(),
            lines,
        }
    }

    /// Whether latents tell nothing of sentences.
    pub fn is_collapsed(&self) -> bool {
        self.information[0] < COLLAPSED
    }
}
