//! Which measures score, how text is compared, how a model searches.

use clap::{Args, ValueEnum};
use segue_decode::{Finish, LengthPenalty};
use segue_measure::translation::{Bleu, Chrf, SmoothingMethod, Ter, Tokenizer};
use serde_json::json;

use super::scores::Measure;
use crate::commands::spelled::spelled;
use crate::commands::translate::beams;
use crate::commands::{not_negative, positive};

/// How text is compared.
#[derive(Args)]
pub struct CompareArgs {
    /// Measures, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["bleu", "chrf"])]
    measure: Vec<MeasureName>,
    /// How BLEU divides text into tokens [default: 13a; of a model, as its run does].
    #[arg(long, value_parser = spelled::<Tokenizer>())]
    tokenize: Option<Tokenizer>,
    /// Compare lower-cased text in BLEU and chrF, as TER always does [default: of a model, as its run does].
    #[arg(long)]
    lower_case: bool,
    /// What BLEU takes for matches of an order that has none [default: exp; of a model, as its run does].
    #[arg(long, value_parser = spelled::<SmoothingMethod>())]
    smooth: Option<SmoothingMethod>,
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

impl CompareArgs {
    /// Whether a number is given that the method of smoothing has not.
    pub fn has_idle_value(&self) -> bool {
        self.smooth_value.is_some() && !self.smooth.is_some_and(SmoothingMethod::has_value)
    }

    /// An option that none of the measures takes, and whose it is.
    pub fn idle(&self) -> Option<(&'static str, &'static str)> {
        let has = |name: MeasureName| self.measure.contains(&name);
        let bleu = [
            ("--tokenize", self.tokenize.is_some()),
            ("--smooth", self.smooth.is_some()),
            ("--compounds", self.compounds),
        ];
        let of_bleu = bleu.into_iter().find(|(_, given)| *given && !has(MeasureName::Bleu));
        let ter_alone = self.measure.iter().all(|name| *name == MeasureName::Ter);
        match of_bleu {
            Some((option, _)) => Some((option, "BLEU")),
            None if self.lower_case && ter_alone => Some(("--lower-case", "BLEU and chrF")),
            None => None,
        }
    }

    /// The measures, each once; what is not said of BLEU is as in `usual`.
    pub fn measures(&self, usual: Bleu) -> Vec<Measure> {
        let lower_case = self.lower_case || usual.lower_case;
        let bleu = Bleu {
            tokenizer: self.tokenize.unwrap_or(usual.tokenizer),
            lower_case,
            split_compounds: self.compounds || usual.split_compounds,
            smoothing: match self.smooth {
                Some(method) => method.with(self.smooth_value),
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
    /// Exponent α of the length penalty [default: `eval.length_penalty` of the run].
    #[arg(long, conflicts_with = "reference", value_parser = not_negative)]
    length_penalty: Option<f64>,
    /// Form of the length penalty [default: `eval.length_form` of the run].
    #[arg(long, conflicts_with = "reference", value_parser = spelled::<LengthPenalty>())]
    length_form: Option<LengthPenalty>,
    /// Weight of the coverage penalty [default: `eval.coverage_penalty` of the run].
    #[arg(long, conflicts_with = "reference", value_parser = not_negative)]
    coverage_penalty: Option<f64>,
    /// When a search ends [default: `eval.finish` of the run].
    #[arg(long, conflicts_with = "reference", value_parser = spelled::<Finish>())]
    finish: Option<Finish>,
}

impl SearchArgs {
    /// The same as values of the run's configuration.
    pub fn overrides(&self) -> impl Iterator<Item = String> {
        let values = [
            ("beams", json!(self.beams)),
            ("length_penalty", json!(self.length_penalty)),
            ("length_form", json!(self.length_form)),
            ("coverage_penalty", json!(self.coverage_penalty)),
            ("finish", json!(self.finish)),
        ];
        let given = values.into_iter().filter(|(_, value)| !value.is_null());
        given.map(|(key, value)| format!("eval.{key}={value}"))
    }
}
