//! Building a corpus gives the same bytes whatever the number of threads and however often it is interrupted.

use crate::scratch;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use scratch::text::sample_text;
use scratch::{options, tree};
use segue_data_error::DataError;
use segue_dataloader::{BuildObserver, BuildOptions, Corpus, Preset, Split, TokenizerChoice, build};
use segue_tokenizer::TokenizerKind;

/// Stops after some shards and remembers what it was told.
struct Stopper {
    after: u64,
    notes: Mutex<Vec<String>>,
}

impl Stopper {
    fn after(shards: u64) -> Stopper {
        Stopper { after: shards, notes: Mutex::new(Vec::new()) }
    }

    fn notes(&self) -> String {
        self.notes.lock().unwrap().join("\n")
    }
}

impl BuildObserver for Stopper {
    fn note(&self, message: &str) {
        self.notes.lock().unwrap().push(message.into());
    }

    fn stops_after(&self, shards: u64) -> bool {
        shards >= self.after
    }
}

/// A build of several shards over several chunks in three splits.
fn several_shards(input: &Path, output: &Path, kind: TokenizerKind) -> BuildOptions {
    BuildOptions {
        split: Some([0.8, 0.1, 0.1]),
        shard_tokens: 100_000,
        ..options(Preset::WikiText, kind, input, output)
    }
}

fn write_input(folder: &Path) -> std::path::PathBuf {
    let input = folder.join("input.txt");
    fs::write(&input, sample_text(60_000)).unwrap();
    input
}

#[test]
fn threads_do_not_change_a_byte() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    for kind in [TokenizerKind::Word, TokenizerKind::Char, TokenizerKind::Bpe, TokenizerKind::Unigram] {
        let corpora = [1, 2, 5].map(|workers| {
            let output = folder.path().join(format!("{kind}-{workers}"));
            build(&BuildOptions { workers, ..several_shards(&input, &output, kind) }, &()).unwrap();
            tree(&output)
        });
        assert!(corpora[0].len() > 8, "only {:?}", corpora[0].keys());
        assert!(corpora[0] == corpora[1] && corpora[0] == corpora[2], "{kind}");
    }
}

#[test]
fn a_stopped_build_goes_on_and_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    for compress in [false, true] {
        let undisturbed = folder.path().join(format!("undisturbed-{compress}"));
        let mut options = several_shards(&input, &undisturbed, TokenizerKind::Bpe);
        options.compress = compress;
        build(&options, &()).unwrap();
        options.output = folder.path().join(format!("stopped-{compress}"));
        let mut stops = 0;
        let mut finished_before = Vec::new();
        loop {
            let stopper = Stopper::after(1);
            match build(&options, &stopper) {
                Ok(_) => break,
                Err(DataError::Stopped { shards: 1 }) => stops += 1,
                Err(other) => panic!("{other}"),
            }
            assert!(stops == 1 || stopper.notes().contains("resuming"), "{}", stopper.notes());
            let error = Corpus::open(&options.output).unwrap_err().to_string();
            assert!(error.contains("has not come to its end"), "{error}");
            // Finished shards are not written again.
            let written: Vec<_> = shard_times(&options.output);
            assert!(finished_before.iter().all(|shard| written.contains(shard)));
            finished_before = written;
        }
        assert!(stops >= 4, "{stops}");
        assert!(tree(&options.output) == tree(&undisturbed), "compress {compress}");
    }
}

fn shard_times(output: &Path) -> Vec<(std::path::PathBuf, std::time::SystemTime)> {
    let files = tree(output).into_keys().filter(|path| path.to_string_lossy().contains(".bin"));
    files
        .filter(|path| path.extension().is_none_or(|e| e != "tmp"))
        .map(|path| (path.clone(), fs::metadata(output.join(&path)).unwrap().modified().unwrap()))
        .collect()
}

#[test]
fn a_changed_input_begins_anew_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let options = several_shards(&input, &folder.path().join("corpus"), TokenizerKind::Word);
    build(&options, &Stopper::after(2)).unwrap_err();
    fs::write(&input, sample_text(50_000)).unwrap();
    let stopper = Stopper::after(u64::MAX);
    build(&options, &stopper).unwrap();
    assert!(stopper.notes().contains("input.txt changed"), "{}", stopper.notes());
    assert!(stopper.notes().contains("starting over"), "{}", stopper.notes());

    let fresh = BuildOptions { output: folder.path().join("fresh"), ..options.clone() };
    build(&fresh, &()).unwrap();
    assert!(tree(&options.output) == tree(&fresh.output));
}

#[test]
fn a_changed_option_begins_anew_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let options = several_shards(&input, &folder.path().join("corpus"), TokenizerKind::Word);
    build(&options, &Stopper::after(2)).unwrap_err();
    let other = several_shards(&input, &folder.path().join("corpus"), TokenizerKind::Char);
    let stopper = Stopper::after(u64::MAX);
    build(&other, &stopper).unwrap();
    assert!(stopper.notes().contains("the tokenizer changed"), "{}", stopper.notes());
}

#[test]
fn a_cut_journal_line_and_a_missing_shard_cost_only_the_work_after_them() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let undisturbed = folder.path().join("undisturbed");
    build(&several_shards(&input, &undisturbed, TokenizerKind::Word), &()).unwrap();
    let options = several_shards(&input, &folder.path().join("corpus"), TokenizerKind::Word);
    build(&options, &Stopper::after(4)).unwrap_err();
    let journal = options.output.join(".build/journal.jsonl");
    let text = fs::read(&journal).unwrap();
    fs::write(&journal, &text[..text.len() - 30]).unwrap();
    fs::remove_file(options.output.join("train/train-00001.idx")).unwrap();
    build(&options, &()).unwrap();
    assert!(tree(&options.output) == tree(&undisturbed));
}

#[test]
fn what_a_kill_leaves_beside_a_corpus_is_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let undisturbed = folder.path().join("undisturbed");
    build(&several_shards(&input, &undisturbed, TokenizerKind::Word), &()).unwrap();
    let options = several_shards(&input, &folder.path().join("corpus"), TokenizerKind::Word);
    build(&options, &Stopper::after(2)).unwrap_err();
    // Files that were being written.
    fs::write(options.output.join(".abc.tmp"), "{").unwrap();
    fs::write(options.output.join("train/.abc.tmp"), "x").unwrap();
    let plan = fs::read(options.output.join(".build/plan.json")).unwrap();
    build(&options, &()).unwrap();
    assert!(tree(&options.output) == tree(&undisturbed));
    // The scratch folder of a build that had just published its corpus.
    fs::create_dir(options.output.join(".build")).unwrap();
    fs::write(options.output.join(".build/plan.json"), plan).unwrap();
    build(&options, &()).unwrap();
    assert!(tree(&options.output) == tree(&undisturbed));
}

#[test]
fn a_finished_corpus_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let options = several_shards(&input, &folder.path().join("corpus"), TokenizerKind::Word);
    build(&options, &()).unwrap();
    let error = build(&options, &()).unwrap_err();
    assert_eq!(error.exit_code(), 73);
    assert!(error.to_string().contains("finished corpus"), "{error}");
    fs::write(folder.path().join("other"), "x").unwrap();
    let error = build(&BuildOptions { output: folder.path().into(), ..options }, &()).unwrap_err();
    assert!(error.to_string().contains("other files"), "{error}");
}

#[test]
fn what_others_have_put_into_the_output_stays() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("corpus");
    let missing = several_shards(&folder.path().join("none.txt"), &output, TokenizerKind::Word);
    let input = write_input(folder.path());
    let options = several_shards(&input, &output, TokenizerKind::Word);
    let put = || {
        fs::create_dir_all(output.join("train")).unwrap();
        fs::write(output.join("train/mine"), "x").unwrap();
    };
    let refuses = || {
        let before = tree(&output);
        let error = build(&options, &()).unwrap_err();
        assert_eq!(error.exit_code(), 73);
        assert!(error.to_string().contains("other files"), "{error}");
        assert!(tree(&output) == before);
    };
    assert_eq!(build(&missing, &()).unwrap_err().exit_code(), 66);
    assert_eq!(fs::read_dir(&output).unwrap().count(), 0);
    put();
    refuses();
    // A folder of that name is not a build's, as long as there is no plan of one in it.
    fs::create_dir(output.join(".build")).unwrap();
    refuses();
    fs::write(output.join(".build/plan.json"), "{}").unwrap();
    refuses();
    // An interrupted build goes on, and its scratch folder stays where the command is mistaken.
    fs::remove_dir_all(&output).unwrap();
    build(&options, &Stopper::after(2)).unwrap_err();
    assert_eq!(build(&missing, &()).unwrap_err().exit_code(), 66);
    let stopper = Stopper::after(u64::MAX);
    build(&options, &stopper).unwrap();
    assert!(stopper.notes().contains("resuming"), "{}", stopper.notes());
}

/// Network file systems keep files that are open in their folder, under other names.
#[test]
fn a_scratch_folder_that_cannot_go_costs_no_corpus() {
    /// Puts a file into the scratch folder, and looks for open files there when it hears of it again.
    struct Keeper<'a>(&'a Path, Mutex<Vec<String>>);
    impl BuildObserver for Keeper<'_> {
        fn stops_after(&self, _: u64) -> bool {
            fs::write(self.0.join("kept"), "x").unwrap();
            false
        }

        fn note(&self, message: &str) {
            self.1.lock().unwrap().push(message.into());
            let open =
                fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
            let ours: Vec<_> = open.filter(|path| path.starts_with(self.0)).collect();
            assert!(ours.is_empty(), "{ours:?}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let options = several_shards(&input, &folder.path().join("corpus"), TokenizerKind::Word);
    let scratch = options.output.join(".build");
    let keeper = Keeper(&scratch, Mutex::default());
    build(&options, &keeper).unwrap();
    let notes = keeper.1.lock().unwrap().join("\n");
    assert!(notes.contains("the corpus is finished") && notes.contains(".build"), "{notes}");
    Corpus::open(&options.output).unwrap();
    // What was kept is gone: the same command tidies up.
    fs::remove_file(scratch.join("kept")).unwrap();
    assert!(build(&options, &()).unwrap_err().to_string().contains("finished corpus"));
    assert!(!scratch.exists());
}

/// Run by [`a_build_killed_at_any_moment_ends_with_the_same_bytes`] in processes of its own.
#[test]
fn build_in_a_process_of_its_own() {
    if let (Ok(input), Ok(output)) = (std::env::var("SEGUE_TEST_INPUT"), std::env::var("SEGUE_TEST_OUTPUT")) {
        build(&several_shards(input.as_ref(), output.as_ref(), TokenizerKind::Bpe), &()).unwrap();
    }
}

#[test]
fn a_build_killed_at_any_moment_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let undisturbed = folder.path().join("undisturbed");
    build(&several_shards(&input, &undisturbed, TokenizerKind::Bpe), &()).unwrap();
    let output = folder.path().join("killed");
    let mut kills = 0;
    // Each process lives a little longer, so that the kills are spread over the whole build.
    for lifetime in (2..).step_by(5) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "build::build_in_a_process_of_its_own"])
            .env("SEGUE_TEST_INPUT", &input)
            .env("SEGUE_TEST_OUTPUT", &output)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(lifetime));
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success());
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        if output.join("corpus.json").exists() && !output.join(".build/plan.json").exists() {
            // Killed after its work, before its exit: another build is refused, rightly, and sweeps up.
            build(&several_shards(&input, &output, TokenizerKind::Bpe), &()).unwrap_err();
            break;
        }
    }
    println!("killed {kills} times");
    assert!(kills > 0);
    let (killed, whole) = (tree(&output), tree(&undisturbed));
    assert!(killed.keys().eq(whole.keys()), "{:?} instead of {:?}", killed.keys(), whole.keys());
    assert!(killed == whole);
}

#[test]
fn two_builds_do_not_write_in_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let input = write_input(folder.path());
    let options = several_shards(&input, &folder.path().join("corpus"), TokenizerKind::Word);
    struct Second<'a>(&'a BuildOptions, Mutex<Option<String>>);
    impl BuildObserver for Second<'_> {
        fn stops_after(&self, shards: u64) -> bool {
            if shards == 1 {
                let error = build(self.0, &()).unwrap_err();
                *self.1.lock().unwrap() = Some(error.to_string());
            }
            false
        }
    }
    let second = Second(&options, Mutex::new(None));
    build(&options, &second).unwrap();
    assert!(second.1.lock().unwrap().as_ref().unwrap().contains("another build"));
}

#[test]
fn what_is_built_is_no_input() {
    let folder = tempfile::tempdir().unwrap();
    write_input(folder.path());
    let inside = BuildOptions {
        shard_tokens: 100_000,
        ..options(Preset::Documents, TokenizerKind::Byte, folder.path(), &folder.path().join("corpus"))
    };
    build(&inside, &Stopper::after(1)).unwrap_err();
    let stopper = Stopper::after(u64::MAX);
    let info = build(&inside, &stopper).unwrap();
    assert!(stopper.notes().contains("resuming"), "{}", stopper.notes());
    assert_eq!(info.splits[&Split::Train].documents, 1);
}

#[test]
fn bad_input_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::write(path("latin1.txt"), b"fine\ncaf\xe9\n").unwrap();
    fs::write(path("bad.jsonl"), "{\"text\": \"a b\"}\n{\"txt\": 1}\n").unwrap();
    fs::write(path("latin1.jsonl"), b"{\"text\": \"a\"}\n{\"id\": 1, \"text\": \"caf\xe9\"}\n").unwrap();
    fs::write(path("half.jsonl"), "{\"text\": \"a \\ud800 b\"}\n").unwrap();
    fs::write(path("cut.gz"), &gzip("some text ".repeat(1000).as_bytes())[..40]).unwrap();
    fs::write(path("empty.txt"), "").unwrap();
    let fails = |preset, name: &str, kind| {
        let error = build(&options(preset, kind, &path(name), &path("out")), &()).unwrap_err();
        let _ = fs::remove_dir_all(path("out"));
        (error.exit_code(), error.to_string())
    };
    let check = |(code, message): (u8, String), expected_code, parts: &[&str]| {
        assert_eq!(code, expected_code, "{message}");
        for part in parts {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    };
    check(
        fails(Preset::Documents, "latin1.txt", TokenizerKind::Word),
        65,
        &["latin1.txt", "byte 8", "UTF-8"],
    );
    check(fails(Preset::Jsonl, "bad.jsonl", TokenizerKind::Word), 65, &["bad.jsonl, line 2: ", "\"text\""]);
    check(
        fails(Preset::Jsonl, "latin1.jsonl", TokenizerKind::Byte),
        65,
        &["latin1.jsonl, line 2: it is not UTF-8 at byte 23 of the line"],
    );
    check(
        fails(Preset::Jsonl, "half.jsonl", TokenizerKind::Word),
        65,
        &["half.jsonl, line 1: ", "surrogate"],
    );
    check(fails(Preset::Documents, "cut.gz", TokenizerKind::Word), 65, &["cut.gz", "damaged or truncated"]);
    check(fails(Preset::Documents, "empty.txt", TokenizerKind::Word), 65, &["empty"]);
    check(fails(Preset::Documents, "empty.txt", TokenizerKind::Byte), 65, &["train", "holds no text"]);
    check(fails(Preset::Documents, "none.txt", TokenizerKind::Word), 66, &["none.txt", "missing"]);
    check(fails(Preset::Enwik8, "latin1.txt", TokenizerKind::Word), 64, &["codes bytes"]);

    let mut replaced = options(Preset::Documents, TokenizerKind::Word, &path("latin1.txt"), &path("out"));
    replaced.invalid_utf8 = segue_dataloader::InvalidUtf8::Replace;
    let info = build(&replaced, &()).unwrap();
    assert_eq!(info.splits[&Split::Train].replaced, 1);
}

#[test]
fn options_that_contradict_are_refused() {
    let base = || options(Preset::Documents, TokenizerKind::Word, "a".as_ref(), "b".as_ref());
    let refused = |change: &dyn Fn(&mut BuildOptions)| {
        let mut options = base();
        change(&mut options);
        let error = build(&options, &()).unwrap_err();
        assert_eq!(error.exit_code(), 64, "{error}");
    };
    refused(&|options| options.train.clear());
    refused(&|options| options.split = Some([0.5, 0.1, 0.1]));
    refused(&|options| options.split = Some([0.0, 0.5, 0.5]));
    refused(&|options| options.tokenizer = TokenizerChoice::Preset);
    refused(&|options| {
        options.split = Some([0.8, 0.1, 0.1]);
        options.valid = vec!["c".into()];
    });
    refused(&|options| {
        options.train = vec!["-".into()];
        options.valid = vec!["-".into()];
    });
}

fn gzip(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}
