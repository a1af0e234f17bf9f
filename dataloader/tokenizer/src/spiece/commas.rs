//! Pieces such as `2000,`, which XLNet cuts again without the comma.

use std::ops::Range;
use std::sync::LazyLock;

use super::model::SentencePiece;
use super::normalize::SPACE_SYMBOL;

/// Calls `each` with the id of every token of normalised text, and its place there, with pieces such as `2000,` cut
/// again.
///
/// Splits the comma off into a piece of its own. The text before it is segmented again without its space symbol; where it had
/// none, the one that the model prepends is removed.
pub(super) fn cut_with_commas_apart(
    model: &SentencePiece,
    normalized: &[u8],
    each: &mut dyn FnMut(u32, Range<usize>),
) {
    model.for_each_piece(normalized, &mut |id, place| match before_comma(&normalized[place.clone()]) {
        None => each(id, place),
        Some(number) => {
            let comma = place.end - 1;
            let begins_word = number.starts_with(SPACE_SYMBOL);
            let bare = number.replace(SPACE_SYMBOL, "");
            let again = model.normalizer.normalize(&bare);
            let mut first = true;
            model.for_each_piece(&again, &mut |id, inner| {
                let outer = place_in_number(number, &bare, &again, &inner);
                let outer = place.start + outer.start..place.start + outer.end;
                let rest = again[inner].strip_prefix(SPACE_SYMBOL.as_bytes());
                match rest.filter(|_| first && !begins_word) {
                    Some([]) => {}
                    Some(rest) => each(id_of(model, rest), outer),
                    None => each(id, outer),
                }
                first = false;
            });
            each(id_of(model, b","), comma..comma + 1);
        }
    });
}

/// Where the bytes `inner` of `again`, which is `bare` normalised, are in `number`, which is `bare` with space symbols.
/// Where more than a symbol in front was added or taken away, as nothing tells which, they are all of it.
fn place_in_number(number: &str, bare: &str, again: &[u8], inner: &Range<usize>) -> Range<usize> {
    match (number.strip_suffix(bare), again.strip_suffix(bare.as_bytes())) {
        (Some(taken), Some(added)) => {
            let outer = |at: usize| taken.len() + at.saturating_sub(added.len());
            outer(inner.start)..outer(inner.end)
        }
        _ => 0..number.len(),
    }
}

fn id_of(model: &SentencePiece, piece: &[u8]) -> u32 {
    let known = std::str::from_utf8(piece).ok().and_then(|piece| model.piece_id(piece));
    known.unwrap_or_else(|| model.unk_id())
}

/// Whether XLNet cuts a piece again.
pub(super) fn ends_in_digit_and_comma(piece: &str) -> bool {
    before_comma(piece.as_bytes()).is_some()
}

/// What comes before the comma of a piece that ends in one after a digit.
fn before_comma(surface: &[u8]) -> Option<&str> {
    let before = std::str::from_utf8(surface.strip_suffix(b",")?).ok()?;
    before.ends_with(is_digit).then_some(before)
}

/// Digits as Python's `str.isdigit` knows them: decimal digits of every script, and what Unicode gives the numeric type
/// `Digit`.
fn is_digit(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_digit();
    }
    c.is_numeric() && (is_within(&DECIMAL_DIGITS, c) || is_within(&OTHER_DIGITS, c))
}

fn is_within(ranges: &[(char, char)], c: char) -> bool {
    ranges
        .binary_search_by(|(first, last)| match (c < *first, c > *last) {
            (true, _) => std::cmp::Ordering::Greater,
            (_, true) => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Equal,
        })
        .is_ok()
}

/// The general category Nd.
static DECIMAL_DIGITS: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let Ok(parsed) = regex_syntax::parse(r"\p{Nd}") else { return Vec::new() };
    match parsed.kind() {
        regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(set)) => {
            set.ranges().iter().map(|range| (range.start(), range.end())).collect()
        }
        _ => Vec::new(),
    }
});

/// Digits that are no decimal digits: superscripts, subscripts, digits in circles and the like (`Numeric_Type=Digit` of
/// the Unicode character database).
const OTHER_DIGITS: [(char, char); 20] = [
    ('\u{B2}', '\u{B3}'),
    ('\u{B9}', '\u{B9}'),
    ('\u{1369}', '\u{1371}'),
    ('\u{19DA}', '\u{19DA}'),
    ('\u{2070}', '\u{2070}'),
    ('\u{2074}', '\u{2079}'),
    ('\u{2080}', '\u{2089}'),
    ('\u{2460}', '\u{2468}'),
    ('\u{2474}', '\u{247C}'),
    ('\u{2488}', '\u{2490}'),
    ('\u{24EA}', '\u{24EA}'),
    ('\u{24F5}', '\u{24FD}'),
    ('\u{24FF}', '\u{24FF}'),
    ('\u{2776}', '\u{277E}'),
    ('\u{2780}', '\u{2788}'),
    ('\u{278A}', '\u{2792}'),
    ('\u{10A40}', '\u{10A43}'),
    ('\u{10E60}', '\u{10E68}'),
    ('\u{11052}', '\u{1105A}'),
    ('\u{1F100}', '\u{1F10A}'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_python() {
        for digit in ['0', '9', '\u{663}', '\u{B2}', '\u{1369}', '\u{2776}', '\u{1F10A}', '\u{1D7CE}'] {
            assert!(is_digit(digit), "{digit:?}");
        }
        for other in ['a', ',', '\u{BD}', '\u{2167}', '\u{4E09}', '\u{1372}', '\u{2469}'] {
            assert!(!is_digit(other), "{other:?}");
        }
        assert_eq!(before_comma("▁2000,".as_bytes()), Some("▁2000"));
        assert_eq!(before_comma(b","), None);
        assert_eq!(before_comma("▁,".as_bytes()), None);
    }
}
