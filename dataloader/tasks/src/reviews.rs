//! IMDB as released: one folder per split and label, one file per review.

use std::fs;
use std::path::{Path, PathBuf};

use segue_data_error::{DataError, without_mark};
use segue_publish::read_regular;

use super::data::{Split, TaskData};
use super::example::{Kind, Target};
use super::labels::Labels;
use super::request::{Request, nothing_read};
use super::rows::{Asked, encode_each, split_of};

/// What reviews have in place of line ends.
pub(super) const LINE_BREAK: &str = "<br />";
/// Folders of reviews that are scored, in the order in which they are looked for.
const SCORED: &[&str] = &["dev", "valid", "test"];
/// The folders of a split; they are the labels.
const LABELS: &[&str] = &["neg", "pos"];

/// Whether a folder holds folders of reviews.
pub(super) fn are_in(folder: &Path) -> bool {
    ["train"].iter().chain(SCORED).any(|split| holds_labels(&folder.join(split)))
}

fn holds_labels(split: &Path) -> bool {
    LABELS.iter().any(|label| split.join(label).is_dir())
}

pub(super) fn open(request: &Request<'_>, labels: &Labels) -> Result<TaskData, DataError> {
    let folder = request.folder();
    let mut data = nothing_read(request, Kind::Classification, labels.names.clone());
    if request.splits.train {
        data.train = Some(read(request, labels, "train", &folder.join("train"))?);
    }
    if request.splits.dev {
        let scored = SCORED.iter().map(|name| folder.join(name)).find(|split| holds_labels(split));
        let scored = scored.ok_or_else(|| request.missing(folder, SCORED))?;
        data.dev.push(read(request, labels, "dev", &scored)?);
    }
    let test = folder.join("test");
    if request.splits.test && holds_labels(&test) {
        data.test.push(read(request, labels, "test", &test)?);
    }
    Ok(data)
}

fn read(request: &Request<'_>, labels: &Labels, name: &str, split: &Path) -> Result<Split, DataError> {
    let mut sieve = request.sieve_of(name);
    let mut hasher = blake3::Hasher::new();
    let (mut asked, mut paths) = (Vec::new(), Vec::new());
    for label in LABELS {
        let gold = labels.number(label).map_err(DataError::Usage)?;
        for path in text_files(&split.join(label))? {
            let bytes = read_regular(&path).map_err(|e| DataError::read(&path, e))?;
            let index = format!("{label}/{}", path.file_stem().unwrap_or_default().to_string_lossy());
            hasher.update(index.as_bytes()).update(&bytes);
            let text = match String::from_utf8(without_mark(&bytes).to_vec()) {
                Ok(text) => text,
                Err(e) => {
                    let at = e.utf8_error().valid_up_to() + 1;
                    let why =
                        format!("it is not UTF-8 at byte {at} of the file\nhint: convert the file to UTF-8");
                    if !sieve.spare(DataError::line(&path, 1, why))? {
                        continue;
                    }
                    String::from_utf8_lossy(e.as_bytes()).into_owned()
                }
            };
            asked.push(Asked {
                line: paths.len() as u64,
                index,
                first: text.trim().replace(LINE_BREAK, " "),
                second: None,
                gold: Target::Class(gold),
            });
            paths.push(path);
        }
    }
    let bad = |asked: &Asked, why: String| DataError::line(&paths[asked.line as usize], 1, why);
    let encoded = encode_each(request, asked, &mut sieve, bad, split)?;
    Ok(split_of(name, encoded, hasher.finalize().to_hex().to_string(), sieve))
}

/// The `.txt` files of a folder in the order of their names.
pub(super) fn text_files(folder: &Path) -> Result<Vec<PathBuf>, DataError> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| DataError::read(folder, e))? {
        let path = entry.map_err(|e| DataError::read(folder, e))?.path();
        if path.extension().is_some_and(|extension| extension == "txt") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
