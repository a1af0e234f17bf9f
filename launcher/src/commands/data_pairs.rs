//! `segue data build --preset pairs`: its options, and what became of the pairs.

use clap::Args;
use segue_dataloader::{PairBuild, PairCounts, PairFault, PairFilter, Split};

use crate::failure::{Failure, USAGE};

/// Options of the preset `pairs` alone.
#[derive(Args)]
pub struct PairArgs {
    /// Source side of the preset `pairs`: the end of its files' names, as `de` for PREFIX.de, or its key in JSON lines.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Target side of the preset `pairs`.
    #[arg(long, value_name = "NAME")]
    target: Option<String>,
    /// Lower-case both sides of pairs; a tokenizer that is trained does so from then on.
    #[arg(long)]
    lower_case: bool,
    /// Maximum tokens of a side of the pairs to train on, without the end-of-sentence token; others are dropped
    /// [default: any].
    #[arg(long, value_name = "N")]
    max_length: Option<usize>,
    /// Maximum ratio of the longer to the shorter side of the pairs to train on, in tokens; others are dropped [default:
    /// any].
    #[arg(long, value_name = "R")]
    max_ratio: Option<f64>,
    /// Move every Nth pair of the train input to the valid split, as for IWSLT (23). Not with --valid.
    #[arg(long, value_name = "N")]
    valid_every: Option<u64>,
}

impl PairArgs {
    /// Puts the options where a build has them. `others` says whether options were given that other presets have.
    pub fn apply(self, build: PairBuild, others: bool) -> Result<PairBuild, Failure> {
        if others {
            let message = "--split, --extension, --text-column, --split-sentences, --no-eod and --published are no options of \
                the pairs preset\nhint: drop them";
            return Err(Failure::new(USAGE, message));
        }
        let (Some(source), Some(target)) = (self.source, self.target) else {
            let message =
                "the pairs preset needs --source and --target\nhint: for example --source de --target en";
            return Err(Failure::new(USAGE, message));
        };
        let filter = PairFilter { max_length: self.max_length, max_ratio: self.max_ratio };
        let (valid_every, lower_case) = (self.valid_every, self.lower_case);
        Ok(PairBuild { source, target, filter, valid_every, lower_case, ..build })
    }

    /// Refuses these options of another preset.
    pub fn refuse(&self) -> Result<(), Failure> {
        let PairArgs { source, target, lower_case, max_length, max_ratio, valid_every } = self;
        let any = source.is_some() || target.is_some() || max_length.is_some() || max_ratio.is_some();
        if any || *lower_case || valid_every.is_some() {
            let message = "--source, --target, --lower-case, --max-length, --max-ratio and --valid-every are options of the \
                pairs preset\nhint: add --preset pairs, or drop them";
            return Err(Failure::new(USAGE, message));
        }
        Ok(())
    }
}

/// Human words for what became of a split's pairs.
pub fn describe(split: Split, counts: &PairCounts) -> String {
    let mut line = format!("{split}: {} of {} pairs kept", counts.kept, counts.read);
    for fault in PairFault::ALL {
        let what = match fault {
            PairFault::EmptySource => "empty source",
            PairFault::EmptyTarget => "empty target",
            PairFault::TooLong => "too long",
            PairFault::Ratio => "too unlike in length",
        };
        let count = counts.of(fault).count;
        if count > 0 {
            line += &format!(", {count} {what}");
        }
    }
    line
}
