//! What stays as it is, and labels that are smoothed and weighed.

use segue_task::{extract_adapter, heads, note_on_adapters};

use super::*;

fn tagging_task() -> TaskData {
    task("tagging", Kind::Tagging, &["B-GOOD", "B-BAD", "O"], tagging)
}

/// Weights and moments after six steps on words of two labels that are rare and one that is not.
fn trained(extra: &[&str], world: usize) -> [Vec<u8>; 2] {
    let run = TempDir::new().unwrap();
    let keys = |stop| ["train.steps=6", "eval.every=3", stop].into_iter().chain(extra.iter().copied());
    let stops = if world == 1 { &["train.stop_at=0"][..] } else { &["train.stop_at=4", "train.stop_at=0"] };
    for stop in stops {
        let config = config(run.path(), "xlnet", &keys(stop).collect::<Vec<_>>());
        simulated::run(world, |comm| _ = train(&config, &[tagging_task()], comm));
    }
    let last = run.path().join("checkpoints/step-00000006");
    ["model.safetensors", "optimizer.safetensors"].map(|name| std::fs::read(last.join(name)).unwrap())
}

/// A model that is trained already, in its own folder.
fn pretrained() -> TempDir {
    let run = TempDir::new().unwrap();
    let keys = ["train.steps=2", "optim.lr=1e-5", "model.initializer_range=0.2"];
    train(&config(run.path(), "xlnet", &keys), &[sentiment_task()], &Local);
    run
}

fn adapted<'a>(start: &'a str, stop: &'a str, extra: &[&'a str]) -> Vec<&'a str> {
    let keys =
        ["task.from_scratch=false", "task.adapter_rank=4", "train.steps=6", "eval.every=3", start, stop];
    keys.into_iter().chain(extra.iter().copied()).collect()
}

/// Names of the parameters that two steps have changed.
fn changed(model: &str, extra: &[&str]) -> Vec<String> {
    let run = TempDir::new().unwrap();
    let keys: Vec<&str> = ["train.steps=2", "model.n_layer=3"].iter().chain(extra).copied().collect();
    let config = config(run.path(), model, &keys);
    let (data, task) = ([sentiment_task()], config.own.get::<TaskConfig>());
    train(&config, &data, &Local);
    let after = TaskFolder::open(&segue_families::MODELS, run.path()).unwrap().load(&task).unwrap();
    let before = TaskModel::fresh(&config.model, &heads(&task, &data), &task, &config.train, Compute::CPU);
    let both = before.weights().zip(after.weights());
    let changed = both.filter(|((own, before), (other, after))| {
        assert_eq!(own.name, other.name);
        before != after
    });
    changed.map(|((own, _), _)| own.name.clone()).collect()
}

fn refused(extra: &[&str], data: TaskData) -> String {
    let run = TempDir::new().unwrap();
    let (config, tokenizer) = (config(run.path(), "xlnet", extra), Tokenizer::bytes());
    let job = Finetuning {
        tasks: &[data],
        folder: None,
        tokenizer: &tokenizer,
        circumstances: Circumstances::default(),
    };
    let error = job.train(&config, Compute::CPU, &Local, &|| false, &mut |_| {}).unwrap_err();
    format!("{error}\nhint: {}", error.hint().unwrap_or_default())
}

#[test]
fn frozen_parameters_keep_every_bit() {
    for model in ["xlnet", "transfo-xl"] {
        let layers = |changed: &[String], lowest: usize| {
            let is = |layer: usize| {
                let parts = [format!(".layer.{layer}."), format!(".layers.{layer}.")];
                changed.iter().any(|name| parts.iter().any(|part| name.contains(part)))
            };
            assert_eq!([0, 1, 2].map(is), [0, 1, 2].map(|layer| layer >= lowest), "{model}: {changed:?}");
            let words = |name: &String| name.contains("word_emb");
            assert_eq!(changed.iter().any(words), lowest == 0, "{model}: {changed:?}");
            assert!(changed.iter().any(|name| name.starts_with("logits_proj")), "{model}: {changed:?}");
        };
        layers(&changed(model, &[]), 0);
        layers(&changed(model, &["task.freeze_layers=2"]), 2);
        let words = changed(model, &["task.freeze_embeddings=true"]);
        assert!(words.iter().any(|name| name.contains(".0.")), "{words:?}");
        assert!(!words.iter().any(|name| name.contains("word_emb")), "{words:?}");
        let heads = changed(model, &["task.freeze_layers=3"]);
        assert!(!heads.is_empty() && !heads.iter().any(|name| name.starts_with("transformer")), "{heads:?}");
    }
}

/// Frozen layers, weights of labels and smoothing leave a run what it is: the same bytes on any number of ranks, and over a stop.
#[test]
fn what_is_trained_otherwise_is_trained_exactly() {
    let all = [
        &["task.freeze_layers=1"][..],
        &["task.freeze_layers=2", "train.shard=optimizer"],
        &["task.balance_classes=true"],
        &["task.class_weights=[2.0, 1.0, 0.25]", "task.label_smoothing=0.1"],
    ];
    let plain = trained(&[], 1);
    for keys in all {
        let alone = trained(keys, 1);
        assert!(alone != plain && trained(keys, 2) == alone, "{keys:?}");
    }
    let recompute = ["task.freeze_layers=1", "train.recompute=true"];
    assert!(trained(&recompute, 2) == trained(&["task.freeze_layers=1"], 1));
}

#[test]
fn what_is_above_frozen_layers_learns() {
    assert!(learnt(tagging_task(), &["task.freeze_layers=1", "train.steps=300"]) > 0.9);
}

#[test]
fn what_the_task_has_no_use_for_is_refused() {
    let counting = || task("counting", Kind::Regression, &[], counting);
    for (keys, data, told) in [
        (
            &["task.freeze_layers=3"][..],
            tagging_task(),
            "`task.freeze_layers` = 3 is invalid: the model has 2 layers",
        ),
        (&["task.class_weights=[1.0, 2.0]"], tagging_task(), "tagging has 3 labels: B-GOOD, B-BAD, O"),
        (
            &["task.balance_classes=true"],
            counting(),
            "`task.balance_classes` = true is invalid: the answers of counting are not classes",
        ),
        (&["task.label_smoothing=0.1"], counting(), "the answers of counting are not labels"),
        (&["task.adapter_rank=4"], tagging_task(), "--from-scratch takes none of its weights"),
        (&["task.adapter_rank=4", "train.recompute=true"], tagging_task(), "hint: train.recompute=false"),
        (&["task.adapter_rank=32", "task.from_scratch=false"], tagging_task(), "hint: give a rank below 32"),
        (&["task.class_weights=[1.0, -1.0, 1.0]"], tagging_task(), "weights are above 0"),
        (
            &["task.class_weights=[1.0, 2.0, 1.0]", "task.balance_classes=true"],
            tagging_task(),
            "leave one of the two out",
        ),
        (&["task.class_weights=[1.0]"], counting(), "`task.class_weights` = [1.0] is invalid"),
    ] {
        let error = refused(keys, data);
        assert!(error.contains(told), "{error}");
    }
}

/// The same bytes on any number of ranks, whoever keeps the moments, and over a stop; the best model has what adapters add in its own matrices.
#[test]
fn adapters_are_trained_exactly_and_added_in() {
    let base = pretrained();
    let start = format!("train.init_from={}", base.path().display());
    let trained = |world: usize, stops: &[&str], extra: &[&str]| {
        let run = TempDir::new().unwrap();
        for stop in stops {
            let config = config(run.path(), "xlnet", &adapted(&start, stop, extra));
            simulated::run(world, |comm| _ = train(&config, &[sentiment_task()], comm));
        }
        let read = |name: &str| std::fs::read(run.path().join(name)).unwrap();
        let last = "checkpoints/step-00000006";
        let files =
            [read(&format!("{last}/model.safetensors")), read(&format!("{last}/optimizer.safetensors"))];
        (files, read("best/model.safetensors"), run)
    };
    let whole = ["train.stop_at=0"];
    let (files, best, run) = trained(1, &whole, &[]);
    let (again, best_again, _) = trained(2, &["train.stop_at=2", "train.stop_at=4", "train.stop_at=0"], &[]);
    assert!(again == files && best_again == best);
    assert!(trained(4, &whole, &["train.shard=optimizer"]).0 == files);
    let config = config(run.path(), "xlnet", &adapted(&start, "train.stop_at=0", &[]));
    let load = |path: &Path| {
        let folder = TaskFolder::open(&segue_families::MODELS, path).unwrap();
        folder.load(&config.own.get::<TaskConfig>()).unwrap()
    };
    let (before, after) = (load(base.path()), load(run.path()));
    let changed = before.weights().zip(after.weights()).filter(|((_, own), (_, other))| own != other);
    let changed: Vec<&str> = changed.map(|((spec, _), _)| spec.name.as_str()).collect();
    assert!(changed.contains(&"transformer.layer.1.rel_attn.q") && changed.contains(&"logits_proj.weight"));
    let adapted = |name: &&str| {
        name.contains(".layer_") || name.contains("rel_attn.") || !name.starts_with("transformer")
    };
    assert!(changed.iter().all(adapted), "{changed:?}");
    // What is learnt has as few directions as the rank says.
    let difference = |name: &str| after.parameters.get(name).detach() - before.parameters.get(name).detach();
    let added = difference("transformer.layer.0.ff.layer_1.weight").to_kind(tch::Kind::Double);
    let (_, singular, _) = added.svd(true, false);
    let singular = Vec::<f64>::try_from(singular).unwrap();
    assert!(
        singular[3] > 1e-7 && singular[4..].iter().all(|rest| *rest < 1e-2 * singular[3]),
        "{singular:?}"
    );
}

#[test]
fn adapters_learn_in_half_precision_and_on_a_model_from_left_to_right() {
    for (model, precision) in [("xlnet", "train.precision=bf16"), ("transfo-xl", "train.precision=f32")] {
        let base = TempDir::new().unwrap();
        train(&config(base.path(), model, &["train.steps=20"]), &[sentiment_task()], &Local);
        let start = format!("train.init_from={}", base.path().display());
        let keys = ["task.adapter_rank=8", "train.steps=200", "task.from_scratch=false", precision, &start];
        assert!(learnt_by(model, sentiment_task(), &keys) > 0.9, "{model}");
    }
}

#[test]
fn adapters_go_on_with_the_model_they_began_with_alone() {
    let (base, other, run) = (pretrained(), TempDir::new().unwrap(), TempDir::new().unwrap());
    train(&config(other.path(), "xlnet", &["train.steps=2", "train.seed=9"]), &[sentiment_task()], &Local);
    let start = format!("train.init_from={}", base.path().display());
    train(
        &config(run.path(), "xlnet", &adapted(&start, "train.stop_at=4", &[])),
        &[sentiment_task()],
        &Local,
    );
    let elsewhere = format!("train.init_from={}", other.path().display());
    let config = config(run.path(), "xlnet", &adapted(&elsewhere, "train.stop_at=0", &[]));
    let tokenizer = Tokenizer::bytes();
    let circumstances = Circumstances::default();
    let job = Finetuning { tasks: &[sentiment_task()], folder: None, tokenizer: &tokenizer, circumstances };
    let error = job.train(&config, Compute::CPU, &Local, &|| false, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("it is not the model that the adapters in"), "{error}");
}

#[test]
fn modules_go_over_to_the_public_format() {
    let base = pretrained();
    let start = format!("train.init_from={}", base.path().display());
    let trained = |on: &str| {
        let run = TempDir::new().unwrap();
        let config =
            config(run.path(), "xlnet", &adapted(&start, "train.stop_at=0", &[on, "task.adapter_alpha=2"]));
        train(&config, &[sentiment_task()], &Local);
        run
    };
    let (run, target) = (trained("task.adapter_on=[\"ff\"]"), TempDir::new().unwrap());
    let target = target.path().join("adapter");
    assert_eq!(extract_adapter(&segue_families::MODELS, run.path(), &target).unwrap(), 4);
    let document = std::fs::read_to_string(target.join("adapter_config.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&document).unwrap();
    assert_eq!((&document["r"], &document["lora_alpha"]), (&4.into(), &2.0.into()));
    assert_eq!(document["modules_to_save"], serde_json::json!(["logits_proj", "sequence_summary"]));
    // W + α/r B A is the matrix of the best model.
    let read = |path: &Path| {
        let all = tch::Tensor::read_safetensors(path).unwrap();
        all.into_iter().collect::<std::collections::BTreeMap<_, _>>()
    };
    let (adapter, best) =
        (read(&target.join("adapter_model.safetensors")), read(&run.path().join("best/model.safetensors")));
    let before = read(&base.path().join("best/model.safetensors"));
    let module = "transformer.layer.1.ff.layer_2";
    let factor = |factor: &str| &adapter[&format!("base_model.model.{module}.{factor}.weight")];
    let weight = format!("{module}.weight");
    let merged = &before[&weight] + factor("lora_B").matmul(factor("lora_A")) * 0.5;
    assert!((merged - &best[&weight]).abs().max().double_value(&[]) < 1e-6);
    assert_eq!(adapter["base_model.model.logits_proj.weight"], best["logits_proj.weight"]);
    let note = |overrides: &[&str]| {
        let config = config(run.path(), "xlnet", overrides);
        note_on_adapters(&config.model, &config.own.get()).unwrap()
    };
    assert_eq!(note(&["task.adapter_rank=4", "task.adapter_on=[\"ff\"]"]), None);
    let note = note(&["task.adapter_rank=4"]).unwrap();
    assert!(note.contains("`transformer.layer.0.rel_attn."), "{note}");
    let whole = trained("task.adapter_on=[]");
    let error =
        extract_adapter(&segue_families::MODELS, whole.path(), &target.join("b")).unwrap_err().to_string();
    assert!(error.contains("belong to none, such as `transformer.layer.0.rel_attn."), "{error}");
    let error =
        extract_adapter(&segue_families::MODELS, base.path(), &target.join("b")).unwrap_err().to_string();
    assert!(error.contains("has no adapters"), "{error}");
}
