use std::path::{Path, PathBuf};

use segue_data_error::DataError;

use crate::split::BadMember;
use crate::{Asymmetry, NodeData, Setting, Split, pickles, text};

/// How files are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// What is done about neighbour lists that are not symmetric.
    pub asymmetry: Asymmetry,
    /// Which nodes are trained and tested on.
    pub split: Split,
    /// Whether these need features where any node has some: what learns from them cannot do without. Inductively they do in any case.
    pub features_needed: bool,
}

/// Where a data set lies.
enum Files {
    /// The folder of its text.
    Text(PathBuf),
    /// The prefix of its pickles.
    Pickles(PathBuf),
}

impl Files {
    fn find(path: &Path, setting: Setting) -> Result<Files, DataError> {
        if path.is_dir() {
            let inner = path.join(setting.prefix());
            return Ok(Files::Text(if inner.is_dir() { inner } else { path.into() }));
        }
        pickles::find(path, setting).map(Files::Pickles).ok_or_else(|| DataError::Missing {
            path: path.into(),
            why: "a data set\nhint: name a folder with graph.adj, or the prefix of pickles, as data/ind.cora"
                .into(),
        })
    }

    fn read(&self, setting: Setting, asymmetry: Asymmetry) -> Result<NodeData, DataError> {
        match self {
            Files::Text(folder) => text::read(folder, setting, asymmetry),
            Files::Pickles(prefix) => pickles::read(prefix, setting, asymmetry),
        }
    }

    /// The error of a node that cannot be in their split.
    fn refusal(&self, bad: BadMember) -> DataError {
        match self {
            Files::Text(folder) => bad.in_file(folder),
            Files::Pickles(prefix) => pickles::refusal(prefix, bad),
        }
    }
}

impl NodeData {
    /// Opens a data set. `path` is a folder of [text](crate#) with `graph.adj` in it, a folder with the subfolders `ind` and `trans`, or
    /// the prefix of pickles: `PLACE/ind.NAME`, `PLACE/trans.NAME`, or `PLACE/NAME`, where the setting chooses.
    ///
    /// # Errors
    ///
    /// Files that are missing, damaged or contradict each other, with file and line or node.
    pub fn open(path: &Path, setting: Setting) -> Result<NodeData, DataError> {
        Self::open_with(path, setting, OpenOptions::default())
    }

    /// [`NodeData::open`], with options.
    ///
    /// # Errors
    ///
    /// Those of [`NodeData::open`].
    pub fn open_with(path: &Path, setting: Setting, options: OpenOptions) -> Result<NodeData, DataError> {
        let files = Files::find(path, setting)?;
        let data = files.read(setting, options.asymmetry)?;
        data.choose(options.split, options.features_needed, path, |bad| files.refusal(bad))
    }
}
