//! SQuAD 1.1 and 2.0 (Yang 2019, §2.2.3): from the published files to windows over paragraphs, and the way back from
//! positions to the text as it stands in the file.

mod encode;
mod file;
mod raw;
mod records;
mod windows;

pub use encode::SquadReader;
pub use records::{GoldAnswer, Paragraph, Question, Questions};
use segue_data_error::DataError;
pub use windows::{Window, window_with_most_context, windows_over};

use super::data::TaskData;
use super::request::Request;

pub(super) fn open(request: &Request<'_>) -> Result<TaskData, DataError> {
    let Request { task, tokenizer, template, splits, .. } = request;
    let has_unanswerable = request.name() == "squad2";
    let reader = SquadReader { tokenizer, template: *template, task, has_unanswerable };
    reader.open(request.name(), request.folder(), *splits)
}
