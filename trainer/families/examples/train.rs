//! Trains a small Transformer-XL on a text through the library, and lets it write.
//!
//! ```text
//! cargo run -p segue-families --example train -- TEXT FOLDER
//! ```
//!
//! Started again with the same arguments, it resumes, and ends with the same bytes as if it had never stopped.

use std::error::Error;
use std::path::{Path, PathBuf};

use segue_collectives::local::Local;
use segue_dataloader::{BuildOptions, Preset, TokenizerChoice, build};
use segue_decode::{Generator, Sampling};
use segue_engine::Event;
use segue_families::MODELS;
use segue_language::{ModelFolder, Writing, load_next_token};
use segue_tokenizer::Tokenizer;

const PROMPT: &str = "The ";

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [text, folder] = arguments.as_slice() else { return Err("usage: train TEXT FOLDER".into()) };
    let (corpus, run) = (folder.join("corpus"), folder.join("run"));

    // 1. Text to shards of token ids: here bytes, nine tenths of them for training.
    if !corpus.exists() {
        let mut options = BuildOptions::new(Preset::Documents, vec![text.clone()], corpus.clone());
        options.tokenizer = TokenizerChoice::Given(Tokenizer::bytes());
        options.split = Some([0.9, 0.1, 0.0]);
        build(&options, &())?;
    }

    // 2. A recipe, with the values of this run. `vocab_size` follows from the corpus.
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/recipes/tiny.toml");
    let values = [
        format!("data.corpus={}", corpus.display()),
        format!("run.dir={}", run.display()),
        "eval.every=50".into(),
    ];
    let mut config = MODELS.load(Some(&recipe), &values)?.config;
    let job = (segue_family::of(&config.model).open)(&mut config)?;

    // 3. Steps, evaluations and checkpoints. `Local` is a world of one rank; under mpirun it would be `Mpi`.
    let outcome =
        job.train(&config, segue_kernels::Compute::CPU, &Local, &|| false, &mut |event| match event {
            Event::Step { report, .. } => println!("step {}: loss {:.4}", report.step, report.loss),
            Event::Evaluated { step, measures, .. } => println!("step {step}: {}", measures.lines.join("; ")),
            Event::Warning { what } => println!("{what}"),
            _ => {}
        })?;
    println!("{} steps are done", outcome.step);

    // 4. The newest checkpoint writes a hundred tokens.
    let model_folder = ModelFolder::open(&segue_families::MODELS, &run)?;
    let (model, tokenizer) = (load_next_token(&model_folder)?, model_folder.tokenizer()?);
    let mut prompt = Vec::new();
    tokenizer.encode(PROMPT, &mut prompt);
    let prompt: Vec<i64> = prompt.into_iter().map(i64::from).collect();
    let sampling = Sampling {
        top_k: 40,
        top_p: 1.0,
        eta: 0.0,
        temperature: 1.0,
        exclude: None,
        names: tokenizer.vocab_size(),
        seed: 1,
    };
    let written: Vec<i64> =
        Generator::new(Box::new(Writing::new(model.as_ref(), 1)), &prompt, 16, sampling).take(100).collect();
    println!("{PROMPT}{}", tokenizer.decode_signed(&written));
    Ok(())
}
