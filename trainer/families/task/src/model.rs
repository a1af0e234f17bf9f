use std::collections::HashMap;

use segue_configs::{ModelConfig, TrainConfig};
use segue_engine::Loss;
use segue_kernels::libtorch::stream::put;
use segue_kernels::noise::Noise;
use segue_kernels::{Awaited, Compute, ParameterSpec, Parameters};
use segue_language::{Encoder, Encodes, Rows, encoders, is_of_an_adapter};
use segue_layers::{
    Beam, HeadConfig, JudgedFrom, KernelHead, QUERY_SEGMENT, SpanHead, SpanLabels, SummaryHead, TagHead,
    kernel_features, pair_losses, squared_errors,
};
use segue_tasks::{Example, Kind, Sequence, Target, TaskConfig, TaskData, TaskSummary};
use tch::{Device, Kind as Number, Reduction, Tensor};

use super::adapters::Adapters;
use super::batch::rows;
use super::class_loss::{ClassLoss, NO_LABEL};
use super::competition::Competition;
use super::encoder;
use super::frozen;
use super::head_spec::HeadSpec;

enum Head {
    Summary(Awaited<SummaryHead>),
    Span(Awaited<SpanHead>),
    Tags(Awaited<TagHead>),
    Kernels(Awaited<KernelHead>),
}

/// What a model answers to one example, before anything is made of it: scores of classes or options, a number,
/// scores of labels position by position, how relevant a document is, or the beam of a span, as [`super::squad::SpanBeam`] lays it out.
pub type Scores = Vec<f32>;

/// An encoder with the head of a task on it, or with those of several.
pub struct TaskModel {
    /// What is trained.
    pub parameters: Parameters,
    /// Parameters that stay as they are.
    frozen: Parameters,
    /// For each of all parameters whether it stays as it is.
    stays: Vec<bool>,
    config: ModelConfig,
    encoder: Box<dyn Encoder>,
    adapters: Option<Adapters>,
    specs: Vec<HeadSpec>,
    heads: Vec<Head>,
    competition: Competition,
    /// For each head.
    class_losses: Vec<ClassLoss>,
    beam: i64,
}

/// What the names of the parameters of a task's head begin with: of one task they are Hugging Face's.
fn head_config(model: &ModelConfig, heads: &[HeadSpec], head: &HeadSpec) -> HeadConfig {
    let prefix = if heads.len() == 1 { String::new() } else { format!("tasks.{}.", head.task) };
    HeadConfig { prefix, ..family(model).head(model) }
}

/// The family of the model under the heads, which encodes sequences: a run that begins with any other is refused
/// before.
fn family(model: &ModelConfig) -> &'static dyn Encodes {
    match encoders(model) {
        Ok(family) => family,
        Err(error) => panic!("{error}"),
    }
}

impl TaskModel {
    /// Every parameter that a stored model has: the encoder's and the heads'.
    pub fn specs(model: &ModelConfig, heads: &[HeadSpec]) -> Vec<ParameterSpec> {
        let mut specs = encoder::specs(family(model), model, heads);
        for head in heads {
            let config = head_config(model, heads, head);
            specs.extend(match head.kind {
                Kind::Classification | Kind::Regression | Kind::Choice => {
                    SummaryHead::specs(&config, head.outputs())
                }
                Kind::Span => SpanHead::specs(&config),
                Kind::Tagging => TagHead::specs(&config, head.outputs()),
                Kind::Ranking => KernelHead::specs(&config),
            });
        }
        specs
    }

    /// The same, and the factors of adapters that training takes.
    fn training_specs(model: &ModelConfig, heads: &[HeadSpec], task: &TaskConfig) -> Vec<ParameterSpec> {
        let encoder = encoder::specs(family(model), model, heads);
        let factors = Adapters::of(task, &encoder).map(|adapters| adapters.specs());
        let mut specs = Self::specs(model, heads);
        specs.extend(factors.into_iter().flatten());
        specs
    }

    /// The same apart: those that stay as they are, and those that are trained.
    pub fn specs_apart(
        model: &ModelConfig,
        heads: &[HeadSpec],
        task: &TaskConfig,
    ) -> (Vec<ParameterSpec>, Vec<ParameterSpec>) {
        let specs = Self::training_specs(model, heads, task);
        let stays = frozen::stays(family(model), model, heads, task, &specs);
        let (frozen, trained): (Vec<_>, Vec<_>) = specs.into_iter().zip(stays).partition(|(_, stays)| *stays);
        let specs = |part: Vec<(ParameterSpec, bool)>| part.into_iter().map(|(spec, _)| spec).collect();
        (specs(frozen), specs(trained))
    }

    /// An encoder and heads with weights drawn from the run's seed, in single precision, where `compute` says.
    pub fn fresh(
        model: &ModelConfig,
        heads: &[HeadSpec],
        task: &TaskConfig,
        train: &TrainConfig,
        compute: Compute,
    ) -> Self {
        let parameters =
            Parameters::initialise(Self::training_specs(model, heads, task), train.seed, Number::Float);
        let parameters = parameters.to(compute.device()).with_recompute(train.recompute);
        Self::new(model, heads, task, parameters)
    }

    /// The model over `parameters`, which must hold [`TaskModel::specs`]. Adapters are what `[task]` asks for where their factors are there too.
    pub fn new(model: &ModelConfig, heads: &[HeadSpec], task: &TaskConfig, parameters: Parameters) -> Self {
        let encoder = encoder::build(family(model), model, heads, &parameters);
        let head = |spec: &HeadSpec| {
            let config = head_config(model, heads, spec);
            match spec.kind {
                Kind::Classification | Kind::Regression | Kind::Choice => {
                    Head::Summary(parameters.awaited(|parameters| SummaryHead::new(&config, parameters)))
                }
                Kind::Span => Head::Span(parameters.awaited(|parameters| SpanHead::new(&config, parameters))),
                Kind::Tagging => {
                    Head::Tags(parameters.awaited(|parameters| TagHead::new(&config, parameters)))
                }
                Kind::Ranking => {
                    Head::Kernels(parameters.awaited(|parameters| KernelHead::new(&config, parameters)))
                }
            }
        };
        let heads_of = heads.iter().map(head).collect();
        let has_factors = parameters.specs().iter().any(|spec| is_of_an_adapter(&spec.name));
        let of_encoder = encoder::specs(family(model), model, heads);
        let adapters = Adapters::of(task, &of_encoder).filter(|_| has_factors);
        let stays = frozen::stays(family(model), model, heads, task, parameters.specs());
        let (frozen, parameters) = parameters.freeze(&stays);
        Self {
            encoder,
            heads: heads_of,
            adapters,
            frozen,
            stays,
            class_losses: heads.iter().map(|_| ClassLoss::default()).collect(),
            specs: heads.to_vec(),
            config: model.clone(),
            competition: Competition::of(task),
            beam: task.beam as i64,
            parameters,
        }
    }

    /// The same, trained on `tasks`, one for each head, as `[task]` weighs their labels.
    pub fn trained_on(self, task: &TaskConfig, tasks: &[TaskData]) -> Self {
        let device = self.parameters.options().1;
        Self { class_losses: tasks.iter().map(|data| ClassLoss::of(task, data, device)).collect(), ..self }
    }

    /// The heads, in order.
    pub fn heads(&self) -> &[HeadSpec] {
        &self.specs
    }

    /// The configuration of the encoder.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Every parameter, trained or not, in the order of [`TaskModel::specs`].
    pub fn weights(&self) -> impl Iterator<Item = (&ParameterSpec, &Tensor)> {
        let [frozen, trained] =
            [&self.frozen, &self.parameters].map(|own| own.specs().iter().zip(own.tensors()));
        self.together(frozen, trained)
    }

    /// What is known of each of those that stay as they are, and of each of those that are trained, in the order of [`TaskModel::specs`].
    pub fn together<T>(
        &self,
        frozen: impl IntoIterator<Item = T>,
        trained: impl IntoIterator<Item = T>,
    ) -> impl Iterator<Item = T> {
        let (mut frozen, mut trained) = (frozen.into_iter(), trained.into_iter());
        self.stays.iter().filter_map(move |stays| if *stays { frozen.next() } else { trained.next() })
    }

    /// What is known of each of [`TaskModel::specs`] apart: of those that stay as they are, and of those that are trained.
    pub fn apart<T>(&self, all: Vec<T>) -> (Vec<T>, Vec<T>) {
        let (mut frozen, mut trained) = (Vec::new(), Vec::new());
        for (one, stays) in all.into_iter().zip(&self.stays) {
            if *stays { frozen.push(one) } else { trained.push(one) }
        }
        (frozen, trained)
    }

    /// Every parameter as a stored model has it: what adapters add is added, in single precision on the host. `all` are values by the names of
    /// [`TaskModel::weights`], on the host; factors stay at the end, so that training can go on from them.
    pub fn merged(&self, mut all: Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
        let Some(adapters) = &self.adapters else { return all };
        let encoder = self.encoder_specs().len();
        let by_name: HashMap<&str, &Tensor> =
            all[encoder..].iter().map(|(name, t)| (name.as_str(), t)).collect();
        let base: Vec<&Tensor> = all[..encoder].iter().map(|(_, tensor)| tensor).collect();
        let factor = |name: &str| by_name.get(name).map(|tensor| tensor.shallow_clone());
        let merged = tch::no_grad(|| adapters.merged(&base, factor));
        all.iter_mut().zip(merged).for_each(|((_, tensor), merged)| *tensor = merged);
        all
    }

    /// Whether it has adapters.
    pub fn is_adapted(&self) -> bool {
        self.adapters.is_some()
    }

    /// The parameters under the heads.
    pub fn encoder_specs(&self) -> Vec<ParameterSpec> {
        encoder::specs(family(&self.config), &self.config, &self.specs)
    }

    /// Those that stay as they are.
    pub fn frozen(&self) -> &Parameters {
        &self.frozen
    }

    /// Which of the trained parameters a step for head number `head` has to do with.
    pub fn reached(&self, head: usize) -> Vec<bool> {
        let own = head_config(&self.config, &self.specs, &self.specs[head]).prefix;
        let several = self.specs.len() > 1;
        let encoder = self.encoder_specs().len();
        let of_encoder = self.stays.iter().take(encoder).filter(|stays| !**stays).count();
        let specs = self.parameters.specs().iter().enumerate();
        specs
            .map(|(i, spec)| match i < of_encoder || is_of_an_adapter(&spec.name) {
                true => self.encoder.uses(&spec.name),
                false => !several || spec.name.starts_with(&own),
            })
            .collect()
    }

    /// Loss of one micro-batch for head number `head`; dropout is on where there is noise.
    pub fn loss(&self, head: usize, examples: &[&Example], noise: Option<&Noise>) -> Loss<()> {
        let rows = self.rows(examples);
        let states = self.states(head, &rows, noise);
        let by_class = |logits: &Tensor, labels: &[i64], reduction| {
            let losses = self.class_losses[head].of_labels(logits, labels, reduction);
            Loss::of(losses.sum(None::<Number>), self.class_losses[head].weight_of(labels), None, ())
        };
        let losses = match &self.heads[head] {
            Head::Summary(head_of) => {
                let logits = head_of.logits(&states, noise);
                match self.specs[head].kind {
                    Kind::Regression => number_losses(&logits, examples),
                    Kind::Choice => self.choice_losses(&logits, examples),
                    _ => {
                        let labels: Vec<i64> = examples.iter().map(|e| class(&e.target)).collect();
                        return by_class(&logits, &labels, Reduction::None);
                    }
                }
            }
            Head::Span(head) => span_losses(head, &states, &rows, examples, noise),
            Head::Tags(head) => {
                let logits = head.logits(&states).flatten(0, 1);
                return by_class(&logits, &tags(&rows, examples), Reduction::Sum);
            }
            Head::Kernels(head) => pair_losses(&head.scores(&features(&states, &rows, examples))),
        };
        Loss::of(losses.sum(None::<Number>), examples.len() as f64, None, ())
    }

    /// The sequences of some examples, where the model lives.
    fn rows(&self, examples: &[&Example]) -> Rows {
        rows(examples, self.parameters.options().1)
    }

    /// The states that a head reads: one for a whole sequence, `[rows, 1, d_model]`, or all.
    fn states(&self, head: usize, rows: &Rows, noise: Option<&Noise>) -> Tensor {
        let adapted = self.adapters.as_ref().map(|adapters| {
            let weights = adapters.parameters(&self.frozen, &self.parameters);
            encoder::build(family(&self.config), &self.config, &self.specs, &weights)
        });
        let encoder = adapted.as_ref().unwrap_or(&self.encoder);
        match self.heads[head] {
            Head::Summary(_) => match self.specs[head].summary {
                TaskSummary::Last => encoder.last_states(rows, noise),
                TaskSummary::Mean => mean_states(&encoder.states(rows, noise), rows),
            },
            Head::Span(_) | Head::Tags(_) | Head::Kernels(_) => encoder.states(rows, noise),
        }
    }

    /// Loss of each example, `[examples]`, for `logits` of its options, `[rows, 1]`.
    fn choice_losses(&self, logits: &Tensor, examples: &[&Example]) -> Tensor {
        let counts: Vec<usize> = examples.iter().map(|e| e.sequences.len()).collect();
        let right: Vec<i64> = examples.iter().map(|e| class(&e.target)).collect();
        self.competition.losses(&logits.squeeze_dim(1), &counts, &right)
    }

    /// What head number `head` answers to each example.
    pub fn answer(&self, head: usize, examples: &[&Example]) -> Vec<Scores> {
        tch::no_grad(|| {
            let rows = self.rows(examples);
            let states = self.states(head, &rows, None);
            match &self.heads[head] {
                Head::Summary(head) => by_example(&head.logits(&states, None), examples),
                Head::Tags(head) => {
                    let logits = on_host(&head.logits(&states));
                    let of = |(row, &offset): (usize, &i64)| {
                        let own = logits.get(row as i64).narrow(0, offset, rows.length - offset);
                        floats(&own)
                    };
                    rows.offsets.iter().enumerate().map(of).collect()
                }
                Head::Kernels(head) => {
                    by_example(&head.scores(&features(&states, &rows, examples)), examples)
                }
                Head::Span(head) => span_answers(head, &states, &rows, examples, self.beam),
            }
        })
    }
}

/// What documents are ranked by, `[rows, kernels]`.
fn features(words: &Tensor, rows: &Rows, examples: &[&Example]) -> Tensor {
    let query =
        |sequence: &Sequence| sequence.segments.iter().filter(|&&of| i64::from(of) == QUERY_SEGMENT).count();
    let longest = examples.iter().flat_map(|example| &example.sequences).map(query).max().unwrap_or(0);
    kernel_features(words, &rows.segments, longest as i64)
}

/// Mean of the states of each row over its tokens, padding left out: `[rows, 1, d_model]`.
fn mean_states(states: &Tensor, rows: &Rows) -> Tensor {
    let Some(padding) = &rows.padding else {
        return states.mean_dim([1i64].as_slice(), true, None::<Number>);
    };
    let padding = padding.unsqueeze(-1);
    let sum = states.masked_fill(&padding, 0.0).sum_dim_intlist([1i64].as_slice(), true, None::<Number>);
    sum / padding.logical_not().sum_dim_intlist([1i64].as_slice(), true, states.kind())
}

/// A target as a label; data that has none is not trained on.
fn class(target: &Target) -> i64 {
    match target {
        Target::Class(label) | Target::Option(label) => i64::from(*label),
        other => panic!("training examples have labels, this one has {other:?}"),
    }
}

fn number(target: &Target) -> f32 {
    match target {
        Target::Number(number) => *number as f32,
        other => panic!("training examples have numbers, this one has {other:?}"),
    }
}

/// Squared errors, `[examples]`, of `logits` `[examples, 1]`.
fn number_losses(logits: &Tensor, examples: &[&Example]) -> Tensor {
    let numbers: Vec<f32> = examples.iter().map(|e| number(&e.target)).collect();
    squared_errors(logits, &put(Tensor::from_slice(&numbers), logits.device()))
}

/// Labels of all positions, row by row.
fn tags(rows: &Rows, examples: &[&Example]) -> Vec<i64> {
    let mut labels = Vec::with_capacity(rows.offsets.len() * rows.length as usize);
    for (example, &offset) in examples.iter().zip(&rows.offsets) {
        labels.extend(std::iter::repeat_n(NO_LABEL, offset as usize));
        match &example.target {
            Target::Tags(tags) => labels.extend(tags.iter().map(|tag| tag.map_or(NO_LABEL, i64::from))),
            other => panic!("training examples have tags, this one has {other:?}"),
        }
    }
    labels
}

/// 1 where no answer can be, `[rows, length]`: padding, question and separators; `<cls>` is the answer to what has
/// none.
fn outside(rows: &Rows, examples: &[&Example]) -> Tensor {
    let mut values = Vec::with_capacity(rows.offsets.len() * rows.length as usize);
    for (sequence, &offset) in examples.iter().flat_map(|e| &e.sequences).zip(&rows.offsets) {
        values.extend(std::iter::repeat_n(1f32, offset as usize));
        values.extend(sequence.outside.iter().map(|&outside| if outside { 1.0 } else { 0.0 }));
    }
    put(Tensor::from_slice(&values).view([rows.offsets.len() as i64, rows.length]), rows.ids.device())
}

/// Where each row has its `<cls>`: at the end.
fn cls(rows: &Rows) -> Tensor {
    Tensor::full([rows.offsets.len() as i64], rows.length - 1, (Number::Int64, rows.ids.device()))
}

fn span_losses(
    head: &SpanHead,
    states: &Tensor,
    rows: &Rows,
    examples: &[&Example],
    noise: Option<&Noise>,
) -> Tensor {
    let (mut starts, mut ends, mut none) = (Vec::new(), Vec::new(), Vec::new());
    for (example, offset) in examples.iter().zip(&rows.offsets) {
        match example.target {
            Target::Span { start, end, impossible } => {
                starts.push(i64::from(start) + offset);
                ends.push(i64::from(end) + offset);
                none.push(f32::from(impossible));
            }
            ref other => panic!("training examples have spans, this one has {other:?}"),
        }
    }
    let put = |labels: Tensor| put(labels, states.device());
    let (starts, ends) = (put(Tensor::from_slice(&starts)), put(Tensor::from_slice(&ends)));
    let impossible = put(Tensor::from_slice(&none));
    let labels = SpanLabels {
        starts: &starts,
        ends: &ends,
        impossible: Some(&impossible),
        judged_from: JudgedFrom::Expected,
    };
    head.losses(states, &cls(rows), Some(&outside(rows, examples)), labels, noise)
}

/// Scores of the rows of each example together.
fn by_example(logits: &Tensor, examples: &[&Example]) -> Vec<Scores> {
    let (mut first, logits) = (0, on_host(logits));
    examples
        .iter()
        .map(|example| {
            let count = example.sequences.len() as i64;
            first += count;
            floats(&logits.narrow(0, first - count, count))
        })
        .collect()
}

/// Where answers are decided, read at once.
fn on_host(x: &Tensor) -> Tensor {
    x.to_device(Device::Cpu)
}

fn floats(x: &Tensor) -> Vec<f32> {
    let mut out = vec![0f32; x.numel()];
    x.contiguous().copy_data(&mut out, x.numel());
    out
}

/// For each row: as many starts as ends for each, how many that is, then probabilities and positions of starts,
/// the same of ends (the most probable end of each start, then the second of each), and the log-odds that there is
/// no answer. Positions count from the row's first token.
fn span_answers(
    head: &SpanHead,
    states: &Tensor,
    rows: &Rows,
    examples: &[&Example],
    beam: i64,
) -> Vec<Scores> {
    let n = beam.min(rows.length);
    let Beam { start_probabilities, starts, end_probabilities, ends, unanswerable } =
        head.beam(states, &cls(rows), Some(&outside(rows, examples)), n, n);
    let [start_probabilities, starts, end_probabilities, ends, unanswerable] =
        [start_probabilities, starts, end_probabilities, ends, unanswerable].each_ref().map(on_host);
    let unanswerable = floats(&unanswerable);
    let row = |(row, &offset): (usize, &i64)| {
        let of = |x: &Tensor| floats(&x.get(row as i64).to_kind(Number::Float));
        let places = |x: &Tensor| of(&(x - offset));
        let parts = [
            vec![n as f32],
            of(&start_probabilities),
            places(&starts),
            of(&end_probabilities),
            places(&ends),
            vec![unanswerable[row]],
        ];
        parts.concat()
    };
    rows.offsets.iter().enumerate().map(row).collect()
}
