//! What a model knows of sentences that it is not trained on, and whether its latent variables tell anything of them (Melis 2023, §5.7.1).

use segue_collectives::Communicator;
use segue_engine::{Better, Measures, Share, Watch};
use segue_kernels::TrainError;
use segue_kernels::noise::Noise;
use segue_random::{Purpose, derive};
use segue_sentences::SentenceTexts;
use serde_json::json;
use tch::{Kind, Tensor};

use crate::data::sentences;
use crate::keys::LatentEvalConfig;
use crate::learner::{Model, divergence};
use crate::network::Posterior;
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
    /// −ln p(x), by the bound of importance-weighted autoencoders, with the standard error of the mean.
    pub nll: [f64; 2],
    /// KL(p(z | x) ‖ p(z)): the information between sentences and latents, with the standard error of the mean.
    pub information: [f64; 2],
    /// KL(q(z | x) ‖ p(z)).
    pub divergence: f64,
    /// Latent variables that tell something of sentences.
    pub active: usize,
}

/// Sums over sentences, and after them those that tell which latents are active.
const SUMS: usize = 7;

/// What each latent variable tells of sentences, as sums over these: of normal ones the means and their squares; of others the probabilities of each value and Σ q ln q.
fn told(posterior: &Posterior) -> Tensor {
    let of = |values: Tensor| values.sum_dim_intlist(0, false, Kind::Double).flatten(0, -1);
    match posterior {
        Posterior::Gaussian(q) => Tensor::cat(&[of(q.mean.shallow_clone()), of(q.mean.square())], 0),
        Posterior::Categorical(q) => {
            let log = q.logits.log_softmax(-1, None::<Kind>);
            let products = (log.exp() * &log).sum_dim_intlist(-1, false, None::<Kind>);
            Tensor::cat(&[of(log.exp()), of(products)], 0)
        }
    }
}

/// How many latents tell something, by the means over sentences of what [`told`] sums up.
fn active(model: &Model, means: &[f64]) -> usize {
    let count = model.config.latent_count;
    let (first, second) = means.split_at(means.len() - count);
    let values = first.len() / count;
    let tells = |latent: usize| match values {
        // The variance of the mean.
        1 => second[latent] - first[latent] * first[latent],
        // H(mean q) − mean H(q).
        _ => {
            let own = &first[latent * values..][..values];
            second[latent] - own.iter().filter(|p| **p > 0.0).map(|p| p * p.ln()).sum::<f64>()
        }
    };
    (0..count).filter(|latent| tells(*latent) > ACTIVE).count()
}

/// Estimates of the sentences of a split. Noise is that of (seed, group of sentences): the same at any number of ranks. A collective call.
pub fn estimate(
    model: &Model,
    texts: &SentenceTexts,
    eval: &LatentEvalConfig,
    seed: u64,
    comm: &dyn Communicator,
    watch: &mut Watch,
) -> Result<Found, TrainError> {
    let groups = texts.by_length(usize::MAX, SIDE_BY_SIDE);
    let share = Share::new(comm, groups.len());
    let end = model.config.eos_token_id as i64;
    let own = share.each(1, watch, |part, done| {
        let sentences = sentences(texts, &groups[part], end)?;
        let noise = Noise::new(derive(seed, Purpose::Evaluation, &[part as u64]));
        let posterior = tch::no_grad(|| model.encoder().posterior(&sentences));
        let each = (eval.together / groups[part].len()).max(1) as i64;
        let parts = (0..eval.samples).step_by(each as usize).map(|from| each.min(eval.samples - from));
        let estimates = parts.map(|count| Running::of(&model.scores(&sentences, &posterior, count, &noise)));
        let Some(estimate) = estimates.reduce(Running::merged) else {
            unreachable!("a sentence has a sample at least");
        };
        let (nll, information) = (-estimate.bound(), estimate.information());
        let sum = |values: &Tensor| values.sum(Kind::Double).double_value(&[]);
        let mut sums = vec![
            groups[part].len() as f64,
            sum(&sentences.lengths),
            sum(&nll),
            sum(&nll.square()),
            sum(&information),
            sum(&information.square()),
            sum(&tch::no_grad(|| divergence(&posterior))),
        ];
        sums.extend(Vec::<f64>::try_from(tch::no_grad(|| told(&posterior)))?);
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
    Ok(Found {
        sentences: count,
        tokens: sums[1],
        nll: with_error(2),
        information: with_error(4),
        divergence: mean(6),
        active: active(model, &told),
    })
}

impl Found {
    /// As an evaluation reports them: `loss` and `ppl` are of tokens, what is of the latents is of sentences.
    pub fn measures(&self, samples: i64) -> Measures {
        let per_sentence = self.sentences / self.tokens;
        let loss = self.nll[0] * per_sentence;
        let [information, error] = self.information;
        let row = json!({
            "loss": loss, "ppl": loss.exp(), "sentences": self.sentences, "tokens": self.tokens, "samples": samples,
            "nll": self.nll[0], "nll_error": self.nll[1], "information": information, "information_error": error,
            "information_per_token": information * per_sentence, "divergence": self.divergence,
            "active": self.active, "collapsed": self.is_collapsed(),
        });
        let scalars = [
            ("loss", loss),
            ("ppl", loss.exp()),
            ("information", information),
            ("divergence", self.divergence),
            ("active", self.active as f64),
        ];
        let mut lines = vec![format!(
            "validation: loss {loss:.4}, ppl {:.3} by {samples} samples; information {information:.3} ± {error:.3} nats a sentence, KL of q {:.3}, active latents {}",
            loss.exp(),
            self.divergence,
            self.active
        )];
        if self.is_collapsed() {
            lines.push(format!(
                "the latents have collapsed: they tell less than {COLLAPSED} nats of a sentence\nhint: raise objective.information, with objective.kind=renyi or kl"
            ));
        }
        Measures {
            lead: loss,
            better: Better::Lower,
            decide: None,
            tie: None,
            row,
            scalars: scalars.map(|(name, value)| (format!("valid/{name}"), value)).into(),
            lines,
        }
    }

    /// Whether latents tell nothing of sentences.
    pub fn is_collapsed(&self) -> bool {
        self.information[0] < COLLAPSED
    }
}
