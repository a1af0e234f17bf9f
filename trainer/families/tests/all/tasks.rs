//! Fine-tuning on made-up tasks: what is learnt, what padding and ranks must not change, what is shared.

mod training;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use segue_collectives::Communicator;
use segue_collectives::local::Local;
use segue_collectives::simulated::{self, Faults};
use segue_configs::{Config, Precision};
use segue_engine::{Outcome, Watch};
use segue_family::Job;
use segue_kernels::libtorch::{Autocast, set_threads};
use segue_kernels::noise::Noise;
use segue_kernels::{Compute, Parameters};
use segue_language::ModelFolder;
use segue_random::{Draws, Purpose};
use segue_task::{Circumstances, Finetuning, HeadSpec, TaskFolder, TaskModel, answers, start_task_from};
use segue_tasks::{
    Example, Kind, Records, Row, Sequence, Skipped, Split, TaggedSentence, Target, TaskConfig, TaskData,
    TaskSummary,
};
use segue_tokenizer::Tokenizer;
use tempfile::TempDir;

const CLS: u32 = 3;
const SEP: u32 = 4;

/// Words 10 to 14 are good, 15 to 19 bad, the rest say nothing.
fn sequence(texts: &[&[u32]]) -> Sequence {
    let mut sequence = Sequence::default();
    for (segment, text) in texts.iter().enumerate() {
        sequence.ids.extend(text.iter().chain(&[SEP]));
        sequence.segments.extend(vec![segment as u8; text.len() + 1]);
    }
    sequence.ids.push(CLS);
    sequence.segments.push(2);
    sequence
}

fn text(draws: &mut Draws, longest: u64) -> Vec<u32> {
    (0..2 + draws.below(longest - 1)).map(|_| 20 + draws.below(10) as u32).collect()
}

fn draws(number: u64) -> Draws {
    Draws::new(5, Purpose::Bench, &[number])
}

/// A text with one good or bad word somewhere.
fn sentiment(number: u64) -> Example {
    let mut draws = draws(number);
    let mut words = text(&mut draws, 9);
    let good = draws.below(2) as u32;
    let place = draws.below(words.len() as u64) as usize;
    words[place] = 15 - 5 * good + draws.below(5) as u32;
    Example { sequences: vec![sequence(&[&words])], target: Target::Class(good) }
}

/// Two texts; the first entails the second where both have a good word.
fn entailment(number: u64) -> Example {
    let mut draws = draws(number);
    let (mut a, mut b) = (text(&mut draws, 5), text(&mut draws, 5));
    let kinds = [draws.below(2) as u32, draws.below(2) as u32];
    a[0] = 10 + 5 * kinds[0];
    b[0] = 10 + 5 * kinds[1];
    let target = Target::Class(u32::from(kinds == [0, 0]));
    Example { sequences: vec![sequence(&[&a, &b])], target }
}

/// Two to four options, one of which has a good word.
fn choice(number: u64) -> Example {
    let mut draws = draws(number);
    let options = 2 + draws.below(3);
    let right = draws.below(options) as u32;
    let option = |i: u32, draws: &mut Draws| {
        let mut words = text(draws, 6);
        words[0] = if i == right { 10 } else { 15 };
        sequence(&[&[21, 22], &words])
    };
    let sequences = (0..options as u32).map(|i| option(i, &mut draws)).collect();
    Example { sequences, target: Target::Option(right) }
}

/// How many good words there are.
fn counting(number: u64) -> Example {
    let mut draws = draws(number);
    let words: Vec<u32> = (0..6).map(|_| if draws.below(2) == 0 { 10 } else { 20 }).collect();
    let good = words.iter().filter(|&&word| word == 10).count();
    Example { sequences: vec![sequence(&[&words])], target: Target::Number(good as f64) }
}

/// Good and bad words have labels of their own.
fn tagging(number: u64) -> Example {
    let mut draws = draws(number);
    let words: Vec<u32> = (0..2 + draws.below(6)).map(|_| 10 + draws.below(15) as u32).collect();
    let mut tags: Vec<Option<u32>> = words.iter().map(|word| Some((word / 5) - 2)).collect();
    tags.extend([None, None]);
    Example { sequences: vec![sequence(&[&words])], target: Target::Tags(tags) }
}

/// The answer is the one good word; of texts without any there is none.
fn span(number: u64) -> Example {
    let mut draws = draws(number);
    let mut words = text(&mut draws, 8);
    let impossible = draws.below(4) == 0;
    let place = draws.below(words.len() as u64) as usize;
    words[place] = if impossible { 15 } else { 10 };
    let mut sequence = sequence(&[&words, &[23]]);
    let last = sequence.ids.len() as u32 - 1;
    sequence.outside = (0..=last).map(|i| i as usize >= words.len() && i != last).collect();
    let place = if impossible { last } else { place as u32 };
    let target = Target::Span { start: place, end: place, impossible };
    Example { sequences: vec![sequence], target }
}

fn split(name: &str, examples: Vec<Example>) -> Split {
    let row = |(i, example): (usize, &Example)| Row {
        index: i.to_string(),
        example: i as u32,
        sequence: 0,
        gold: example.target.clone(),
        group: None,
    };
    let records = match &examples[0].target {
        Target::Tags(_) => {
            let of = |example: &Example| match &example.target {
                Target::Tags(tags) => {
                    let gold: Vec<u32> = tags.iter().flatten().copied().collect();
                    TaggedSentence {
                        words: vec!["w".into(); gold.len()],
                        positions: (0..gold.len() as u32).map(Some).collect(),
                        gold,
                    }
                }
                _ => unreachable!("all examples have tags"),
            };
            Records::Sentences(examples.iter().map(of).collect())
        }
        _ => Records::Rows(examples.iter().enumerate().map(row).collect()),
    };
    Split {
        name: name.into(),
        records,
        examples,
        skipped: Skipped::default(),
        fingerprint: name.into(),
        submission: None,
    }
}

fn task(name: &str, kind: Kind, labels: &[&str], make: fn(u64) -> Example) -> TaskData {
    TaskData {
        name: name.into(),
        kind,
        labels: labels.iter().map(|label| label.to_string()).collect(),
        columns: None,
        train: Some(split("train", (0..400).map(make).collect())),
        dev: vec![split("dev", (1000..1200).map(make).collect())],
        test: Vec::new(),
    }
}

fn sentiment_task() -> TaskData {
    task("sentiment", Kind::Classification, &["bad", "good"], sentiment)
}

fn config(run: &Path, model: &str, extra: &[&str]) -> Config {
    let sizes = match model {
        "xlnet" => ["model.dropout=0.1", "model.dropatt=0.1", "model.d_inner=64"],
        _ => ["model.dropout=0.1", "model.mem_len=4", "model.d_inner=64"],
    };
    let common = [
        &format!("run.dir={}", run.display()),
        &format!("model.model_type={model}"),
        "task.name=made-up",
        "task.from_scratch=true",
        "task.epochs=0",
        "task.warmup_share=0",
        "model.vocab_size=32",
        "model.d_model=32",
        "model.n_head=4",
        "model.n_layer=2",
        "train.lanes=16",
        "train.micro_batch=4",
        "train.segment=24",
        "optim.lr=3e-3",
        "train.steps=120",
        "schedule.warmup=10",
    ];
    let all = common.iter().chain(&sizes).chain(extra).map(|text| text.to_string()).collect::<Vec<_>>();
    let base = vec![(segue_configs::finetuning_defaults(), "fine-tuning".to_string())];
    segue_families::MODELS.load_over(base, None, &all).unwrap().config
}

fn train(config: &Config, tasks: &[TaskData], comm: &dyn Communicator) -> Outcome {
    segue_kernels::libtorch::set_threads(1);
    let tokenizer = Tokenizer::bytes();
    let circumstances = Circumstances::default();
    let job = Finetuning { tasks, folder: None, tokenizer: &tokenizer, circumstances };
    job.train(config, Compute::CPU, comm, &|| false, &mut |_| {}).unwrap()
}

/// What the best checkpoint scores, by the task's first metric.
fn learnt(data: TaskData, extra: &[&str]) -> f64 {
    learnt_by("xlnet", data, extra)
}

fn learnt_by(model: &str, data: TaskData, extra: &[&str]) -> f64 {
    let run = TempDir::new().unwrap();
    let outcome = train(&config(run.path(), model, extra), &[data], &Local);
    outcome.best.unwrap().1
}

/// Row X22.
#[test]
fn sentiment_and_entailment_are_learnt() {
    assert!(learnt(sentiment_task(), &["train.steps=300"]) > 0.95);
    let entailment = task("entailment", Kind::Classification, &["no", "yes"], entailment);
    assert!(learnt(entailment, &["train.steps=300"]) > 0.95);
}

#[test]
fn heads_work_on_transformer_xl_too() {
    assert!(learnt_by("transfo-xl", sentiment_task(), &["train.steps=300"]) > 0.95);
    let tagging = task("tagging", Kind::Tagging, &["B-GOOD", "B-BAD", "O"], tagging);
    assert!(learnt_by("transfo-xl", tagging, &[]) > 0.95);
}

/// Row X23.
#[test]
fn numbers_are_learnt() {
    let counting = task("counting", Kind::Regression, &[], counting);
    assert!(learnt(counting, &["train.steps=300"]) > 0.9);
}

/// Row X24.
#[test]
fn options_are_learnt_whatever_their_number() {
    let options = task("options", Kind::Choice, &[], choice);
    assert!(learnt(options, &["train.steps=300"]) > 0.95);
}

#[test]
fn tags_are_learnt() {
    let tagging = task("tagging", Kind::Tagging, &["B-GOOD", "B-BAD", "O"], tagging);
    assert!(learnt(tagging, &[]) > 0.95);
}

fn model(name: &str, heads: &[HeadSpec]) -> TaskModel {
    let run = TempDir::new().unwrap();
    let config = config(run.path(), name, &["model.initializer_range=0.2"][..usize::from(name == "xlnet")]);
    let specs = TaskModel::specs(&config.model, heads);
    TaskModel::new(
        &config.model,
        heads,
        &config.own.get::<TaskConfig>(),
        Parameters::initialise(specs, 3, tch::Kind::Float),
    )
}

fn head(task: &str, kind: Kind, labels: usize) -> HeadSpec {
    let labels = (0..labels).map(|i| i.to_string()).collect();
    HeadSpec { task: task.into(), kind, labels, summary: TaskSummary::Last }
}

/// Row X22.
#[test]
fn padding_leaves_answers_as_they_are() {
    let summaries = [TaskSummary::Last, TaskSummary::Mean];
    for (name, summary) in ["xlnet", "transfo-xl"].into_iter().flat_map(|name| summaries.map(|s| (name, s))) {
        let model = model(name, &[HeadSpec { summary, ..head("sentiment", Kind::Classification, 2) }]);
        let examples: Vec<Example> = (0..12).map(sentiment).collect();
        assert!(examples.iter().any(|e| e.width() != examples[0].width()));
        let together = model.answer(0, &examples.iter().collect::<Vec<_>>());
        for (example, padded) in examples.iter().zip(together) {
            let alone = &model.answer(0, &[example])[0];
            for (a, b) in alone.iter().zip(&padded) {
                assert!((a - b).abs() < 1e-5, "{name}: {alone:?} {padded:?}");
            }
        }
    }
}

/// With dropout, which leaves the same values out in every precision. A loss of a few examples is the mean of as many roundings of scores to
/// 8 or 11 bits.
#[test]
fn losses_in_16_bits_are_those_of_single_precision() {
    set_threads(1);
    type Make = fn(u64) -> Example;
    let kinds: [(Kind, usize, Make); 5] = [
        (Kind::Classification, 2, sentiment),
        (Kind::Tagging, 3, tagging),
        (Kind::Regression, 0, counting),
        (Kind::Choice, 0, choice),
        (Kind::Span, 0, span),
    ];
    for (name, (kind, labels, make)) in
        ["xlnet", "transfo-xl"].into_iter().flat_map(|name| kinds.map(|kind| (name, kind)))
    {
        let model = model(name, &[head("task", kind, labels)]);
        let examples: Vec<Example> = (0..16).map(make).collect();
        let examples: Vec<&Example> = examples.iter().collect();
        let loss = || model.loss(0, &examples, Some(&Noise::new(3)));
        let exact = loss().reported.double_value(&[]);
        for (precision, limit) in [(Precision::Bf16, 0.01), (Precision::Fp16, 0.002)] {
            let found = Autocast::to(precision, tch::Device::Cpu).unwrap().during(loss);
            assert_eq!(found.reported.kind(), tch::Kind::Float);
            let error = found.reported.double_value(&[]) / exact - 1.0;
            assert!(error.abs() < limit, "{name}, {kind:?}, {precision:?}: {error}");
        }
    }
}

/// Row X25.
#[test]
fn spans_are_learnt_with_what_has_none() {
    let run = TempDir::new().unwrap();
    let mut data = task("span", Kind::Span, &[], span);
    let dev = data.dev.remove(0);
    let config = config(run.path(), "xlnet", &["train.steps=300"]);
    train(&config, &[data], &Local);
    let folder = TaskFolder::open(&segue_families::MODELS, run.path()).unwrap();
    let model = folder.load(&config.own.get::<TaskConfig>()).unwrap();
    let scores = answers(&model, 0, &dev.examples, 8, &Local, &mut Watch::new(&mut |_, _| {})).unwrap();
    let right = dev.examples.iter().zip(&scores).filter(|(example, scores)| {
        let Target::Span { start, impossible, .. } = example.target else { unreachable!() };
        let n = scores[0] as usize;
        let unanswerable = scores[scores.len() - 1] > 0.0;
        unanswerable == impossible && (impossible || scores[1 + n] == start as f32)
    });
    let share = right.count() as f32 / scores.len() as f32;
    assert!(share > 0.95, "{share}");
}

#[test]
fn every_number_of_ranks_gives_the_same_weights_and_answers() {
    let weights_and_scores = |world: usize| {
        let run = TempDir::new().unwrap();
        let config = config(run.path(), "xlnet", &["train.steps=12", "eval.every=5"]);
        let data = [sentiment_task()];
        let scores = simulated::run(world, |comm| {
            train(&config, &data, comm);
            let model = TaskFolder::open(&segue_families::MODELS, run.path())
                .unwrap()
                .load(&config.own.get::<TaskConfig>())
                .unwrap();
            answers(&model, 0, &data[0].dev[0].examples, 4, comm, &mut Watch::new(&mut |_, _| {})).unwrap()
        });
        assert!(scores.iter().all(|own| *own == scores[0]));
        let last = run.path().join("checkpoints/step-00000012");
        let read = |name: &str| std::fs::read(last.join(name)).unwrap();
        (read("model.safetensors"), read("optimizer.safetensors"), scores[0].clone())
    };
    let one = weights_and_scores(1);
    assert!(weights_and_scores(2) == one && weights_and_scores(4) == one);
}

/// A step of one task leaves the other's head as it is, on the rank that owns it too. Encoder and heads read no weights that are on their way.
#[test]
fn divided_moments_leave_heads_alone_that_a_step_does_not_reach() {
    let data = [sentiment_task(), task("tagging", Kind::Tagging, &["B-GOOD", "B-BAD", "O"], tagging)];
    let trained = |shard: &str, world: usize| {
        let run = TempDir::new().unwrap();
        let keys = ["train.steps=8", "eval.every=8", "train.bucket_bytes=8192", shard];
        let config = config(run.path(), "xlnet", &keys);
        let late = Faults { link: Some(Arc::new(|_| Some(Duration::from_millis(1)))), dies_at_call: None };
        simulated::run_with(vec![late; world], |comm| train(&config, &data, comm));
        let read =
            |name: &str| std::fs::read(run.path().join("checkpoints/step-00000008").join(name)).unwrap();
        (read("model.safetensors"), read("optimizer.safetensors"))
    };
    let alone = trained("train.shard=none", 1);
    for shard in ["train.shard=optimizer", "train.shard=gradients"] {
        assert!(trained(shard, 4) == alone, "{shard}");
    }
}

#[test]
fn recomputed_layers_end_with_the_same_bytes() {
    for (name, model) in [("whole", "xlnet"), ("mean", "xlnet"), ("whole", "transfo-xl")] {
        let summary = if name == "mean" { "task.summary=mean" } else { "task.summary=last" };
        let weights = |recompute: &str, world: usize| {
            let run = TempDir::new().unwrap();
            let config = config(run.path(), model, &["train.steps=5", "eval.every=5", summary, recompute]);
            simulated::run(world, |comm| _ = train(&config, &[sentiment_task()], comm));
            let last = run.path().join("checkpoints/step-00000005");
            ["model.safetensors", "optimizer.safetensors"].map(|name| std::fs::read(last.join(name)).unwrap())
        };
        let kept = weights("train.recompute=false", 1);
        assert!(weights("train.recompute=true", 2) == kept, "{model}, {name}");
    }
}

#[test]
fn a_run_that_stops_goes_on_to_the_same_end() {
    let data = [sentiment_task(), task("tagging", Kind::Tagging, &["B-GOOD", "B-BAD", "O"], tagging)];
    let run = |stops: &[&str]| {
        let run = TempDir::new().unwrap();
        for stop in stops {
            let config = config(run.path(), "xlnet", &["train.steps=14", "eval.every=4", stop]);
            train(&config, &data, &Local);
        }
        let read = |name: &str| std::fs::read(run.path().join(name)).unwrap();
        let last = "checkpoints/step-00000014";
        (
            read(&format!("{last}/model.safetensors")),
            read(&format!("{last}/optimizer.safetensors")),
            read("best/metrics.json"),
            read("best/model.safetensors"),
        )
    };
    let whole = run(&["train.stop_at=0"]);
    assert!(run(&["train.stop_at=3", "train.stop_at=9", "train.stop_at=0"]) == whole);
}

#[test]
fn f1_heads_of_all_tasks_share_one_encoder() {
    let heads = [head("sentiment", Kind::Classification, 2), head("tagging", Kind::Tagging, 3)];
    let model = model("xlnet", &heads);
    let examples: Vec<Example> = (0..4).map(tagging).collect();
    let members: Vec<&Example> = examples.iter().collect();
    model.loss(1, &members, None).reported.backward();
    let names: Vec<&str> = model.parameters.specs().iter().map(|spec| spec.name.as_str()).collect();
    let defined = |i: usize| model.parameters.tensors()[i].grad().defined();
    for (i, name) in names.iter().enumerate() {
        let own = !name.starts_with("tasks.sentiment.") && *name != "transformer.mask_emb";
        assert_eq!(defined(i), own, "{name}");
        assert_eq!(model.reached(1)[i], own, "{name}");
    }
    // One tensor, not two copies: the other head's answer changes with it.
    let before = model.answer(0, &members);
    tch::no_grad(|| _ = model.parameters.get("transformer.layer.0.rel_attn.q").g_mul_scalar_(1.5));
    assert_ne!(model.answer(0, &members), before);
}

#[test]
fn nothing_better_for_long_enough_ends_a_run() {
    let run = TempDir::new().unwrap();
    let extra = ["task.patience=2", "eval.every=3", "optim.lr=1e-9", "train.steps=60"];
    let outcome = train(&config(run.path(), "xlnet", &extra), &[sentiment_task()], &Local);
    assert!(outcome.stopped_early.is_some() && outcome.step == 9, "{outcome:?}");
    let again = train(&config(run.path(), "xlnet", &extra), &[sentiment_task()], &Local);
    assert!(again.stopped_early.is_some() && again.step == 9, "{again:?}");
}

#[test]
fn a_task_begins_with_the_encoder_and_heads_of_another() {
    let run = TempDir::new().unwrap();
    let both = [sentiment_task(), task("tagging", Kind::Tagging, &["B-GOOD", "B-BAD", "O"], tagging)];
    let together = config(run.path(), "xlnet", &["train.steps=6"]);
    train(&together, &both, &Local);
    let stored = TaskFolder::open(&segue_families::MODELS, run.path())
        .unwrap()
        .load(&together.own.get::<TaskConfig>())
        .unwrap();
    // A single task takes its own head out of several.
    let single = model(
        "xlnet",
        &[HeadSpec { labels: sentiment_task().labels, ..head("sentiment", Kind::Classification, 2) }],
    );
    let folder = ModelFolder::open(&segue_families::MODELS, run.path()).unwrap();
    assert_eq!(start_task_from(&folder, &single).unwrap(), Vec::<String>::new());
    assert_eq!(
        single.parameters.get("logits_proj.weight"),
        stored.parameters.get("tasks.sentiment.logits_proj.weight")
    );
    // One with other labels keeps the encoder and the summary alone.
    let other = model("xlnet", &[head("sentiment", Kind::Classification, 3)]);
    let fresh = start_task_from(&folder, &other).unwrap();
    assert_eq!(fresh, ["logits_proj.weight", "logits_proj.bias"]);
}
