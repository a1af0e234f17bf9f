//! The shape of the code: which module may use which, and what is decided in one place.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every Rust file below `folder`, with its code: comments and what stands in test modules, or is there for tests, left out.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "testing", "target", "examples"].contains(&name.as_str()) {
                folders.push(path);
            } else if name.ends_with(".rs") && name != "tests.rs" {
                let text = fs::read_to_string(&path).unwrap();
                let lines = without_tests(&text).filter(|line| !line.trim_start().starts_with("//"));
                let relative = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((relative, lines.map(|line| format!("{line}\n")).collect()));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "{folder} holds no code");
    found
}

/// Lines of a file but those of its test modules.
fn without_tests(text: &str) -> impl Iterator<Item = &str> {
    let (mut marked, mut inside) = (false, false);
    text.lines().filter(move |line| {
        let begins = marked && line.contains("mod ") && line.ends_with('{');
        marked = *line == "#[cfg(test)]";
        inside |= begins;
        let keep = !inside;
        inside &= *line != "}";
        keep
    })
}

/// Files below `folder` whose code holds one of `words`, not as the end of a longer name, with that word.
fn holders(folder: &str, words: &[&'static str]) -> BTreeSet<(String, &'static str)> {
    let holds = |code: &str, word: &str| {
        let before = |at: usize| code[..at].chars().next_back();
        code.match_indices(word).any(|(at, _)| !before(at).is_some_and(|c| c.is_alphanumeric() || c == '_'))
    };
    let of_file = |(path, code): (String, String)| {
        let held = words.iter().filter(|word| holds(&code, word));
        held.map(|word| (path.clone(), *word)).collect::<Vec<_>>()
    };
    sources(folder).into_iter().flat_map(of_file).collect()
}

#[test]
fn what_lies_in_a_run_folder_is_written_by_the_routines_that_follow_no_link() {
    // `segue_publish` has them: `append_regular`, `empty_regular`, `open_lock`, and what is published.
    const WORDS: [&str; 5] =
        ["File::create(", "File::options", "OpenOptions::new", "fs::write(", "fs::copy("];
    let found: BTreeSet<_> = ["launcher/src", "cluster/src", "cluster/watch/src", "trainer"]
        .into_iter()
        .flat_map(|folder| holders(folder, &WORDS))
        .collect();
    let allowed = [
        // The terminal; and folders that were just made and have no name yet.
        ("launcher/src/output.rs", "OpenOptions::new"),
        ("trainer/engine/src/checkpoint/files.rs", "fs::write("),
        ("trainer/convert/src/write.rs", "fs::copy("),
        ("trainer/convert/src/write.rs", "fs::write("),
    ];
    let allowed = allowed.map(|(path, word)| (path.to_string(), word)).into_iter().collect();
    assert_eq!(found, allowed);
}

#[test]
fn folders_in_a_run_are_made_by_the_routines_that_follow_no_link() {
    // `segue_publish` has them: `make_own_folder` and `make_own_folders`, whose root may be a link.
    const WORDS: [&str; 3] = ["create_dir_all", "create_dir(", "File::create_new("];
    let found: BTreeSet<_> = ["trainer/report", "trainer/families", "launcher/src"]
        .into_iter()
        .flat_map(|folder| holders(folder, &WORDS))
        .collect();
    let allowed = [
        // Folders that the user names; and the folder of a run itself.
        ("launcher/src/commands/child.rs", "create_dir_all"),
        ("launcher/src/commands/man.rs", "create_dir_all"),
        ("launcher/src/folder.rs", "create_dir_all"),
        ("launcher/src/run_folder.rs", "create_dir_all"),
        // A file of a name that nothing has, in a folder of the run's own.
        ("trainer/report/src/tensorboard.rs", "File::create_new("),
    ];
    let allowed = allowed.map(|(path, word)| (path.to_string(), word)).into_iter().collect();
    assert_eq!(found, allowed);
}

#[test]
fn what_others_may_have_made_is_read_as_regular_files_alone() {
    // `segue_publish` has the routines: `open_regular`, `read_regular`. A pipe or a device in their place would be waited for, or never end.
    const WORDS: [&str; 4] = ["File::open(", "fs::read(", "fs::read_to_string(", "io::read_to_string("];
    let found: BTreeSet<_> = ["launcher", "cluster", "trainer", "dataloader", "configs"]
        .into_iter()
        .flat_map(|folder| holders(folder, &WORDS))
        .map(|(path, _)| path)
        .collect();
    let allowed = [
        // The kernel's own files.
        "cluster/door/src/lib.rs",
        "cluster/src/environment.rs",
        "cluster/src/launch/pulse.rs",
        "cluster/src/signals.rs",
        "cluster/src/stacks.rs",
        "launcher/src/commands/doctor/host.rs",
        "launcher/src/memory.rs",
        "launcher/src/output.rs",
        "launcher/src/proc.rs",
        "launcher/src/pulse.rs",
        "trainer/report/src/tensorboard.rs",
        // What a command line names may be a pipe: texts, lists, recipes, templates, host files.
        "cluster/src/batch.rs",
        "configs/src/toml_text.rs",
        "dataloader/src/input/expand.rs",
        "dataloader/src/input/source.rs",
        "dataloader/tasks/src/inputs.rs",
        "launcher/src/commands/batch/mod.rs",
        "launcher/src/commands/bench/mod.rs",
        "launcher/src/commands/convert.rs",
        "launcher/src/commands/launch/mod.rs",
        // What this process has just written; folders that are locked or flushed.
        "dataloader/publish/src/disk.rs",
        "dataloader/publish/src/faults.rs",
        "dataloader/publish/src/file.rs",
        "dataloader/publish/src/folder.rs",
        "dataloader/src/shard/writer.rs",
    ];
    assert_eq!(found, allowed.map(String::from).into_iter().collect());
}

#[test]
fn every_test_that_holds_a_promise_of_the_security_page_is_there() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let table = page.split("| promise | tests |").nth(1).unwrap().split("\n\n").next().unwrap();
    let rows = table.lines().filter_map(|row| row.rsplit('|').nth(1));
    let named: Vec<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    let tests = test_functions();
    for name in named.iter().filter(|name| !name.contains(' ')) {
        assert!(tests.contains(*name), "no test is called {name}");
    }
    assert!(named.len() > 30, "{named:?}");
}

/// Names of all functions of the project, tests among them.
fn test_functions() -> BTreeSet<String> {
    let mut folders = vec![root().to_path_buf()];
    let mut names = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                let text = fs::read_to_string(&path).unwrap();
                let marked = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
                names.extend(marked.map(String::from));
            }
        }
    }
    names
}

/// Crates below `trainer/` by folder, and the folders of those that each depends on, but in tests.
fn uses() -> BTreeMap<String, BTreeSet<String>> {
    let workspace = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let folder = |line: &str| {
        let (name, rest) = line.split_once(" = { path = \"trainer/")?;
        Some((name.to_string(), rest.strip_suffix("\" }")?.to_string()))
    };
    let folders: BTreeMap<String, String> = workspace.lines().filter_map(folder).collect();
    let of = |folder: &String| {
        let manifest = fs::read_to_string(root().join("trainer").join(folder).join("Cargo.toml")).unwrap();
        let needed = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
        let names = needed.lines().filter_map(|line| line.strip_suffix(".workspace = true"));
        names.filter_map(|name| folders.get(name).cloned()).collect()
    };
    folders.values().map(|folder| (folder.clone(), of(folder))).collect()
}

/// Folders named in a cell of a table, as `name/`.
fn named(cell: &str) -> BTreeSet<String> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted.filter_map(|text| text.strip_suffix('/')).map(String::from).collect()
}

#[test]
fn the_architecture_says_which_crate_of_the_trainer_uses_which() {
    let text = fs::read_to_string(root().join("docs/book/src/contributing/architecture.md")).unwrap();
    let table = text.lines().skip_while(|line| *line != "| folder | what is in it | uses |").skip(2);
    let mut uses = uses();
    for row in table.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let (own, told) = (named(cells[0]), named(cells[cells.len() - 1]));
        let found: BTreeSet<String> = own.iter().flat_map(|folder| uses.remove(folder).unwrap()).collect();
        assert_eq!(found.difference(&own).cloned().collect::<BTreeSet<_>>(), told, "{}", cells[0]);
    }
    assert!(uses.is_empty(), "not in docs/book/src/contributing/architecture.md: {uses:?}");
}

#[test]
fn what_families_are_made_of_knows_no_family() {
    let uses = uses();
    let only = |folder: &str, below: &[&str]| {
        let allowed: BTreeSet<String> = below.iter().map(|name| name.to_string()).collect();
        assert!(uses[folder].is_subset(&allowed), "{folder} uses {:?}", uses[folder]);
    };
    only("kernels", &[]);
    only("measure", &[]);
    only("report", &["kernels"]);
    only("layers", &["kernels"]);
    only("engine", &["kernels"]);
    only("cost", &["kernels", "engine"]);
    only("decode", &["kernels"]);
    only("family", &["kernels", "engine", "measure", "decode", "cost"]);
    for folder in uses.keys().filter(|folder| folder.starts_with("families/")) {
        assert!(!uses[folder].contains("families"), "{folder} uses the list that it stands in");
    }
    // Update rules are behind a trait.
    for (path, code) in sources("trainer/engine/src") {
        let knows = path.starts_with("trainer/engine/src/optim/");
        assert!(knows || !code.contains("Adam"), "{path} names an update rule");
    }
}

/// Where files of other programs are read and written there is a table for each program.
const TABLES: [&str; 2] = ["trainer/convert/src/sources/", "trainer/convert/src/invert/"];

/// What a family calls its section, and what recipes call its type.
struct Known {
    section: String,
    model_type: String,
}

/// Every family of the list, as its folder describes it.
fn families() -> Vec<Known> {
    let read = |path: &str| fs::read_to_string(root().join("trainer/families").join(path)).unwrap();
    let between = |text: &str, before: &str, after: &str| {
        let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no `{before}`"));
        rest.split(after).next().unwrap().to_string()
    };
    let list = read("src/lib.rs");
    let folders =
        list.lines().filter_map(|line| line.trim().strip_prefix("&segue_")?.strip_suffix("::FAMILY,"));
    let known = |folder: &str| Known {
        section: between(&read(&format!("{folder}/src/lib.rs")), "ModelType::of::<", ">"),
        model_type: between(&read(&format!("{folder}/src/config.rs")), "const TYPE: &'static str = \"", "\""),
    };
    let families: Vec<Known> = folders.map(known).collect();
    let told = between(&list, "FAMILIES: [&Entry; ", "]");
    assert_eq!(families.len().to_string(), told);
    families
}

#[test]
fn the_kind_of_a_model_is_decided_in_one_list() {
    let families = families();
    let mut words = vec![".model.get()".to_string(), "config.get()".into(), "segue_family::own".into()];
    let mut sections = Vec::new();
    for Known { section, model_type } in &families {
        words.extend(["get", "get_mut", "own"].map(|word| format!("{word}::<{section}>")));
        words.extend(["==", "!="].map(|sign| format!("{sign} \"{model_type}\"")));
        words.push(format!("\"{model_type}\" =>"));
        words.push(format!(": &{section} = "));
        sections.push(section.as_str());
    }
    for folder in ["trainer", "launcher/src", "dataloader", "configs/src"] {
        for (path, code) in sources(folder) {
            let own =
                path.starts_with("trainer/families/") || TABLES.iter().any(|tables| path.starts_with(tables));
            // Folders of Hugging Face's XLNet hold a vocabulary that is read in a way of its own.
            let vocabulary = path == "dataloader/tokenizer/src/store.rs";
            let found = words.iter().find(|word| code.contains(word.as_str()));
            assert!(own || vocabulary || found.is_none(), "{path} decides by the kind of a model: {found:?}");
        }
    }
    for folder in ["dataloader", "configs/src", "trainer/layers", "trainer/engine", "launcher/src"] {
        for (path, code) in sources(folder) {
            let found = sections.iter().find(|section| code.contains(**section));
            assert!(found.is_none(), "{path} knows the section of a model: {found:?}");
        }
    }
    // What is asked of a family it says itself.
    for (path, code) in sources("launcher/src") {
        assert!(!code.contains(".capability::<"), "{path} decides by the kind of a family");
    }
}

#[test]
fn steps_are_made_by_one_loop() {
    let loops: Vec<String> = sources("trainer")
        .into_iter()
        .filter(|(_, code)| code.contains("engine.step(") || code.contains("engine.step_at_rate("))
        .map(|(path, _)| path)
        .collect();
    assert_eq!(loops, ["trainer/engine/src/run.rs"]);
}

#[test]
fn tensors_are_handled_in_the_trainer_alone() {
    for crate_of_no_tensors in
        ["configs", "dataloader", "collectives", "cluster", "cluster/watch", "launcher"]
    {
        let manifest = fs::read_to_string(root().join(crate_of_no_tensors).join("Cargo.toml")).unwrap();
        assert!(
            !manifest.lines().any(|line| line.starts_with("tch")),
            "{crate_of_no_tensors} uses tch: move what needs tensors to trainer/"
        );
    }
}

/// Publishing flushes what it renames, and the folder around it. A plain rename promises nothing after a power cut.
#[test]
fn only_one_crate_renames_files() {
    // A checkpoint that was refused is moved aside as it is.
    let moves_aside = "trainer/engine/src/checkpoint/publish.rs";
    let folders = [
        "trainer",
        "launcher/src",
        "dataloader/src",
        "cluster/src",
        "cluster/watch/src",
        "configs/src",
        "collectives/src",
    ];
    for (path, code) in
        folders.iter().flat_map(|folder| sources(folder)).filter(|(path, _)| path != moves_aside)
    {
        assert!(!code.contains("fs::rename("), "{path} renames a file: segue_publish does it durably");
    }
}

/// Where models and the engine name the processor, on how many lines, and why: elsewhere tensors lie where the model's parameters do.
const NAMES_THE_PROCESSOR: &[(&str, usize, &str)] = &[
    ("engine/src/checkpoint/tensors.rs", 1, "a table of a file is bytes of the host"),
    ("engine/src/digest.rs", 1, "hashes bytes in the host's memory"),
    ("engine/src/snapshot.rs", 1, "tables of a file are read by the host"),
    ("engine/src/staging.rs", 3, "what is written to files waits in the host's memory"),
    ("engine/src/step.rs", 1, "a learner without parameters computes nothing"),
    ("engine/src/sums.rs", 7, "MPI adds up and gathers in the host's memory"),
    ("protocols/src/embeddings/mod.rs", 1, "distances are sorted on the host"),
    ("protocols/src/gates.rs", 1, "moments are added up on the host, in double precision"),
    ("protocols/src/walk.rs", 1, "losses are added up on the host, in double precision"),
    ("families/language/src/evaluate.rs", 1, "losses are added up on the host, in double precision"),
    (
        "families/language/src/weights.rs",
        1,
        "a folder's tables are read by the host; who computes elsewhere says so",
    ),
    ("families/latent/src/trained.rs", 2, "the family computes on the host alone"),
    (
        "families/moment_game/src/data.rs",
        1,
        "the law of the data, against which a run is measured, is the host's",
    ),
    ("families/task/src/model.rs", 1, "answers are decided on the host"),
    ("families/task/src/run.rs", 1, "tables of a file are read by the host"),
    (
        "families/transfo_xl/src/adaptive.rs",
        1,
        "a table that a folder of Hugging Face's has beside the weights",
    ),
    ("families/transfo_xl/src/layer.rs", 1, "asks whether tiles are made, which are the processor's"),
    ("families/transfo_xl/src/model.rs", 1, "a table that a folder of Hugging Face's has beside the weights"),
    ("families/translation/src/folder.rs", 1, "a folder's tables are read by the host"),
    (
        "families/translation/src/names.rs",
        1,
        "a table that a folder of Hugging Face's has beside the weights",
    ),
    ("families/translation/src/rows/translating.rs", 2, "rows are computed on the processor alone"),
    (
        "families/xlnet/src/model.rs",
        1,
        "asks whether gradients of rows are sparse, which they are on the processor",
    ),
    ("families/xlnet/src/on_cards.rs", 3, "a test, which emulates a card"),
    ("layers/src/attention/fused/mod.rs", 2, "tiles are the processor's"),
    ("layers/src/ids.rs", 1, "numbers for the host to count"),
    ("layers/src/memory.rs", 1, "a memory without layers lies nowhere"),
    ("layers/src/norm.rs", 2, "rows of slices, which the processor works on"),
    ("kernels/src/noise/continuous.rs", 1, "draws of the host, which who needs them moves"),
    ("kernels/src/noise/dropout.rs", 1, "asks whether the processor's loop makes the mask"),
    ("engine/src/optim/clip.rs", 1, "norms of no gradients lie nowhere"),
];

/// Ways to name the processor as the place of a tensor.
const PROCESSOR: [&str; 5] = ["Device::Cpu", "FLOAT_CPU", "DOUBLE_CPU", "INT64_CPU", "Compute::CPU"];

/// Where models and the engine read values of a tensor, on how many lines, and why: a card is waited for there.
const READS_VALUES: &[(&str, usize, &str)] = &[
    ("decode/src/beam/step.rs", 1, "probabilities of the next token, which are searched on the host"),
    ("engine/src/buckets.rs", 1, "rows of sparse gradients, which the processor makes"),
    ("engine/src/digest.rs", 1, "rows of sparse gradients"),
    (
        "engine/src/micro_step.rs",
        1,
        "losses, statistics and norms, all of a step at once; a micro-step that is made twice",
    ),
    ("families/language/src/evaluate.rs", 1, "losses of an evaluation"),
    ("families/language/src/evaluate_pairs.rs", 1, "losses of an evaluation"),
    ("families/language/src/objective.rs", 1, "weights of a batch in the host's memory"),
    ("families/task/src/model.rs", 1, "answers, which are decided on the host"),
    ("families/xlnet/src/on_cards.rs", 1, "a test, which emulates a card"),
    (
        "families/xlnet/src/plan.rs",
        2,
        "whether masks hide anything, for those that most passes do without; how many segments there are, for attention in tensors",
    ),
    ("decode/src/texts.rs", 1, "probabilities that the next token is drawn by"),
    ("layers/src/attention/fused/mod.rs", 1, "attention in tiles, which are the processor's"),
    ("layers/src/cross_entropy.rs", 1, "targets of the processor's loops"),
    ("layers/src/ids.rs", 1, "ids in the host's memory, but where a text is written or documents are ranked"),
    ("layers/src/rows.rs", 1, "weights are laid out once, for the processor"),
];

/// Ways to read values of a tensor.
const READING: [&str; 5] = ["int64_value(", "double_value(", "copy_data(", ">::try_from(", "Vec::try_from("];

/// Lines of `folders` in `trainer/` that hold one of `words`, by file.
fn lines_with(words: &[&str], folders: &[&str]) -> BTreeMap<String, usize> {
    let code = folders.iter().flat_map(|folder| sources(&format!("trainer/{folder}")));
    let count = |code: &str| code.lines().filter(|line| words.iter().any(|word| line.contains(word))).count();
    let counted = code.map(|(path, code)| (path["trainer/".len()..].to_string(), count(&code)));
    counted.filter(|(_, lines)| *lines > 0).collect()
}

/// Fails unless these are the lines of a table, which gives a reason for each file. `advice` says what to do.
#[track_caller]
fn assert_listed(found: &BTreeMap<String, usize>, listed: &[(&str, usize, &str)], advice: &str) {
    let allowed: BTreeMap<String, usize> =
        listed.iter().map(|(path, lines, _)| (path.to_string(), *lines)).collect();
    let differ = found.keys().chain(allowed.keys()).filter(|path| found.get(*path) != allowed.get(*path));
    let differ: BTreeSet<String> = differ
        .map(|path| format!("{path}: {:?} lines, expected {:?}", found.get(path), allowed.get(path)))
        .collect();
    assert!(differ.is_empty(), "{advice}: {differ:#?}");
    assert!(listed.iter().all(|(_, _, why)| !why.is_empty()));
}

/// A tensor that is made on the processor where its model computes on a card stops the run there, and nothing on a host without one tells.
#[test]
fn models_and_engine_make_tensors_where_their_parameters_lie() {
    let folders = ["engine", "protocols", "families", "decode", "layers", "kernels/src/noise"];
    let advice = "the processor is named where a model's device may be meant; take `options()` of its parameters, or say in NAMES_THE_PROCESSOR why not";
    assert_listed(&lines_with(&PROCESSOR, &folders), NAMES_THE_PROCESSOR, advice);
}

#[test]
fn values_of_tensors_are_read_where_there_is_a_reason_to() {
    let models = ["language", "lstm", "task", "transfo_xl", "xlnet"].map(|name| format!("families/{name}"));
    let folders: Vec<&str> = models
        .iter()
        .map(String::as_str)
        .chain(["engine", "decode", "layers", "kernels/src/noise"])
        .collect();
    let advice = "a step would wait for a card here; keep the value on the host (`OfHost`), or say in READS_VALUES why not";
    assert_listed(&lines_with(&READING, &folders), READS_VALUES, advice);
}

/// The module that a file is, as names below its crate.
fn module_of(path: &str, root: &str) -> Vec<String> {
    let parts = path[root.len() + 1..].trim_end_matches(".rs").split('/');
    let mut names: Vec<String> = parts.map(String::from).collect();
    names.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
    names
}

/// Every path of the tree behind a `use`, without braces: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths_of(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else {
        return vec![tree.split(" as ").next().unwrap_or_default().trim().to_string()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut begin, mut parts) = (0, 0, Vec::new());
    for (at, c) in inner.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if c == ',' && depth == 0 {
            parts.push(&inner[begin..at]);
            begin = at + 1;
        }
    }
    parts.push(&inner[begin..]);
    let parts = parts.into_iter().map(str::trim).filter(|part| !part.is_empty());
    parts.flat_map(|part| paths_of(&format!("{}{part}", before.trim()))).collect()
}

/// A module and a name in it, or the module itself.
type Place = (Vec<String>, String);

/// Where a path of module `of` leads within its crate.
fn place_of(path: &str, of: &[String], modules: &BTreeSet<Vec<String>>) -> Option<Place> {
    let mut names = path.split("::").map(|name| name.trim().to_string()).peekable();
    let mut at = match names.peek()?.as_str() {
        "crate" => Vec::new(),
        "super" | "self" => of.to_vec(),
        first if modules.contains(&[of, &[first.to_string()]].concat()) => of.to_vec(),
        _ => return None,
    };
    for name in names {
        match name.as_str() {
            "crate" | "self" => continue,
            "super" => _ = at.pop(),
            _ if modules.contains(&[&at[..], std::slice::from_ref(&name)].concat()) => at.push(name),
            _ => return Some((at, name)),
        }
    }
    Some((at, String::new()))
}

/// Circles of files below `root`: imports lead from each of a circle to each other, by `use` and what is used on through `pub use`. What a file takes
/// from the module that it is a part of is no such import.
fn circles(root: &str) -> BTreeSet<BTreeSet<String>> {
    let files: BTreeMap<Vec<String>, String> =
        sources(root).into_iter().map(|(path, code)| (module_of(&path, root), code)).collect();
    let modules: BTreeSet<Vec<String>> = files.keys().cloned().collect();
    let (mut on, mut used) = (BTreeMap::<Place, Place>::new(), Vec::new());
    for (module, code) in &files {
        for statement in code.split(';') {
            let Some(begin) = statement.rfind("\nuse ").or_else(|| statement.rfind("\npub use ")) else {
                continue;
            };
            let tree = statement[begin..].trim();
            let is_public = tree.starts_with("pub ");
            let tree = tree.trim_start_matches("pub ").trim_start_matches("use ");
            for path in paths_of(tree) {
                let Some(place) = place_of(&path, module, &modules) else { continue };
                if is_public {
                    on.insert((module.clone(), place.1.clone()), place.clone());
                }
                used.push((module.clone(), place));
            }
        }
    }
    let mut leads = BTreeMap::<Vec<String>, BTreeSet<Vec<String>>>::new();
    for (module, mut place) in used {
        while let Some(further) = on.get(&place).filter(|further| **further != place) {
            place = further.clone();
        }
        let is_parent = module.starts_with(&place.0);
        leads.entry(module.clone()).or_default().extend((!is_parent).then_some(place.0));
    }
    let reached_from = |start: &Vec<String>| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Vec<String>> = leads.get(start).into_iter().flatten().collect();
        while let Some(module) = next.pop() {
            if reached.insert(module) {
                next.extend(leads.get(module).into_iter().flatten());
            }
        }
        reached
    };
    let reached: BTreeMap<&Vec<String>, BTreeSet<&Vec<String>>> =
        modules.iter().map(|module| (module, reached_from(module))).collect();
    let leads_back = |module: &&Vec<String>| reached[module].contains(*module);
    let circle = |module: &Vec<String>| {
        let members = reached[module].iter().filter(|other| reached[**other].contains(module));
        members.map(|other| other.join("/")).collect()
    };
    modules.iter().filter(leads_back).map(circle).collect()
}

/// Files below `root` that are in a circle.
fn in_circles(root: &str) -> BTreeSet<String> {
    circles(root).into_iter().flatten().collect()
}

/// A file that is read by itself says all of what it says. `Config` is made of sections that are held against all others.
#[test]
fn imports_of_the_engine_and_of_the_configuration_lead_in_no_circle_but_one() {
    assert_eq!(in_circles("trainer/engine/src"), BTreeSet::new());
    let around_config =
        ["average", "config", "idle", "model", "models", "optim", "own", "precision", "recovery", "task"];
    let more: Vec<String> = in_circles("configs/src")
        .into_iter()
        .filter(|file| !around_config.contains(&file.as_str()))
        .collect();
    assert!(more.is_empty(), "{more:?}: move what they share to a file of its own");
}

/// Folders of the sources of all crates but those of tests.
fn crates_of_the_workspace() -> Vec<String> {
    let all = ["launcher", "trainer", "dataloader", "collectives", "configs", "cluster"];
    let roots = all.into_iter().flat_map(sources).filter_map(|(path, _)| {
        let root = path.strip_suffix("/lib.rs").or_else(|| path.strip_suffix("/main.rs"))?;
        root.ends_with("/src").then(|| root.to_string())
    });
    roots.collect::<BTreeSet<_>>().into_iter().collect()
}

/// Files that import each other are read as one. What is left is the configuration, whose sections are held against all others, and the list of sources that
/// conversion reads.
#[test]
fn files_are_in_few_circles() {
    let crates = crates_of_the_workspace();
    assert!(crates.len() > 30, "{}", crates.len());
    let found: Vec<(&String, BTreeSet<String>)> =
        crates.iter().flat_map(|root| circles(root).into_iter().map(move |circle| (root, circle))).collect();
    assert!(found.len() <= 4, "{}: {found:?}", found.len());
}

#[test]
fn paths_of_imports_are_followed_to_their_modules() {
    assert_eq!(paths_of("a::{b, c::{d, e as f}, }"), ["a::b", "a::c::d", "a::c::e"]);
    let modules = [&[][..], &["a"], &["a", "b"]].map(|m| m.iter().map(|n| n.to_string()).collect());
    let place =
        |path: &str| place_of(path, &["a".into(), "b".into()], &modules.clone().into_iter().collect());
    assert_eq!(place("super::X"), Some((vec!["a".into()], "X".into())));
    assert_eq!(place("crate::a::b::Y"), Some((vec!["a".into(), "b".into()], "Y".into())));
    assert_eq!(place("serde::Z"), None);
}

/// Crates that `cargo tree` finds behind these kinds of edges, and their features: what build scripts use may have others.
fn crates(edges: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut tree = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tree.args("tree --workspace --locked --offline --prefix none --format {p}	{f}	".split(' '));
    let output = tree.args(["--edges", edges]).current_dir(root()).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        if let [name, features, _] = line.split('\t').collect::<Vec<_>>()[..] {
            found.entry(name.into()).or_default().insert(features.into());
        }
    }
    found
}

/// A crate of other features is another crate to cargo, and so is all that is built upon it: `make build` and `make test` would build most
/// things twice.
#[test]
fn tests_are_built_upon_the_crates_of_the_program() {
    let (program, tests) = (crates("normal,build"), crates("normal,build,dev"));
    assert!(program.len() > 100 && tests.len() > program.len(), "{program:?}");
    for (name, features) in program {
        assert_eq!(tests[&name], features, "{name}: see getrandom in tests/Cargo.toml");
    }
}
