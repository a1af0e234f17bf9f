//! Which measures score, how text is compared, how a model searches.

use clap::{Args, ValueEnum};
use segue_measure::translation::{Bleu, Chrf, SmoothingMethod, Ter, Tokenizer};

use super::scores::Measure;
use crate::commands::translate::{End, Form, beams};
use crate::commands::{not_negative, positive};

/// How text is compared.
#[derive(Args)]
pub struct CompareArgs {
    /// Measures, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["bleu", "chrf"])]
    measure: Vec<MeasureName>,
    /// How BLEU divides text into tokens [default: 13a; of a model, as its run does].
    #[arg(long, value_enum)]
    tokenize: Option<TokenizerName>,
    /// Compare lower-cased text in BLEU and chrF, as TER always does [default: of a model, as its run does].
    #[arg(long)]
    lower_case: bool,
    /// What BLEU takes for matches of an order that has none [default: exp; of a model, as its run does].
    #[arg(long, value_enum)]
    smooth: Option<SmoothingName>,
    /// The number of `floor` and `add-k` [default: 0.1 and 1].
    #[arg(long, requires = "smooth", value_parser = positive)]
    smooth_value: Option<f64>,
    /// Split compounds at their hyphens after tokenisation, as the published BLEU of WMT 2014 English to German does; sacrebleu does not.
    #[arg(long)]
    compounds: bool,
    /// Score each sentence too: a table on stdout, with `--json` in the result. BLEU counts the orders that a sentence has.
    #[arg(long)]
    pub sentences: bool,
    /// Give the interval that 95 % of the scores of 1000 resampled texts lie in.
    #[arg(long)]
    pub confidence: bool,
}

/// Measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MeasureName {
    /// BLEU (Papineni et al. 2002).
    Bleu,
    /// F score of n-grams of characters.
    Chrf,
    /// The same with words and pairs of words.
    #[value(name = "chrf++")]
    ChrfWords,
    /// Translation edit rate (Snover et al. 2006): lower is better.
    Ter,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TokenizerName {
    /// That of WMT: separates ASCII punctuation.
    #[value(name = "13a")]
    Mteval13a,
    /// Splits at white space alone, for text that is tokenised already.
    None,
    /// Separates punctuation and symbols of all scripts.
    Intl,
    /// One token for each character.
    Char,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum SmoothingName {
    /// 1/2, 1/4, .. matches for the first, second, .. such order.
    Exp,
    /// This number of matches instead of 0.
    Floor,
    /// This number added to matches and n-grams of each order but the first.
    AddK,
    /// None: the score is 0.
    None,
}

impl From<TokenizerName> for Tokenizer {
    fn from(name: TokenizerName) -> Self {
        match name {
            TokenizerName::Mteval13a => Self::Mteval13a,
            TokenizerName::None => Self::None,
            TokenizerName::Intl => Self::International,
            TokenizerName::Char => Self::Character,
        }
    }
}

impl From<SmoothingName> for SmoothingMethod {
    fn from(name: SmoothingName) -> Self {
        match name {
            SmoothingName::Exp => Self::Exp,
            SmoothingName::Floor => Self::Floor,
            SmoothingName::AddK => Self::AddK,
            SmoothingName::None => Self::None,
        }
    }
}

impl CompareArgs {
    /// Whether a number is given that the method of smoothing has not.
    pub fn has_idle_value(&self) -> bool {
        let has_value = |name: SmoothingName| SmoothingMethod::from(name).has_value();
        self.smooth_value.is_some() && !self.smooth.is_some_and(has_value)
    }

    /// The measures, each once; what is not said of BLEU is as in `usual`.
    pub fn measures(&self, usual: Bleu) -> Vec<Measure> {
        let lower_case = self.lower_case || usual.lower_case;
        let bleu = Bleu {
            tokenizer: self.tokenize.map_or(usual.tokenizer, Tokenizer::from),
            lower_case,
            split_compounds: self.compounds || usual.split_compounds,
            smoothing: match self.smooth {
                Some(name) => SmoothingMethod::from(name).with(self.smooth_value),
                None => usual.smoothing,
            },
            ..usual
        };
        let measure = |name: &MeasureName| match name {
            MeasureName::Bleu => Measure::Bleu(bleu),
            MeasureName::Chrf => Measure::Chrf(Chrf { lower_case, ..Chrf::default() }),
            MeasureName::ChrfWords => Measure::Chrf(Chrf { lower_case, ..Chrf::plus_plus() }),
            MeasureName::Ter => Measure::Ter(Ter::default()),
        };
        let names = self.measure.iter().enumerate();
        let first = names.filter(|(place, name)| !self.measure[..*place].contains(name));
        first.map(|(_, name)| measure(name)).collect()
    }
}

/// How a model searches; what is not given is as in the evaluations of its run.
#[derive(Args)]
pub struct SearchArgs {
    /// Number of beams; 1 for the most probable token each time [default: `eval.beams` of the run].
    #[arg(long, conflicts_with = "reference", value_parser = beams)]
    beams: Option<usize>,
    /// Exponent of the length penalty [default: `eval.length_penalty` of the run].
    #[arg(long, conflicts_with = "reference", value_parser = not_negative)]
    length_penalty: Option<f64>,
    /// Form of the length penalty [default: `eval.length_form` of the run].
    #[arg(long, conflicts_with = "reference", value_enum)]
    length_form: Option<Form>,
    /// Weight of the coverage penalty [default: `eval.coverage_penalty` of the run].
    #[arg(long, conflicts_with = "reference", value_parser = not_negative)]
    coverage_penalty: Option<f64>,
    /// When a search ends [default: `eval.finish` of the run].
    #[arg(long, conflicts_with = "reference", value_enum)]
    finish: Option<End>,
}

impl SearchArgs {
    /// The same as values of the run's configuration.
    pub fn overrides(&self) -> impl Iterator<Item = String> {
        let name = |value: Option<clap::builder::PossibleValue>| Some(value?.get_name().to_string());
        let values = [
            ("beams", self.beams.map(|beams| beams.to_string())),
            ("length_penalty", self.length_penalty.map(|alpha| alpha.to_string())),
            ("length_form", name(self.length_form.and_then(|form| form.to_possible_value()))),
            ("coverage_penalty", self.coverage_penalty.map(|beta| beta.to_string())),
            ("finish", name(self.finish.and_then(|end| end.to_possible_value()))),
        ];
        values.into_iter().filter_map(|(key, value)| Some(format!("eval.{key}={}", value?)))
    }
}
