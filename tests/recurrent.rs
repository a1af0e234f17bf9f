//! Recurrent language models, from a recipe to text.

use segue_tests::{Workplace, alone, fail, mpirun, succeed};

/// Stacks of layers with widths of their own, and dropout of AWD-LSTM.
const STACK: [&str; 14] = [
    "model.wiring=stack",
    "model.n_layer=3",
    "model.d_embed=24",
    "model.d_last=24",
    "model.init=uniform",
    "model.forget_bias=one",
    "model.mogrifier_rounds=0",
    "model.cell_output_dropout=0",
    "model.state_dropout=0",
    "model.weight_dropout=0.3",
    "model.embedding_dropout=0.1",
    "model.locked_dropout=true",
    "model.inter_layer_dropout=0.1",
    "optim.lr=1e-2",
];

/// The state of lanes goes where they go: over ranks, and over stops in the middle of a run.
#[test]
fn recurrent_models_train_to_the_same_bytes_over_ranks_and_stops() {
    let place = Workplace::new();
    let variants: [(&str, &[&str]); 10] = [
        ("rewired", &[]),
        (
            "mixed",
            &[
                "model.cell=lstm",
                "model.wiring=skip",
                "model.mixture=2",
                "model.inter_layer_dropout=0.1",
                "model.cell_output_dropout=0",
            ],
        ),
        (
            "narrow",
            &[
                "model.cell=mlstm",
                "model.wiring=skip",
                "model.cell_output_dropout=0",
                "model.input_embedding_ratio=0.5",
                "model.n_layer=3",
            ],
        ),
        ("bf16", &["train.precision=bf16"]),
        // Row S25: margins, in one softmax and in a split one, add nothing to what ranks say to each other.
        (
            "sampled",
            &[
                "objective.samples=2",
                "objective.loss_over=lanes",
                "objective.cosine_penalty=0.1",
                "objective.input_noise=0.1",
                "adversarial.scale=0.05",
            ],
        ),
        (
            "split",
            &[
                "model.cell=lstm",
                "model.cutoffs=[30]",
                "adversarial.scale=0.05",
                "adversarial.gradient=full",
                "adversarial.clusters=true",
            ],
        ),
        (
            "others",
            &[
                "model.cell=gru",
                "model.tie_word_embeddings=false",
                "model.mogrifier_rounds=1",
                "model.state_dropout=0",
                "model.forget_bias=one",
            ],
        ),
        // Row S14: layers of widths of their own, with all that AWD-LSTM drops and is trained for.
        (
            "awd",
            &[
                &STACK[..],
                &[
                    "model.cell=lstm",
                    "model.input_gate=plain",
                    "model.two_biases=true",
                    "objective.activation_penalty=2",
                    "objective.slowness_penalty=1",
                    "train.varlen=true",
                    "average.start=20",
                ],
            ]
            .concat(),
        ),
        ("qrnn", &[&STACK[..], &["model.cell=qrnn", "objective.samples=2", "model.cutoffs=[30]"]].concat()),
        (
            "projected",
            &[&STACK[..], &["model.cell=qrnn", "model.d_last=20", "model.window=3", "train.precision=bf16"]]
                .concat(),
        ),
    ];
    for (name, options) in variants {
        let pretrain = |run: &str, more: &[&str]| {
            place.pretrain_lstm(&format!("{name}-{run}"), &[options, more].concat())
        };
        let one = succeed(alone(&pretrain("one", &[])));
        let four = succeed(mpirun(4, &pretrain("four", &[])));
        assert_eq!(four["evaluation"], one["evaluation"], "{name}");
        place.assert_same(&format!("{name}-one"), &format!("{name}-four"));
        succeed(mpirun(2, &pretrain("parts", &["train.stop_at=13"])));
        succeed(alone(&pretrain("parts", &["train.stop_at=31"])));
        succeed(mpirun(2, &pretrain("parts", &[])));
        place.assert_same(&format!("{name}-one"), &format!("{name}-parts"));
        let (first, last) = (5.0, one["loss"].as_f64().unwrap());
        assert!(last < first, "{name}: {last} nats after training");
    }
}

/// What is there for language models is there for these: evaluation, scores, text.
#[test]
fn a_trained_recurrent_model_is_evaluated_and_writes() {
    let place = Workplace::new();
    let trained = succeed(alone(&place.pretrain_lstm("run", &["train.steps=30"])));
    let (run, corpus) = (place.text("run"), place.text("corpus"));
    let evaluated = succeed(alone(&["eval", "--json", "--model", &run, "--corpus", &corpus]));
    let (found, reported) = (&evaluated["evaluation"]["loss"], &trained["evaluation"]["loss"]);
    let difference = (found.as_f64().unwrap() - reported.as_f64().unwrap()).abs();
    assert!(difference < 1e-5, "{found} instead of {reported}");
    let write = |seed: &str| {
        succeed(alone(&[
            "generate",
            "--model",
            &run,
            "--json",
            "--prompt",
            "the memory",
            "--tokens",
            "20",
            "--seed",
            seed,
        ]))
    };
    assert_eq!(write("1"), write("1"));
    let dry = succeed(alone(&place.pretrain_lstm("dry", &["--dry-run"])));
    assert!(dry["cost"].is_object(), "{dry}");
}

#[test]
fn a_recurrent_model_refuses_what_it_cannot_do() {
    let place = Workplace::new();
    let refused =
        |option: &str, words: &[&str]| fail(alone(&place.pretrain_lstm("run", &[option])), 78, words);
    refused("train.recompute=true", &["train.recompute", "recurrent"]);
    refused("model.input_embedding_ratio=0.5", &["model.input_embedding_ratio", "residual"]);
    refused("model.cell=gru", &["model.state_dropout", "no state beside its output"]);
    refused("data.order=pairs", &["data.order", "streams"]);
    let run = place.text("run");
    let corpus = place.text("corpus");
    succeed(alone(&place.pretrain_lstm("run", &["train.steps=2"])));
    let asked = |words: &[&str], says: &[&str]| {
        let corpus: &[&str] = if words[0] == "speed" { &[] } else { &["--corpus", &corpus] };
        fail(alone(&[&["eval"], words, &["--model", &run], corpus].concat()), 64, says)
    };
    asked(&["--same-length"], &["attention, which this model has not"]);
    asked(&["speed"], &["attention, which this model has not"]);
    asked(&["dynamic", "--rule", "rms"], &["--rule sgd"]);
    refused("model.cutoffs=[9,9]", &["model.cutoffs", "must rise"]);
    refused("objective.samples=0", &["objective.samples"]);
    refused("adversarial.scale=-1", &["adversarial.scale"]);
    refused("train.ext_len=8", &["train.ext_len", "cannot go back"]);
    refused("train.at_document_end=mask", &["train.at_document_end", "carry and reset"]);
    refused("eval.same_length=true", &["eval.same_length", "no attention"]);
    refused("model.parameters=100", &["model.parameters", "narrowest"]);
    refused("model.d_last=16", &["model.d_last", "model.wiring = \"stack\""]);
    refused("model.cell=qrnn", &["model.mogrifier_rounds", "sees its state"]);
    refused("objective.slowness_penalty=-1", &["objective.slowness_penalty"]);
}
