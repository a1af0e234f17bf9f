//! Whole runs, held against what an earlier commit computed: losses of every step and BLAKE3 of the last checkpoint.
//! README.md beside this file says what is compared where, and how the files are made.

mod compare;
mod data;
mod kernels;
mod record;
mod runs;
mod scene;

use std::path::Path;

use compare::{Mismatch, compare};
use kernels::{AVX2, AVX512, Kernels};
use record::Record;
use runs::Run;
use scene::Scene;
use segue_tests::repeats;

/// Numbers of ranks that every golden file is held against.
const RANKS: [usize; 3] = [1, 2, 4];

/// What `SEGUE_GOLDEN` asks for.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Nothing: bits where the file was made on a machine like this one, else losses within the tolerance.
    Compare,
    /// `exact`: bits, whatever the machine.
    Exact,
    /// `write`: the files anew, from one rank. The other numbers of ranks are then held against them.
    Write,
    /// `write-checkpoints`: the checkpoints that later commits resume, and nothing else.
    WriteCheckpoints,
}

fn mode() -> Mode {
    match std::env::var("SEGUE_GOLDEN").as_deref() {
        Err(_) | Ok("") => Mode::Compare,
        Ok("exact") => Mode::Exact,
        Ok("write") => Mode::Write,
        Ok("write-checkpoints") => Mode::WriteCheckpoints,
        Ok(other) => panic!("SEGUE_GOLDEN is `{other}`; known are exact, write and write-checkpoints"),
    }
}

/// A module for each family of kernels, with a test for each run.
macro_rules! golden {
    ($($name:ident: $run:expr;)*) => {
        mod avx2 {
            $(#[test] fn $name() { super::hold(&$run, &super::AVX2) })*
        }
        mod avx512 {
            $(#[test] fn $name() { super::hold(&$run, &super::AVX512) })*
        }
    };
}

golden! {
    pretraining_of_transformer_xl: crate::runs::TINY;
    pretraining_of_xlnet: crate::runs::TINY_XLNET;
    finetuning: crate::runs::FINETUNING;
    finetuning_of_two_tasks: crate::runs::TWO_TASKS;
    old_checkpoint_of_pretraining_goes_on: crate::runs::RESUMED_PRETRAINING;
    old_checkpoint_of_finetuning_goes_on: crate::runs::RESUMED_FINETUNING;
    lstm: crate::runs::LSTM;
    mogrifier_lstm: crate::runs::MOGRIFIER;
    awd_lstm: crate::runs::AWD;
    old_checkpoint_of_awd_lstm_goes_on: crate::runs::RESUMED_AWD;
    planetoid: crate::runs::PLANETOID;
    planetoid_inductive: crate::runs::PLANETOID_INDUCTIVE;
    reverse_copy: crate::runs::REVERSE_COPY;
    moment_game: crate::runs::MOMENT_GAME;
}

/// Numbers of ranks beside 1 that a run is held on with these kernels. That ranks do not matter is shown in full with the processor's best; one number is
/// enough for the others, but in `make test-long`.
fn ranks_beside_one(kernels: &Kernels) -> &'static [usize] {
    let is_best = kernels.name == AVX512.name || !AVX512.are_here();
    if is_best || repeats(0, 1) == 1 { &RANKS[1..] } else { &RANKS[2..] }
}

/// Holds one run with one family of kernels against its file, on 1 rank and on [`ranks_beside_one`].
fn hold(run: &Run, kernels: &Kernels) {
    if !kernels.are_here() {
        // Every processor that libtorch is fast on has AVX2: that family is never passed over.
        assert_ne!(kernels.name, AVX2.name, "this processor has no AVX2, and no golden file is made without");
        return segue_skip::skip(
            segue_skip::Need::Machine,
            format!("the processor has no {}; the tests of avx2 do run", kernels.name),
        );
    }
    let scene = Scene::new(kernels, run.kind.data());
    let mode = mode();
    if mode == Mode::WriteCheckpoints {
        // One family is enough: a checkpoint goes on with any.
        if let (Some(old), true) = (&run.resumes, kernels.name == AVX2.name) {
            scene.write_checkpoint(run, old);
        }
        return;
    }
    let path = Record::path(run.name, kernels.name);
    let one = scene.record(run, 1, &[]);
    if mode == Mode::Write {
        one.write(&path);
    }
    let golden = Record::read(&path).unwrap_or_else(|why| panic!("{why}\n{}", how_to_write(run.name)));
    report(run, kernels, &path, compare(&golden, &one), mode);
    for ranks in ranks_beside_one(kernels) {
        let several = scene.record(run, *ranks, &[]);
        assert!(one.same_results(&several), "{} on {ranks} ranks differs from 1 rank", run.name);
    }
}

fn how_to_write(name: &str) -> String {
    format!(
        "Make it from a commit that is trusted, on this machine, and commit it:\n    \
         SEGUE_GOLDEN=write cargo test -p segue-tests --test golden   ({name} and all others)"
    )
}

/// Fails where `found` does, and says what was compared.
fn report(run: &Run, kernels: &Kernels, path: &Path, found: Result<(), Mismatch>, mode: Mode) {
    let (name, family) = (run.name, kernels.name);
    match found {
        Ok(()) => println!("{name}: {family} kernels: the same bits as {}", path.display()),
        Err(Mismatch::Processor { worst, machine }) if mode != Mode::Exact => println!(
            "{name}: {family} kernels: other bits than {}, which was made on another machine ({machine}); losses \
             are within {:.0e}, at most {worst:.1e} away. Only they were compared",
            path.display(),
            compare::TOLERANCE
        ),
        Err(mismatch) => panic!("{name}: {family} kernels: {}: {mismatch}", path.display()),
    }
}

/// What the tolerance is worth: it finds a changed constant of the optimiser on any machine, in one run each.
#[test]
fn a_changed_constant_of_the_optimiser_is_beyond_the_tolerance() {
    let scene = Scene::new(&AVX2, &data::TEXTS);
    let adam = ["optim.eps=1e-7", "optim.beta1=0.899", "optim.beta2=0.998"];
    adam.iter().for_each(|change| assert_found(&scene, &runs::TINY, change));
    let adamw = ["optim.eps=2e-6", "optim.beta1=0.899", "optim.weight_decay=0.011"];
    adamw.iter().for_each(|change| assert_found(&scene, &runs::FINETUNING, change));
}

/// The same of what each of the other families has of its own.
#[test]
fn a_changed_constant_of_a_family_is_beyond_the_tolerance() {
    let cases: [(&Run, &str); 6] = [
        (&runs::LSTM, "model.forget_bias=one"),
        (&runs::MOGRIFIER, "model.mogrifier_rounds=4"),
        (&runs::AWD, "average.patience=2"),
        (&runs::PLANETOID, "model.window=2"),
        (&runs::REVERSE_COPY, "optim.clip=1.1"),
        (&runs::MOMENT_GAME, "model.penalty=1.01"),
    ];
    for (run, change) in cases {
        assert_found(&Scene::new(&AVX2, run.kind.data()), run, change);
    }
}

fn assert_found(scene: &Scene, run: &Run, change: &str) {
    let golden = Record::read(&Record::path(run.name, AVX2.name)).expect("a golden file");
    let distance = golden.distance(&scene.record(run, 1, &[change]));
    println!("{}: {change} moves losses by {distance:.1e}", run.name);
    assert!(distance > 2.0 * compare::TOLERANCE, "{}: {change} moves losses by {distance:e}", run.name);
}
