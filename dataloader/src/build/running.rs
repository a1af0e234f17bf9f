use std::borrow::Cow;

use segue_data_error::DataError;
use segue_tokenizer::{UNK, running_text};
use unicode_segmentation::UnicodeSegmentation;

use super::heading::is_heading;
use super::unit::{Content, Each, Unit};
use crate::input::Part;
use crate::preset::Documents;

/// Stands for an unknown word while sentences are looked for: a letter that is in no text but Ugaritic, so that a
/// sentence may begin with it. The `<` of `<unk>` before a small letter would say that none does.
const UNKNOWN_NAME: &str = "\u{10380}";

/// Calls `each` with the sentences of a part, whose text begins at `offset` of its file, and with the end of every document. The end of a file
/// ends a document.
pub(super) fn for_each_sentence(
    part: &Part,
    offset: u64,
    text: &str,
    documents: Documents,
    split_sentences: bool,
    each: Each<'_>,
) -> Result<(), DataError> {
    let begin = &part.begin;
    let mut continues = begin.mid_line;
    // Whether a document has begun and has not ended.
    let mut open = match documents {
        _ if part.starts_file => false,
        Documents::EndAtBlankLines => !begin.after_blank || continues,
        Documents::BeginAtTitles => !begin.file_blank,
    };
    let mut after_blank = begin.after_blank || part.starts_file;
    let mut lines = text.split_inclusive('\n').peekable();
    let mut after = offset;
    while let Some(whole) = lines.next() {
        let offset = after;
        after += whole.len() as u64;
        let line = whole.trim();
        let blank = line.is_empty() && !continues;
        // A title stands between blank lines; no title is the last line of a chunk, unless the file ends with it.
        let is_title = documents == Documents::BeginAtTitles
            && after_blank
            && is_heading(line)
            && lines.peek().is_none_or(|next| next.trim().is_empty());
        let ends_document = is_title || blank && documents == Documents::EndAtBlankLines;
        if open && ends_document {
            each(document_end(offset))?;
            open = false;
        }
        if !line.is_empty() {
            let sentence = Sentence { offset, begins_document: !open, begins_sentence: !continues };
            match documents {
                Documents::BeginAtTitles => {
                    let (running, heading) = running_text(line);
                    sentence.pass(&running, split_sentences && !heading, each)?;
                }
                Documents::EndAtBlankLines => sentence.pass(line, split_sentences, each)?,
            }
            open = true;
        }
        after_blank = blank;
        continues = !whole.ends_with('\n');
    }
    match open && part.ends_file {
        true => each(document_end(offset)),
        false => Ok(()),
    }
}

fn document_end(offset: u64) -> Unit<'static> {
    Unit { text: Content::DocumentEnd, offset, begins_document: false, begins_sentence: true, ends: false }
}

/// What begins with a line.
struct Sentence {
    offset: u64,
    begins_document: bool,
    begins_sentence: bool,
}

impl Sentence {
    /// Passes a line on: as one sentence, or as those that Unicode's rules (UAX #29) find in it.
    fn pass(self, line: &str, split: bool, each: Each<'_>) -> Result<(), DataError> {
        let Sentence { offset, begins_document, begins_sentence } = self;
        if !split {
            let text = Content::Sentence(line);
            return each(Unit { text, offset, begins_document, begins_sentence, ends: false });
        }
        let hides_unknown = line.contains(UNK) && !line.contains(UNKNOWN_NAME);
        let line =
            if hides_unknown { Cow::Owned(line.replace(UNK, UNKNOWN_NAME)) } else { Cow::Borrowed(line) };
        for (number, sentence) in line.unicode_sentences().enumerate() {
            let sentence = sentence.trim_end();
            let restored = hides_unknown.then(|| sentence.replace(UNKNOWN_NAME, UNK));
            each(Unit {
                text: Content::Sentence(restored.as_deref().unwrap_or(sentence)),
                offset,
                begins_document: begins_document && number == 0,
                begins_sentence: begins_sentence || number > 0,
                ends: false,
            })?;
        }
        Ok(())
    }
}
