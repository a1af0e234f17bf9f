/// Release of sacrebleu whose scores are reproduced; the `version:` of a signature. Equal signatures promise comparable
/// scores, and these depend on sacrebleu's rules, not on the version of Segue.
pub const SACREBLEU_VERSION: &str = "2.6.0";

/// Number of references of the sentences of a corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceCount {
    /// The same for each sentence.
    Fixed(usize),
    /// Different for some sentences.
    Varying,
}

impl ReferenceCount {
    /// From the number of references of each sentence.
    pub fn of(counts: impl IntoIterator<Item = usize>) -> Self {
        let mut counts = counts.into_iter();
        let first = counts.next().unwrap_or(0);
        if counts.all(|count| count == first) { Self::Fixed(first) } else { Self::Varying }
    }

    fn text(self) -> String {
        match self {
            Self::Fixed(count) => count.to_string(),
            Self::Varying => "var".to_string(),
        }
    }
}

/// Settings of a metric as sacrebleu writes them: keys, their abbreviations and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Key, its abbreviation, value; the version is not among them.
    items: Vec<(&'static str, &'static str, String)>,
}

impl Signature {
    /// A signature that names the number of references alone.
    pub fn new(references: ReferenceCount) -> Self {
        Self { items: vec![("nrefs", "#", references.text())] }
    }

    /// Appends a setting.
    #[must_use]
    pub fn with(mut self, key: &'static str, abbreviation: &'static str, value: impl Into<String>) -> Self {
        self.items.push((key, abbreviation, value.into()));
        self
    }

    /// Appends a switch as `yes` or `no`.
    #[must_use]
    pub fn with_switch(self, key: &'static str, abbreviation: &'static str, is_on: bool) -> Self {
        self.with(key, abbreviation, if is_on { "yes" } else { "no" })
    }

    /// Puts samples and seed of a bootstrap behind the number of references.
    #[must_use]
    pub fn with_bootstrap(mut self, samples: usize, seed: u32) -> Self {
        let items = [("bs", "bs", samples.to_string()), ("seed", "rs", seed.to_string())];
        self.items.splice(1..1, items);
        self
    }

    /// Appends `case`: `lc` where text is lower-cased.
    #[must_use]
    pub fn with_case(self, lower_case: bool) -> Self {
        self.with("case", "c", if lower_case { "lc" } else { "mixed" })
    }

    /// Text with full keys.
    pub fn long(&self) -> String {
        let items = self.items.iter().map(|(key, _, value)| format!("{key}:{value}|"));
        items.collect::<String>() + "version:" + SACREBLEU_VERSION
    }

    /// Text with abbreviated keys.
    pub fn short(&self) -> String {
        let items = self.items.iter().map(|(_, abbreviation, value)| format!("{abbreviation}:{value}|"));
        items.collect::<String>() + "v:" + SACREBLEU_VERSION
    }
}

/// A line such as `BLEU|nrefs:1|… = 55.57`, or `BLEU = 55.57` where the signature is empty.
pub(super) fn score_line(name: &str, signature: &str, score: f64, decimals: usize) -> String {
    let bar = if signature.is_empty() { "" } else { "|" };
    format!("{name}{bar}{signature} = {score:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_corpus_with_unequal_numbers_of_references_has_a_varying_one() {
        assert_eq!(ReferenceCount::of([2, 2, 2]), ReferenceCount::Fixed(2));
        assert_eq!(ReferenceCount::of([2, 1, 2]), ReferenceCount::Varying);
        assert_eq!(ReferenceCount::of([]), ReferenceCount::Fixed(0));
    }

    /// The form of sacrebleu 2.6.0's `Signature.format`; the metrics' own tests have whole signatures.
    #[test]
    fn the_version_stands_last() {
        let signature =
            Signature::new(ReferenceCount::Varying).with_case(true).with_switch("eff", "e", false);
        assert_eq!(signature.long(), "nrefs:var|case:lc|eff:no|version:2.6.0");
        assert_eq!(signature.short(), "#:var|c:lc|e:no|v:2.6.0");
    }
}
