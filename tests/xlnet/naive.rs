//! XLNet written out pair by pair, with no shift, no batched product and nothing from the code under test but the
//! weights: the full layer of Yang et al. 2019, appendix.

use segue_kernels::Parameters;
use segue_xlnet::XlnetConfig;
use tch::{Kind, Tensor};

/// What the model reads, one lane of it.
pub struct Scene<'a> {
    /// Token ids.
    pub ids: &'a [i64],
    /// Segment of each, where segments play a part.
    pub segments: Option<&'a [i64]>,
    /// States of the memory before each layer, `[mem, d]`.
    pub memory: &'a [Tensor],
    /// Whether the content of position i sees position j of the segment.
    pub content_sees: &'a dyn Fn(usize, usize) -> bool,
    /// Whether a prediction at i sees j.
    pub prediction_sees: &'a dyn Fn(usize, usize) -> bool,
    /// Text read backwards.
    pub backwards: bool,
}

/// States of both streams after the last layer, `[segment, d]` each.
pub fn forward(config: &XlnetConfig, parameters: &Parameters, scene: &Scene) -> (Tensor, Tensor) {
    let get = |name: &str| parameters.get(name).detach();
    let length = scene.ids.len() as i64;
    let mut h = get("transformer.word_embedding.weight").index_select(0, &Tensor::from_slice(scene.ids));
    let mut g = get("transformer.mask_emb").view([1, -1]).expand([length, -1], false).contiguous();
    for layer in 0..config.n_layer {
        let before = &scene.memory[layer];
        let keys = Tensor::cat(&[before, &h], 0);
        let of_layer = |name: &str| get(&format!("transformer.layer.{layer}.{name}"));
        let next = [(&h, scene.content_sees), (&g, scene.prediction_sees)]
            .map(|(stream, sees)| block(config, &of_layer, stream, &keys, before.size()[0], scene, sees));
        [h, g] = next;
    }
    (h, g)
}

fn block(
    config: &XlnetConfig,
    get: &dyn Fn(&str) -> Tensor,
    stream: &Tensor,
    keys: &Tensor,
    mem: i64,
    scene: &Scene,
    sees: &dyn Fn(usize, usize) -> bool,
) -> Tensor {
    let (heads, width) = (config.n_head as i64, config.head_width() as i64);
    let segment_of = |j: i64| scene.segments.map(|ids| if j < mem { 0 } else { ids[(j - mem) as usize] });
    let mut rows = Vec::new();
    for i in 0..stream.size()[0] {
        let mut read = Vec::new();
        for head in 0..heads {
            let part = |name: &str| get(&format!("rel_attn.{name}")).select(1, head); // [d, width]
            let bias = |name: &str| get(&format!("rel_attn.{name}")).get(head);
            let project = |x: &Tensor, name: &str| x.unsqueeze(0).matmul(&part(name)).squeeze_dim(0);
            let q = project(&stream.get(i), "q");
            let visible: Vec<i64> =
                (0..keys.size()[0]).filter(|j| *j < mem || sees(i as usize, (*j - mem) as usize)).collect();
            if visible.is_empty() {
                read.push(Tensor::zeros([width], (Kind::Double, tch::Device::Cpu)));
                continue;
            }
            let score = |j: &i64| {
                let mut distance = mem + i - j;
                if config.clamp_len > 0 {
                    distance = distance.clamp(-config.clamp_len, config.clamp_len);
                }
                let distance = if scene.backwards { -distance } else { distance };
                let r = project(&sinusoid(distance, config.d_model as i64), "r");
                let k = project(&keys.get(*j), "k");
                let mut score = (&q + bias("r_w_bias")).dot(&k) + (&q + bias("r_r_bias")).dot(&r);
                if let (Some(own), Some(other)) = (segment_of(mem + i), segment_of(*j)) {
                    let s = get("rel_attn.seg_embed").get(i64::from(own != other)).get(head);
                    score += (&q + bias("r_s_bias")).dot(&s);
                }
                score.double_value(&[]) / (width as f64).sqrt()
            };
            let scores: Vec<f64> = visible.iter().map(score).collect();
            let weights = Tensor::from_slice(&scores).softmax(0, None::<Kind>);
            let values = keys.index_select(0, &Tensor::from_slice(&visible)).matmul(&part("v"));
            read.push(weights.unsqueeze(0).matmul(&values).squeeze_dim(0));
        }
        let out = (0..heads).map(|head| {
            let o = get("rel_attn.o").select(1, head); // [d, width]
            o.mv(&read[head as usize])
        });
        rows.push(out.fold(stream.get(i), |sum, part| sum + part));
    }
    let hidden = norm(config, &Tensor::stack(&rows, 0), get, "rel_attn");
    let linear = |x: &Tensor, i: i64| {
        x.matmul(&get(&format!("ff.layer_{i}.weight")).transpose(0, 1)) + get(&format!("ff.layer_{i}.bias"))
    };
    let inner = linear(&hidden, 1);
    // The tanh form of GELU, written out.
    let cubic = &inner + &inner * &inner * &inner * 0.044715;
    let inner = &inner * ((cubic * (2.0 / std::f64::consts::PI).sqrt()).tanh() + 1.0) * 0.5;
    norm(config, &(linear(&inner, 2) + &hidden), get, "ff")
}

fn norm(config: &XlnetConfig, x: &Tensor, get: &dyn Fn(&str) -> Tensor, block: &str) -> Tensor {
    let get = |name: &str| get(&format!("{block}.layer_norm.{name}"));
    let centred = x - x.mean_dim(1, true, None::<Kind>);
    let variance = (&centred * &centred).mean_dim(1, true, None::<Kind>);
    centred / (variance + config.layer_norm_eps).sqrt() * get("weight") + get("bias")
}

/// R_p: sines, then cosines, of p / 10000^(2m/d); distances to later positions are negative.
pub fn sinusoid(position: i64, d: i64) -> Tensor {
    let angle = |m: i64| position as f64 / 10000f64.powf(2.0 * m as f64 / d as f64);
    let values: Vec<f64> =
        (0..d / 2).map(|m| angle(m).sin()).chain((0..d / 2).map(|m| angle(m).cos())).collect();
    Tensor::from_slice(&values)
}
