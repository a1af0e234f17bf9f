//! Text to score: random pairs and a perturbed copy of Multi30k. It is the same each time.

use std::io::Read;

use serde::Serialize;

/// What random lines consist of: punctuation in all places, digits, entities, letters and marks of several scripts,
/// combined letters, and white space within "words".
const VOCABULARY: [&str; 52] = [
    "the",
    "The",
    "a",
    "dog",
    "dogs",
    "cat's",
    "runs",
    "RUNS",
    "in",
    "on",
    "house",
    "Straße",
    "STRASSE",
    "é",
    "e\u{301}",
    "ΟΔΟΣ",
    "İx",
    "naïve",
    "漢字",
    "かな",
    "カナ。",
    "、東京",
    "привет",
    "a-b",
    "well-known",
    "x-y-z",
    "3.5",
    "1,000",
    "2-3",
    "5.",
    "7,",
    "½",
    "x²",
    "٣",
    "$5",
    "€",
    "50%",
    ".",
    ",",
    "...",
    "!",
    "?!",
    "(hi)",
    "\"so\"",
    "„ja“",
    "¿qué?",
    "&amp;lt;",
    "&quot;b&quot;",
    "<skipped>",
    "end-\n",
    "a\u{A0}b",
    "c\u{1F}d\u{3000}e",
];

/// Hypotheses and the references of each.
#[derive(Serialize)]
pub struct Corpus {
    pub hypotheses: Vec<String>,
    pub references: Vec<Vec<String>>,
}

/// SplitMix64 (Steele et al. 2014).
pub struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn line(&mut self, longest: usize) -> Vec<String> {
        let length = self.below(longest + 1);
        (0..length).map(|_| VOCABULARY[self.below(VOCABULARY.len())].to_string()).collect()
    }

    /// The words with some left out, doubled, replaced, put into capitals or moved in blocks.
    fn perturbed(&mut self, words: &[String]) -> Vec<String> {
        let mut words = words.to_vec();
        for _ in 0..self.below(5) {
            if words.is_empty() {
                break;
            }
            let (place, target) = (self.below(words.len()), self.below(words.len()));
            match self.below(6) {
                0 => drop(words.remove(place)),
                1 => words.insert(place, words[target].clone()),
                2 => words[place] = VOCABULARY[self.below(VOCABULARY.len())].to_string(),
                3 => words[place] = words[place].to_uppercase(),
                _ => {
                    let end = (place + 1 + self.below(4)).min(words.len());
                    let block: Vec<_> = words.drain(place..end).collect();
                    let target = target.min(words.len());
                    drop(words.splice(target..target, block));
                }
            }
        }
        words
    }

    /// Words with one or two spaces between, and now and then behind the last.
    fn joined(&mut self, words: &[String]) -> String {
        let space = |random: &mut Self| if random.below(9) == 0 { "  " } else { " " };
        let mut line = String::new();
        for word in words {
            line.push_str(word);
            line.push_str(space(self));
        }
        if self.below(8) > 0 {
            line.truncate(line.trim_end_matches(' ').len());
        }
        line
    }
}

fn pairs_of(count: usize, seed: u64, longest: usize) -> Corpus {
    let mut random = Random(seed);
    let mut corpus = Corpus { hypotheses: Vec::new(), references: Vec::new() };
    for _ in 0..count {
        let reference = random.line(longest);
        let hypothesis = match random.below(20) {
            0 => Vec::new(),
            1 => random.line(longest),
            _ => random.perturbed(&reference),
        };
        let reference = random.joined(&reference);
        corpus.hypotheses.push(random.joined(&hypothesis));
        corpus.references.push(vec![reference]);
    }
    corpus
}

/// Pairs of up to 18 words; some lines are empty.
pub fn random_pairs(count: usize, seed: u64) -> Corpus {
    pairs_of(count, seed, 18)
}

/// Pairs of up to 160 words, some with a hypothesis of two.
pub fn long_pairs(count: usize, seed: u64) -> Corpus {
    let mut corpus = pairs_of(count, seed, 160);
    for line in corpus.hypotheses.iter_mut().step_by(7) {
        *line = line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    }
    corpus
}

/// Pairs of 40 words out of four, which match in so many places that the number of shifts to try is limited.
pub fn repetitive_pairs(count: usize, seed: u64) -> Corpus {
    let mut random = Random(seed);
    let mut line = || (0..40).map(|_| VOCABULARY[random.below(4)]).collect::<Vec<_>>().join(" ");
    let pairs = (0..count).map(|_| (line(), vec![line()]));
    let (hypotheses, references) = pairs.unzip();
    Corpus { hypotheses, references }
}

/// Pairs of 60 words with the first 15 to 29 of the reference at the end of the hypothesis: more than one shift moves.
pub fn rotated_pairs(count: usize, seed: u64) -> Corpus {
    let mut random = Random(seed);
    let mut pair = || {
        let mut words: Vec<_> = (0..60).map(|_| format!("w{}", random.next())).collect();
        let reference = words.join(" ");
        words.rotate_left(15 + random.below(15));
        (words.join(" "), vec![reference])
    };
    let (hypotheses, references) = (0..count).map(|_| pair()).unzip();
    Corpus { hypotheses, references }
}

/// The same hypotheses with one to three references each.
pub fn with_varying_references(corpus: &Corpus) -> Corpus {
    let mut random = Random(11);
    let hypotheses = corpus.hypotheses.clone();
    let mut more = |reference: &String| {
        let words: Vec<_> = reference.split(' ').map(str::to_string).collect();
        let further: Vec<_> = (0..random.below(3)).map(|_| random.perturbed(&words)).collect();
        let further: Vec<_> = further.iter().map(|words| random.joined(words)).collect();
        [vec![reference.clone()], further].concat()
    };
    Corpus { hypotheses, references: corpus.references.iter().map(|lines| more(&lines[0])).collect() }
}

/// Multi30k's test sentences of 2016 in German and in English, with a perturbed copy as hypotheses; `None`, said in a
/// line, where they are not on this machine.
pub fn multi30k() -> Option<[Corpus; 2]> {
    let [german, english] = ["de", "en"].map(|language| {
        let path = segue_skip::shared_data(&format!("multi30k/test_2016_flickr.{language}.gz"))?;
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(std::fs::File::open(path).unwrap())
            .read_to_string(&mut text)
            .unwrap();
        Some(perturbed_copy(&text))
    });
    Some([german?, english?])
}

fn perturbed_copy(text: &str) -> Corpus {
    let mut random = Random(12);
    let hypothesis = |line: &str| {
        let words: Vec<_> = line.split(' ').map(str::to_string).collect();
        random.perturbed(&words).join(" ")
    };
    let hypotheses = text.lines().map(hypothesis).collect();
    Corpus { hypotheses, references: text.lines().map(|line| vec![line.to_string()]).collect() }
}
