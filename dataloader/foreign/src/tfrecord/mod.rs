//! TFRecord files, and the folders of them that XLNet's `data_utils.py` writes. The format is written down in
//! `docs/book/src/formats/others.md`.

mod example;
mod file;
mod folder;
mod settings;

pub use example::Example;
pub use file::RecordFile;
pub use folder::{RecordFolder, RecordInfo};
pub use settings::RecordSettings;
