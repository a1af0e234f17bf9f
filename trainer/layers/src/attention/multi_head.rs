//! Attention of several heads without relative positions (Vaswani et al. 2017, §3.2): of a text to itself, or to another one.

use segue_kernels::noise::{Noise, dropout};
use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use tch::{Kind, Tensor};

use super::weights_of;

/// A linear map of parameters `NAME.weight`, `[out, in]`, and `NAME.bias`, `[out]`, where it has one.
pub struct Map {
    weight: Tensor,
    bias: Option<Tensor>,
    kernels: Kernels,
}

impl Map {
    /// Its parameters, of which a bias starts at zero.
    pub fn specs(name: &str, [out, width]: [i64; 2], weight: Init, bias: bool) -> Vec<ParameterSpec> {
        let spec = |part: &str, shape: &[i64], init| ParameterSpec {
            name: format!("{name}.{part}"),
            shape: shape.to_vec(),
            init,
        };
        let bias = bias.then(|| spec("bias", &[out], Init::Zeros));
        [spec("weight", &[out, width], weight)].into_iter().chain(bias).collect()
    }

    /// Over `parameters`, with a bias where they have one.
    pub fn new(parameters: &Parameters, name: &str) -> Self {
        Self {
            weight: parameters.get(&format!("{name}.weight")),
            bias: parameters.find(&format!("{name}.bias")),
            kernels: parameters.kernels(),
        }
    }

    /// `x`, `[.., in]`, to `[.., out]`.
    pub fn forward(&self, x: &Tensor) -> Tensor {
        self.kernels.linear(x, &self.weight, self.bias.as_ref())
    }

    /// Weight and bias, for what maps and does more in one.
    pub fn parts(&self) -> (&Tensor, Option<&Tensor>) {
        (&self.weight, self.bias.as_ref())
    }
}

/// Queries, keys, values and what is read, mapped: `PREFIX.{q,k,v,out}_proj`.
pub struct MultiHead {
    heads: i64,
    query: Map,
    key: Map,
    value: Map,
    /// What makes states of what all heads have read, `[d_model, d_model]`.
    pub out: Map,
    /// Dropout of weights.
    rate: f64,
}

/// Keys and values of a text, by head: `[batch · heads, key, width]` each.
pub struct KeyValues {
    keys: Tensor,
    values: Tensor,
}

impl KeyValues {
    /// Rows of the batch.
    pub fn rows(&self, heads: i64) -> i64 {
        self.keys.size()[0] / heads
    }

    /// The same of some rows of the batch, `[rows]`, where `heads` rows of these belong to one of the batch.
    pub fn select(&self, rows: &Tensor, heads: i64) -> Self {
        let select = |x: &Tensor| {
            let [_, length, width] = x.size()[..] else { unreachable!("[batch · heads, key, width]") };
            x.view([-1, heads, length, width]).index_select(0, rows).view([-1, length, width])
        };
        Self { keys: select(&self.keys), values: select(&self.values) }
    }

    /// These, and after them those of more positions.
    pub fn then(&self, more: &Self) -> Self {
        let join = |a: &Tensor, b: &Tensor| Tensor::cat(&[a, b], 1);
        Self { keys: join(&self.keys, &more.keys), values: join(&self.values, &more.values) }
    }
}

impl MultiHead {
    /// Its parameters, in the order of the forward pass.
    pub fn specs(prefix: &str, width: i64, weight: Init, bias: bool) -> Vec<ParameterSpec> {
        let of = |name: &str| Map::specs(&format!("{prefix}.{name}_proj"), [width; 2], weight, bias);
        ["q", "k", "v", "out"].into_iter().flat_map(of).collect()
    }

    /// Over `parameters`; weights drop out at `rate` where there is noise.
    pub fn new(parameters: &Parameters, prefix: &str, heads: i64, rate: f64) -> Self {
        let map = |name: &str| Map::new(parameters, &format!("{prefix}.{name}_proj"));
        Self { heads, query: map("q"), key: map("k"), value: map("v"), out: map("out"), rate }
    }

    /// Keys and values of `states`, `[batch, key, d_model]`.
    pub fn key_values(&self, states: &Tensor) -> KeyValues {
        let of = |map: &Map| self.by_head(&map.forward(states));
        KeyValues { keys: of(&self.key), values: of(&self.value) }
    }

    /// What `states`, `[batch, query, d_model]`, read of `from`: `[batch, query, d_model]`, to be mapped by [`MultiHead::out`]. `mask` is added to scores:
    /// `[1 or batch, 1 or query, key]`, 0 where a query may see a key, else −∞; `None` where all see all.
    pub fn read(
        &self,
        states: &Tensor,
        from: &KeyValues,
        mask: Option<&Tensor>,
        noise: Option<&Noise>,
    ) -> Tensor {
        let weights = dropout(self.all_weights(states, from, mask), self.rate, noise);
        self.read_by(&weights, states, from)
    }

    /// The same without dropout, and the weights of each query's keys, the mean over heads: `[batch, query, key]`.
    pub fn read_with_weights(
        &self,
        states: &Tensor,
        from: &KeyValues,
        mask: Option<&Tensor>,
    ) -> (Tensor, Tensor) {
        let weights = self.all_weights(states, from, mask);
        let [_, query, key] = weights.size()[..] else { unreachable!("[batch · heads, query, key]") };
        let mean = weights.view([-1, self.heads, query, key]).mean_dim(1, false, None::<Kind>);
        (self.read_by(&weights, states, from), mean)
    }

    /// What queries read by `weights`, `[batch · heads, query, key]`.
    fn read_by(&self, weights: &Tensor, states: &Tensor, from: &KeyValues) -> Tensor {
        let [batch, query, d_model] = states.size()[..] else { unreachable!("[batch, query, d_model]") };
        let read = weights.to_kind(from.values.kind()).bmm(&from.values);
        read.view([batch, self.heads, query, -1]).transpose(1, 2).reshape([batch, query, d_model])
    }

    /// Weights of each head, `[batch · heads, query, key]`; of single precision at least.
    fn all_weights(&self, states: &Tensor, from: &KeyValues, mask: Option<&Tensor>) -> Tensor {
        let [batch, query, d_model] = states.size()[..] else { unreachable!("[batch, query, d_model]") };
        // The scale goes to the queries, where there is least to multiply.
        let scale = 1.0 / ((d_model / self.heads) as f64).sqrt();
        let queries = self.by_head(&(self.query.forward(states) * scale));
        let scores = queries.bmm(&from.keys.transpose(1, 2));
        match mask {
            Some(mask) => {
                let by_text = scores.view([batch, self.heads, query, -1]) + mask.unsqueeze(1);
                weights_of(&by_text.view(scores.size().as_slice()))
            }
            None => weights_of(&scores),
        }
    }

    /// Heads of the mapped states `x`, `[batch, length, d_model]`: `[batch · heads, length, width]`.
    fn by_head(&self, x: &Tensor) -> Tensor {
        let [batch, length, d_model] = x.size()[..] else { unreachable!("[batch, length, d_model]") };
        let width = d_model / self.heads;
        x.view([batch, length, self.heads, width]).transpose(1, 2).reshape([
            batch * self.heads,
            length,
            width,
        ])
    }
}
