//! Transformer-XL (Dai et al. 2019; Yang 2019, §2.1, equations for one layer in §2.1.3).
//! Parameter names are those of Hugging Face's `TransfoXLLMHeadModel`.

use segue_configs::MemoryStart;
use segue_kernels::noise::Noise;
use segue_kernels::{Awaited, Init, Kernels, Options, ParameterSpec, Parameters};
use segue_layers::adversarial::Nll;
use segue_layers::attention::{attention_mask, hide, inverse_frequencies, unseen_documents};
use segue_layers::recompute::{Kept, Recompute};
use segue_layers::{AdaptiveSoftmax, Adversary, Context, Ids, Memory, NO_DOCUMENT};
use tch::{Device, Kind, Tensor};

use super::adaptive::{self, AdaptiveEmbedding};
use super::config::{AttnType, InitKind, SameLengthKeys, TransfoXlConfig};
use super::encoding::{Positions, drop_states};
use super::layer::{Layer, Visible};

/// How far queries look, as the configuration says.
pub(super) fn context(config: &TransfoXlConfig) -> Context {
    let context = Context { mem_len: config.mem_len as i64, clamp_len: config.clamp_len, same_length: None };
    if config.same_length { with_same_length(context, config.same_length_keys) } else { context }
}

/// The same with equal numbers of keys for all queries.
pub(super) fn with_same_length(context: Context, keys: SameLengthKeys) -> Context {
    let extra = match keys {
        SameLengthKeys::MemLen => 0,
        SameLengthKeys::MemLenPlusOne => 1,
    };
    Context { same_length: Some((context.mem_len + extra).max(1)), ..context }
}

/// One segment of each lane, as the model reads it.
#[derive(Clone, Copy)]
pub struct Segment<'a> {
    /// Token ids, `[batch, segment]`.
    pub ids: &'a Tensor,
    /// The same in the host's memory, where they have come from there.
    pub ids_of_host: Option<&'a Tensor>,
    /// The document of each, `[batch, segment]`, where documents must not see each other.
    pub documents: Option<&'a Tensor>,
    /// Last positions that come again as context of the next segment: the memory leaves them out.
    pub overlap: i64,
}

impl<'a> From<&'a Tensor> for Segment<'a> {
    fn from(ids: &'a Tensor) -> Self {
        Self { ids, ids_of_host: None, documents: None, overlap: 0 }
    }
}

/// What a forward pass over one segment gives.
pub struct Output {
    /// Last layer's states, `[batch, segment, d_model]`.
    pub hidden: Tensor,
    /// The memory that the next segment reads.
    pub memory: Memory,
}

/// The language model.
pub struct TransfoXl {
    config: TransfoXlConfig,
    /// Of all that is made while it computes.
    options: Options,
    kernels: Kernels,
    /// How far queries look; evaluation may change it.
    pub context: Context,
    /// Whether memory keeps marks of whose documents it holds, and of places nothing was written to.
    pub keeps_marks: bool,
    embedding: Awaited<AdaptiveEmbedding>,
    layers: Vec<Kept<Awaited<Layer>>>,
    recompute: bool,
    softmax: Awaited<AdaptiveSoftmax>,
}

impl TransfoXl {
    /// Every parameter of the model, in the order of the forward pass.
    pub fn specs(config: &TransfoXlConfig) -> Vec<ParameterSpec> {
        let weight = match config.init {
            InitKind::Normal => Init::Normal { mean: 0.0, std: config.init_std },
            InitKind::Uniform => Init::Uniform { range: config.init_range },
        };
        let mut out = adaptive::specs(config, weight);
        if config.attn_type == AttnType::Relative && !config.untie_r {
            let shape = vec![config.n_head as i64, config.head_width() as i64];
            for bias in ["r_w_bias", "r_r_bias"] {
                let name = format!("transformer.{bias}");
                out.push(ParameterSpec { name, shape: shape.clone(), init: weight });
            }
        }
        out.extend((0..config.n_layer).flat_map(|layer| Layer::specs(config, layer, weight)));
        out
    }

    /// Names under which Hugging Face also stores a parameter: `(its name, ours)`.
    pub fn aliases(config: &TransfoXlConfig) -> Vec<(String, String)> {
        let mut out = adaptive::aliases(config);
        let shared = config.attn_type == AttnType::Relative && !config.untie_r;
        for layer in (0..config.n_layer).filter(|_| shared) {
            for bias in ["r_w_bias", "r_r_bias"] {
                out.push((
                    format!("transformer.layers.{layer}.dec_attn.{bias}"),
                    format!("transformer.{bias}"),
                ));
            }
        }
        out
    }

    /// Tensors that Hugging Face stores and that follow from the configuration alone.
    pub fn buffers(config: &TransfoXlConfig) -> Vec<(String, Tensor)> {
        let mut out = adaptive::identity_projections(config);
        if config.attn_type == AttnType::Relative {
            let frequencies = inverse_frequencies(config.d_model as i64, (Kind::Float, Device::Cpu));
            out.push(("transformer.pos_emb.inv_freq".to_string(), frequencies));
        }
        out
    }

    /// The model over `parameters`, which must hold [`TransfoXl::specs`].
    pub fn new(config: &TransfoXlConfig, parameters: &Parameters) -> Self {
        let layer = |i| parameters.awaited(|parameters| Layer::new(config, parameters, i));
        Self {
            options: parameters.options(),
            kernels: parameters.kernels(),
            context: context(config),
            keeps_marks: config.memory_start == MemoryStart::Masked,
            embedding: parameters.awaited(|parameters| AdaptiveEmbedding::new(config, parameters)),
            layers: (0..config.n_layer).map(layer).map(Kept::new).collect(),
            recompute: parameters.recompute(),
            softmax: parameters.awaited(|parameters| adaptive::softmax(config, parameters)),
            config: config.clone(),
        }
    }

    /// The configuration it was built from.
    pub fn config(&self) -> &TransfoXlConfig {
        &self.config
    }

    /// Its layers, the first first.
    pub(super) fn layers(&self) -> &[Kept<Awaited<Layer>>] {
        &self.layers
    }

    /// Kind and device of all that is made while it computes.
    pub(super) fn options(&self) -> Options {
        self.options
    }

    /// States that the first layer reads, `[lanes, d_model]` for ids `[lanes]`. No graph, no dropout.
    pub(super) fn embed(&self, ids: &Tensor) -> Tensor {
        tch::no_grad(|| self.embedding.forward(&ids.unsqueeze(1)).squeeze_dim(1))
    }

    /// Maps hidden states to probabilities.
    pub fn softmax(&self) -> &AdaptiveSoftmax {
        &self.softmax
    }

    /// Sets what scores are multiplied by before each softmax; 1 in training.
    pub fn set_inverse_temperature(&mut self, factor: f64) {
        self.softmax.inverse_temperature = factor;
    }

    /// Memory before the first segment of `lanes` streams.
    pub fn memory_start(&self, lanes: i64) -> Memory {
        let (length, mark) = match self.config.memory_start {
            MemoryStart::Zeros => (self.context.mem_len, 0),
            MemoryStart::Empty => (0, NO_DOCUMENT),
            MemoryStart::Masked => (self.context.mem_len, NO_DOCUMENT),
        };
        let memory =
            Memory::zeros(self.layers.len(), lanes, length, self.config.d_model as i64, self.options);
        if self.keeps_marks { memory.marked(mark) } else { memory }
    }

    /// Runs one segment; dropout is on where there is noise.
    pub fn forward<'a>(
        &self,
        segment: impl Into<Segment<'a>>,
        memory: &Memory,
        noise: Option<&Noise>,
    ) -> Output {
        let segment = segment.into();
        let remembered = segment.ids.size()[1] - segment.overlap;
        let documents = self.documents(segment, memory);
        let (hidden, inputs) = self.run(segment, memory, documents.as_ref(), noise);
        let inputs: Vec<Tensor> = inputs.iter().map(|input| input.narrow(1, 0, remembered)).collect();
        let documents = documents.map(|d| d.narrow(1, 0, remembered));
        let memory = memory.extended(&inputs, documents.as_ref(), self.context.mem_len);
        Output { hidden: drop_states(&self.config, hidden, noise), memory }
    }

    /// States after the last layer, and the input of every layer.
    fn run(
        &self,
        segment: Segment,
        memory: &Memory,
        documents: Option<&Tensor>,
        noise: Option<&Noise>,
    ) -> (Tensor, Vec<Tensor>) {
        let (query, mem) = (segment.ids.size()[1], memory.len());
        let drop = |x: Tensor| drop_states(&self.config, x, noise);
        let positions = Positions::new(&self.config, &self.context, mem + query, self.options, drop);
        let positions = Kept::new(positions);
        let visible = Kept::new(Visible::new(self.mask(segment, memory, documents), self.kernels));
        let recompute = Recompute::new(self.recompute, self.layers.len());
        let ids = Ids::new(segment.ids, segment.ids_of_host);
        let mut hidden = Layer::stream(&self.config, drop(self.embedding.forward(ids)), self.kernels);
        let mut inputs = Vec::with_capacity(self.layers.len());
        for (layer, mem) in self.layers.iter().zip(&memory.layers) {
            inputs.push(hidden.whole.shallow_clone());
            // SG of Yang 2019, §2.1.3: no gradient leaves the segment.
            let (layer, mem) = (layer.clone(), mem.detach());
            let (positions, visible) = (positions.clone(), visible.clone());
            hidden = recompute.layer(hidden, noise, move |hidden, noise| {
                layer.forward(hidden, &mem, &positions, &visible, noise)
            });
        }
        (hidden.whole, inputs)
    }

    /// The embedding of `ids`, `[batch, segment]`, and the states after each layer, `[batch, segment, d_model]` each.
    /// No graph, no dropout.
    pub fn states(&self, ids: &Tensor, memory: &Memory) -> Vec<Tensor> {
        let segment = Segment::from(ids);
        tch::no_grad(|| {
            let (hidden, mut layers) =
                self.run(segment, memory, self.documents(segment, memory).as_ref(), None);
            layers.push(hidden);
            layers
        })
    }

    /// Marks of the segment's positions, `[batch, segment]`, where the memory keeps any.
    fn documents(&self, segment: Segment, memory: &Memory) -> Option<Tensor> {
        memory.documents.as_ref()?;
        Some(segment.documents.map_or_else(|| segment.ids.zeros_like(), Tensor::shallow_clone))
    }

    /// `[1, query, key]`, or `[batch, query, key]` where lanes differ in what may be seen.
    fn mask(&self, segment: Segment, memory: &Memory, documents: Option<&Tensor>) -> Tensor {
        let (query, mem) = (segment.ids.size()[1], memory.len());
        let mask = attention_mask(query, mem, self.context.same_length, self.options).unsqueeze(0);
        match memory.documents.as_ref().zip(documents) {
            None => mask,
            Some((before, own)) => {
                let compare = segment.documents.is_some();
                hide(&mask, &unseen_documents(before, own, compare))
            }
        }
    }

    /// −log P of each target, in nats: `[batch, segment]` for `hidden` of `[batch, segment, d_model]`
    /// and `targets` of `[batch, segment]`.
    pub fn nll(&self, hidden: &Tensor, targets: &Tensor) -> Tensor {
        self.trained_nll(hidden, targets, None).trained
    }

    /// The same as it is trained against an adversary.
    pub fn trained_nll(
        &self,
        hidden: &Tensor,
        targets: impl Into<Ids>,
        adversary: Option<&Adversary>,
    ) -> Nll {
        let (flat, targets) = (hidden.reshape([-1, self.config.d_model as i64]), targets.into());
        let nll = self.softmax.nll(&flat, targets.map(|ids| ids.reshape([-1])), adversary);
        nll.map(|nll| nll.view(targets.here().size().as_slice()))
    }

    /// Log-probabilities of every next token: `[batch, segment, vocab_size]`.
    pub fn log_probs(&self, hidden: &Tensor) -> Tensor {
        let size = hidden.size();
        let flat = hidden.reshape([-1, size[2]]);
        self.softmax.log_probs(&flat).view([size[0], size[1], -1])
    }
}

#[cfg(test)]
mod tests {
    use segue_testing::emulated::{self, Order};

    use super::*;

    /// Hidden states of two segments with memory between them, and all gradients.
    fn found(config: &TransfoXlConfig, documents: Option<&Tensor>, kind: Kind) -> Vec<Tensor> {
        let noise = Noise::new(11);
        let parameters = Parameters::initialise(TransfoXl::specs(config), 3, kind);
        let mut model = TransfoXl::new(config, &parameters);
        model.keeps_marks = documents.is_some();
        let ids = Tensor::arange(2 * 70, (Kind::Int64, Device::Cpu)).view([2, 70]).remainder(11);
        let segment = Segment { documents, ..Segment::from(&ids) };
        let first = model.forward(segment, &model.memory_start(2), Some(&noise));
        let second = model.forward(segment, &first.memory, Some(&noise));
        let nll = model.nll(&first.hidden, &ids) + model.nll(&second.hidden, &ids);
        nll.sum(None::<Kind>).backward();
        let used = parameters.tensors().iter().map(Tensor::grad).filter(Tensor::defined);
        [first.hidden.detach(), second.hidden.detach()].into_iter().chain(used).collect()
    }

    #[test]
    fn attention_in_tiles_is_that_of_tensors_in_double_precision() {
        let config = TransfoXlConfig {
            vocab_size: 11,
            d_model: 24,
            d_embed: 24,
            n_head: 2,
            d_inner: 32,
            n_layer: 2,
            mem_len: 50,
            cutoffs: Vec::new(),
            dropout: 0.0,
            dropatt: 0.0,
            init_std: 0.3,
            ..Default::default()
        };
        let of_positions = Tensor::arange(70, (Kind::Int64, Device::Cpu)).floor_divide_scalar(25);
        let documents = of_positions.unsqueeze(0).repeat([2, 1]);
        let configs = [
            config.clone(),
            TransfoXlConfig { same_length: true, clamp_len: 20, ..config.clone() },
            TransfoXlConfig { pre_lnorm: true, memory_start: MemoryStart::Empty, ..config },
        ];
        for config in &configs {
            for documents in [None, Some(&documents)] {
                let (ours, exact) =
                    (found(config, documents, Kind::Float), found(config, documents, Kind::Double));
                assert_alike(&ours, &exact, 1e-4, config);
                if documents.is_none() {
                    // Thread by thread takes its time.
                    continue;
                }
                let on_card = emulated::during(Order::Forwards, || found(config, documents, Kind::Float));
                assert_alike(&on_card, &exact, 1e-4, config);
                // Attention drops the same weights.
                let dropping = &TransfoXlConfig { dropout: 0.1, dropatt: 0.2, ..config.clone() };
                let exact = found(dropping, documents, Kind::Double);
                let on_card = emulated::during(Order::Backwards, || found(dropping, documents, Kind::Float));
                assert_alike(&on_card, &exact, 1e-4, dropping);
            }
        }
    }

    #[track_caller]
    fn assert_alike(ours: &[Tensor], exact: &[Tensor], limit: f64, config: &TransfoXlConfig) {
        assert!(ours.len() == exact.len() && ours.len() > 20);
        for (i, (ours, exact)) in ours.iter().zip(exact).enumerate() {
            let error = ((ours - exact).abs().max() / (exact.abs().max() + 0.1)).double_value(&[]);
            assert!(error < limit, "tensor {i} is off by {error}: {config:?}");
        }
    }
}
