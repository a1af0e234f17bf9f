use segue_configs::OwnSections;
use segue_dataloader::sections::{ObjectiveConfig, ObjectiveKind, TextEvalConfig, targets_per_lane};
use segue_kernels::noise::Noise;
use segue_kernels::{Awaited, ParameterSpec, Parameters};
use segue_language::{Batch, Loss, Objective, Pairs, Scores};
use segue_layers::{HeadConfig, Memory, SummaryHead, classification_losses};
use tch::{Kind, Tensor};

use super::XlnetConfig;
use super::{Sequence, States, Visibility, Xlnet};

/// What XLNet is trained to do before it is fine-tuned (Yang 2019, §2.2.2): permutation language modelling, denoising
/// on the same backbone, or left-to-right prediction.
pub struct Pretraining {
    /// The model.
    pub model: Xlnet,
    kind: ObjectiveKind,
    next_sentence: Option<NextSentence>,
    parameters: Parameters,
}

impl Pretraining {
    /// The configured objective over parameters that it takes as its own, which must hold [`Pretraining::specs`].
    pub fn from_parameters(model: &XlnetConfig, own: &OwnSections, parameters: Parameters) -> Self {
        let ObjectiveConfig { kind, next_sentence, .. } = *own.get::<ObjectiveConfig>();
        // The engine divides sums by the number of targets: a label counts as all targets of its sequence, so that
        // what comes out is the mean over sequences times `objective.next_sentence`.
        let weight = next_sentence * targets_per_lane(own) as f64;
        Self {
            model: Xlnet::new(model, &parameters),
            kind,
            next_sentence: (next_sentence > 0.0).then(|| NextSentence::new(model, weight, &parameters)),
            parameters,
        }
    }

    /// Every parameter: the model's, then the head's where there is one.
    pub fn specs(model: &XlnetConfig, own: &OwnSections) -> Vec<ParameterSpec> {
        let mut out = Xlnet::specs(model);
        if own.get::<ObjectiveConfig>().next_sentence > 0.0 {
            out.extend(NextSentence::specs(model));
        }
        out
    }

    fn states(&self, batch: &Batch, memory: &Memory, noise: Option<&Noise>) -> States {
        let Some(pairs) = &batch.pairs else {
            return self.model.forward(Sequence::new(&batch.inputs), memory, noise);
        };
        let permuted = self.kind == ObjectiveKind::Permutation;
        let sequence = Sequence {
            ids: &batch.inputs,
            segments: Some(&pairs.segments),
            visibility: Visibility::Ranks { ranks: &pairs.ranks, halves_at: self.model.reuse_len },
            targets: permuted.then_some(&pairs.positions),
            reversed: pairs.reversed,
            content: !permuted || self.next_sentence.is_some(),
        };
        self.model.forward(sequence, memory, noise)
    }

    /// States that the targets are predicted from, `[micro_batch, targets, d_model]`.
    fn at_targets(&self, states: &States, batch: &Batch) -> Tensor {
        match (&states.predictions, &states.content, &batch.pairs) {
            (Some(predictions), _, _) => predictions.shallow_clone(),
            (None, Some(content), Some(pairs)) => {
                let index = pairs.positions.unsqueeze(2).expand([-1, -1, content.size()[2]], false);
                content.gather(1, &index, false)
            }
            (None, Some(content), None) => content.shallow_clone(),
            (None, None, _) => unreachable!("a pass gives at least one stream"),
        }
    }
}

impl Objective for Pretraining {
    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn memory_start(&self, lanes: i64) -> Memory {
        self.model.memory_start(lanes)
    }

    fn keep_marks(&mut self) {
        self.model.keeps_marks = true;
    }

    fn loss(&self, batch: &Batch, memory: &Memory, noise: Option<&Noise>) -> Loss {
        let states = self.states(batch, memory, noise);
        let nll = self.model.nll(&self.at_targets(&states, batch), &batch.targets);
        let weight = batch.weight().unwrap_or_else(|| nll.numel() as f64);
        let sum = match &batch.pairs {
            None => nll.sum(None::<Kind>),
            Some(pairs) => (&nll * pairs.weights.to_kind(nll.kind())).sum(None::<Kind>),
        };
        let auxiliary = match (&self.next_sentence, &states.content, &batch.pairs) {
            (Some(head), Some(content), Some(pairs)) => Some(head.loss(content, pairs, noise)),
            _ => None,
        };
        Loss { sum, weight, against: None, auxiliary, memory: states.memory }
    }

    fn look(&mut self, eval: Option<&TextEvalConfig>) {
        self.model.look(eval);
    }

    fn set_inverse_temperature(&mut self, factor: f64) {
        self.model.inverse_temperature = factor;
    }

    fn score(&self, batch: &Batch, memory: &Memory) -> Scores {
        tch::no_grad(|| {
            let states = self.states(batch, memory, None);
            let at_targets = self.at_targets(&states, batch);
            let best = self.model.logits(&at_targets).argmax(-1, false);
            let follows = match (&self.next_sentence, &states.content, &batch.pairs) {
                (Some(head), Some(content), Some(pairs)) => {
                    Some(head.logits(content, None).argmax(-1, false).eq_tensor(&pairs.follows))
                }
                _ => None,
            };
            Scores {
                nll: self.model.nll(&at_targets, &batch.targets),
                hits: Some(best.eq_tensor(&batch.targets)),
                follows,
                memory: states.memory,
            }
        })
    }
}

/// Whether segment B continues segment A, told from the last token's state: BERT's next-sentence objective
/// (table 2.19, row 8).
struct NextSentence {
    /// What one label weighs, in targets.
    weight: f64,
    head: Awaited<SummaryHead>,
}

impl NextSentence {
    /// Classes: B comes from elsewhere, B continues A.
    const CLASSES: i64 = 2;

    fn specs(model: &XlnetConfig) -> Vec<ParameterSpec> {
        SummaryHead::specs(&HeadConfig::from(model), Self::CLASSES)
    }

    fn new(model: &XlnetConfig, weight: f64, parameters: &Parameters) -> Self {
        Self {
            weight,
            head: parameters.awaited(|parameters| SummaryHead::new(&HeadConfig::from(model), parameters)),
        }
    }

    /// `[batch, 2]` of the content `[batch, segment, d_model]`.
    fn logits(&self, content: &Tensor, noise: Option<&Noise>) -> Tensor {
        self.head.logits(content, noise)
    }

    /// Weighted sum over lanes.
    fn loss(&self, content: &Tensor, pairs: &Pairs, noise: Option<&Noise>) -> Tensor {
        let logits = self.logits(content, noise);
        classification_losses(&logits, &pairs.follows).sum(None::<Kind>) * self.weight
    }
}
