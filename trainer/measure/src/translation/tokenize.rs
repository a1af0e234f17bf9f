use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::categories::{is_number, is_punctuation, is_symbol};
use super::rules::{
    Apart, is_plain_punctuation, is_space, pad, single_spaced, split_numbers, split_pairs, unescape_xml,
    words,
};

/// The hyphen of a compound as tensor2tensor's `get_ende_bleu.sh` writes it.
const COMPOUND_HYPHEN: &str = " ##AT##-##AT## ";

/// How BLEU divides a line into tokens. The names are sacrebleu's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Tokenizer {
    /// Splits at white space alone, for text that is tokenised already.
    #[serde(rename = "none")]
    None,
    /// NIST's `mteval-v13a.pl`, the standard of WMT: separates ASCII punctuation.
    #[default]
    #[serde(rename = "13a")]
    Mteval13a,
    /// `mteval-v14.pl --international-tokenization`: separates punctuation and symbols of all scripts.
    #[serde(rename = "intl")]
    International,
    /// One token for each character but white space.
    #[serde(rename = "char")]
    Character,
}

impl Tokenizer {
    /// Name in a signature.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Mteval13a => "13a",
            Self::International => "intl",
            Self::Character => "char",
        }
    }

    /// The tokens of a line with single spaces between.
    ///
    /// ```
    /// use segue_measure::translation::Tokenizer;
    /// assert_eq!(Tokenizer::Mteval13a.tokenize("It's 3.5%, no?"), "It's 3.5 % , no ?");
    /// ```
    pub fn tokenize(self, line: &str) -> String {
        // The reference strips trailing white space first: `International` keeps a full stop after a number at the end
        // of a line, and would separate it before a space.
        let line = line.trim_end_matches(is_space);
        match self {
            Self::None => single_spaced(line),
            Self::Mteval13a => tokenize_13a(line),
            Self::International => tokenize_international(line),
            Self::Character => single_spaced(&pad(line, |_| true)),
        }
    }
}

fn tokenize_13a(line: &str) -> String {
    let line = line.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    let line = format!(" {} ", unescape_xml(&line));
    single_spaced(&split_numbers(&pad(&line, is_plain_punctuation)))
}

fn tokenize_international(line: &str) -> String {
    let line = split_pairs(line, |c| !is_number(c), is_punctuation, Apart::Second);
    let line = split_pairs(&line, is_punctuation, |c| !is_number(c), Apart::First);
    single_spaced(&pad(&line, is_symbol))
}

/// Makes a hyphen within a token the token `##AT##-##AT##`, by the rule of tensor2tensor's `get_ende_bleu.sh` (non-space,
/// hyphen, non-space) for the tokenised BLEU of WMT English to German. Matches do not overlap, as there: `a-b-c` is split
/// at its first hyphen only, `ab-cd-ef` at both.
pub fn split_compounds(tokenised: &str) -> String {
    words(tokenised).map(split_compound).collect::<Vec<_>>().join(" ")
}

fn split_compound(token: &str) -> String {
    let mut out = String::with_capacity(token.len());
    let mut rest = token.chars();
    while let Some(before) = rest.next() {
        out.push(before);
        let mut ahead = rest.clone();
        if let (Some('-'), Some(after)) = (ahead.next(), ahead.next()) {
            out.push_str(COMPOUND_HYPHEN);
            out.push(after);
            rest = ahead;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Tokenizer; 4] =
        [Tokenizer::None, Tokenizer::Mteval13a, Tokenizer::International, Tokenizer::Character];

    /// Values of sacrebleu 2.6.0: `Tokenizer13a()(line.rstrip())`.
    #[test]
    fn lines_are_divided_as_by_mteval_13a() {
        for (line, expected) in [
            ("", ""),
            ("Hello, world! It's 3.5% of 1,000-2,000.", "Hello , world ! It's 3.5 % of 1,000 - 2,000 ."),
            ("&quot;x&quot; &amp;lt;tag&gt; a-\nb<skipped>", "\" x \" < tag > ab"),
            ("...  wait--what?  (a/b)", ". . . wait--what ? ( a / b )"),
            ("„Grüße“, sagte er: 5.", "„Grüße“ , sagte er : 5 ."),
        ] {
            assert_eq!(Tokenizer::Mteval13a.tokenize(line), expected, "{line:?}");
        }
    }

    /// Values of sacrebleu 2.6.0: `TokenizerV14International()(line.rstrip())`.
    #[test]
    fn lines_are_divided_as_by_mteval_14() {
        for (line, expected) in [
            ("In 1999. ", "In 1999."),
            ("1,000.5€ „Grüße“ 5-6 a-b", "1,000.5 € „ Grüße “ 5-6 a - b"),
            ("¿Qué? ½, x² + 3×4", "¿ Qué ? ½ , x² + 3 × 4"),
        ] {
            assert_eq!(Tokenizer::International.tokenize(line), expected, "{line:?}");
        }
    }

    /// Perl: `echo … | perl -CS -ple 's{(\S)-(\S)}{$1 ##AT##-##AT## $2}g'`.
    #[test]
    fn hyphens_within_tokens_are_tokens() {
        for (line, expected) in [
            ("rich-text format - x", "rich ##AT##-##AT## text format - x"),
            ("a-b-c ab-cd-ef", "a ##AT##-##AT## b-c ab ##AT##-##AT## cd ##AT##-##AT## ef"),
            ("-a b- --- x--y", "-a b- - ##AT##-##AT## - x ##AT##-##AT## -y"),
        ] {
            assert_eq!(split_compounds(line), expected, "{line:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_tokenised_without_losing_letters(line in ".{0,60}") {
            let letters = |text: &str| text.chars().filter(|c| c.is_alphabetic()).collect::<String>();
            for tokenizer in ALL {
                let tokens = tokenizer.tokenize(&line);
                prop_assert_eq!(&tokens, &single_spaced(&tokens));
                if !line.contains(['&', '<']) {
                    prop_assert_eq!(letters(&tokens), letters(&line));
                }
                split_compounds(&tokens);
            }
        }
    }
}
