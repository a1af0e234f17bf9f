use segue_configs::ModelConfig;
use segue_dataloader::tasks;
use tch::{Kind, Tensor};

use super::batch::Rows;
use super::model::HeadSpec;
use crate::model::{self, Memory, Sequence, TransfoXl, Visibility, WordVectors, Xlnet};
use crate::noise::Noise;
use crate::{ParameterSpec, Parameters};

/// A pre-trained model as heads see it: whole sequences in, states out. There is no memory and nothing is predicted
/// in any order (thesis 2.2.4).
pub enum Encoder {
    /// Every token sees every other.
    Xlnet(Box<Xlnet>),
    /// Every token sees those before it.
    TransfoXl(Box<TransfoXl>),
    /// No layer at all: the vectors of words as they are, which nothing is trained of. Documents are ranked by them.
    Words(WordVectors),
}

impl Encoder {
    /// Parameters of the configured model that what `heads` read depends on, and those it cannot be built without.
    pub fn specs(config: &ModelConfig, heads: &[HeadSpec]) -> Vec<ParameterSpec> {
        match config {
            _ if want_words(heads) => WordVectors::specs(config),
            ModelConfig::Xlnet(config) => Xlnet::encoder_specs(config),
            ModelConfig::TransfoXl(_) => model::specs(config),
        }
    }

    /// What `heads` read of the configured model, over `parameters`.
    pub fn new(config: &ModelConfig, heads: &[HeadSpec], parameters: &Parameters) -> Self {
        match config {
            _ if want_words(heads) => Self::Words(WordVectors::new(config, parameters)),
            ModelConfig::Xlnet(config) => {
                let mut model = Xlnet::new(config, parameters);
                model.context.mem_len = 0;
                model.context.same_length = None;
                Self::Xlnet(Box::new(model))
            }
            ModelConfig::TransfoXl(config) => {
                let mut model = TransfoXl::new(config, parameters);
                model.context.mem_len = 0;
                model.context.same_length = None;
                Self::TransfoXl(Box::new(model))
            }
        }
    }

    /// Whether states depend on the parameter of this name.
    pub fn uses(&self, name: &str) -> bool {
        match self {
            Self::Xlnet(_) => name != "transformer.mask_emb",
            Self::TransfoXl(_) => name.starts_with("transformer."),
            Self::Words(_) => true,
        }
    }

    /// Whether its parameters stay as they are.
    pub fn is_frozen(&self) -> bool {
        matches!(self, Self::Words(_))
    }

    /// States of every position, `[rows, length, d_model]`; those of padding mean nothing. Dropout is on where
    /// there is noise.
    pub fn states(&self, rows: &Rows, noise: Option<&Noise>) -> Tensor {
        match self {
            Self::Xlnet(model) => {
                let blocked = rows.padding.as_ref().map(|padding| {
                    let padding = padding.unsqueeze(1);
                    padding.expand([-1, rows.length, -1], false)
                });
                let visibility = blocked.as_ref().map_or(Visibility::All, Visibility::Blocked);
                let sequence =
                    Sequence { segments: Some(&rows.segments), visibility, ..Sequence::new(&rows.ids) };
                let memory = no_memory(model.config().n_layer, rows, model.config().d_model);
                let states = model.forward(sequence, &memory, noise);
                let Some(content) = states.content else { unreachable!("content was asked for") };
                content
            }
            Self::TransfoXl(model) => {
                let memory = no_memory(model.config().n_layer, rows, model.config().d_model);
                let ids = rotated(&rows.ids, &rows.offsets);
                let hidden = model.forward(&ids, &memory, noise).hidden;
                let back: Vec<i64> = rows.offsets.iter().map(|offset| -offset).collect();
                rotated(&hidden, &back)
            }
            Self::Words(words) => words.forward(&rows.ids),
        }
    }
}

/// Documents are ranked by words alone (spec 2.10).
fn want_words(heads: &[HeadSpec]) -> bool {
    !heads.is_empty() && heads.iter().all(|head| head.kind == tasks::Kind::Ranking)
}

fn no_memory(layers: usize, rows: &Rows, d_model: usize) -> Memory {
    Memory::zeros(layers, rows.offsets.len() as i64, 0, d_model as i64, Kind::Float)
}

/// Every row of `[rows, length, ..]` rotated to the left by its own number of positions. A model that looks to the
/// left alone does not see padding that has been moved behind the text.
fn rotated(x: &Tensor, offsets: &[i64]) -> Tensor {
    if offsets.iter().all(|&offset| offset == 0) {
        return x.shallow_clone();
    }
    let size = x.size();
    let length = size[1];
    let from: Vec<i64> = offsets
        .iter()
        .flat_map(|offset| (0..length).map(move |position| (position + offset).rem_euclid(length)))
        .collect();
    let mut index = Tensor::from_slice(&from).view([size[0], length]);
    if let Some(&width) = size.get(2) {
        index = index.unsqueeze(2).expand([-1, -1, width], false);
    }
    x.gather(1, &index, false)
}
