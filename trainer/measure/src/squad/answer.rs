use std::collections::HashMap;

use unicode_normalization::char::is_combining_mark;

/// The words that count for nothing in an answer.
const ARTICLES: [&str; 3] = ["a", "an", "the"];

/// Which of the two official scorers is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// `evaluate-v1.1.py`: every question has an answer.
    V1,
    /// `evaluate-v2.0.py`: an empty answer says that there is none. Gold answers that are empty once normalised are
    /// passed over, and two answers without words agree.
    V2,
}

/// An answer as both scorers compare it: lower case, without ASCII punctuation and articles, its words with single
/// spaces between.
///
/// ```
/// use segue_measure::squad::normalized;
/// assert_eq!(normalized("The  cat's 'a' A-Team"), "cats ateam");
/// ```
pub fn normalized(answer: &str) -> String {
    let plain: String = answer.to_lowercase().chars().filter(|c| !c.is_ascii_punctuation()).collect();
    let mut without = String::with_capacity(plain.len());
    for (run, is_word) in word_runs(&plain) {
        without.push_str(if is_word && ARTICLES.contains(&run) { " " } else { run });
    }
    without.split(is_space).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Whether both answers are the same once normalised.
pub fn exact_match(gold: &str, predicted: &str) -> bool {
    normalized(gold) == normalized(predicted)
}

/// Harmonic mean of the shares of words that the answers have in common, in [0, 1].
pub fn f1(gold: &str, predicted: &str, rules: Rules) -> f64 {
    let (gold, predicted) = (normalized(gold), normalized(predicted));
    let (gold, predicted): (Vec<&str>, Vec<&str>) = (words(&gold), words(&predicted));
    if gold.is_empty() || predicted.is_empty() {
        return f64::from(u8::from(rules == Rules::V2 && gold == predicted));
    }
    match in_common(&gold, &predicted) {
        0 => 0.0,
        common => {
            let (precision, recall) =
                (common as f64 / predicted.len() as f64, common as f64 / gold.len() as f64);
            2.0 * precision * recall / (precision + recall)
        }
    }
}

/// Number of words in both, each as often as in the one that has it less often.
fn in_common(gold: &[&str], predicted: &[&str]) -> usize {
    let mut left: HashMap<&str, usize> = HashMap::new();
    gold.iter().for_each(|word| *left.entry(word).or_default() += 1);
    let mut takes = |word: &&&str| match left.get_mut(**word) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        _ => false,
    };
    predicted.iter().filter(|word| takes(word)).count()
}

fn words(normalized: &str) -> Vec<&str> {
    normalized.split(' ').filter(|word| !word.is_empty()).collect()
}

/// The text cut where a word begins or ends, with whether each part is a word.
fn word_runs(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_word = is_word_char(rest.chars().next()?);
        let end = rest.find(|c| is_word_char(c) != is_word).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        rest = behind;
        Some((run, is_word))
    })
}

/// Characters of words as Python's `re` knows them: letters and numbers, but neither vowel signs nor circled letters,
/// which Unicode counts among the alphabetic. The underscore is gone with the punctuation.
fn is_word_char(c: char) -> bool {
    let circled = matches!(c, '\u{24B6}'..='\u{24E9}' | '\u{1F130}'..='\u{1F189}');
    c.is_alphanumeric() && !is_combining_mark(c) && !circled
}

/// White space as Python's `str.split` knows it: the four information separators count.
fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1C}'..='\u{1F}')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row X25.
    #[test]
    fn articles_go_where_they_are_whole_words() {
        for (answer, expected) in [
            ("An apple a day, the theatre.", "apple day theatre"),
            ("the—end", "—end"),
            ("a\u{301} x", "\u{301} x"),
            ("THE\u{A0}\u{1F}End!", "end"),
            ("the_end", "theend"),
            ("§§ the", "§§"),
        ] {
            assert_eq!(normalized(answer), expected, "{answer:?}");
        }
    }

    /// Row X25.
    #[test]
    fn overlap_of_words_by_hand() {
        // Two of three words predicted, two of four there: 2 * (2/3) * (1/2) / (7/6).
        let score = f1("the red red brick house", "red brick the wall", Rules::V1);
        assert!((score - 4.0 / 7.0).abs() < 1e-15);
        assert_eq!(f1("red", "red red red", Rules::V2), 0.5);
    }

    /// Row X25.
    #[test]
    fn answers_without_words_agree_in_the_second_version_alone() {
        assert_eq!(f1("", "the", Rules::V2), 1.0);
        assert_eq!(f1("", "the", Rules::V1), 0.0);
        assert!(exact_match("", "the"));
        assert_eq!(f1("", "cat", Rules::V2), 0.0);
    }
}
