//! What the end-to-end tests share: the real binary, alone or under a real `mpirun`, on a small corpus.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use segue_dataloader::{BuildOptions, Preset, TokenizerChoice, build};
use segue_engine::checkpoint::read_tensors;
use segue_tokenizer::{TokenizerKind, TrainOptions};
use serde_json::Value;
use tch::Kind;
use tempfile::TempDir;

pub mod book;
pub mod browser;
pub mod chain;
pub mod graph;
pub mod http;
pub mod kills;
pub mod snapshot;
pub mod translation;

/// Root of the checkout.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Reference files beside the checkout; not everyone has them.
pub const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared");

/// Pieces of the validation split, in four groups of so many that are read side by side: places of a text follow each other, and are what an
/// evaluation of a tiny model takes its time for, of which the recipes would have eight times as many.
pub const PIECES: [&str; 2] = ["eval.lanes=32", "eval.group=8"];

/// Models of public packages with their reference numbers in `cases.safetensors`: the project's own, called `own`, and a larger one
/// among the shared files, where they are.
pub fn reference_models(own: &str, shared: &str) -> Vec<PathBuf> {
    let mut found = vec![Path::new(ROOT).join("tests/fixtures/parity").join(own)];
    let larger = Path::new(SHARED).join("fixtures").join(shared);
    match larger.exists() {
        true => found.push(larger),
        false => segue_skip::skip(
            segue_skip::Need::Fixtures,
            format!("no reference files at {}", larger.display()),
        ),
    }
    found
}

/// How often a test repeats what it does: `few` times, and `often` where `SEGUE_TESTS=long`, as `make test-long` has it.
pub fn repeats(few: usize, often: usize) -> usize {
    if std::env::var_os("SEGUE_TESTS").is_some_and(|tier| tier == "long") { often } else { few }
}

/// The binary, built first but where `scripts/test.sh` has just done so.
pub fn segue() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let test = std::env::current_exe().expect("a test knows its path");
        // target/PROFILE/deps/test-HASH
        let profile = test.ancestors().nth(2).expect("tests lie two folders down").to_path_buf();
        let binary = profile.join("segue");
        if std::env::var_os("SEGUE_IS_BUILT").is_some() {
            return binary;
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        // Of the whole workspace, as tests are: for a package alone, crates it shares with others would be built with fewer features again.
        build.args(["build", "--quiet", "--workspace", "--bin", "segue"]).current_dir(ROOT);
        if profile.file_name().is_some_and(|name| name == "release") {
            build.arg("--release");
        }
        if let Some(target) = profile.parent() {
            build.env("CARGO_TARGET_DIR", target);
        }
        assert!(build.status().expect("cargo starts").success(), "the binary does not build");
        binary
    })
}

/// `segue` with these arguments.
pub fn alone<S: AsRef<str>>(args: &[S]) -> Command {
    let mut command = Command::new(segue());
    command.args(args.iter().map(AsRef::as_ref));
    command
}

/// `mpirun`, also on fewer cores than ranks, also as root.
fn launcher() -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--bind-to", "none"]);
    // SAFETY: the call has no conditions.
    if unsafe { libc::geteuid() } == 0 {
        command.arg("--allow-run-as-root");
    }
    // Ranks that outnumber cores must not spin while they wait.
    command.args(["--mca", "mpi_yield_when_idle", "1"]);
    command
}

/// `mpirun -n RANKS segue` with these arguments.
pub fn mpirun<S: AsRef<str>>(ranks: usize, args: &[S]) -> Command {
    let mut command = launcher();
    command.args(["-n", &ranks.to_string()]).arg(segue()).args(args.iter().map(AsRef::as_ref));
    command
}

/// Has Open MPI end the ranks that a failed one leaves at once: by default they have two seconds to end by themselves.
pub fn at_once(job: &mut Command) -> &mut Command {
    job.env("OMPI_MCA_odls_base_sigkill_timeout", "0")
}

/// Calls `each` with 0 to `count`, two at a time: processes that are killed, and those that publish files, wait for most of their time.
pub fn two_at_a_time(count: usize, each: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(i) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|i| *i < count) {
                    each(i);
                }
            });
        }
    });
}

/// `mpirun` of one rank for each list of arguments, each behind the words of a program that starts it, such as `env`.
pub fn mpirun_each(ranks: &[(&[&str], &[String])]) -> Command {
    let mut command = launcher();
    for (i, (starter, args)) in ranks.iter().enumerate() {
        command.args((i > 0).then_some(":")).args(["-n", "1"]).args(*starter).arg(segue()).args(*args);
    }
    command
}

/// Processes that `parent` has started; those of `mpirun` are its ranks.
pub fn children(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Runs a command to its end.
pub fn finish(mut command: Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = command.spawn().expect("the command starts");
    let id = job.id();
    let _guard = (command.get_program() == "mpirun").then(|| end_where_stuck(id));
    job.wait_with_output().expect("the command ends")
}

/// Whether a command that [`finish`] ran ended with `code`, or is an `mpirun` that got stuck at its end and told none.
pub fn ended_with(output: &Output, code: i32) -> bool {
    output.status.code() == Some(code) || output.status.signal() == Some(libc::SIGKILL)
}

/// Looks at an `mpirun` until it is dropped, and kills it where all of its ranks have been gone for long: rarely, after a rank was killed, Open
/// MPI 4.1.4 waits in `PMIx_server_finalize` for a lock that nobody holds any more.
pub fn end_where_stuck(mpirun: u32) -> StuckGuard {
    /// Far more than an end takes.
    const PATIENCE: Duration = Duration::from_secs(30);
    let (alive, gone) = channel::<()>();
    let look = move || {
        let mut since: Option<Instant> = None;
        while gone.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
            let ranks = children(mpirun);
            let gone = !ranks.is_empty() && !ranks.into_iter().any(is_alive);
            since = gone.then(|| since.unwrap_or_else(Instant::now));
            if since.is_some_and(|since| since.elapsed() > PATIENCE) {
                println!("mpirun is stuck at its end, and is killed");
                // SAFETY: plain system call; the process is not reaped before this thread has ended.
                unsafe { libc::kill(mpirun as i32, libc::SIGKILL) };
                return;
            }
        }
    };
    StuckGuard { alive: Some(alive), thread: Some(std::thread::spawn(look)) }
}

/// What [`end_where_stuck`] began.
pub struct StuckGuard {
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for StuckGuard {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Looks again and again until `is_so`, for what another process does and tells nobody.
///
/// # Panics
///
/// Where it is not so within `limit`.
pub fn wait_for(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process runs; one that has ended and was not waited for does not.
fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Runs a program of `tests/peers` once for each list of arguments, in one process: to import the packages takes longer than what is asked of
/// them. For each its exit code, its stdout and its stderr.
pub fn peers_each(python: &str, script: &str, arguments: &[Vec<String>]) -> Vec<(i64, String, String)> {
    let [each, script] = ["each.py", script].map(|name| format!("{ROOT}/tests/peers/{name}"));
    let mut command = Command::new(python);
    command.args([each, script, Value::from(arguments.to_vec()).to_string()]);
    let found = succeed(command);
    let found = found.as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_string();
    let found: Vec<_> = found
        .map(|run| (run["code"].as_i64().unwrap_or(-1), text(&run["stdout"]), text(&run["stderr"])))
        .collect();
    assert_eq!(found.len(), arguments.len());
    found
}

/// stderr as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that must succeed; its JSON result, if it prints one.
pub fn succeed(command: Command) -> Value {
    let text = format!("{command:?}");
    let output = finish(command);
    assert!(output.status.success(), "{text}\n{:?}\n{}", output.status, stderr(&output));
    let stdout = String::from_utf8_lossy(&output.stdout);
    stdout.lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or(Value::Null)
}

/// Runs a command that must fail with this exit code and say all of these words. What it says is kept whole in the
/// snapshots.
#[track_caller]
pub fn fail(command: Command, code: i32, words: &[&str]) {
    fail_reading(Stdio::null(), command, code, words);
}

/// [`fail`] of a command with this stdin.
#[track_caller]
pub fn fail_reading(stdin: impl Into<Stdio>, mut command: Command, code: i32, words: &[&str]) {
    let text = format!("{command:?}");
    // Messages of the command line are wrapped to the width of the terminal.
    let output =
        at_once(&mut command).env("COLUMNS", "100").stdin(stdin).output().expect("the command starts");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{text}\n{said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in what it said:\n{said}");
    }
    let caller = Path::new(std::panic::Location::caller().file());
    let file = caller.file_stem().map(|name| name.to_string_lossy().into_owned());
    snapshot::check_error(&file.unwrap_or_default(), &command, words, &output);
}

/// A workplace with a small corpus, gone when dropped.
pub struct Workplace {
    /// The folder.
    pub dir: TempDir,
}

impl Workplace {
    /// Builds a byte-level corpus of invented English-like text. Its validation split is short: runs evaluate lane by lane, which takes a
    /// recurrent model longer than all their steps.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let this = Self { dir };
        std::fs::write(this.path("train.txt"), text(60_000, 1)).expect("a file");
        std::fs::write(this.path("valid.txt"), text(1_500, 2)).expect("a file");
        // As `segue data build --preset documents --tokenizer-kind byte` does it, without the start of another process.
        let [train, valid] = ["train.txt", "valid.txt"].map(|name| vec![this.path(name)]);
        let tokenizer = TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Byte));
        let options = BuildOptions::new(Preset::Documents, train, this.path("corpus"));
        build(&BuildOptions { tokenizer, valid, ..options }, &()).expect("a corpus");
        this
    }

    /// Builds a corpus of the two texts under `name`.
    pub fn build(&self, name: &str, options: &[&str]) {
        let (train, valid, output) = (self.text("train.txt"), self.text("valid.txt"), self.text(name));
        let args = ["data", "build", "--train", &train, "--valid", &valid, "--output", &output];
        succeed(alone(&[&args, options].concat()));
    }

    /// A corpus of many short documents, built where it is not there yet; its folder.
    pub fn documents(&self) -> String {
        let output = self.text("documents");
        if !self.path("documents").exists() {
            let input = self.path("short");
            std::fs::create_dir(&input).expect("a folder");
            for i in 0..400 {
                std::fs::write(input.join(format!("{i:03}")), text(20 + i * 37 % 90, i as u64))
                    .expect("a file");
            }
            let (input, valid) = (input.display().to_string(), self.text("valid.txt"));
            let args = ["data", "build", "--train", &input, "--valid", &valid, "--output", &output];
            succeed(alone(&[&args[..], &["--preset", "documents", "--tokenizer-kind", "byte"]].concat()));
        }
        output
    }

    /// A path inside.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A path inside, as text.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Arguments that train the tiny Transformer-XL in the run folder `run`.
    pub fn pretrain(&self, run: &str, overrides: &[&str]) -> Vec<String> {
        self.train("tiny.toml", "corpus", run, &[&PIECES, overrides].concat())
    }

    /// The same for the tiny XLNet, on the same text in sentences and sub-word pieces.
    pub fn pretrain_xlnet(&self, run: &str, overrides: &[&str]) -> Vec<String> {
        if !self.path("pairs").exists() {
            let options = ["--preset", "xlnet", "--tokenizer-kind", "bpe", "--vocab-size", "400"];
            self.build("pairs", &[&options[..], &["--special", "<cls>,<sep>,<mask>,<eod>"]].concat());
        }
        self.train("tiny-xlnet.toml", "pairs", run, overrides)
    }

    /// The same for the tiny recurrent model, on the Transformer-XL's corpus.
    pub fn pretrain_lstm(&self, run: &str, overrides: &[&str]) -> Vec<String> {
        self.train("tiny-lstm.toml", "corpus", run, &[&PIECES, overrides].concat())
    }

    fn train(&self, recipe: &str, corpus: &str, run: &str, overrides: &[&str]) -> Vec<String> {
        let mut args = vec![
            "pretrain".to_string(),
            "--json".into(),
            "--config".into(),
            format!("{ROOT}/configs/recipes/{recipe}"),
            format!("run.dir={}", self.text(run)),
            format!("data.corpus={}", self.text(corpus)),
        ];
        args.extend(overrides.iter().map(|s| s.to_string()));
        args
    }

    /// Arguments that fine-tune an untrained tiny XLNet on sentences of good and bad words, in the run folder `run`.
    pub fn finetune(&self, run: &str, more: &[&str]) -> Vec<String> {
        if !self.path("encoder").exists() {
            succeed(alone(&self.pretrain_xlnet("encoder", &["train.steps=2", "model.dropout=0.1"])));
            let folder = self.path("sst2");
            std::fs::create_dir(&folder).expect("a folder");
            for (name, count, seed) in [("train.tsv", 160, 1), ("dev.tsv", 60, 2)] {
                std::fs::write(folder.join(name), sentences(count, seed)).expect("a file");
            }
        }
        let mut args: Vec<String> =
            ["finetune", "--json", "--task", "sst2", "--model"].map(String::from).to_vec();
        args.extend([self.text("encoder"), "--data".into(), self.text("sst2")]);
        args.push(format!("run.dir={}", self.text(run)));
        let settings =
            ["train.lanes=8", "train.micro_batch=2", "train.segment=32", "optim.lr=3e-3", "task.epochs=2"];
        args.extend(settings.iter().chain(more).map(|s| s.to_string()));
        args
    }

    /// The files whose bytes are promised, of a run's last checkpoint, by name: those of tensors. Tasks have no memory.
    pub fn final_bytes(&self, run: &str) -> BTreeMap<String, Vec<u8>> {
        let files = files_of(&self.path(run).join("checkpoints/latest"));
        let tensors: BTreeMap<_, _> =
            files.into_iter().filter(|(name, _)| name.ends_with(".safetensors")).collect();
        let task = self.path(run).join("best").exists();
        for name in &["model.safetensors", "optimizer.safetensors", "carry-00000.safetensors"]
            [..if task { 2 } else { 3 }]
        {
            assert!(tensors.contains_key(*name), "{run} has no {name}");
        }
        tensors
    }

    /// Panics unless both runs ended with the same bytes.
    pub fn assert_same(&self, run: &str, other: &str) {
        let (one, two) = (self.final_bytes(run), self.final_bytes(other));
        assert!(one.keys().eq(two.keys()), "{run} and {other} have other files");
        for (name, bytes) in one {
            assert!(bytes == two[&name], "{name} of {run} and {other} differ");
        }
    }
}

impl Default for Workplace {
    fn default() -> Self {
        Self::new()
    }
}

/// The files in a folder, by name.
pub fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.expect("an entry of a folder");
        let bytes = std::fs::read(entry.path()).unwrap_or_else(|e| panic!("{}: {e}", entry.path().display()));
        (entry.file_name().to_string_lossy().into_owned(), bytes)
    };
    entries.map(read).collect()
}

/// Sentences with one good or bad word among others, in the layout of SST-2.
pub fn sentences(count: usize, seed: u64) -> String {
    let mut out = "sentence\tlabel\n".to_string();
    for i in 0..count {
        let good = (i * 7 + seed as usize) % 3 % 2;
        let length = 12 + i * 11 % 50;
        let words = text(length, seed * 1000 + i as u64).replace(".\n", " ");
        let word = ["past", "carried"][good];
        out.push_str(&format!("{word} {word} {} \t{good}\n", words.trim()));
    }
    out
}

/// `length` bytes of words with the frequencies of a language.
pub fn text(length: usize, seed: u64) -> String {
    const WORDS: [&str; 16] = [
        "the", "of", "memory", "and", "segment", "a", "lane", "to", "reads", "in", "every", "model", "past",
        "is", "carried", "on",
    ];
    let mut state = seed;
    let mut out = String::with_capacity(length + 16);
    while out.len() < length {
        // Knuth's linear congruential generator; its high bits are good enough for words.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let draw = (state >> 33) as usize;
        out.push_str(WORDS[(draw % 16).min(draw / 16 % 16)]);
        out.push_str(if draw.is_multiple_of(11) { ".\n" } else { " " });
    }
    out.truncate(length);
    out
}

/// A safetensors file with `input_ids`, `[2, 24]` below `vocabulary`, written out by hand.
pub fn ids_file(vocabulary: i64) -> Vec<u8> {
    let ids: Vec<i64> = (0..48).map(|i| (i * 37 + 11) % vocabulary).collect();
    let header = r#"{"input_ids":{"dtype":"I64","shape":[2,24],"data_offsets":[0,384]}}"#;
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    bytes
}

/// `segue score` gives `model` a distribution over its words at each of the places of [`ids_file`].
pub fn assert_scores_are_distributions(place: &Workplace, model: &str, vocabulary: i64) {
    let [ids, scores] = ["ids", "scores"].map(|name| place.text(name));
    std::fs::write(&ids, ids_file(vocabulary)).expect("a file");
    succeed(alone(&["score", "--model", model, "--ids", &ids, "--output", &scores]));
    let mut found = read_tensors(Path::new(&scores)).expect("scores");
    let log_probs = found.tensors.remove("log_probs").expect("log-probabilities");
    assert_eq!(log_probs.size()[..2], [2, 24]);
    let sums = log_probs.exp().sum_dim_intlist(-1, false, Kind::Double);
    assert!((sums - 1.0).abs().max().double_value(&[]) < 1e-5);
}

/// Whether this process may mount file systems.
pub fn may_mount() -> bool {
    // SAFETY: the call has no conditions.
    unsafe { libc::geteuid() == 0 }
}
