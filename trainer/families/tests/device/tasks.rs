//! Fine-tuning with every kind of head: losses, gradients, and answers, which are decided on the host.

use segue_configs::ModelConfig;
use segue_kernels::Parameters;
use segue_kernels::noise::Noise;
use segue_task::{HeadSpec, TaskModel};
use segue_tasks::{Example, Kind, Sequence, Target, TaskConfig, TaskSummary};
use segue_xlnet::XlnetConfig;
use tch::{Device, Kind as Number, Tensor};

use crate::models::{self, gradients};
use crate::{assert_close, device};

const WORDS: u32 = 41;
const EXAMPLES: u32 = 5;
/// In single precision, of the largest value. Gradients of a bias that a softmax does not see are nothing but rounding.
const LIMIT: f64 = 1e-3;

fn xlnet() -> ModelConfig {
    let config = XlnetConfig {
        vocab_size: WORDS as usize,
        d_model: 24,
        n_head: 3,
        d_inner: 32,
        n_layer: 2,
        dropout: 0.1,
        dropatt: 0.1,
        initializer_range: 0.3,
        ..Default::default()
    };
    config.into()
}

/// A question and a text of other lengths for each number, then `<cls>`; answers lie in the text.
fn sequence(number: u32) -> Sequence {
    let length = 7 + number % 4;
    let ids = (0..length).map(|i| (i * i + 7 * i + 3 * number) % WORDS).collect();
    let segments = (0..length).map(|i| if i + 1 == length { 2 } else { u8::from(i > 2) }).collect();
    let outside = (0..length).map(|i| i < 3).collect();
    Sequence { ids, segments, outside, is_cut: false }
}

fn example(kind: Kind, number: u32) -> Example {
    let count = match kind {
        // Other numbers of options fill up.
        Kind::Choice => 2 + number % 2,
        Kind::Ranking => 2,
        _ => 1,
    };
    let sequences: Vec<Sequence> = (0..count).map(|i| sequence(number + i)).collect();
    let length = sequences[0].ids.len() as u32;
    let target = match kind {
        Kind::Classification => Target::Class(number % 3),
        Kind::Regression => Target::Number(f64::from(number) / 2.0),
        Kind::Choice => Target::Option(number % 2),
        Kind::Tagging => Target::Tags((0..length).map(|i| (i > 0).then_some((i + number) % 3)).collect()),
        Kind::Span => Target::Span { start: 3, end: 4, impossible: number.is_multiple_of(2) },
        Kind::Ranking => Target::Unknown,
    };
    Example { sequences, target }
}

/// Loss, gradients and answers.
fn gives(config: &ModelConfig, head: &HeadSpec, device: Device) -> Vec<(String, Tensor)> {
    let heads = std::slice::from_ref(head);
    let parameters = Parameters::initialise(TaskModel::specs(config, heads), 7, Number::Float).to(device);
    // As many starts as there are places for an answer: probabilities of nothing are in no order.
    let task = TaskConfig { beam: 4, ..TaskConfig::default() };
    let model = TaskModel::new(config, heads, &task, parameters);
    let examples: Vec<Example> = (0..EXAMPLES).map(|number| example(head.kind, number)).collect();
    let examples: Vec<&Example> = examples.iter().collect();
    let loss = model.loss(0, &examples, Some(&Noise::new(11))).objectives.swap_remove(0);
    loss.backward();
    let answers = model.answer(0, &examples).concat();
    let mut found = vec![("loss".into(), loss), ("answers".into(), Tensor::from_slice(&answers))];
    found.extend(gradients(&model.parameters));
    found
}

fn assert_alike(config: &ModelConfig, kind: Kind, summary: TaskSummary) {
    let labels = ["a", "b", "c"].map(String::from).to_vec();
    let head = HeadSpec { task: "task".into(), kind, labels, summary };
    let [found, expected] = [device(), Device::Cpu].map(|device| gives(config, &head, device));
    for ((name, found), (_, expected)) in found.iter().zip(&expected) {
        assert_close(&format!("{kind:?}: {name}"), found, expected, LIMIT);
    }
}

#[test]
fn heads_of_tasks_are_those_of_the_cpu() {
    let config = xlnet();
    for kind in
        [Kind::Classification, Kind::Regression, Kind::Choice, Kind::Tagging, Kind::Span, Kind::Ranking]
    {
        assert_alike(&config, kind, TaskSummary::Last);
    }
    assert_alike(&config, Kind::Regression, TaskSummary::Mean);
}

/// Padding goes to the other end and back, and ids are counted by cluster.
#[test]
fn heads_on_a_transformer_xl_are_those_of_the_cpu() {
    let (_, config) = models::transformer_xl();
    for kind in [Kind::Classification, Kind::Tagging] {
        assert_alike(&config.clone().into(), kind, TaskSummary::Last);
    }
}
