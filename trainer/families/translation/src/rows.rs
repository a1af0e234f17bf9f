//! The same model over rows: what translates many sentences at once in f32 on the processor. A row is a token; tokens of all sentences stand side by side, without
//! padding, and a sentence comes out with the same bits whatever sentences stand beside it.

mod translating;

use segue_kernels::{Parameters, RowMap};
use segue_layers::rows::{RowHeads, RowNorm, add, log_softmax, mapped, row_map, values_of};
use segue_layers::{NormPlace, position_vector};

use super::keys::TranslationConfig;
use super::model::{OUTPUT_BIAS, TABLE};
use super::side::{EPSILON, Side};

pub use translating::RowTranslating;

/// A Transformer whose weights are laid out for rows.
pub struct RowTransformer {
    config: TranslationConfig,
    /// `[words, d_model]`
    table: Vec<f32>,
    words: RowMap,
    encoder: Vec<RowLayer>,
    decoder: Vec<RowLayer>,
    /// After the layers of each half, where norms come first.
    last_norms: Option<[RowNorm; 2]>,
}

/// A layer of either half.
struct RowLayer {
    own: Reading,
    /// Of the decoder: attention to the source, and what makes keys and values of it.
    source: Option<(Reading, RowMap)>,
    first: RowMap,
    outer: RowMap,
    norm: RowNorm,
}

/// Attention with its surroundings.
struct Reading {
    heads: RowHeads,
    /// Map to the query; of attention to the text itself, keys and values follow.
    query: RowMap,
    out: RowMap,
    norm: RowNorm,
}

impl Reading {
    fn new(parameters: &Parameters, name: &str, maps: &[&str], heads: RowHeads) -> Option<Self> {
        let maps: Vec<String> = maps.iter().map(|map| format!("{name}.{map}_proj")).collect();
        Some(Self {
            heads,
            query: row_map(parameters, &maps)?,
            out: row_map(parameters, &[format!("{name}.out_proj")])?,
            norm: RowNorm::named(parameters, &format!("{name}_layer_norm"), EPSILON)?,
        })
    }
}

impl RowLayer {
    fn new(config: &TranslationConfig, parameters: &Parameters, side: Side, index: usize) -> Option<Self> {
        let (prefix, [_, heads, _]) = (side.layer(index), side.sizes(config));
        let heads = RowHeads { heads, d_model: config.d_model };
        let map = |name: &str| row_map(parameters, &[format!("{prefix}.{name}")]);
        let source = || {
            let name = format!("{prefix}.encoder_attn");
            let states = row_map(parameters, &["k", "v"].map(|map| format!("{name}.{map}_proj")))?;
            Some((Reading::new(parameters, &name, &["q"], heads)?, states))
        };
        Some(Self {
            own: Reading::new(parameters, &format!("{prefix}.self_attn"), &["q", "k", "v"], heads)?,
            source: match side {
                Side::Encoder => None,
                Side::Decoder => Some(source()?),
            },
            first: map("fc1")?,
            outer: map("fc2")?,
            norm: RowNorm::named(parameters, &format!("{prefix}.final_layer_norm"), EPSILON)?,
        })
    }
}

impl RowTransformer {
    /// Over `parameters`, which hold [`specs`](super::model::specs); `None` where they are not in f32 on the CPU.
    pub fn new(config: &TranslationConfig, parameters: &Parameters) -> Option<Self> {
        let layers = |side: Side| {
            let [layers, ..] = side.sizes(config);
            (0..layers)
                .map(|index| RowLayer::new(config, parameters, side, index))
                .collect::<Option<Vec<_>>>()
        };
        let last_norms = || {
            let norm = |side: Side| RowNorm::named(parameters, &side.last_norm(), EPSILON);
            Some([norm(Side::Encoder)?, norm(Side::Decoder)?])
        };
        let table = values_of(&parameters.get(TABLE))?;
        let bias = parameters.find(OUTPUT_BIAS).map(|bias| values_of(&bias));
        let words = RowMap::new(
            &table,
            [config.vocab_size, config.d_model],
            match &bias {
                Some(bias) => Some(bias.as_ref()?),
                None => None,
            },
        );
        Some(Self {
            words,
            table,
            encoder: layers(Side::Encoder)?,
            decoder: layers(Side::Decoder)?,
            last_norms: match config.norm {
                NormPlace::Pre => Some(last_norms()?),
                NormPlace::Post => None,
            },
            config: config.clone(),
        })
    }

    /// Its configuration.
    pub fn config(&self) -> &TranslationConfig {
        &self.config
    }

    /// Writes the embedding of a token at a position with this vector to `to`, `[d_model]`.
    fn embed(&self, token: i64, position: &[f32], to: &mut [f32]) {
        let width = self.config.d_model;
        let scale = if self.config.scale_embedding { (width as f32).sqrt() } else { 1.0 };
        let vector = &self.table[token as usize * width..][..width];
        for ((to, value), position) in to.iter_mut().zip(vector).zip(position) {
            *to = value * scale + position;
        }
    }

    /// States of the tokens of all `sources`, one source after the other: `[tokens, d_model]`.
    fn encode(&self, sources: &[Vec<i64>]) -> Vec<f32> {
        let width = self.config.d_model;
        let longest = sources.iter().map(Vec::len).max().unwrap_or(0);
        let positions: Vec<f32> =
            (0..longest).flat_map(|position| position_vector(position, width)).collect();
        let mut states = vec![0.0; sources.iter().map(Vec::len).sum::<usize>() * width];
        let mut rows = states.chunks_exact_mut(width);
        for source in sources {
            for ((token, position), to) in source.iter().zip(positions.chunks_exact(width)).zip(&mut rows) {
                self.embed(*token, position, to);
            }
        }
        let mut weights = Vec::new();
        for layer in &self.encoder {
            self.add(&mut states, &layer.own.norm, |input| {
                let mapped = mapped(&layer.own.query, input);
                let mut read = vec![0.0; input.len()];
                let mut first = 0;
                for source in sources {
                    let tokens = first..first + source.len();
                    let rows: Vec<&[f32]> =
                        tokens.clone().map(|token| &mapped[token * 3 * width..][..3 * width]).collect();
                    let from: Vec<&[f32]> = rows.iter().map(|row| &row[width..]).collect();
                    for (row, to) in rows.iter().zip(read[tokens.start * width..].chunks_exact_mut(width)) {
                        layer.own.heads.read(&row[..width], &from, &mut weights, to);
                    }
                    first = tokens.end;
                }
                self::mapped(&layer.own.out, &read)
            });
            self.feed(&mut states, layer);
        }
        self.end(&mut states, Side::Encoder);
        states
    }

    /// Adds what a sublayer makes of the states, with its norm before or after.
    fn add(&self, states: &mut [f32], norm: &RowNorm, sublayer: impl FnOnce(&[f32]) -> Vec<f32>) {
        match self.config.norm {
            NormPlace::Post => {
                let more = sublayer(states);
                add(states, &more);
                norm.apply(states);
            }
            NormPlace::Pre => {
                let mut input = states.to_vec();
                norm.apply(&mut input);
                let more = sublayer(&input);
                add(states, &more);
            }
        }
    }

    /// The feed-forward block.
    fn feed(&self, states: &mut [f32], layer: &RowLayer) {
        self.add(states, &layer.norm, |input| {
            let mut inner = mapped(&layer.first, input);
            self.config.activation_function.apply(&mut inner);
            mapped(&layer.outer, &inner)
        });
    }

    /// Applies the last norm of this half, which models with norms before sublayers have.
    fn end(&self, states: &mut [f32], side: Side) {
        if let Some(norms) = &self.last_norms {
            norms[side as usize].apply(states);
        }
    }

    /// ln P of every word by the states that predict it, `[rows, d_model]`: to `to`, `[rows, words]`.
    fn log_probs(&self, states: &[f32], to: &mut [f32]) {
        self.words.apply(states, to);
        log_softmax(to, self.config.vocab_size);
    }
}

#[cfg(test)]
mod tests;
