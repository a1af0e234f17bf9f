//! One layer written out pair by pair, with no shift, no batched product and nothing from the code under test but the
//! weights.

use segue_kernels::Parameters;
use segue_transfo_xl::TransfoXlConfig;
use tch::{Kind, Tensor};

/// What a score is made of, for one head.
pub struct Pair<'a> {
    /// Parameters of the layer, without `transformer.layers.0.`.
    pub get: &'a dyn Fn(&str) -> Tensor,
    /// Head.
    pub head: i64,
    /// Width of a head.
    pub width: i64,
    /// Query, `[width]`.
    pub q: &'a Tensor,
    /// Key, `[width]`.
    pub k: &'a Tensor,
    /// How far the key lies before the query.
    pub distance: i64,
}

/// States `[query, d]` after the first layer: `mem` `[mem, d]` and `hidden` `[query, d]` with whatever positions were
/// added to them; `score` is the unscaled score of one pair.
pub fn layer(
    config: &TransfoXlConfig,
    parameters: &Parameters,
    mem: &Tensor,
    hidden: &Tensor,
    score: impl Fn(Pair) -> Tensor,
) -> Tensor {
    let get = |name: &str| parameters.get(&format!("transformer.layers.0.{name}")).detach();
    let (heads, width) = (config.n_head as i64, config.head_width() as i64);
    let (before, query) = (mem.size()[0], hidden.size()[0]);
    let all = Tensor::cat(&[mem, hidden], 0);
    let qkv = get("dec_attn.qkv_net.weight");
    let part = |i: i64, head: i64| qkv.narrow(0, i * heads * width + head * width, width);
    let mut read = Vec::new();
    for head in 0..heads {
        for i in 0..query {
            let q = part(0, head).mv(&hidden.get(i));
            let scores: Vec<f64> = (0..=before + i)
                .map(|j| {
                    let k = part(1, head).mv(&all.get(j));
                    let pair = Pair { get: &get, head, width, q: &q, k: &k, distance: before + i - j };
                    score(pair).double_value(&[]) / (width as f64).sqrt()
                })
                .collect();
            let weights = Tensor::from_slice(&scores).softmax(0, None::<Kind>);
            let values = all.narrow(0, 0, before + i + 1).matmul(&part(2, head).transpose(0, 1));
            read.push(weights.unsqueeze(0).matmul(&values).squeeze_dim(0));
        }
    }
    let read =
        Tensor::stack(&read, 0).view([heads, query, width]).transpose(0, 1).reshape([query, heads * width]);
    let norm = |x: Tensor, prefix: &str| {
        let get = |name: &str| get(&format!("{prefix}.layer_norm.{name}"));
        let centred = &x - x.mean_dim(1, true, None::<Kind>);
        let variance = (&centred * &centred).mean_dim(1, true, None::<Kind>);
        centred / (variance + 1e-5).sqrt() * get("weight") + get("bias")
    };
    let hidden = norm(hidden + read.matmul(&get("dec_attn.o_net.weight").transpose(0, 1)), "dec_attn");
    let linear = |x: &Tensor, i: i64| {
        x.matmul(&get(&format!("pos_ff.CoreNet.{i}.weight")).transpose(0, 1))
            + get(&format!("pos_ff.CoreNet.{i}.bias"))
    };
    norm(&hidden + linear(&linear(&hidden, 0).relu(), 3), "pos_ff")
}

/// Embeddings times the root of their width, `[length, d]`, for `ids` `[1, length]`.
pub fn embed(parameters: &Parameters, ids: &Tensor) -> Tensor {
    let table = parameters.get("transformer.word_emb.emb_layers.0.weight").detach();
    table.index_select(0, &ids.get(0)) * (table.size()[1] as f64).sqrt()
}

/// R_p in the order of Transformer-XL's program: sines, then cosines, of p / 10000^(2m/d).
pub fn sinusoid(position: i64, d: i64) -> Tensor {
    let angle = |m: i64| position as f64 / 10000f64.powf(2.0 * m as f64 / d as f64);
    let values: Vec<f64> =
        (0..d / 2).map(|m| angle(m).sin()).chain((0..d / 2).map(|m| angle(m).cos())).collect();
    Tensor::from_slice(&values)
}

/// Terms (a) to (d) of Yang 2019, §2.1.3, at a distance that may be clamped.
pub fn four_terms(pair: &Pair, distance: i64, d: i64) -> Tensor {
    let u = (pair.get)("dec_attn.r_w_bias").get(pair.head);
    let v = (pair.get)("dec_attn.r_r_bias").get(pair.head);
    let w_r = (pair.get)("dec_attn.r_net.weight").narrow(0, pair.head * pair.width, pair.width);
    let r = w_r.mv(&sinusoid(distance, d));
    pair.q.dot(pair.k) + pair.q.dot(&r) + u.dot(pair.k) + v.dot(&r)
}
