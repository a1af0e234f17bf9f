//! Elements of a JSON file, parsed one by one, so that a broken one can be named and skipped.

use serde_json::value::RawValue;

/// The lines that parts of a file begin on, for parts that are asked about in their order.
pub(super) struct Lines<'a> {
    file: &'a [u8],
    /// Bytes of it that have been looked at.
    to: usize,
    line: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn of(file: &'a [u8]) -> Lines<'a> {
        Lines { file, to: 0, line: 1 }
    }

    /// The line, counted from 1, on which `part`, borrowed from the file, begins.
    pub(super) fn next(&mut self, part: &'a RawValue) -> u64 {
        let begin = part.get().as_ptr().addr().saturating_sub(self.file.as_ptr().addr());
        let passed = self.file.get(self.to..begin).unwrap_or_default();
        self.line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.to = self.to.max(begin);
        self.line
    }
}

/// What is wrong with a part, without the place that the error counts from the part's own beginning.
pub(super) fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(what, _)| what.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_found_on_their_lines() {
        let file = b"[1, 2,\n\n {\"a\":\n 3},\r\n\"x\"]";
        let parts: Vec<&RawValue> = serde_json::from_slice(file).unwrap();
        let mut lines = Lines::of(file);
        assert_eq!(parts.into_iter().map(|part| lines.next(part)).collect::<Vec<_>>(), [1, 1, 3, 5]);
    }

    #[test]
    fn places_within_a_part_are_left_out() {
        let error = serde_json::from_str::<u8>("\n \"x\"").unwrap_err();
        assert_eq!(without_place(&error), "invalid type: string \"x\", expected u8");
    }
}
