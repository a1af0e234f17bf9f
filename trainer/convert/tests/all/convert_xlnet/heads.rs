//! Names of heads, and heads that one side does not have.

use segue_configs::ModelConfig;
use segue_task::{HeadSpec, TaskFolder, TaskModel, start_task_from};
use segue_tasks::Kind as TaskKind;
use segue_tasks::{TaskConfig, TaskSummary};

use super::*;

/// The model of `small` with these tensors of a head beside it.
fn headed(said: Value, head: &[(&str, &[i64])]) -> TempDir {
    let dir = hugging_face(&small(true), said, |name| Some(name.into()));
    let path = dir.path().join("model.safetensors");
    let mut tensors: Vec<_> = read_tensors(&path).unwrap().tensors.into_iter().collect();
    let values = |shape: &[i64]| {
        let count = shape.iter().product::<i64>();
        Tensor::arange(count, (Kind::Float, tch::Device::Cpu)).view(shape)
    };
    tensors.extend(head.iter().map(|(name, shape)| (name.to_string(), values(shape))));
    write_tensors(&path, &tensors).unwrap();
    dir
}

fn to_tensorflow(
    source: &Path,
    options: ConvertOptions,
) -> Result<(TempDir, PathBuf, Conversion), TrainError> {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("made");
    let made = convert(source, &folder, &options, |_, _| {})?;
    Ok((dir, folder, made))
}

#[test]
fn a_head_of_one_score_is_named_by_who_converts() {
    let source = headed(json!({}), &[("logits_proj.weight", &[1, 6]), ("logits_proj.bias", &[1])]);
    let named =
        |head: &str| ConvertOptions { head: Some(head.parse().unwrap()), ..options(Target::TensorFlow) };
    let error = to_tensorflow(source.path(), options(Target::TensorFlow)).err().unwrap();
    assert!(error.exit_code() == 78 && error.to_string().contains("--head regression:TASK"), "{error}");
    for (head, scope) in [
        ("race", "logits/dense"),
        ("regression:STS-B", "model/regression_sts-b/logit"),
        ("classification:cola", "model/classification_cola/logit"),
    ] {
        let (_dir, folder, _) = to_tensorflow(source.path(), named(head)).unwrap();
        let found = variables(&folder);
        assert_eq!(found[&format!("{scope}/kernel")].0, [6, 1], "{head}");
        assert_eq!(found[&format!("{scope}/bias")].0, [1], "{head}");
    }
    let bare = headed(json!({}), &[]);
    let error = to_tensorflow(bare.path(), named("race")).err().unwrap();
    assert!(error.to_string().contains("--head"), "{error}");
}

#[test]
fn heads_that_tensorflow_does_not_have_are_named_or_left_out() {
    let head: [(&str, &[i64]); 2] = [("classifier.weight", &[4, 6]), ("classifier.bias", &[4])];
    let source = headed(json!({"architectures": ["XLNetForTokenClassification"]}), &head);
    let error = to_tensorflow(source.path(), options(Target::TensorFlow)).err().unwrap();
    let hint = error.hint().unwrap();
    assert!(error.to_string().contains("classifier.") && hint.contains("--allow-skipped"), "{error}\n{hint}");
    let allowed = ConvertOptions { allow_skipped: true, ..options(Target::TensorFlow) };
    let (_dir, _, made) = to_tensorflow(source.path(), allowed).unwrap();
    assert!(made.report.notes.iter().any(|note| note.contains("classifier.bias")));
}

#[test]
fn hugging_face_to_here_to_hugging_face_loses_no_head() {
    type Head = &'static [(&'static str, &'static [i64])];
    let heads: [(&str, Head); 4] = [
        (
            "XLNetForSequenceClassification",
            &[
                ("sequence_summary.summary.weight", &[6, 6]),
                ("sequence_summary.summary.bias", &[6]),
                ("logits_proj.weight", &[3, 6]),
                ("logits_proj.bias", &[3]),
            ],
        ),
        ("XLNetForTokenClassification", &[("classifier.weight", &[4, 6]), ("classifier.bias", &[4])]),
        ("XLNetForQuestionAnsweringSimple", &[("qa_outputs.weight", &[2, 6]), ("qa_outputs.bias", &[2])]),
        (
            "XLNetForQuestionAnswering",
            &[
                ("start_logits.dense.weight", &[1, 6]),
                ("start_logits.dense.bias", &[1]),
                ("end_logits.dense_0.weight", &[6, 12]),
                ("end_logits.dense_0.bias", &[6]),
                ("end_logits.LayerNorm.weight", &[6]),
                ("end_logits.LayerNorm.bias", &[6]),
                ("end_logits.dense_1.weight", &[1, 6]),
                ("end_logits.dense_1.bias", &[1]),
                ("answer_class.dense_0.weight", &[6, 12]),
                ("answer_class.dense_0.bias", &[6]),
                ("answer_class.dense_1.weight", &[1, 6]),
            ],
        ),
    ];
    for (architecture, head) in heads {
        let source = headed(json!({"architectures": [architecture], "summary_type": "last"}), head);
        let (_first, here, _) = to(Target::HuggingFace, source.path()).unwrap();
        let (_second, back, _) = to(Target::HuggingFace, &here).unwrap();
        let tensors = |folder: &Path| read_tensors(&folder.join("model.safetensors")).unwrap().tensors;
        assert!(tensors(source.path()) == tensors(&back), "{architecture}");
        let config = json_of(&back.join("config.json"));
        assert_eq!(
            (&config["architectures"][0], &config["summary_type"]),
            (&json!(architecture), &json!("last"))
        );
    }
}

/// The program keeps no names of labels.
#[test]
fn names_of_labels_go_to_tensorflow_and_back() {
    let names = json!({ "0": "contradiction", "1": "entailment", "2": "neutral" });
    let said = json!({
        "architectures": ["XLNetForSequenceClassification"], "finetuning_task": "mnli",
        "problem_type": "single_label_classification", "id2label": names,
    });
    let head: [(&str, &[i64]); 2] = [("logits_proj.weight", &[3, 6]), ("logits_proj.bias", &[3])];
    let source = headed(said, &head);
    let (_first, there, _) = to(Target::TensorFlow, source.path()).unwrap();
    let back = || {
        let (_second, back, made) = to(Target::HuggingFace, &there).unwrap();
        let told = made.report.guesses.iter().any(|guess| guess.why.contains("LABEL_0 to LABEL_2"));
        (json_of(&back.join("config.json")), told)
    };
    let (config, told) = back();
    assert_eq!((&config["id2label"], &config["label2id"]["neutral"], told), (&names, &json!(2), false));
    // Of a checkpoint that the program has written, or where they do not fit.
    let path = there.join("xlnet_config.json");
    fs::remove_file(there.join("MANIFEST.json")).unwrap();
    let mut program = json_of(&path);
    for other in [json!({ "0": "a", "1": "b" }), json!({ "0": 0, "1": 1, "2": 2 }), Value::Null] {
        program["id2label"] = other;
        fs::write(&path, program.to_string()).unwrap();
        let (config, told) = back();
        assert_eq!((&config["id2label"]["2"], told), (&json!("LABEL_2"), true));
    }
}

#[test]
fn a_summary_by_attention_stays_behind_with_its_reason() {
    let attentive: [(&str, &[usize]); 4] = [
        ("model/sequnece_summary/summary_bias", &[6]),
        ("model/sequnece_summary/abs_attn/q/kernel", &[6, 2, 3]),
        ("model/classification_cola/logit/kernel", &[6, 2]),
        ("model/classification_cola/logit/bias", &[2]),
    ];
    let source = tensorflow(true, &[&attentive[..], &OUTPUTS].concat());
    let (_dir, folder, made) = to(Target::HuggingFace, source.path()).unwrap();
    let summary = made.report.variables.iter().filter(|v| v.name.contains("sequnece_summary"));
    let reasons: Vec<_> = summary.map(|v| (v.fate, v.reason.clone().unwrap())).collect();
    assert!(
        reasons.len() == 2 && reasons.iter().all(|(fate, why)| *fate == "skipped" && why.contains("anew"))
    );
    // Without it the rest of the head would answer from the last state, which it was not trained on.
    let stored = read_tensors(&folder.join("model.safetensors")).unwrap().tensors;
    assert!(!stored.contains_key("logits_proj.weight") && stored.contains_key("lm_loss.bias"));
    assert_eq!(json_of(&folder.join("config.json"))["architectures"], json!(["XLNetLMHeadModel"]));
}

/// Each way to sum up a sequence is computed, or refused by whoever would.
#[test]
fn a_summary_that_no_head_here_has_is_never_taken_for_the_last_state() {
    let head: [(&str, &[i64]); 4] = [
        ("sequence_summary.summary.weight", &[6, 6]),
        ("sequence_summary.summary.bias", &[6]),
        ("logits_proj.weight", &[2, 6]),
        ("logits_proj.bias", &[2]),
    ];
    let said = |summary: &str| {
        json!({
            "architectures": ["XLNetForSequenceClassification"], "summary_type": summary, "finetuning_task": "cola",
            "id2label": {"0": "no", "1": "yes"}, "problem_type": "single_label_classification",
        })
    };
    let spec = HeadSpec {
        task: "cola".into(),
        kind: TaskKind::Classification,
        labels: vec!["no".into(), "yes".into()],
        summary: TaskSummary::Last,
    };
    for (summary, answers, flag) in [
        ("last", true, Some("")),
        ("cls_index", true, Some("")),
        ("mean", true, Some("--summary_type=mean")),
        ("first", false, Some("--summary_type=first")),
        ("attn", false, None),
    ] {
        let source = headed(said(summary), &head);
        let (_first, here, made) = to(Target::HuggingFace, source.path()).unwrap();
        assert_eq!(json_of(&here.join("config.json"))["summary_type"], summary);
        let warned = made.report.notes.iter().any(|note| note.contains("summary_type"));
        assert_eq!(
            (TaskFolder::open(&segue_families::MODELS, &here).is_ok(), warned),
            (answers, !answers),
            "{summary}"
        );
        // Fine-tuning begins with the encoder, and with the head only of one that answers alike.
        let config: ModelConfig = small(true).into();
        let heads = [spec.clone()];
        let drawn = Parameters::initialise(TaskModel::specs(&config, &heads), 5, Kind::Float);
        let model = TaskModel::new(&config, &heads, &TaskConfig::default(), drawn);
        let fresh =
            start_task_from(&ModelFolder::open(&segue_families::MODELS, &here).unwrap(), &model).unwrap();
        assert_eq!(fresh.len(), if answers { 0 } else { 4 }, "{summary}: {fresh:?}");
        match (to(Target::TensorFlow, &here), flag) {
            (Ok((_dir, _, made)), Some(flag)) => {
                let notes = made.report.notes.join("\n");
                assert!(
                    notes.contains(flag) && notes.contains("--summary_type") != flag.is_empty(),
                    "{notes}"
                );
            }
            (Err(error), None) => assert!(error.to_string().contains("attn"), "{error}"),
            (made, _) => panic!("{summary}: {:?}", made.err()),
        }
    }
    // What TensorFlow's checkpoint does not say is a guess.
    let classes: [(&str, &[usize]); 2] =
        [("model/classification_cola/logit/kernel", &[6, 2]), ("model/classification_cola/logit/bias", &[2])];
    let (_dir, folder, made) = to(Target::HuggingFace, tensorflow(true, &classes).path()).unwrap();
    assert!(made.report.guesses.iter().any(|guess| guess.key == "summary_type" && guess.value == "last"));
    assert_eq!(json_of(&folder.join("config.json"))["summary_type"], "last");
}

/// What the package understands and no model here computes is not left alone.
#[test]
fn keys_that_change_what_is_computed_are_refused() {
    for (key, value) in [
        ("sample_softmax", json!(100)),
        ("ext_len", json!(8)),
        ("pruned_heads", json!({"0": [1]})),
        ("quantization_config", json!({"bits": 8})),
        ("ff_activation", json!("silu")),
        ("attn_type", json!("both")),
    ] {
        let mut said = json!({});
        said[key] = value;
        let error = to(Target::HuggingFace, headed(said, &[]).path()).err().unwrap();
        assert!(error.exit_code() == 78 && error.to_string().contains(key), "{key}: {error}");
    }
    let untied = headed(json!({"tie_word_embeddings": false}), &[("lm_loss.weight", &[11, 6])]);
    let error = to(Target::HuggingFace, untied.path()).err().unwrap();
    assert!(error.to_string().contains("tie_word_embeddings is false"), "{error}");
    let harmless =
        json!({"sample_softmax": -1, "ext_len": 0, "pruned_heads": {}, "quantization_config": null});
    let (_dir, _, made) = to(Target::HuggingFace, headed(harmless, &[]).path()).unwrap();
    let guesses: Vec<(&str, &Value)> =
        made.report.guesses.iter().map(|g| (g.key.as_str(), &g.value)).collect();
    assert!(
        guesses.contains(&("model.clamp_len", &json!(-1))) && guesses.contains(&("model.mem_len", &json!(0)))
    );
    // What it says is none.
    assert!(
        guesses.iter().all(|(key, _)| !["model.ff_activation", "model.d_model"].contains(key)),
        "{guesses:?}"
    );
}

/// Commands that read a model folder name the way to one where the names are another program's.
#[test]
fn a_folder_with_names_in_a_wrapper_is_refused_with_the_command_that_takes_it_off() {
    let source = hugging_face(&small(true), json!({}), |name| Some(format!("module.{name}")));
    let error =
        load_xlnet(&ModelFolder::open(&segue_families::MODELS, source.path()).unwrap()).err().unwrap();
    assert!(
        error.exit_code() == 78 && error.hint().is_some_and(|hint| hint.contains("segue convert")),
        "{error}"
    );
}

#[test]
fn heads_of_attention_of_any_width_come_and_go() {
    let source = bundle(true, 4, numbered(shapes(true, 11, 4)));
    let (_first, folder, made) = to(Target::HuggingFace, source.path()).unwrap();
    assert!(made.report.notes.iter().any(|note| note.contains("Hugging Face's package cannot open it")));
    assert_eq!(json_of(&folder.join("config.json"))["d_head"], json!(4));
    let (_second, back, _) = to(Target::TensorFlow, &folder).unwrap();
    let (before, after) = (variables(source.path()), variables(&back));
    assert!(before.iter().all(|(name, variable)| after[name] == *variable));
}

#[test]
fn a_fine_tuned_model_keeps_its_weights_and_gets_none_it_has_no_use_for() {
    let head: [(&str, &[usize]); 3] = [
        ("model/regression_sts-b/logit/kernel", &[6, 1]),
        ("model/regression_sts-b/logit/bias", &[1]),
        ("model/transformer/mask_emb/mask_emb", &[1, 1, 6]),
    ];
    let source = tensorflow(true, &head);
    let (_first, folder, made) = to(Target::HuggingFace, source.path()).unwrap();
    assert!(made.report.notes.iter().any(|note| note.contains("lm_loss.bias")), "{:?}", made.report.notes);
    let stored = read_tensors(&folder.join("model.safetensors")).unwrap().tensors;
    assert!(!stored.contains_key("lm_loss.bias") && stored.contains_key("logits_proj.bias"));
    let opened = ModelFolder::open(&segue_families::MODELS, &folder).unwrap();
    load_xlnet(&opened).unwrap();
    let (_second, back, _) = to(Target::TensorFlow, &folder).unwrap();
    assert!(!variables(&back).contains_key("model/lm_loss/bias"));
    // A loss on next sentences needs a head of its own.
    let asked = ["objective.next_sentence=1", "data.order=pairs"].map(String::from);
    let config = opened.training_config(&folder, &asked).unwrap();
    let error = load_objective(&opened, &config.model, &config.own, config.schedule_steps()).err().unwrap();
    let hint = error.hint().unwrap();
    assert!(error.exit_code() == 78 && hint.contains("objective.next_sentence=0"), "{error}\n{hint}");
}
