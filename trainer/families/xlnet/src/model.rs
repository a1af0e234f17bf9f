//! XLNet (Yang et al. 2019; Yang 2019, §2.2): two-stream attention over memory and segment, with relative
//! positions to both sides and relative segments. Parameter names are those of Hugging Face's
//! `XLNetLMHeadModel`.

use segue_configs::MemoryStart;
use segue_dataloader::sections::TextEvalConfig;
use segue_kernels::noise::{Noise, dropout};
use segue_kernels::{Awaited, Init, Kernels, Options, ParameterSpec, Parameters};
use segue_layers::cross_entropy::{self, Words};
use segue_layers::norm::Stream;
use segue_layers::recompute::{Kept, Recompute};
use segue_layers::{Context, Memory, NO_DOCUMENT};
use tch::{Device, Kind, Tensor};

use super::config::{AttentionDirection, XlnetConfig};
use super::layer::{BIASES, Layer, Streams};
use super::plan::Plan;
use super::sequence::Sequence;

pub(super) const EMBEDDING: &str = "transformer.word_embedding.weight";
pub(super) const MASK_EMBEDDING: &str = "transformer.mask_emb";
/// Only predicts tokens.
pub(super) const OUTPUT_BIAS: &str = "lm_loss.bias";

/// What a forward pass over one segment gives.
pub struct States {
    /// The last layer's content, `[batch, segment, d_model]`, where wanted.
    pub content: Option<Tensor>,
    /// The last layer's predictions, `[batch, targets, d_model]`, where there are targets.
    pub predictions: Option<Tensor>,
    /// The memory that the next segment reads.
    pub memory: Memory,
}

/// The language model.
pub struct Xlnet {
    pub(super) config: XlnetConfig,
    /// Of all that is made while it computes.
    options: Options,
    kernels: Kernels,
    /// How far queries look; evaluation may change it.
    pub context: Context,
    /// First positions of a segment that enter the memory; 0 for all.
    pub reuse_len: i64,
    /// What scores are multiplied by before the softmax; 1 in training.
    pub inverse_temperature: f64,
    /// Whether memory keeps marks of places nothing was written to.
    pub keeps_marks: bool,
    embedding: Awaited<Tensor>,
    mask_embedding: Awaited<Tensor>,
    layers: Vec<Kept<Awaited<Layer>>>,
    recompute: bool,
    /// None in models that are fine-tuned: they predict no tokens.
    output_bias: Awaited<Option<Tensor>>,
}

/// What the layers of one forward pass have in common.
struct Pass<'a> {
    plan: Kept<Plan>,
    recompute: Recompute,
    noise: Option<&'a Noise>,
}

impl Pass<'_> {
    /// `streams` through `layer`, as [`Layer::forward`] says.
    fn layer(&self, layer: &Kept<Awaited<Layer>>, streams: Streams, mem: Tensor, content: bool) -> Streams {
        let (layer, plan) = (layer.clone(), self.plan.clone());
        let forward =
            move |streams, noise: Option<&Noise>| layer.forward(streams, &mem, &plan, content, noise);
        self.recompute.layer(streams, self.noise, forward)
    }
}

impl Xlnet {
    /// Every parameter of the model, in the order of the forward pass.
    pub fn specs(config: &XlnetConfig) -> Vec<ParameterSpec> {
        let weight = Init::Normal { mean: 0.0, std: config.initializer_range };
        let (heads, width) = (config.n_head as i64, config.head_width() as i64);
        let d_model = config.d_model as i64;
        let spec = |name: &str, shape: &[i64], init| ParameterSpec {
            name: name.into(),
            shape: shape.to_vec(),
            init,
        };
        let mut out = vec![
            spec(EMBEDDING, &[config.vocab_size as i64, d_model], weight),
            spec(MASK_EMBEDDING, &[1, 1, d_model], weight),
        ];
        if !config.untie_r {
            let tied = BIASES.map(|bias| spec(&format!("transformer.{bias}"), &[heads, width], weight));
            out.extend(tied);
        }
        out.extend((0..config.n_layer).flat_map(|layer| Layer::specs(config, layer, weight)));
        out.push(spec(OUTPUT_BIAS, &[config.vocab_size as i64], Init::Zeros));
        out
    }

    /// Names under which Hugging Face also stores a parameter: `(its name, ours)`.
    pub fn aliases(config: &XlnetConfig) -> Vec<(String, String)> {
        let mut out = vec![("lm_loss.weight".to_string(), EMBEDDING.to_string())];
        out.extend(Self::copies(config));
        out
    }

    /// Those of them that it knows under its own name alone: it has no tied biases, each layer has a copy.
    pub fn copies(config: &XlnetConfig) -> Vec<(String, String)> {
        let layers = (0..config.n_layer).filter(|_| !config.untie_r);
        let of_layer = |layer: usize| {
            BIASES.map(|bias| {
                (format!("transformer.layer.{layer}.rel_attn.{bias}"), format!("transformer.{bias}"))
            })
        };
        layers.flat_map(of_layer).collect()
    }

    /// Parameters of its content stream alone, without the bias over the vocabulary.
    pub fn encoder_specs(config: &XlnetConfig) -> Vec<ParameterSpec> {
        let mut specs = Self::specs(config);
        specs.retain(|spec| spec.name != OUTPUT_BIAS);
        specs
    }

    /// The model over `parameters`, which must hold [`Xlnet::specs`], or [`Xlnet::encoder_specs`] where no token is
    /// predicted.
    pub fn new(config: &XlnetConfig, parameters: &Parameters) -> Self {
        let mem_len = config.mem_len as i64;
        let layer = |i| parameters.awaited(|parameters| Layer::new(config, parameters, i));
        Self {
            options: parameters.options(),
            kernels: parameters.kernels(),
            context: Context {
                mem_len,
                clamp_len: config.clamp_len,
                same_length: config.same_length.then_some(mem_len + 1),
            },
            reuse_len: config.reuse_len as i64,
            inverse_temperature: 1.0,
            keeps_marks: config.memory_start == MemoryStart::Masked,
            embedding: parameters.awaited(|parameters| parameters.get(EMBEDDING)),
            mask_embedding: parameters.awaited(|parameters| parameters.get(MASK_EMBEDDING)),
            layers: (0..config.n_layer).map(layer).map(Kept::new).collect(),
            recompute: parameters.recompute(),
            output_bias: parameters.awaited(|parameters| parameters.find(OUTPUT_BIAS)),
            config: config.clone(),
        }
    }

    /// The configuration it was built from.
    pub fn config(&self) -> &XlnetConfig {
        &self.config
    }

    /// Type and place of its states.
    pub fn options(&self) -> Options {
        self.options
    }

    /// Sets how far queries look: as `[eval]` says, or with `None` as in training.
    pub fn look(&mut self, eval: Option<&TextEvalConfig>) {
        (self.context.mem_len, self.context.clamp_len) = (self.config.mem_len as i64, self.config.clamp_len);
        if let Some(eval) = eval {
            if eval.mem_len >= 0 {
                self.context.mem_len = eval.mem_len;
            }
            if eval.clamp_len != 0 {
                self.context.clamp_len = eval.clamp_len;
            }
        }
        let same_length = self.config.same_length || eval.is_some_and(|eval| eval.same_length);
        self.context.same_length = same_length.then_some(self.context.mem_len + 1);
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
    ///
    /// Both streams start from embeddings: content from those of the tokens, predictions from one trained
    /// vector, the same at every position (Yang 2019, §2.2.2, h⁽⁰⁾ and g⁽⁰⁾). A prediction knows its place through
    /// relative positions alone.
    pub fn forward(&self, sequence: Sequence, memory: &Memory, noise: Option<&Noise>) -> States {
        let segment = sequence.ids.size()[1];
        let remembered = if self.reuse_len == 0 { segment } else { self.reuse_len.min(segment) };
        self.forward_remembering(sequence, memory, remembered, noise)
    }

    /// The same where the first `remembered` positions enter the memory.
    pub(super) fn forward_remembering(
        &self,
        sequence: Sequence,
        memory: &Memory,
        remembered: i64,
        noise: Option<&Noise>,
    ) -> States {
        let (streams, inputs) = self.run(sequence, memory, noise);
        let drop = |x: Tensor| dropout(x, self.config.dropout, noise);
        let inputs: Vec<Tensor> = inputs.iter().map(|input| input.narrow(1, 0, remembered)).collect();
        let marks = memory
            .documents
            .as_ref()
            .map(|_| Tensor::zeros([sequence.ids.size()[0], remembered], (Kind::Int64, self.options.1)));
        let memory = memory.extended(&inputs, marks.as_ref(), self.context.mem_len);
        let wanted = sequence.content || streams.predictions.is_none();
        States {
            content: wanted.then(|| drop(streams.content.whole)),
            predictions: streams.predictions.map(|stream| drop(stream.whole)),
            memory,
        }
    }

    /// `[.., d_model]` of `ids`. On the CPU the gradient is one of rows: a step sees few of the words that the table has. A card would sort
    /// them, and wait.
    fn word_vectors(&self, ids: &Tensor) -> Tensor {
        Tensor::embedding(&self.embedding, ids, -1, false, self.options.1 == Device::Cpu)
    }

    /// Both streams after the last layer, and the content stream's input of every layer.
    pub(super) fn run(
        &self,
        sequence: Sequence,
        memory: &Memory,
        noise: Option<&Noise>,
    ) -> (Streams, Vec<Tensor>) {
        let drop = |x: Tensor| dropout(x, self.config.dropout, noise);
        let uni = self.config.attn_type == AttentionDirection::Uni;
        let plan =
            Plan::new(&sequence, memory, &self.context, uni, self.config.d_model as i64, self.options, drop);
        let pass = Pass {
            plan: Kept::new(plan),
            recompute: Recompute::new(self.recompute, self.layers.len()),
            noise,
        };
        let mut streams = Streams {
            content: Stream::new(drop(self.word_vectors(sequence.ids)), self.kernels),
            predictions: sequence.targets.map(|targets| {
                let size = targets.size();
                let vectors = drop(self.mask_embedding.expand([size[0], size[1], -1], false));
                Stream::new(vectors, self.kernels)
            }),
        };
        let mut inputs = Vec::with_capacity(self.layers.len());
        for (i, (layer, mem)) in self.layers.iter().zip(&memory.layers).enumerate() {
            inputs.push(streams.content.whole.shallow_clone());
            // Nobody reads the last layer's content where only predictions count.
            let content = sequence.content || streams.predictions.is_none() || i + 1 < self.layers.len();
            // SG of Yang 2019, §2.1.3: no gradient leaves the segment.
            streams = pass.layer(layer, streams, mem.detach(), content);
        }
        (streams, inputs)
    }

    /// The last layer's content at `positions` `[batch, n]` alone, without memory: `[batch, n, d_model]`. The last layer
    /// computes no other row, and the rest is as in [`Xlnet::forward`].
    pub fn content_at(&self, sequence: Sequence, positions: &Tensor, noise: Option<&Noise>) -> Tensor {
        let sequence = Sequence { targets: Some(positions), ..sequence };
        let drop = |x: Tensor| dropout(x, self.config.dropout, noise);
        let uni = self.config.attn_type == AttentionDirection::Uni;
        let width = self.config.d_model as i64;
        let memory = Memory::zeros(self.layers.len(), sequence.ids.size()[0], 0, width, self.options);
        let plan = Plan::new(&sequence, &memory, &self.context, uni, width, self.options, drop);
        let pass = Pass {
            plan: Kept::new(plan),
            recompute: Recompute::new(self.recompute, self.layers.len()),
            noise,
        };
        let mut content = Stream::new(drop(self.word_vectors(sequence.ids)), self.kernels);
        let Some((last, lower)) = self.layers.split_last() else { unreachable!("there are layers") };
        let none = || memory.layers[0].shallow_clone();
        for layer in lower {
            content = pass.layer(layer, Streams { content, predictions: None }, none(), true).content;
        }
        let index = positions.unsqueeze(2).expand([-1, -1, width], false);
        let own = Stream::new(content.whole.gather(1, &index, false), self.kernels);
        // A row that sees itself reads as a prediction would, only that it begins with its own content.
        let streams = pass.layer(last, Streams { content, predictions: Some(own) }, none(), false);
        let Some(states) = streams.predictions else { unreachable!("predictions were asked for") };
        drop(states.whole)
    }

    /// The content stream's input of every layer, `[batch, segment, d_model]` each, without dropout or graph.
    pub fn layer_inputs(&self, sequence: Sequence, memory: &Memory) -> Vec<Tensor> {
        tch::no_grad(|| self.run(sequence, memory, None).1)
    }

    /// Scores of every token before the softmax, `[.., vocab_size]` for states `[.., d_model]`: e(x)ᵀ g plus a
    /// bias (Yang 2019, eq. 2.4).
    pub fn logits(&self, states: &Tensor) -> Tensor {
        self.sharpened(&self.kernels.linear(states, &self.embedding, self.output_bias.as_ref()))
    }

    /// Scores, or what they are linear in, times the inverse temperature.
    fn sharpened(&self, x: &Tensor) -> Tensor {
        if self.inverse_temperature == 1.0 { x.shallow_clone() } else { x * self.inverse_temperature }
    }

    /// −log P of each target, in nats, `[batch, targets]`, for states `[batch, targets, d_model]`.
    pub fn nll(&self, states: &Tensor, targets: &Tensor) -> Tensor {
        let states = self.sharpened(&states.reshape([-1, self.config.d_model as i64]));
        let words = Words {
            weight: self.embedding.shallow_clone(),
            bias: self.output_bias.as_ref().map(|bias| self.sharpened(bias)),
        };
        let nll = cross_entropy::nll(self.kernels, &states, &[words], &targets.reshape([-1]), None);
        nll.view(targets.size().as_slice())
    }
}
