//! Finds out what a path leads to: a file by what it holds, a folder by the files that would be opened if they were named.

use std::borrow::Cow;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use segue_data_error::DataError;
use segue_engine::checkpoint::{CHECKPOINTS, MANIFEST, Manifest, STATE, first_lane, unverified};
use segue_family::{Trained, find};
use segue_foreign::{ShardIndex, SharedBytes, TorchFile, View};
use segue_kernels::TrainError;
use segue_language::{Language, ModelFolder, names};
use segue_publish::{open_regular, read_regular};

use super::source::Source;
use super::tensors::{INDEX, Tensors};
use super::{hugging_face, kimiyoung, nvidia, place, recurrent, tensorflow};
use crate::apply::listed;

/// Where a tar file says what it is.
const TAR_MARK: std::ops::Range<usize> = 257..262;
/// How a zip container begins.
const ZIP: &[u8] = b"PK\x03\x04";
/// How a pickle of a later protocol than the first two begins.
const PROTOCOL: u8 = 0x80;
/// What tells the sizes of a model in Hugging Face's layout.
const CONFIGURATION: &str = "config.json";
/// Names that programs give to the one file that counts, the surest first.
const USUAL: [&str; 7] = [
    hugging_face::NAMES[0],
    hugging_face::NAMES[1],
    hugging_face::NAMES[2],
    hugging_face::NAMES[3],
    "model.pt",
    "checkpoint_best.pt",
    "checkpoint_last.pt",
];

/// Opens what a path leads to. Its folder's manifest is verified, where it has one.
pub fn open(path: &Path) -> Result<Source, TrainError> {
    let folder = folder_of(path);
    let own_file = path.file_name().is_some_and(|name| name == hugging_face::WEIGHTS);
    let has_manifest = folder.join(MANIFEST).symlink_metadata().is_ok();
    let own = has_manifest && folder.join(hugging_face::WEIGHTS).is_file();
    if path.join(CHECKPOINTS).is_dir() || (own && (path.is_dir() || own_file)) {
        let (folder, notes) = opened(if own { folder } else { path })?;
        let mut source = hugging_face::open(&folder.join(hugging_face::WEIGHTS))?;
        source.kind = "segue";
        source.facts.notes.extend(notes);
        return Ok(source);
    }
    if has_manifest {
        // A checkpoint that was converted to another program's.
        Manifest::verify(folder)?;
    }
    let mut source = if path.is_dir() { open_folder(path) } else { open_file(path) }?;
    if folder.join(STATE).is_file() {
        // A checkpoint of this program, which had a manifest.
        source.facts.notes.extend(unverified(folder));
    }
    Ok(source)
}

/// The folder with the model of a run, a checkpoint or a model folder, verified, and what is to be known of how it was found.
fn opened(path: &Path) -> Result<(PathBuf, Vec<String>), TrainError> {
    let trained = Trained::open(&segue_families::MODELS, path)?;
    if find::<Language>(&trained.config).is_none() && names(&trained.config).is_some() {
        return Ok((trained.path, trained.notes));
    }
    let ModelFolder { path, notes, .. } = ModelFolder::of(trained)?;
    Ok((path, notes))
}

/// The folder that a path is, or that its file lies in.
pub fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        _ if path.is_dir() => path,
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn open_folder(folder: &Path) -> Result<Source, TrainError> {
    if let Some(Found { weights, skipped, others }) = weights_of(folder)? {
        let mut source = open_file(&weights)?;
        source.facts.notes.extend(skipped.iter().map(|refused| format!("skipped: {refused}")));
        if !others.is_empty() {
            source.facts.notes.push(format!(
                "{} is taken; also there: {}",
                name_of(&weights),
                listed(&others)
            ));
        }
        return Ok(source);
    }
    tensorflow::open(folder).map_err(|error| match error {
        TrainError::Data(DataError::Missing { .. }) => {
            let what = "it holds no config.json with model.safetensors or pytorch_model.bin, whole or in pieces with \
                        their *.index.json (Hugging Face), no model.pt (kimiyoung/transformer-xl), no checkpoint_last.pt (NVIDIA), no \
                        other file of torch.save with a model, and no *.index (TensorFlow)";
            TrainError::NoCheckpoint { path: folder.into(), what: what.into() }
        }
        other => other,
    })
}

/// The file of weights that a folder is taken for.
struct Found {
    weights: PathBuf,
    /// What is wrong with others.
    skipped: Vec<TrainError>,
    /// Names of others that may hold models too, where this one has a usual name.
    others: Vec<String>,
}

/// The file of weights in a folder: that of a usual name, or the only one with a model. `None` where a checkpoint of TensorFlow or
/// nothing is there.
fn weights_of(folder: &Path) -> Result<Option<Found>, TrainError> {
    let described = folder.join(CONFIGURATION).is_file();
    let mut found = files_of_tensors(folder)?;
    found.retain(|path| described || !is_of_hugging_face(path));
    let bundle =
        files(folder)?.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "index"));
    match &found[..] {
        [first, others @ ..] if rank(first) < USUAL.len() => {
            let others = others.iter().map(|path| name_of(path).into_owned()).collect();
            return Ok(Some(Found { weights: first.clone(), skipped: Vec::new(), others }));
        }
        _ => {}
    }
    let mut skipped = Vec::new();
    found.retain(|path| {
        holds_a_model(path).unwrap_or_else(|refused| {
            skipped.push(refused);
            false
        })
    });
    match (&found[..], bundle) {
        ([], None) => skipped.into_iter().next().map_or(Ok(None), Err),
        ([], Some(_)) => Ok(None),
        ([one], None) => Ok(Some(Found { weights: one.clone(), skipped, others: Vec::new() })),
        (several, bundle) => {
            let names = several.iter().chain(&bundle).map(|path| name_of(path).into_owned());
            Err(ambiguous(folder, names.collect()))
        }
    }
}

fn ambiguous(folder: &Path, names: Vec<String>) -> TrainError {
    let what = format!(
        "{} holds several checkpoints: {}\nhint: name the file of one",
        folder.display(),
        listed(&names)
    );
    DataError::Usage(what).into()
}

/// The file of weights in a folder, of any model: that of a usual name, or the only one.
pub fn only_file(folder: &Path) -> Option<PathBuf> {
    let found = files_of_tensors(folder).ok()?;
    let first = found.first().filter(|first| found.len() == 1 || rank(first) < USUAL.len());
    first.cloned()
}

/// The files of a folder that are told for weights by their name or their beginning, TensorFlow's aside: usual names first, pieces and
/// moments left out.
fn files_of_tensors(folder: &Path) -> Result<Vec<PathBuf>, TrainError> {
    let mut found = files(folder)?;
    found.retain(|path| is_of_hugging_face(path) || is_of_torch(path));
    let lists = found.iter().filter(|path| name_of(path).ends_with(INDEX));
    let lists: Vec<ShardIndex> =
        lists.filter_map(|path| ShardIndex::parse(&read_regular(path).ok()?).ok()).collect();
    let is_piece = |name: &str| lists.iter().any(|list| list.files.iter().any(|(file, _)| file == name));
    let is_model =
        |path: &Path| !path.ends_with(hugging_face::OPTIMIZER) && first_lane(&name_of(path)).is_none();
    found.retain(|path| !is_piece(&name_of(path)) && is_model(path));
    found.sort_by_key(|path| rank(path));
    Ok(found)
}

/// Place of a file's name among the usual ones; their number where it is none.
fn rank(path: &Path) -> usize {
    USUAL.iter().position(|name| path.ends_with(name)).unwrap_or(USUAL.len())
}

/// Plain files by name.
fn files(folder: &Path) -> Result<Vec<PathBuf>, TrainError> {
    let unreadable = |source| TrainError::Read { path: folder.into(), source };
    let entries =
        fs::read_dir(folder).map_err(unreadable)?.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let mut found: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    found.retain(|path| path.is_file());
    found.sort();
    Ok(found)
}

fn name_of(path: &Path) -> Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

fn is_of_hugging_face(path: &Path) -> bool {
    let name = name_of(path);
    name.ends_with(".safetensors") || name.ends_with(INDEX)
}

/// Whether a file begins as `torch.save` begins one, which other pickles and text do, too.
fn is_of_torch(path: &Path) -> bool {
    is_pickle(&beginning(path))
}

/// The first bytes of a file, or none.
fn beginning(path: &Path) -> Vec<u8> {
    let mut start = Vec::new();
    let read = open_regular(path).and_then(|file| file.take(ZIP.len() as u64).read_to_end(&mut start));
    if read.is_ok() { start } else { Vec::new() }
}

fn is_pickle(start: &[u8]) -> bool {
    start.starts_with(ZIP) || start.first() == Some(&PROTOCOL) || is_text(start)
}

/// Whether a file begins as a pickle of the oldest protocol does, which is text.
fn is_text(start: &[u8]) -> bool {
    matches!(start.first(), Some(b'(' | b'c'))
}

/// Whether a file holds a model of any kind that is known. Text may begin as a pickle of the oldest protocol does: it is none, and not damaged.
fn holds_a_model(path: &Path) -> Result<bool, TrainError> {
    match Tensors::open(path) {
        Ok(tensors) => {
            let names = || tensors.variables.iter().map(|variable| place::plain(&variable.name));
            Ok(place::MARKS.iter().any(|mark| names().any(|name| name.ends_with(mark))))
        }
        Err(_) if is_text(&beginning(path)) => Ok(false),
        Err(refused) => Err(refused),
    }
}

fn open_file(path: &Path) -> Result<Source, TrainError> {
    let name = name_of(path);
    if path.is_file() && !name.contains(".data-") && !name.ends_with(".index") {
        if is_of_hugging_face(path) {
            return hugging_face::open(path);
        }
        // A renamed data file of TensorFlow has no mark of its own.
        let start = SharedBytes::map(path)?;
        if start.get(TAR_MARK).is_some_and(|mark| mark == b"ustar") {
            let what = "it is a tar file, as torch.save wrote before PyTorch 0.1.10\nhint: load it with a PyTorch that does, and save it again";
            return Err(TrainError::Damaged { path: path.into(), what: what.into() });
        }
        if is_pickle(&start) {
            return open_torch(path);
        }
    }
    match tensorflow::open(path) {
        Err(TrainError::Data(DataError::Missing { .. })) if path.is_file() => {
            let what = "it is none of the files that are known: safetensors, pickles of PyTorch, checkpoints of TensorFlow";
            Err(TrainError::Damaged { path: path.into(), what: what.into() })
        }
        opened => opened,
    }
}

fn open_torch(path: &Path) -> Result<Source, TrainError> {
    let file = TorchFile::open(path)?;
    refuse_fairseq(path, file.root())?;
    for open in [nvidia::open, recurrent::open, kimiyoung::open] {
        if let Some(source) = open(path, &file)? {
            return Ok(source);
        }
    }
    if path.with_file_name(CONFIGURATION).is_file() {
        return hugging_face::open(path);
    }
    let what = "it is neither a pickled module (kimiyoung/transformer-xl) nor a checkpoint with model_state (NVIDIA), it holds no recurrent \
                model (encoder.weight with rnn.weight_ih_l0 or rnns.0.*), and there is no config.json beside it that would tell the model's \
                sizes (Hugging Face)";
    Err(TrainError::Damaged { path: path.into(), what: what.into() })
}

/// Refuses a checkpoint of fairseq: its dict has the settings, the model and the past of the optimizer or of the training under these names.
fn refuse_fairseq(path: &Path, root: View) -> Result<(), TrainError> {
    let has = |names: &[&str]| names.iter().any(|name| root.get(name).is_some());
    if !(has(&["args", "cfg"]) && has(&["model"]) && has(&["optimizer_history", "extra_state"])) {
        return Ok(());
    }
    let what = "it is a checkpoint of fairseq, and there is no importer for fairseq\nhint: train the model anew on the same text; what can be \
                imported is in the book (guide/convert)";
    Err(TrainError::NoCheckpoint { path: path.into(), what: what.into() })
}

#[cfg(test)]
mod tests {
    use segue_foreign::{Saved, write_torch};

    use super::*;

    /// A file with entries of these names, each an empty dict.
    fn written(folder: &Path, names: &[&str]) -> PathBuf {
        let path = folder.join("checkpoint_best.pt");
        let entries = names.iter().map(|name| (name.to_string(), Saved::Dict(Vec::new())));
        write_torch(&path, &Saved::Dict(entries.collect())).unwrap();
        path
    }

    #[test]
    fn a_checkpoint_of_fairseq_is_called_one_and_not_damaged() {
        let dir = tempfile::tempdir().unwrap();
        for names in [
            ["args", "model", "optimizer_history", "last_optimizer_state"],
            ["cfg", "model", "extra_state", "task_state"],
        ] {
            let path = written(dir.path(), &names);
            let refused = open(&path).err().unwrap();
            assert!(refused.to_string().contains("no importer for fairseq"), "{refused}");
            assert_eq!(refused.exit_code(), segue_configs::exit_code::NO_INPUT);
        }
        let others = open(&written(dir.path(), &["args", "model", "epoch"])).err().unwrap();
        assert!(!others.to_string().contains("fairseq"), "{others}");
    }
}
