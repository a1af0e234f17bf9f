use segue_configs::ModelConfig;
use segue_dataloader::tasks;
use tch::{Kind, Tensor};

use super::batch::Rows;
use super::model::HeadSpec;
use crate::model::{self, Memory, Sequence, TransfoXl, Visibility, WordVectors, Xlnet};
use crate::noise::Noise;
use crate::{ParameterSpec, Parameters};

/// A pre-trained model as heads see it: whole sequences in, states out. There is no memory and nothing is predicted
/// in any order (Yang 2019, §2.2.2).
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

    /// States of the last position alone, which is `<cls>`: `[rows, 1, d_model]`. Costs less than all of them.
    pub fn last_states(&self, rows: &Rows, noise: Option<&Noise>) -> Tensor {
        match self {
            Self::Xlnet(model) => {
                let last = Tensor::full(
                    [rows.offsets.len() as i64, 1],
                    rows.length - 1,
                    (Kind::Int64, tch::Device::Cpu),
                );
                let blocked = blocked(rows);
                model.content_at(sequence(rows, blocked.as_ref()), &last, noise)
            }
            Self::TransfoXl(_) | Self::Words(_) => self.states(rows, noise).narrow(1, rows.length - 1, 1),
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
                let blocked = blocked(rows);
                let memory = no_memory(model.config().n_layer, rows, model.config().d_model);
                let states = model.forward(sequence(rows, blocked.as_ref()), &memory, noise);
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

/// True where a position must not see another, `[rows, length, length]`; `None` where all see all.
fn blocked(rows: &Rows) -> Option<Tensor> {
    let padding = rows.padding.as_ref()?;
    Some(padding.unsqueeze(1).expand([-1, rows.length, -1], false))
}

fn sequence<'a>(rows: &'a Rows, blocked: Option<&'a Tensor>) -> Sequence<'a> {
    let visibility = blocked.map_or(Visibility::All, Visibility::Blocked);
    Sequence { segments: Some(&rows.segments), visibility, ..Sequence::new(&rows.ids) }
}

/// Documents are ranked by words alone (Yang 2019, §2.2.3).
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

#[cfg(test)]
mod tests {
    use segue_configs::XlnetConfig;
    use segue_dataloader::tasks::{Example, Sequence as Tokens, Target};

    use super::*;

    #[test]
    fn x22_the_last_state_alone_is_the_last_of_all() {
        let config = XlnetConfig {
            vocab_size: 11,
            d_model: 16,
            n_head: 2,
            d_inner: 20,
            n_layer: 3,
            initializer_range: 0.3,
            ..Default::default()
        };
        let config = ModelConfig::Xlnet(config);
        let parameters = Parameters::initialise(Encoder::specs(&config, &[]), 1, Kind::Float);
        let encoder = Encoder::new(&config, &[], &parameters);
        let example = |ids: &[u32]| {
            let segments = ids.iter().map(|id| u8::from(*id > 5)).collect();
            let sequence = Tokens { ids: ids.to_vec(), segments, outside: Vec::new() };
            Example { sequences: vec![sequence], target: Target::Unknown }
        };
        let examples = [example(&[1, 2, 3, 7, 9, 10]), example(&[4, 8]), example(&[5, 6, 7, 1])];
        let rows = Rows::of(&examples.iter().collect::<Vec<_>>());
        let all = encoder.states(&rows, None).narrow(1, rows.length - 1, 1);
        let difference = (encoder.last_states(&rows, None) - all).abs().max().double_value(&[]);
        assert!(difference < 1e-5, "{difference}");
    }
}
