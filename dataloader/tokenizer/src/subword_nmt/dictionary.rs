//! fairseq's dictionaries: a symbol and its count a line, by falling count.

use std::cmp::Reverse;

use ahash::{AHashMap, AHashSet};
use compact_str::{CompactString, format_compact};

use super::codes::{shown, text_of};
use crate::count::Counts;
use crate::words::is_space;

/// Ids 0 to 3 of every dictionary: its program adds these symbols in front, and a file does not list them.
pub(crate) const SPECIALS: [&str; 4] = ["<s>", "<pad>", END_OF_SENTENCE, "<unk>"];
/// Ends a sentence.
pub(crate) const END_OF_SENTENCE: &str = "</s>";
const BEGIN_ID: u32 = 0;
const PAD_ID: u32 = 1;
const END_ID: u32 = 2;
const UNKNOWN_ID: u32 = 3;
/// Follows the count of a symbol that takes the place of an earlier one.
const OVERWRITE: &str = "#fairseq:overwrite";
/// fairseq-preprocess fills dictionaries up to a multiple of this many symbols.
const PADDING_FACTOR: usize = 8;

/// The symbols of a dictionary by id.
#[derive(Debug)]
pub(crate) struct Dictionary {
    symbols: Vec<CompactString>,
    ids: AHashMap<CompactString, u32>,
    /// The file, unchanged.
    pub(crate) file: Vec<u8>,
}

/// A line of a dictionary.
struct Entry<'a> {
    symbol: &'a str,
    overwrites: bool,
}

impl Dictionary {
    /// Reads a dictionary. The ids are fairseq's; the error names the line.
    pub(crate) fn read(file: Vec<u8>) -> Result<Dictionary, String> {
        let mut symbols: Vec<CompactString> = SPECIALS.map(CompactString::from).to_vec();
        let mut ids: AHashMap<CompactString, u32> = symbols.iter().cloned().zip(0..).collect();
        for (number, line) in (1u64..).zip(text_of(&file)?.split_terminator('\n')) {
            let fault = |why: String| format!("line {number}: {why}");
            let Entry { symbol, overwrites } = Entry::of(line).map_err(fault)?;
            let id = u32::try_from(symbols.len()).map_err(|_| fault("it has too many symbols".into()))?;
            if ids.insert(symbol.into(), id).is_some() && !overwrites {
                return Err(fault(format!(
                    "`{}` is in the dictionary already\nhint: mark the line with {OVERWRITE} where the later symbol counts",
                    shown(symbol)
                )));
            }
            symbols.push(symbol.into());
        }
        Ok(Dictionary { symbols, ids, file })
    }

    /// The dictionary that `fairseq-preprocess` makes of a text with these counts of pieces: by falling count, equal ones in the order of their
    /// characters, then symbols without meaning up to a multiple of eight. Special tokens of one's own come first.
    pub(crate) fn of_counts(
        pieces: Counts<CompactString>,
        special_tokens: &[String],
    ) -> Result<Dictionary, String> {
        let mut pieces = pieces.by_frequency();
        pieces.sort_unstable_by(|(left, a), (right, b)| (Reverse(a), left).cmp(&(Reverse(b), right)));
        let counts: AHashMap<&str, u64> = pieces.iter().map(|(piece, count)| (&**piece, *count)).collect();
        let special = special_tokens.iter().map(|token| token.as_str().into());
        let special: Vec<(CompactString, u64)> = special
            .map(|token: CompactString| (token.clone(), counts.get(&*token).copied().unwrap_or(0)))
            .collect();
        let is_listed =
            |piece: &str| SPECIALS.contains(&piece) || special.iter().any(|(token, _)| *token == piece);
        let ordinary = pieces.iter().filter(|(piece, _)| !is_listed(piece));
        let mut lines: Vec<(CompactString, u64)> = special.iter().chain(ordinary).cloned().collect();
        fill_up(&mut lines);
        let mut file = String::new();
        for (symbol, count) in lines {
            file.push_str(&format_compact!("{symbol} {count}\n"));
        }
        Dictionary::read(file.into_bytes())
    }

    /// Number of ids.
    pub(crate) fn len(&self) -> usize {
        self.symbols.len()
    }

    pub(crate) fn symbol(&self, id: u32) -> Option<&str> {
        self.symbols.get(id as usize).map(CompactString::as_str)
    }

    pub(crate) fn id(&self, symbol: &str) -> Option<u32> {
        self.ids.get(symbol).copied()
    }

    /// The id of a piece, or of what stands for unknown ones.
    pub(crate) fn id_or_unknown(&self, piece: &str) -> u32 {
        self.id(piece).unwrap_or(UNKNOWN_ID)
    }

    pub(crate) fn end(&self) -> u32 {
        END_ID
    }

    pub(crate) fn padding(&self) -> u32 {
        PAD_ID
    }

    pub(crate) fn unknown(&self) -> u32 {
        UNKNOWN_ID
    }

    /// Whether an id stands for no text: what begins a sentence, and what fills up a batch.
    pub(crate) fn is_silent(&self, id: u32) -> bool {
        id == BEGIN_ID || id == PAD_ID
    }
}

/// Adds symbols without meaning, so that the special ones, which are in front, and the others are a multiple of [`PADDING_FACTOR`].
fn fill_up(lines: &mut Vec<(CompactString, u64)>) {
    let missing =
        (SPECIALS.len() + lines.len()).next_multiple_of(PADDING_FACTOR) - SPECIALS.len() - lines.len();
    let known: AHashSet<&str> = lines.iter().map(|(symbol, _)| &**symbol).collect();
    let names = (0..).map(|number| format_compact!("madeupword{number:04}"));
    let names = names.filter(|name| !known.contains(&**name));
    let added: Vec<(CompactString, u64)> = names.take(missing).map(|name| (name, 0)).collect();
    lines.extend(added);
}

impl Entry<'_> {
    /// The symbol is what stands before the last blank but that of the flag, blanks within it included.
    fn of(line: &str) -> Result<Entry<'_>, String> {
        let line = line.trim_end_matches(is_space);
        let flagged = line.strip_suffix(OVERWRITE).and_then(|rest| rest.strip_suffix(' '));
        let malformed = || format!("`{}` is not a symbol and a count with a blank between", shown(line));
        let (symbol, count) = flagged.unwrap_or(line).rsplit_once(' ').ok_or_else(malformed)?;
        // A carriage return ends a line to Python, and the ids of the following lines would be others there.
        if symbol.is_empty() || symbol.contains('\r') || count.parse::<u64>().is_err() {
            return Err(malformed());
        }
        Ok(Entry { symbol, overwrites: flagged.is_some() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str) -> Result<Dictionary, String> {
        Dictionary::read(file.as_bytes().to_vec())
    }

    /// By hand, after `add_from_file` of fairseq's `data/dictionary.py`.
    #[test]
    fn ids_are_those_of_fairseq() {
        let file = "the 120\nlo@@ 7\nwest 7\r\n<unk> 3 #fairseq:overwrite\na b 2\nmadeupword0000 0\n";
        let dictionary = read(file).unwrap();
        let symbols: Vec<&str> = (0..10).filter_map(|id| dictionary.symbol(id)).collect();
        let specials = ["<s>", "<pad>", "</s>", "<unk>"];
        assert_eq!(symbols[..4], specials);
        assert_eq!(symbols[4..], ["the", "lo@@", "west", "<unk>", "a b", "madeupword0000"]);
        let ids = ["<s>", "<pad>", "</s>", "<unk>", "lo@@"].map(|symbol| dictionary.id(symbol));
        assert_eq!(ids, [Some(0), Some(1), Some(2), Some(7), Some(5)]);
        assert_eq!((dictionary.unknown(), dictionary.id_or_unknown("no")), (3, 3));
        assert_eq!(dictionary.file, file.as_bytes());
    }

    /// By hand, after `finalize` of fairseq's `data/dictionary.py`.
    #[test]
    fn counted_pieces_are_sorted_and_filled_up_to_eight() {
        let mut counts = Counts::default();
        for (piece, count) in [("b", 2), ("<unk>", 9), ("é@@", 5), ("a", 2), ("<sep>", 1)] {
            counts.add(CompactString::from(piece), count);
        }
        let dictionary = Dictionary::of_counts(counts, &["<sep>".into(), "<cls>".into()]).unwrap();
        let expected = "<sep> 1\n<cls> 0\né@@ 5\na 2\nb 2\n\
            madeupword0000 0\nmadeupword0001 0\nmadeupword0002 0\nmadeupword0003 0\nmadeupword0004 0\n\
            madeupword0005 0\nmadeupword0006 0\n";
        assert_eq!(String::from_utf8_lossy(&dictionary.file), expected);
        assert_eq!(dictionary.len(), 16);
    }

    #[test]
    fn a_fault_is_named_with_its_line() {
        for (file, message) in [
            ("a 1\nb\n", "line 2: `b` is not a symbol and a count"),
            ("a 1\n\nb 1\n", "line 2: `` is not a symbol and a count"),
            ("a x\n", "line 1: `a x` is not"),
            ("a -1\n", "line 1: `a -1` is not"),
            (" 5\n", "line 1: ` 5` is not"),
            ("a\rb 5\n", "line 1: "),
            ("#fairseq:overwrite\n", "line 1: "),
            ("a 1\nb 1\na 2\n", "line 3: `a` is in the dictionary already"),
            ("<pad> 1\n", "line 1: `<pad>` is in the dictionary already"),
        ] {
            let found = read(file).unwrap_err();
            assert!(found.starts_with(message), "{file:?}: {found}");
        }
        assert_eq!(Dictionary::read(b"a 1\n\xc3 1\n".to_vec()).unwrap_err(), "line 2: it is not UTF-8");
    }
}
