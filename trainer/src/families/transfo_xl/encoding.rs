//! How positions enter a layer: the four encodings that Yang 2019 compares (§2.1.3, table 2.6).

use super::config::{AttnType, TransfoXlConfig};
use tch::{Kind, Tensor};

use crate::layers::{Context, sinusoids};
use crate::libtorch::Autocast;
use crate::noise::Noise;
use crate::parameters::{Init, ParameterSpec, Parameters};
use crate::{Kernels, Options};

/// What all layers of one forward pass over `mem + query` keys share.
pub struct Positions {
    /// Sinusoids, `[key, d_model]`: of falling distances for relative attention, of rising positions
    /// for absolute ones.
    sinusoids: Option<Tensor>,
    /// Rows of the learned tables, `[key]`: by falling distance for Shaw's, by rising position for Al-Rfou's.
    rows: Option<Tensor>,
}

impl Positions {
    /// For `key` keys. `drop` is the dropout of embeddings.
    pub fn new(
        config: &TransfoXlConfig,
        context: &Context,
        key: i64,
        options: Options,
        drop: impl Fn(Tensor) -> Tensor,
    ) -> Self {
        let falling = || drop(sinusoids(key, context.clamp_len, config.d_model as i64, options));
        let clamp = if context.clamp_len > 0 { context.clamp_len } else { i64::MAX };
        let last = clamp.min(config.max_klen as i64 - 1);
        // Beyond the table, and beyond the clamp, the farthest row stands for all.
        let rising = || Tensor::arange(key, (Kind::Int64, options.1)).clamp_max(last);
        match config.attn_type {
            // All layers read them in the type of products, which they are cast to once.
            AttnType::Relative => {
                let (falling, kind) = (falling(), Autocast::kind_on(options.1));
                let sinusoids = kind.map_or_else(|| falling.shallow_clone(), |kind| falling.to_kind(kind));
                Self { sinusoids: Some(sinusoids), rows: None }
            }
            AttnType::Absolute => Self { sinusoids: Some(falling().flip([0])), rows: None },
            AttnType::Shaw => Self { sinusoids: None, rows: Some(rising().flip([0])) },
            AttnType::Learned => Self { sinusoids: None, rows: Some(rising()) },
        }
    }
}

/// The positional part of one layer.
pub enum Encoding {
    /// Terms (b), (c) and (d) of Yang 2019, §2.1.3.
    Relative {
        /// W_{k,R}, `[heads * width, d_model]`.
        r: Tensor,
        /// u, `[heads, width]`.
        r_w_bias: Tensor,
        /// v, `[heads, width]`.
        r_r_bias: Tensor,
        /// What W_{k,R} R is computed with.
        kernels: Kernels,
    },
    /// Term (b) with W_{k,R} R made one learned table R̂; the reference adds two biases.
    Shaw {
        /// R̂ by rising distance, `[max_klen, heads, width]`.
        r_emb: Tensor,
        /// u `[heads, width]` and a bias for each distance `[max_klen, heads]`.
        extras: Option<(Tensor, Tensor)>,
    },
    /// Sinusoids added to the input of the first layer.
    Absolute,
    /// A learned table added to the layer's input, `[max_klen, d_model]`.
    Learned(Tensor),
    /// Nothing, in layers after the first of an absolute encoding.
    None,
}

impl Encoding {
    /// Parameters of layer `layer` besides those of every encoding.
    pub fn specs(config: &TransfoXlConfig, layer: usize, init: Init) -> Vec<ParameterSpec> {
        let (d, rows) = (config.d_model as i64, config.max_klen as i64);
        let (heads, width) = (config.n_head as i64, config.head_width() as i64);
        let spec = |name: String, shape: &[i64]| ParameterSpec { name, shape: shape.to_vec(), init };
        let attention = |name: &str| format!("transformer.layers.{layer}.dec_attn.{name}");
        match config.attn_type {
            AttnType::Relative => {
                let mut out = vec![spec(attention("r_net.weight"), &[heads * width, d])];
                if config.untie_r {
                    out.push(spec(attention("r_w_bias"), &[heads, width]));
                    out.push(spec(attention("r_r_bias"), &[heads, width]));
                }
                out
            }
            AttnType::Shaw => {
                let mut out = vec![spec(attention("r_emb"), &[rows, heads, width])];
                if config.shaw_extras {
                    out.push(spec(attention("r_w_bias"), &[heads, width]));
                    out.push(spec(attention("r_bias"), &[rows, heads]));
                }
                out
            }
            AttnType::Absolute => Vec::new(),
            AttnType::Learned => vec![spec(format!("transformer.layers.{layer}.r_emb"), &[rows, d])],
        }
    }

    /// The positional part of layer `layer` over `parameters`.
    pub fn new(config: &TransfoXlConfig, parameters: &Parameters, layer: usize) -> Self {
        let get = |name: &str| parameters.get(&format!("transformer.layers.{layer}.dec_attn.{name}"));
        let bias = |name: &str| {
            if config.untie_r { get(name) } else { parameters.get(&format!("transformer.{name}")) }
        };
        match config.attn_type {
            AttnType::Relative => Encoding::Relative {
                r: get("r_net.weight"),
                r_w_bias: bias("r_w_bias"),
                r_r_bias: bias("r_r_bias"),
                kernels: parameters.kernels(),
            },
            AttnType::Shaw => Encoding::Shaw {
                r_emb: get("r_emb"),
                extras: config.shaw_extras.then(|| (get("r_w_bias"), get("r_bias"))),
            },
            AttnType::Absolute if layer == 0 => Encoding::Absolute,
            AttnType::Absolute => Encoding::None,
            AttnType::Learned => {
                Encoding::Learned(parameters.get(&format!("transformer.layers.{layer}.r_emb")))
            }
        }
    }

    /// What is added to the layer's memory and input, `[key, d_model]`.
    pub fn added(&self, positions: &Positions) -> Option<Tensor> {
        match self {
            Encoding::Absolute => positions.sinusoids.as_ref().map(Tensor::shallow_clone),
            Encoding::Learned(table) => positions.rows.as_ref().map(|rows| table.index_select(0, rows)),
            _ => None,
        }
    }

    /// u and v, `[heads, width]` each, of attention by contents and sinusoids of distances.
    pub fn biases(&self) -> Option<[&Tensor; 2]> {
        match self {
            Encoding::Relative { r_w_bias, r_r_bias, .. } => Some([r_w_bias, r_r_bias]),
            _ => None,
        }
    }

    /// Queries for the content score: with the content bias, where there is one. `q`:
    /// `[batch, query, heads, width]`.
    pub fn content_query(&self, q: &Tensor) -> Tensor {
        match self {
            Encoding::Relative { r_w_bias, .. } | Encoding::Shaw { extras: Some((r_w_bias, _)), .. } => {
                q + r_w_bias // terms (a) + (c)
            }
            _ => q.shallow_clone(),
        }
    }

    /// Queries for the position score, where there is one.
    pub fn position_query(&self, q: &Tensor) -> Option<Tensor> {
        match self {
            Encoding::Relative { r_r_bias, .. } => Some(q + r_r_bias), // terms (b) + (d)
            Encoding::Shaw { .. } => Some(q.shallow_clone()),
            _ => None,
        }
    }

    /// Keys of the position score by falling distance, `[key, heads, width]`, for an encoding with a
    /// position query. The table is projected once, not once for each pair (Yang 2019, §2.1.3,
    /// "Efficient Computation").
    pub fn position_keys(&self, positions: &Positions) -> Option<Tensor> {
        match self {
            Encoding::Relative { r, r_w_bias, kernels, .. } => {
                let [heads, width] = r_w_bias.size()[..] else { return None };
                let table = kernels.linear(positions.sinusoids.as_ref()?, r, None);
                Some(table.view([-1, heads, width]))
            }
            Encoding::Shaw { r_emb, .. } => Some(r_emb.index_select(0, positions.rows.as_ref()?)),
            _ => None,
        }
    }

    /// A score that depends on the distance alone, by falling distance: `[heads, key]`.
    pub fn distance_bias(&self, positions: &Positions) -> Option<Tensor> {
        match self {
            Encoding::Shaw { extras: Some((_, r_bias)), .. } => {
                Some(r_bias.index_select(0, positions.rows.as_ref()?).transpose(0, 1))
            }
            _ => None,
        }
    }
}

/// Dropout of hidden states, as the configuration wants it.
pub fn drop_states(config: &TransfoXlConfig, x: Tensor, noise: Option<&Noise>) -> Tensor {
    if config.variational {
        let positions = x.dim() - 2;
        crate::noise::locked_dropout(x, positions, config.dropout, noise)
    } else {
        crate::noise::dropout(x, config.dropout, noise)
    }
}
