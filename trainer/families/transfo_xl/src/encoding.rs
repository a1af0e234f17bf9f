//! How positions enter a layer: the four encodings that Yang 2019 compares (§2.1.3, table 2.6).

use segue_kernels::libtorch::Autocast;
use segue_kernels::noise::Noise;
use segue_kernels::{Init, Kernels, Options, ParameterSpec, Parameters};
use segue_layers::{Context, sinusoids};
use tch::Tensor;

use super::config::{AttnType, TransfoXlConfig};

/// What all layers of one forward pass over `mem + query` keys share.
pub struct Positions {
    /// Sinusoids, `[key, d_model]`: of falling distances for relative attention, of rising positions
    /// for absolute ones.
    sinusoids: Option<Tensor>,
    /// Rows of the learned tables: by falling distance for Shaw's, by rising position for Al-Rfou's.
    rows: Option<Rows>,
}

/// Rows of a learned table that stand for `key` distances or positions: each for its own, and `last` for all that are farther.
#[derive(Debug, Clone, Copy)]
struct Rows {
    key: i64,
    last: i64,
}

impl Rows {
    /// `[key, ..]` of `table`, `[max_klen, ..]`, nearest first.
    ///
    /// Parts of the table, where `index_select` would do: on a card its backward adds up what a row that comes several times gets by atomic
    /// operations, in any order.
    fn rising(self, table: &Tensor) -> Tensor {
        let own = self.key.min(self.last + 1);
        let rows = table.narrow(0, 0, own);
        if own == self.key {
            return rows;
        }
        let mut size = table.size();
        size[0] = self.key - own;
        Tensor::cat(&[rows, table.narrow(0, self.last, 1).expand(size, false)], 0)
    }

    /// The same, farthest first.
    fn falling(self, table: &Tensor) -> Tensor {
        self.rising(table).flip([0])
    }
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
        // Beyond the table, and beyond the clamp, the farthest row stands for all.
        let rows = Rows { key, last: clamp.min(config.max_klen as i64 - 1) };
        match config.attn_type {
            // All layers read them in the type of products, which they are cast to once.
            AttnType::Relative => {
                let (falling, kind) = (falling(), Autocast::kind_on(options.1));
                let sinusoids = kind.map_or_else(|| falling.shallow_clone(), |kind| falling.to_kind(kind));
                Self { sinusoids: Some(sinusoids), rows: None }
            }
            AttnType::Absolute => Self { sinusoids: Some(falling().flip([0])), rows: None },
            AttnType::Shaw | AttnType::Learned => Self { sinusoids: None, rows: Some(rows) },
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
                    out.push(ParameterSpec {
                        init: Init::Zeros,
                        ..spec(attention("r_bias"), &[rows, heads])
                    });
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
            Encoding::Learned(table) => positions.rows.map(|rows| rows.rising(table)),
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
            Encoding::Shaw { r_emb, .. } => Some(positions.rows?.falling(r_emb)),
            _ => None,
        }
    }

    /// A score that depends on the distance alone, by falling distance: `[heads, key]`.
    pub fn distance_bias(&self, positions: &Positions) -> Option<Tensor> {
        match self {
            Encoding::Shaw { extras: Some((_, r_bias)), .. } => {
                Some(positions.rows?.falling(r_bias).transpose(0, 1))
            }
            _ => None,
        }
    }
}

/// Dropout of hidden states, as the configuration wants it.
pub fn drop_states(config: &TransfoXlConfig, x: Tensor, noise: Option<&Noise>) -> Tensor {
    if config.variational {
        let positions = x.dim() - 2;
        segue_kernels::noise::locked_dropout(x, positions, config.dropout, noise)
    } else {
        segue_kernels::noise::dropout(x, config.dropout, noise)
    }
}

#[cfg(test)]
mod tests {
    use tch::{Device, Kind};

    use super::*;

    /// Whole numbers: their sums are the same in any order.
    #[test]
    fn rows_and_their_gradients_are_those_of_an_index() {
        let whole = |count: i64| Tensor::arange(count, (Kind::Float, Device::Cpu));
        for (key, last) in [(5, 6), (7, 6), (12, 6), (12, 3), (9, 0), (4, 3), (1, 0)] {
            let leaf = || whole(14).view([7, 2]).set_requires_grad(true);
            let (found, expected) = (leaf(), leaf());
            let index = Tensor::arange(key, (Kind::Int64, Device::Cpu)).clamp_max(last);
            let rows = Rows { key, last };
            let grad = whole(2 * key).view([key, 2]);
            for (own, index) in
                [(rows.rising(&found), index.shallow_clone()), (rows.falling(&found), index.flip([0]))]
            {
                let selected = expected.index_select(0, &index);
                assert_eq!(own, selected, "{rows:?}");
                (own * &grad).sum(Kind::Float).backward();
                (selected * &grad).sum(Kind::Float).backward();
            }
            assert_eq!(found.grad(), expected.grad(), "{rows:?}");
        }
    }
}
