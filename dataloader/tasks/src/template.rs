use segue_data_error::DataError;
use segue_tokenizer::Tokenizer;

use super::example::Sequence;

/// Segments of the first text, the second and `<cls>`, as XLNet's program numbers them.
const FIRST: u8 = 0;
const SECOND: u8 = 1;
const CLS: u8 = 2;

/// How texts become a sequence: `A <sep> <cls>` or `A <sep> B <sep> <cls>` (Yang 2019, §2.2.2). Vocabularies
/// without these symbols, as Transformer-XL's are, have `<eos>` in their place.
#[derive(Debug, Clone, Copy)]
pub struct Template {
    sep: u32,
    cls: u32,
    longest: usize,
}

impl Template {
    /// Fewest tokens that `longest` may be: those of a pair with its symbols and one token of text.
    pub const SHORTEST: usize = 4;

    /// Sequences of at most `longest` tokens.
    pub fn new(tokenizer: &Tokenizer, longest: usize) -> Result<Self, DataError> {
        let symbol = |symbol: &'static str| {
            let missing = || DataError::NoSymbol { symbol, kind: tokenizer.kind().name() };
            tokenizer.sequence_symbol(symbol).map(|(_, id)| id).ok_or_else(missing)
        };
        if longest < Self::SHORTEST {
            return Err(DataError::Usage(format!(
                "sequences of {longest} tokens have no room for text\nhint: raise train.segment"
            )));
        }
        Ok(Self { sep: symbol("<sep>")?, cls: symbol("<cls>")?, longest })
    }

    /// Tokens of the longest sequence.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// `A <sep> <cls>`; what does not fit is cut off at the end of A.
    pub fn single(&self, a: &[u32]) -> Sequence {
        let (whole, a) = (a.len(), &a[..a.len().min(self.longest - 2)]);
        let ids = [a, &[self.sep, self.cls]].concat();
        let segments = [vec![FIRST; a.len() + 1], vec![CLS]].concat();
        Sequence { ids, segments, outside: Vec::new(), is_cut: a.len() < whole }
    }

    /// `A <sep> B <sep> <cls>`; the longer of the two loses its last token until both fit.
    pub fn pair(&self, a: &[u32], b: &[u32]) -> Sequence {
        let (mut a_len, mut b_len) = (a.len(), b.len());
        while a_len + b_len > self.longest - 3 {
            if a_len > b_len { a_len -= 1 } else { b_len -= 1 }
        }
        let ids = [&a[..a_len], &[self.sep], &b[..b_len], &[self.sep, self.cls]].concat();
        let segments = [vec![FIRST; a_len + 1], vec![SECOND; b_len + 1], vec![CLS]].concat();
        Sequence { ids, segments, outside: Vec::new(), is_cut: a_len + b_len < a.len() + b.len() }
    }

    /// `query document`, without symbols, which no document has; the document is cut off at its end.
    pub fn query(&self, query: &[u32], document: &[u32]) -> Sequence {
        let whole = document.len();
        let document = &document[..whole.min(self.longest.saturating_sub(query.len()))];
        let segments = [vec![FIRST; query.len()], vec![SECOND; document.len()]].concat();
        let ids = [query, document].concat();
        Sequence { ids, segments, outside: Vec::new(), is_cut: document.len() < whole }
    }

    /// `passage <sep> option <sep> <cls>`, where the option has its question before it. Of the option the last
    /// `max_option` tokens are kept, and the passage is cut off at its end, as XLNet's reference does for RACE.
    pub fn option(&self, passage: &[u32], option: &[u32], max_option: usize) -> Sequence {
        let room = self.longest - 3;
        let whole = passage.len() + option.len();
        let option = &option[option.len() - option.len().min(max_option).min(room)..];
        let passage = &passage[..passage.len().min(room - option.len())];
        Sequence { is_cut: passage.len() + option.len() < whole, ..self.pair(passage, option) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: Template = Template { sep: 4, cls: 3, longest: 9 };

    /// Row X22.
    #[test]
    fn texts_are_laid_out_as_the_reference_lays_them_out() {
        let single = TEMPLATE.single(&[10, 11]);
        assert_eq!((single.ids, single.segments), (vec![10, 11, 4, 3], vec![0, 0, 0, 2]));
        let pair = TEMPLATE.pair(&[10], &[20, 21]);
        assert_eq!((pair.ids, pair.segments), (vec![10, 4, 20, 21, 4, 3], vec![0, 0, 1, 1, 1, 2]));
    }

    /// Row X24.
    #[test]
    fn the_passage_gives_way_to_the_end_of_the_option() {
        let (passage, option): (Vec<u32>, Vec<u32>) = ((10..30).collect(), (50..60).collect());
        let sequence = TEMPLATE.option(&passage, &option, 4);
        assert_eq!(sequence.ids, [10, 11, 4, 56, 57, 58, 59, 4, 3]);
        assert_eq!(sequence.segments, [0, 0, 0, 1, 1, 1, 1, 1, 2]);
        assert_eq!(TEMPLATE.option(&passage, &option, 128).ids, [4, 54, 55, 56, 57, 58, 59, 4, 3]);
        assert_eq!(TEMPLATE.option(&[10], &[50], 128).ids, [10, 4, 50, 4, 3]);
    }

    #[test]
    fn the_longer_text_gives_way() {
        let long: Vec<u32> = (10..30).collect();
        let cut = TEMPLATE.single(&long);
        assert_eq!((cut.ids.len(), cut.is_cut), (9, true));
        assert!(!TEMPLATE.single(&long[..7]).is_cut && TEMPLATE.single(&long[..8]).is_cut);
        assert!(
            !TEMPLATE.pair(&long[..3], &long[..3]).is_cut && TEMPLATE.pair(&long[..3], &long[..4]).is_cut
        );
        assert!(!TEMPLATE.option(&[10], &[50], 1).is_cut && TEMPLATE.option(&[10], &[50, 51], 1).is_cut);
        assert!(!TEMPLATE.query(&[10], &long[..8]).is_cut && TEMPLATE.query(&[10], &long[..9]).is_cut);
        assert_eq!(TEMPLATE.pair(&long, &[50, 51]).ids, [10, 11, 12, 13, 4, 50, 51, 4, 3]);
        assert_eq!(TEMPLATE.pair(&long, &long).ids, [10, 11, 12, 4, 10, 11, 12, 4, 3]);
    }
}
