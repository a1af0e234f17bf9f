//! Checkpoints and reference numbers of public packages.

use std::path::{Path, PathBuf};
use std::process::Command;

use segue_families::card_sources;
use segue_kernels::cards::{Compiler, Source};
use segue_skip::peer_python;
use segue_tests::{
    ROOT, SHARED, Workplace, alone, finish, ids_file, mpirun, peers_each, reference_models, repeats, stderr,
    succeed,
};
use segue_tokenizer::Tokenizer;
use serde_json::json;

#[test]
fn parity_holds_on_the_reference_files_and_fails_on_other_weights() {
    for (own, shared) in [("transfo-xl", "transfoxl_tiny"), ("xlnet", "xlnet_tiny")] {
        reference_models(own, shared).iter().for_each(|folder| holds_and_fails_on_other_weights(folder));
    }
    holds_and_fails_on_other_weights(&Path::new(ROOT).join("tests/fixtures/parity/marian"));
}

fn holds_and_fails_on_other_weights(folder: &Path) {
    let (model, cases) =
        (folder.display().to_string(), folder.join("cases.safetensors").display().to_string());
    let result = succeed(alone(&["parity", "--json", "--model", &model, "--cases", &cases]));
    assert_eq!(result["holds"], true);
    // One wrong weight has to show.
    let place = tempfile::tempdir().unwrap();
    for name in ["config.json", "model.safetensors"] {
        std::fs::write(place.path().join(name), std::fs::read(folder.join(name)).unwrap()).unwrap();
    }
    let weights = place.path().join("model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    // The exponent of a number in the middle of the layers, where nothing is tied.
    let data = 8 + u64::from_le_bytes(std::array::from_fn(|i| bytes[i])) as usize;
    let at = data + (bytes.len() - data) / 8 * 4 + 3;
    bytes[at] ^= 0x40;
    std::fs::write(&weights, bytes).unwrap();
    let model = place.path().display().to_string();
    let output = finish(alone(&["parity", "--model", &model, "--cases", &cases]));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
}

/// Reference numbers that `script` makes for each configuration, compared with this program's.
fn agrees_with_fresh_numbers(python: &str, script: &str, configurations: &[&str]) {
    let place = tempfile::tempdir().unwrap();
    let mut make = Command::new(python);
    make.arg(format!("{ROOT}/tests/peers/{script}")).arg(place.path()).args(configurations);
    let output = finish(make);
    assert!(output.status.success(), "{}", stderr(&output));
    for (number, config) in configurations.iter().enumerate() {
        let folder = place.path().join(number.to_string()).display().to_string();
        let cases = format!("{folder}/cases.safetensors");
        let result = succeed(alone(&["parity", "--json", "--model", &folder, "--cases", &cases]));
        let groups = result["groups"].as_array().unwrap();
        let worst = groups.iter().map(|g| g["error"].as_f64().unwrap()).fold(0.0, f64::max);
        println!("{config}: {} groups, {worst:.1e}", groups.len());
        assert_eq!(result["holds"], true, "{config}: {result}");
    }
}

/// Fresh reference numbers for every option of Transformer-XL.
#[test]
fn parity_holds_for_other_configurations() {
    let Some(python) = peer_python("transfoxl") else { return };
    let configurations = [
        r#"{"div_val": 1}"#,
        r#"{"div_val": 1, "d_embed": 16}"#,
        r#"{"div_val": 1, "d_embed": 16, "proj_share_all_but_first": false}"#,
        r#"{"cutoffs": [], "div_val": 1}"#,
        r#"{"cutoffs": [], "div_val": 2}"#,
        r#"{"cutoffs": [10, 30, 70], "div_val": 4, "d_embed": 64}"#,
        r#"{"same_length": true, "mem_len": 4}"#,
        r#"{"clamp_len": 6}"#,
        r#"{"pre_lnorm": true, "untie_r": false}"#,
        r#"{"mem_len": 0}"#,
        r#"{"tie_word_embeddings": false, "n_head": 2, "d_head": 10}"#,
    ];
    agrees_with_fresh_numbers(&python, "make_parity_cases.py", &configurations);
}

/// Fresh reference numbers for what Marian models differ in.
#[test]
fn parity_holds_for_other_marian_models() {
    let Some(python) = peer_python("base") else { return };
    let configurations = [
        r#"{"scale_embedding": true, "activation_function": "swish"}"#,
        r#"{"activation_function": "relu", "encoder_layers": 1, "decoder_layers": 3}"#,
        r#"{"activation_function": "gelu_new", "d_model": 24, "encoder_attention_heads": 3, "decoder_attention_heads": 8}"#,
    ];
    agrees_with_fresh_numbers(&python, "make_marian_cases.py", &configurations);
}

/// Fresh models of the PyTorch programs with recurrent layers, of other shapes than the files that are kept: what PyTorch computes, and a
/// state that `torch.load` reads with the values it had.
#[test]
fn recurrent_checkpoints_of_other_shapes_are_converted() {
    let Some(python) = peer_python("base") else { return };
    let place = tempfile::tempdir().unwrap();
    let configurations = [
        (
            "word-lm",
            r#"{"layout": "word", "words": 41, "emsize": 12, "nhid": 5, "nlayers": 3, "tied": false, "form": "state"}"#,
        ),
        (
            "word-lm",
            r#"{"layout": "word", "cell": "GRU", "emsize": 8, "nhid": 8, "nlayers": 1, "form": "state", "legacy": true}"#,
        ),
        (
            "word-lm",
            r#"{"layout": "word", "cell": "RNN_TANH", "emsize": 4, "nhid": 11, "nlayers": 2, "tied": false, "parallel": true}"#,
        ),
        (
            "awd-lstm",
            r#"{"words": 50, "emsize": 11, "nhid": 17, "nlayers": 4, "form": "list", "parallel": true, "duplicates": true}"#,
        ),
        ("awd-lstm", r#"{"words": 37, "emsize": 5, "nhid": 7, "nlayers": 1, "form": "state", "wdrop": 0}"#),
        (
            "awd-lstm",
            r#"{"cell": "QRNN", "words": 60, "emsize": 9, "nhid": 13, "nlayers": 2, "tied": false, "wdrop": 0, "form": "list"}"#,
        ),
        ("awd-lstm", r#"{"words": 33, "splits": [4, 20], "tied": false, "nlayers": 2, "form": "list"}"#),
        (
            "mos",
            r#"{"layout": "mos", "words": 29, "emsize": 7, "nhidlast": 12, "experts": 5, "tied": false, "form": "state"}"#,
        ),
    ];
    let folder = place.path().display().to_string();
    let mut make = Command::new(&python);
    make.args([&format!("{ROOT}/tests/peers/make_recurrent_checkpoints.py"), &folder]);
    let output = finish({
        make.args(configurations.map(|(_, configuration)| configuration));
        make
    });
    assert!(output.status.success(), "{}", stderr(&output));
    let mut compared = Vec::new();
    for (number, (program, configuration)) in configurations.iter().enumerate() {
        let at = |name: &str| place.path().join(number.to_string()).join(name).display().to_string();
        let (source, model, back) = (at("model.pt"), at("here"), at("back"));
        let result =
            succeed(alone(&["convert", &source, &model, "--check", &at("cases.safetensors"), "--json"]));
        assert_eq!(result["check"]["holds"], true, "{configuration}: {}", result["check"]);
        succeed(alone(&["convert", "--to", program, &model, &back]));
        compared.push(vec!["--same".into(), source, format!("{back}/model.pt"), configuration.to_string()]);
    }
    let found = peers_each(&python, "make_recurrent_checkpoints.py", &compared);
    for ((_, configuration), (code, _, stderr)) in configurations.iter().zip(found) {
        assert_eq!(code, 0, "{configuration}: {stderr}");
    }
}

/// Fresh reference numbers for every option of XLNet: encoder, permutation with memory, and all heads.
#[test]
fn parity_of_xlnet_holds_for_other_configurations() {
    let Some(python) = peer_python("base") else { return };
    let configurations = [
        r#"{"clamp_len": 3, "ff_activation": "relu", "d_model": 24, "n_head": 3, "n_layer": 4}"#,
        r#"{"bi_data": true, "batch": 4, "starts": 5, "ends": 4}"#,
        r#"{"ff_activation": "gelu_new", "reuse_len": null, "starts": 1, "ends": 1}"#,
        r#"{"mem_len": 20, "reuse_len": 0, "bi_data": true, "clamp_len": 2}"#,
        r#"{"attn_type": "uni"}"#,
        r#"{"attn_type": "uni", "same_length": true, "mem_len": 3}"#,
        r#"{"attn_type": "uni", "bi_data": true, "mem_len": null}"#,
        r#"{"same_length": true, "untie_r": false}"#,
    ];
    agrees_with_fresh_numbers(&python, "make_xlnet_cases.py", &configurations);
}

/// Opens a checkpoint with Hugging Face transformers 4.33.3 and compares log-probabilities.
#[test]
fn hugging_face_opens_a_checkpoint_and_agrees() {
    let Some(python) = peer_python("transfoxl") else { return };
    let place = Workplace::new();
    let variants: [(&str, &[&str]); 4] = [
        ("plain", &[]),
        ("adaptive", &["model.cutoffs=[50,120]", "model.div_val=2"]),
        ("shared", &["model.untie_r=false", "model.pre_lnorm=true", "model.cutoffs=[60]"]),
        ("clamped", &["model.clamp_len=10", "model.same_length=true", "model.d_embed=16"]),
    ];
    let ids = place.text("ids.safetensors");
    std::fs::write(&ids, ids_file(256)).unwrap();
    let opened = variants.map(|(name, overrides)| {
        succeed(alone(&place.pretrain(name, &[overrides, &["train.steps=10"]].concat())));
        let (run, scores) = (place.text(name), place.text(&format!("{name}.safetensors")));
        succeed(alone(&["score", "--model", &run, "--ids", &ids, "--output", &scores]));
        vec![format!("{run}/checkpoints/latest"), scores]
    });
    let found = peers_each(&python, "from_pretrained.py", &opened);
    for ((name, _), (code, stdout, stderr)) in variants.iter().zip(found) {
        println!("{name}: {stdout}");
        assert_eq!(code, 0, "{name}: {stderr}");
    }
}

/// Scores from left to right against those of the package, asked with its own masks.
#[test]
fn xlnet_scores_are_those_of_hugging_face() {
    let folder = reference_models("xlnet", "xlnet_tiny").pop().expect("the project's own");
    let Some(python) = peer_python("base") else { return };
    let place = tempfile::tempdir().unwrap();
    let [ids, scores] = ["ids", "scores"].map(|name| place.path().join(name).display().to_string());
    std::fs::write(&ids, ids_file(31)).unwrap();
    let model = folder.display().to_string();
    succeed(alone(&["score", "--model", &model, "--ids", &ids, "--output", &scores]));
    let mut command = Command::new(&python);
    command.args([&format!("{ROOT}/tests/peers/xlnet_scores.py"), &model, &scores]);
    let output = finish(command);
    println!("{}", String::from_utf8_lossy(&output.stdout).trim());
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Fifty steps of XLNet on two ranks, both reading directions, next to the public package on the very same batches.
#[test]
fn xlnet_trains_as_the_public_package_does() {
    let Some(python) = peer_python("base") else { return };
    let place = Workplace::new();
    let [init, batches] = ["init", "batches.safetensors"].map(|name| place.text(name));
    let script = format!("{ROOT}/tests/peers/train_xlnet.py");
    let still = ["model.dropout=0.0", "model.dropatt=0.0", "optim.kind=adam", "optim.weight_decay=0.0"];
    let train = place.pretrain_xlnet("run", &still);
    let vocabulary = segue_dataloader::Corpus::open(&place.path("pairs")).unwrap().vocab_size();
    let sizes = format!(
        r#"{{"vocab_size":{vocabulary},"d_model":32,"n_head":2,"d_inner":64,"n_layer":2,"ff_activation":"gelu_new"}}"#
    );
    let mut make = Command::new(&python);
    make.args([&script, "init", &init, &sizes]);
    let made = finish(make);
    assert!(made.status.success(), "{}", stderr(&made));
    // The same settings for both commands: what follows `pretrain --json`.
    let recipe: Vec<&str> = train[2..].iter().map(String::as_str).collect();
    let export = ["inspect", "batches", "--steps", "50", "--output", &batches];
    succeed(alone(&[&export[..], &recipe].concat()));
    let from = format!("train.init_from={init}");
    let all: Vec<&str> = train.iter().map(String::as_str).chain([&*from, "log.every=1"]).collect();
    succeed(mpirun(2, &all));
    let mut compare = Command::new(&python);
    // Roundings of f32 grow with the steps; the weights they are of move by 50 times 2e-3.
    compare.args([&script, "train", &init, &place.text("run"), &batches, "--limit", "2e-4"]);
    let output = finish(compare);
    println!("{}", String::from_utf8_lossy(&output.stdout).trim());
    assert!(output.status.success(), "{}", stderr(&output));
}

/// Opens pre-trained folders with `XLNetLMHeadModel` and `AutoTokenizer`: the same log-probabilities, the same ids.
#[test]
fn hugging_face_opens_an_xlnet_checkpoint_and_agrees() {
    let Some(python) = peer_python("base") else { return };
    let place = Workplace::new();
    // Log-probabilities without memory: the package's own start.
    let options = ["train.steps=10", "model.memory_start=empty", "train.micro_batch=4"];
    let mut runs = vec![("plain", place.pretrain_xlnet("plain", &options), 300, None)];
    let zeros = ["train.steps=10", "model.memory_start=zeros", "train.micro_batch=4"];
    runs.push(("zeros", place.pretrain_xlnet("zeros", &zeros), 300, None));
    let tied = [&options[..], &["model.untie_r=false", "model.ff_activation=relu"]].concat();
    runs.push(("tied", place.pretrain_xlnet("tied", &tied), 300, None));
    let model = Path::new(SHARED).join("data/xlnet_spiece/spiece.model");
    if model.exists() {
        let (model, tokenizer) = (model.display().to_string(), place.text("tokenizer"));
        succeed(alone(&["tokenizer", "import", &model, "--xlnet", "--output", &tokenizer]));
        place.build("pieces", &["--preset", "xlnet", "--split-sentences", "--tokenizer", &tokenizer]);
        let corpus = format!("data.corpus={}", place.text("pieces"));
        let more = [&options[..], &[&corpus]].concat();
        let text = "The lane reads \u{201c}2,000\u{201d} segments, and a caf\u{e9} in every memory.";
        runs.push(("pieces", place.pretrain_xlnet("pieces-run", &more), 32_000, Some(text)));
    }
    let mut opened = Vec::new();
    for (name, train, vocabulary, text) in runs {
        let run = train.iter().find_map(|arg| arg.strip_prefix("run.dir=")).unwrap().to_string();
        succeed(alone(&train));
        let [ids, scores] = ["ids", "scores"].map(|kind| place.text(&format!("{name}-{kind}.safetensors")));
        std::fs::write(&ids, ids_file(vocabulary)).unwrap();
        succeed(alone(&["score", "--model", &run, "--ids", &ids, "--output", &scores]));
        let checkpoint = format!("{run}/checkpoints/latest");
        let mut arguments = vec![checkpoint.clone(), scores];
        if name == "zeros" {
            // Without them the package begins with no memory at all, and says something else.
            let without = [&arguments[..], &["--limit", "1e-3"].map(String::from)].concat();
            opened.push(("zeros, not given", without, 1));
            arguments.push("--zeros".into());
        }
        if let Some(text) = text {
            let mut ids = Vec::new();
            segue_tokenizer::Tokenizer::load(Path::new(&checkpoint)).unwrap().encode(text, &mut ids);
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            arguments.extend(["--text", text, "--ids", &ids.join(",")].map(String::from));
        }
        opened.push((name, arguments, 0));
    }
    let arguments: Vec<_> = opened.iter().map(|(_, arguments, _)| arguments.clone()).collect();
    for ((name, _, expected), (code, stdout, stderr)) in
        opened.iter().zip(peers_each(&python, "xlnet_scores.py", &arguments))
    {
        println!("{name}: {stdout}");
        // What ends otherwise than by its finding says none.
        assert!(code == *expected && stdout.contains("max_rel_difference"), "{name}: {stderr}");
    }
}

/// Random tokens with random flags beside vocabularies, in the folders that old and new versions of transformers write.
#[test]
fn added_tokens_have_the_ids_that_transformers_gives_them() {
    for environment in ["base", "transfoxl"] {
        let Some(python) = peer_python(environment) else { return };
        let place = tempfile::tempdir().unwrap();
        let mut make = Command::new(&python);
        make.arg(format!("{ROOT}/tests/peers/added_tokens.py")).arg(place.path());
        let cases = succeed(make);
        let cases = cases.as_array().expect("a list of folders");
        assert!(cases.len() >= 24, "{} cases", cases.len());
        for case in cases {
            let folder = Path::new(case["folder"].as_str().unwrap());
            let words = folder.join("vocab.pkl");
            let loaded = if words.exists() { Tokenizer::import(&words) } else { Tokenizer::load(folder) };
            let tokenizer = loaded.unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
            for line in case["lines"].as_array().unwrap() {
                let mut ids = Vec::new();
                tokenizer.encode(line["text"].as_str().unwrap(), &mut ids);
                assert_eq!(json!(ids), line["ids"], "{}: {}", folder.display(), line["text"]);
            }
        }
    }
}

/// The library that torch brings, without a card: it says which one it is, and makes ids. The program finds it beside libtorch.
#[test]
fn nccl_of_the_public_torch_is_found_and_makes_ids() {
    let Some(library) = public_libtorch() else { return };
    let file = library.join("../../nvidia/nccl/lib").join(segue_collectives::nccl::library::FILE);
    if !file.exists() {
        segue_skip::skip(segue_skip::Need::Peers, "this torch was built without NCCL");
        return;
    }
    let nccl = segue_collectives::nccl::library::Library::load(&[file]).unwrap_or_else(|why| panic!("{why}"));
    let ids = [(); 2].map(|()| nccl.unique_id().unwrap());
    assert!(ids[0] != ids[1] && ids.iter().all(|id| id.iter().any(|byte| *byte != 0)));
    let mut doctor = alone(&["doctor", "--json"]);
    doctor.env("LD_LIBRARY_PATH", &library);
    let answer = succeed(doctor);
    let mut findings = answer["findings"].as_array().expect("findings").iter();
    let found = findings.find(|finding| finding["what"] == "NCCL").expect("NCCL or none");
    assert_eq!(found["state"], "ok", "{found}");
    assert!(found["found"].as_str().is_some_and(|found| found.starts_with(&nccl.version())), "{found}");
}

/// Where the public torch has its libtorch.
fn public_libtorch() -> Option<PathBuf> {
    let python = peer_python("base")?;
    let script =
        "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])";
    let mut command = Command::new(&python);
    command.args(["-c", script]);
    Some(Path::new(String::from_utf8_lossy(&finish(command).stdout).trim()).join("lib"))
}

/// As a host with a card has it, but for the card.
#[test]
fn libtorch_of_the_public_torch_loads_its_part_for_cards() {
    let Some(library) = public_libtorch() else { return };
    let mut doctor = alone(&["doctor", "--json"]);
    doctor.env("LD_LIBRARY_PATH", &library);
    let answer = succeed(doctor);
    let findings = answer["findings"].as_array().expect("findings");
    let gpu = findings.iter().find(|finding| finding["what"] == "GPU").expect("a GPU or none");
    let found = gpu["found"].as_str().expect("a text");
    let built_for_cards = library.join("libtorch_cuda.so").exists();
    let word = if built_for_cards { "libtorch c" } else { "built without CUDA" };
    assert!(found.contains(word) && !found.contains("cannot be loaded"), "{found}");
}

/// NVIDIA's compiler, as the public torch brings it along, or as SEGUE_NVRTC names it.
fn compiler() -> Option<Compiler> {
    let file = match std::env::var_os("SEGUE_NVRTC") {
        Some(file) => PathBuf::from(file),
        None => {
            let python = peer_python("base")?;
            let script = "import sysconfig; print(sysconfig.get_paths()['purelib'])";
            let output = finish({
                let mut command = Command::new(&python);
                command.args(["-c", script]);
                command
            });
            let packages = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
            packages.join("nvidia/cu13/lib/libnvrtc.so.13")
        }
    };
    if !file.exists() {
        segue_skip::skip(segue_skip::Need::Peers, format!("no {}", file.display()));
        return None;
    }
    Some(Compiler::open(&[file]).expect("NVRTC is there"))
}

#[test]
fn kernels_for_cards_compile_for_cards_of_several_kinds() {
    let Some(compiler) = compiler() else { return };
    let kernels = [
        "dropout_factors",
        "norm_back_bf16",
        "activation_back_f16",
        "cross_entropy_back_bf16",
        "attention_back_bf16",
        "flash_back_64_bf16",
        "flash_back_64_f16",
        "flash_back_128_bf16",
        "flash_back_128_f16",
        "lamb_make",
        "gradient_norms",
    ];
    assert_eq!(card_sources().count(), kernels.len());
    for (number, (source, kernel)) in card_sources().zip(kernels).enumerate() {
        let has = |code: &[u8], word: &str| code.windows(word.len()).any(|bytes| bytes == word.as_bytes());
        let compiled = |capability| {
            let compiled = source.compiled(&compiler, capability);
            compiled.unwrap_or_else(|why| panic!("{} for {capability}: {why}", source.name()))
        };
        for capability in [90, 80].into_iter().take(repeats(1, 2)) {
            let code = compiled(capability);
            assert!(code.starts_with(b"\x7fELF") && has(&code, kernel), "{} for {capability}", source.name());
        }
        // A card that is newer than the compiler gets a text that its driver translates. Sources differ by card only where they say so.
        if number == 0 || source.name().starts_with("flash") {
            let text = compiled(9999);
            assert!(has(&text, ".target sm_") && has(&text, kernel), "{}", source.name());
        }
    }
}

#[test]
fn a_source_with_a_mistake_is_refused_with_its_place() {
    let Some(compiler) = compiler() else { return };
    static BROKEN: Source = Source::new("broken", "KERNEL mistaken(float *x) { x[0] = nothing; }");
    let why = BROKEN.compiled(&compiler, 90).expect_err("`nothing` is not declared");
    assert!(why.contains("broken.cu(1)") && why.contains("nothing"), "{why}");
    let why = BROKEN.compiled(&compiler, 1).expect_err("no such cards");
    assert!(why.contains("capability 1 is none of"), "{why}");
}
