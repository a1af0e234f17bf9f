//! Documents ranked by kernel pooling: from TREC's files to a run, on made-up texts.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use segue_collectives::{Communicator, local::Local, simulated};
use segue_configs::Config;
use segue_dataloader::{BuildObserver, Preset, TrainingText, train_tokenizer};
use segue_engine::Watch;
use segue_engine::checkpoint;
use segue_family::Job;
use segue_kernels::{Compute, Parameters};
use segue_random::{Draws, Purpose};
use segue_task::{
    Circumstances, Finetuning, HeadSpec, SplitScores, TaskFolder, TaskModel, answers, decide, score,
    task_folder, write_answered,
};
use segue_tasks::{Kind, Sequence, Split, TaskConfig, TaskData, TaskSplits, TaskSummary};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};
use tempfile::TempDir;

const WORDS: u64 = 60;
const QUERIES: u64 = 24;
const DOCUMENTS: u64 = 12;

struct Quiet;

impl BuildObserver for Quiet {}

fn tokenizer() -> Tokenizer {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("text.txt");
    let words: Vec<String> = (0..WORDS).map(word).collect();
    fs::write(&path, words.join(" ")).unwrap();
    let options = TrainOptions {
        special_tokens: ["<cls>", "<sep>", "<pad>"].map(String::from).to_vec(),
        ..TrainOptions::new(TokenizerKind::Word)
    };
    train_tokenizer(&TrainingText::new(Preset::Sentences, vec![path]), &options, 1, &Quiet).unwrap()
}

fn word(number: u64) -> String {
    format!("w{number}")
}

/// Queries of three words. Of the documents of each, one has all of them, one two, one one, the rest none.
fn write_task(folder: &Path) {
    let mut draws = Draws::new(11, Purpose::Bench, &[]);
    let (mut queries, mut documents) = (String::new(), String::new());
    let mut files = [("train", String::new(), String::new()), ("dev", String::new(), String::new())];
    for query in 0..QUERIES {
        let mut words: Vec<u64> = (0..WORDS).collect();
        draws.shuffle(&mut words);
        let (own, others) = words.split_at(3);
        writeln!(queries, "q{query}\t{}", own.iter().map(|w| word(*w)).collect::<Vec<_>>().join(" "))
            .unwrap();
        let (_, qrels, run) = &mut files[usize::from(query % 3 == 0)];
        for document in 0..DOCUMENTS {
            // The best documents are somewhere among the others.
            let grade = [0, 0, 1, 0, 2, 0, 0, 3, 0, 0, 0, 0][document as usize];
            let mut text: Vec<u64> = own[..grade].to_vec();
            text.extend((0..6 + draws.below(6)).map(|_| others[draws.below(others.len() as u64) as usize]));
            draws.shuffle(&mut text);
            let text: Vec<String> = text.into_iter().map(word).collect();
            writeln!(documents, "d{query}-{document}\t{}", text.join(" ")).unwrap();
            writeln!(qrels, "q{query} 0 d{query}-{document} {grade}").unwrap();
            writeln!(run, "q{query} Q0 d{query}-{document} {} -{document}.5 first", document + 1).unwrap();
        }
    }
    let [(_, train, _), (_, dev, run)] = files;
    for (name, text) in [
        ("queries.tsv", queries),
        ("documents.tsv", documents),
        ("train.qrels", train),
        ("dev.qrels", dev),
        ("dev.run", run.clone()),
        ("test.run", run),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn config(run: &Path, data: &Path, model: &str, extra: &[&str]) -> Config {
    let all = [
        &format!("run.dir={}", run.display()),
        &format!("task.data={}", data.display()),
        &format!("model.model_type={model}"),
        &format!("model.vocab_size={}", tokenizer().vocab_size()),
        "task.name=ranking",
        "task.from_scratch=true",
        "task.epochs=0",
        "task.warmup_share=0",
        "model.d_model=32",
        "model.n_head=4",
        "model.n_layer=2",
        "model.d_inner=64",
        "train.lanes=16",
        "train.micro_batch=4",
        "train.segment=24",
        "train.steps=200",
        "optim.lr=1e-1",
        "optim.clip=0",
    ];
    let all: Vec<String> = all.iter().chain(extra).map(|text| text.to_string()).collect();
    let base = vec![(segue_configs::finetuning_defaults(), "fine-tuning".to_string())];
    segue_families::MODELS.load_over(base, None, &all).unwrap().config
}

fn open(config: &Config) -> TaskData {
    let splits = TaskSplits { train: true, dev: true, test: true };
    TaskData::open(&config.task.name, &config.own, config.train.seed, &tokenizer(), splits).unwrap()
}

fn train(config: &Config, data: &TaskData, comm: &dyn Communicator) {
    segue_kernels::libtorch::set_threads(1);
    let tasks = std::slice::from_ref(data);
    let circumstances = Circumstances::default();
    let tokenizer = tokenizer();
    let job = Finetuning { tasks, folder: None, tokenizer: &tokenizer, circumstances };
    job.train(config, Compute::CPU, comm, &|| false, &mut |_| {}).unwrap();
}

/// Ranks a split with the model of a run, and writes the run file to `folder`.
fn rank(
    config: &Config,
    data: &TaskData,
    split: &Split,
    folder: &Path,
    comm: &dyn Communicator,
) -> SplitScores {
    let model = TaskFolder::open(&segue_families::MODELS, config.run.dir.as_ref())
        .unwrap()
        .load(&config.own.get::<TaskConfig>())
        .unwrap();
    let found = answers(&model, 0, &split.examples, 4, comm, &mut Watch::new(&mut |_, _| {})).unwrap();
    let decided = decide(data, split, &found, &config.own.get::<TaskConfig>());
    if comm.rank() == 0 {
        write_answered(data, split, &decided, folder).unwrap();
    }
    score(data, split, &found, &decided)
}

/// Row X29.
#[test]
fn documents_that_share_words_with_the_query_come_first() {
    for model in ["xlnet", "transfo-xl"] {
        let (task, run) = (TempDir::new().unwrap(), TempDir::new().unwrap());
        write_task(task.path());
        let config = config(run.path(), task.path(), model, &[]);
        let data = open(&config);
        train(&config, &data, &Local);
        let scores = rank(&config, &data, &data.dev[0], run.path(), &Local);
        let of = |name: &str| scores.metric(name).unwrap();
        assert_eq!((scores.count, scores.collapsed.as_ref()), (8, None));
        assert!(of("ndcg@20") > 0.97 && of("mrr") == 1.0, "{model}: {scores:?}");
        // The best grade of 3 stops a reader with 7/8, so a perfect order has at least that.
        assert!(of("err@20") > 0.87, "{model}: {scores:?}");
        let text = fs::read_to_string(run.path().join("ranking-dev.run")).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        assert_eq!(lines.len(), 96);
        assert_eq!((&lines[0][..4], lines[0][5]), (&["q0", "Q0", "d0-7", "1"][..], "segue"));
        // Nobody judged the test set, whose run this program reads as its own.
        assert_eq!(rank(&config, &data, &data.test[0], task.path(), &Local).count, 0);
        fs::rename(task.path().join("ranking-test.run"), task.path().join("test.run")).unwrap();
        assert_eq!(open(&config).test[0].examples.len(), 96);
    }
}

/// Row X29.
#[test]
fn every_number_of_ranks_gives_the_same_weights_and_runs() {
    let task = TempDir::new().unwrap();
    write_task(task.path());
    let weights_and_run = |world: usize| {
        let run = TempDir::new().unwrap();
        let config = config(run.path(), task.path(), "xlnet", &["train.steps=12", "eval.every=5"]);
        let data = open(&config);
        let scores = simulated::run(world, |comm| {
            train(&config, &data, comm);
            rank(&config, &data, &data.dev[0], run.path(), comm)
        });
        assert!(scores.iter().all(|own| *own == scores[0]));
        let files = ["model.safetensors", "optimizer.safetensors"].map(|name| {
            let last = run.path().join("checkpoints/step-00000012");
            fs::read(last.join(name)).unwrap()
        });
        (files, fs::read(run.path().join("ranking-dev.run")).unwrap())
    };
    let one = weights_and_run(1);
    assert!(weights_and_run(2) == one && weights_and_run(4) == one);
}

/// Row X29.
#[test]
fn a_run_that_stops_goes_on_to_the_same_end() {
    let task = TempDir::new().unwrap();
    write_task(task.path());
    let run = |stops: &[&str]| {
        let run = TempDir::new().unwrap();
        for stop in stops {
            let config = config(run.path(), task.path(), "xlnet", &["train.steps=9", stop]);
            train(&config, &open(&config), &Local);
        }
        let last = run.path().join("checkpoints/step-00000009");
        ["model.safetensors", "optimizer.safetensors"].map(|name| fs::read(last.join(name)).unwrap())
    };
    assert!(run(&["train.stop_at=4", "train.stop_at=0"]) == run(&["train.stop_at=0"]));
}

fn head(task: &str, kind: Kind, labels: &[&str]) -> HeadSpec {
    let labels = labels.iter().map(|label| label.to_string()).collect();
    HeadSpec { task: task.into(), kind, labels, summary: TaskSummary::Last }
}

fn model(config: &Config, heads: &[HeadSpec], seed: u64) -> TaskModel {
    let specs = TaskModel::specs(&config.model, heads);
    TaskModel::new(
        &config.model,
        heads,
        &config.own.get::<TaskConfig>(),
        Parameters::initialise(specs, seed, tch::Kind::Float),
    )
}

/// The vectors are those of the model that was trained before, and stay so: only the kernels' weights are trained.
/// Row X29.
#[test]
fn word_vectors_of_a_model_are_taken_and_left_as_they_are() {
    for name in ["xlnet", "transfo-xl"] {
        let (task, run, before) = (TempDir::new().unwrap(), TempDir::new().unwrap(), TempDir::new().unwrap());
        write_task(task.path());
        let start = format!("train.init_from={}", before.path().join("model").display());
        let extra = ["task.from_scratch=false", start.as_str(), "train.steps=3"];
        let config = config(run.path(), task.path(), name, &extra);
        let whole = model(&config, &[head("made-up", Kind::Classification, &["no", "yes"])], 5);
        let mut contents = task_folder(&whole);
        contents.tokenizer = Some(tokenizer().into());
        checkpoint::replace(&before.path().join("model"), |dir| contents.write(dir)).unwrap();
        train(&config, &open(&config), &Local);
        let folder = TaskFolder::open(&segue_families::MODELS, run.path()).unwrap();
        let ranking = folder.load(&config.own.get::<TaskConfig>()).unwrap();
        let trained: Vec<_> = ranking.parameters.specs().iter().map(|spec| spec.name.as_str()).collect();
        assert_eq!(trained, ["kernels.weight", "kernels.bias"]);
        assert_eq!(ranking.parameters.count(), 12);
        for (spec, tensor) in ranking.weights().take(ranking.frozen().specs().len()) {
            let theirs = whole.parameters.get(&spec.name);
            assert!(spec.name.starts_with("transformer.word_emb"), "{}", spec.name);
            assert!(!tensor.requires_grad() && *tensor == theirs, "{}", spec.name);
        }
        let drawn = model(&config, &[head("ranking", Kind::Ranking, &[])], config.train.seed);
        assert_ne!(drawn.parameters.tensors()[0], ranking.parameters.tensors()[0]);
    }
}

/// Row X29.
#[test]
fn padding_leaves_scores_as_they_are() {
    let (task, run) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write_task(task.path());
    for name in ["xlnet", "transfo-xl"] {
        let config = config(run.path(), task.path(), name, &[]);
        let model = model(&config, &[head("ranking", Kind::Ranking, &[])], 3);
        let examples = open(&config).dev[0].examples.clone();
        assert!(examples.iter().any(|e| e.width() != examples[0].width()));
        let together = model.answer(0, &examples.iter().collect::<Vec<_>>());
        for (example, padded) in examples.iter().zip(together) {
            let alone = &model.answer(0, &[example])[0];
            assert!(alone.len() == 1 && (alone[0] - padded[0]).abs() < 1e-5, "{name}: {alone:?} {padded:?}");
        }
    }
}

/// Row X29.
#[test]
fn queries_and_documents_are_told_apart_by_their_segments() {
    let (task, run) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    write_task(task.path());
    let data = open(&config(run.path(), task.path(), "xlnet", &["train.segment=8"]));
    let train = data.train.unwrap();
    assert!(train.examples.iter().all(|example| example.sequences.len() == 2 && example.width() <= 8));
    let Sequence { segments, .. } = &train.examples[0].sequences[0];
    assert_eq!(segments[..], [0, 0, 0, 1, 1, 1, 1, 1]);
}
