//! State dicts made here: what their names say, what is guessed where they say nothing, and where in a file they lie.

use segue_foreign::{ElementType, Saved, SavedTensor, SharedBytes, write_torch};
use segue_language::{ModelFolder, load_next_token};
use tch::{Device, Kind, Tensor};

use super::*;

const WORDS: i64 = 13;
const WIDTH: i64 = 6;
const LAYERS: i64 = 3;

/// A tied `word_language_model`: an LSTM of three layers.
struct WordModel {
    table: Tensor,
    bias: Tensor,
    /// `weight_ih`, `weight_hh`, `bias_ih` and `bias_hh` of each layer.
    layers: Vec<Tensor>,
}

const NAMES: [&str; 4] = ["weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"];

impl WordModel {
    fn new() -> Self {
        let numbers = |shape: &[i64], seed: i64| {
            let count: i64 = shape.iter().product();
            let values = Tensor::arange(count, (Kind::Double, Device::Cpu)) * 0.618 + seed as f64 * 1.7;
            (values.sin() * 0.5).to_kind(Kind::Float).view(shape)
        };
        let shapes = [&[4 * WIDTH, WIDTH][..], &[4 * WIDTH, WIDTH], &[4 * WIDTH], &[4 * WIDTH]];
        let layers = (0..LAYERS * 4).map(|at| numbers(shapes[at as usize % 4], at + 3));
        Self { table: numbers(&[WORDS, WIDTH], 1), bias: numbers(&[WORDS], 2), layers: layers.collect() }
    }

    /// What PyTorch computes: log-probabilities of the word after each, `[1, words, WORDS]`.
    fn log_probs(&self, ids: &Tensor) -> Tensor {
        let start = || Tensor::zeros([LAYERS, 1, WIDTH], (Kind::Float, Device::Cpu));
        let input = self.table.index_select(0, &ids.view([-1])).unsqueeze(0);
        let (states, ..) =
            input.lstm(&[start(), start()], &self.layers, true, LAYERS, 0.0, false, false, true);
        (states.matmul(&self.table.transpose(0, 1)) + &self.bias).log_softmax(-1, Kind::Float)
    }

    /// Its state dict; `tied`: the two tables are one piece of the file.
    fn state(&self, tied: bool) -> Vec<(String, Saved)> {
        let table = bytes(&self.table);
        let again = if tied { table.clone() } else { bytes(&self.table) };
        let mut state = vec![("encoder.weight".to_string(), saved(&self.table, table))];
        for (at, tensor) in self.layers.iter().enumerate() {
            state.push((format!("rnn.{}{}", NAMES[at % 4], at / 4), saved(tensor, bytes(tensor))));
        }
        state.push(("decoder.weight".into(), saved(&self.table, again)));
        state.push(("decoder.bias".into(), saved(&self.bias, bytes(&self.bias))));
        state
    }
}

fn bytes(tensor: &Tensor) -> SharedBytes {
    let values = Vec::<f32>::try_from(tensor.reshape([-1])).unwrap();
    values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into()
}

fn saved(tensor: &Tensor, bytes: SharedBytes) -> Saved {
    let shape = tensor.size().iter().map(|&size| size as usize).collect();
    Saved::Tensor(SavedTensor { dtype: ElementType::F32, shape, bytes })
}

/// A file that holds a value, in a folder of its own.
fn written(value: &Saved) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.pt");
    write_torch(&path, value).unwrap();
    (dir, path)
}

fn guess<'a>(made: &'a Conversion, key: &str) -> Option<&'a Value> {
    made.report.guesses.iter().find(|guess| guess.key == key).map(|guess| &guess.value)
}

#[test]
fn a_state_dict_whose_names_say_nothing_of_dropped_weights_drops_none() {
    let model = WordModel::new();
    let (_dir, path) = written(&Saved::Dict(model.state(true)));
    let (_made, folder, made) = converted(&path);
    let config = made.config.to_json();
    assert_eq!((&config["weight_dropout"], &config["tie_word_embeddings"]), (&0.0.into(), &true.into()));
    // Rates that the program has and the file does not say are guesses; dropped weights it does not have.
    let keys: Vec<&str> = made.report.guesses.iter().map(|guess| guess.key.as_str()).collect();
    assert_eq!(keys, ["model.input_dropout", "model.inter_layer_dropout", "model.output_dropout"]);
    assert!(made.report.guesses.iter().all(|guess| guess.value == 0.0 && guess.why.contains("state dict")));
    let ids = Tensor::from_slice(&[1i64, 5, 0, 12, 7, 7, 3]).unsqueeze(0);
    let here = load_next_token(&ModelFolder::open(&segue_families::MODELS, &folder).unwrap()).unwrap();
    let (found, _) = here.next_log_probs(&ids, &here.memory_start(1));
    let worst = (found - model.log_probs(&ids)).abs().max().double_value(&[]);
    assert!(worst < 1e-5, "{worst:e}");
}

#[test]
fn what_names_or_values_suggest_is_a_guess_until_somebody_says_it() {
    let (_dir, _, made) = converted(&file("mos/state"));
    assert_eq!(guess(&made, "model.weight_dropout"), Some(&0.5.into()));
    assert_eq!(guess(&made, "model.output_dropout"), Some(&0.0.into()));
    let dir = tempfile::tempdir().unwrap();
    let told = options(Target::HuggingFace, &["model.weight_dropout=0.3", "model.output_dropout=0.1"]);
    let made = convert(&file("mos/state"), &dir.path().join("told"), &told, |_, _| {}).unwrap();
    assert!(guess(&made, "model.weight_dropout").is_none() && guess(&made, "model.output_dropout").is_none());
    assert_eq!(made.config.to_json()["weight_dropout"], 0.3);
    // A module that was pickled whole says all of it.
    let (_dir, folder, made) = converted(&file("awd_lstm_lm/qrnn"));
    assert_eq!(made.report.guesses, []);
    // The program wraps the weights of a QRNN whether it drops any or not.
    convert(
        &folder,
        &dir.path().join("state"),
        &options(Target::Recurrent(RecurrentLayout::AwdLstm), &[]),
        |_, _| {},
    )
    .unwrap();
    let (_dir, _, made) = converted(&dir.path().join("state/model.pt"));
    assert_eq!(guess(&made, "model.weight_dropout"), Some(&0.0.into()));
    assert_eq!(guess(&made, "model.cell"), Some(&"qrnn".into()));
    let (_dir, _, made) = converted(&file("word_language_model/tanh"));
    assert_eq!(guess(&made, "model.cell"), None);
    // Two tables with the same values may have been tied, or not.
    let (_dir, path) = written(&Saved::Dict(WordModel::new().state(false)));
    let (_dir, _, made) = converted(&path);
    assert_eq!(guess(&made, "model.tie_word_embeddings"), Some(&true.into()));
}

/// `state` in dicts under these names, the outermost first, beside what programs save with it.
fn nested(names: &[&str], state: Saved) -> Saved {
    let moments =
        Saved::Tensor(SavedTensor { dtype: ElementType::F32, shape: vec![2], bytes: vec![0; 8].into() });
    names.iter().rev().fold(state, |inner, name| {
        let beside =
            Saved::Dict(vec![("state".into(), Saved::Dict(vec![("exp_avg".into(), moments.clone())]))]);
        let parts = [("epoch", Saved::Numbers(vec![7])), (name, inner), ("optimizer_state_dict", beside)];
        Saved::Dict(parts.map(|(name, value)| (name.to_string(), value)).into())
    })
}

#[test]
fn a_model_is_found_in_any_container_and_wrapper() {
    let model = WordModel::new();
    let (_dir, path) = written(&Saved::Dict(model.state(true)));
    let (_made, folder, plain) = converted(&path);
    let expected = fs::read(folder.join("model.safetensors")).unwrap();
    let containers: [&[&str]; 5] =
        [&[], &["state_dict"], &["model"], &["model_state_dict"], &["checkpoint", "state_dict"]];
    let wrappers = ["module.", "_orig_mod.", "model.", "module._orig_mod.", "_orig_mod.module.model."];
    for names in containers {
        for wrapper in wrappers {
            let state =
                model.state(true).into_iter().map(|(name, value)| (format!("{wrapper}{name}"), value));
            let (_dir, path) = written(&nested(names, Saved::Dict(state.collect())));
            let (_made, folder, made) = converted(&path);
            assert!(fs::read(folder.join("model.safetensors")).unwrap() == expected, "{names:?} {wrapper}");
            assert_eq!(made.config, plain.config, "{names:?} {wrapper}");
            let inside = made.report.variables.iter().all(|variable| {
                variable.name.starts_with("optimizer.")
                    || plain.report.variables.iter().any(|v| v.name == variable.name)
            });
            assert!(inside, "{names:?} {wrapper}: {:?}", made.report.variables);
        }
    }
    // Which of two is meant nobody knows.
    let both = ["model", "average"].map(|name| (name.to_string(), Saved::Dict(model.state(true))));
    let (_dir, path) = written(&Saved::Dict(both.into()));
    let error = refused(&path, Target::HuggingFace, &[]);
    let hint = error.hint().unwrap_or_default();
    assert!(error.to_string().contains("`model.`") && error.to_string().contains("`average.`"), "{error}");
    assert!(!hint.is_empty() && !hint.contains("--allow-skipped"), "{hint}");
}
