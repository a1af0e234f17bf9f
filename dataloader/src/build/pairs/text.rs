use std::borrow::Cow;
use std::path::Path;

use segue_data_error::DataError;

use super::input::PairInput;
use super::lockstep::{PairChunk, RawPair};
use super::options::PairBuild;
use crate::build::json_text::{repaired, text_of_record};
use crate::build::options::InvalidUtf8;

/// Where Hugging Face's data sets of translations have both sides.
const NESTED: &str = "translation";

/// The sides of a pair, and how much of them was replaced.
pub(super) struct PairText<'c> {
    pub(super) source: Cow<'c, str>,
    pub(super) target: Cow<'c, str>,
    /// Sequences that were not UTF-8 and are U+FFFD now.
    pub(super) replaced: u64,
}

/// Reads the sides of a pair from its bytes.
pub(super) fn text_of<'c>(
    pair: &RawPair,
    chunk: &'c PairChunk,
    inputs: &[PairInput],
    build: &PairBuild,
) -> Result<PairText<'c>, DataError> {
    let (first, second) = (&chunk.text[pair.first.clone()], &chunk.text[pair.second.clone()]);
    let line = pair.place.line;
    let mut replaced = 0;
    let (source, target) = match &inputs[pair.place.input] {
        PairInput::Files { source, target } => {
            let mut text = |bytes: &'c [u8], path: &Path| {
                line_text(bytes, build, &mut replaced).map_err(|why| DataError::line(path, line, why))
            };
            (text(first, &source.path)?, text(second, &target.path)?)
        }
        PairInput::Records(records) => {
            let sides = record_text(first, build, &mut replaced);
            sides.map_err(|why| DataError::line(&records.path, line, why))?
        }
    };
    let cased = |text: Cow<'c, str>| if build.lower_case { Cow::Owned(text.to_lowercase()) } else { text };
    Ok(PairText { source: cased(source), target: cased(target), replaced })
}

/// The text of one side's line.
fn line_text<'c>(bytes: &'c [u8], build: &PairBuild, replaced: &mut u64) -> Result<Cow<'c, str>, String> {
    let error = match std::str::from_utf8(bytes) {
        Ok(text) => return Ok(Cow::Borrowed(text)),
        Err(error) => error,
    };
    if build.invalid_utf8 == InvalidUtf8::Fail {
        return Err(not_utf8(error));
    }
    *replaced += bytes.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count() as u64;
    Ok(String::from_utf8_lossy(bytes))
}

fn not_utf8(error: std::str::Utf8Error) -> String {
    let at = error.valid_up_to() + 1;
    format!(
        "it is not UTF-8 at byte {at} of the line\nhint: convert it to UTF-8, or pass --invalid-utf8 replace"
    )
}

type Sides<'c> = (Cow<'c, str>, Cow<'c, str>);

/// The text of both sides in a record.
fn record_text<'c>(line: &'c [u8], build: &PairBuild, replaced: &mut u64) -> Result<Sides<'c>, String> {
    let error = match sides_of_record(line, build) {
        Ok(sides) => return Ok(sides),
        Err(error) => error,
    };
    let PairBuild { source, target, .. } = build;
    let why = format!(
        "it is not a JSON object with strings under \"{source}\" and \"{target}\", alone or within \"{NESTED}\": {error}"
    );
    let (whole, faults) = repaired(line);
    let Ok((source, target)) = sides_of_record(whole.as_bytes(), build) else { return Err(why) };
    if build.invalid_utf8 == InvalidUtf8::Replace {
        *replaced += faults;
        return Ok((Cow::Owned(source.into_owned()), Cow::Owned(target.into_owned())));
    }
    Err(match std::str::from_utf8(line) {
        Err(error) => not_utf8(error),
        Ok(_) => "an escape in it is half a surrogate pair\nhint: pass --invalid-utf8 replace".into(),
    })
}

/// The strings of a record under the names of the sides, or under those within `translation`.
fn sides_of_record<'c>(line: &'c [u8], build: &PairBuild) -> serde_json::Result<Sides<'c>> {
    let PairBuild { source, target, .. } = build;
    let sides =
        |source: &str, target: &str| Ok((text_of_record(line, source)?, text_of_record(line, target)?));
    let nested = |_: &serde_json::Error| sides(&format!("{NESTED}.{source}"), &format!("{NESTED}.{target}"));
    sides(source, target).or_else(|error| nested(&error).map_err(|_| error))
}
