use std::path::{Component, Path, PathBuf};

use segue_collectives::CollectiveError;
use segue_configs::{ConfigError, advice, exit_code};
use segue_data_error::DataError;
use segue_publish::PublishError;
use thiserror::Error;

use crate::libtorch::device::NoCard;

/// What can go wrong while training, evaluating or handling checkpoints. Each `what` may come with [advice].
#[derive(Debug, Error)]
pub enum TrainError {
    /// The configuration, or a checkpoint's.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The corpus.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Another rank.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// libtorch refused an operation.
    #[error("libtorch: {0}")]
    Libtorch(String),
    /// A thread of this process cannot be started, or has ended before its time.
    #[error("the {name} thread {}", advice::fact(.what))]
    Thread {
        /// Its name.
        name: &'static str,
        /// What happened to it.
        what: String,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file's contents are not what they should be.
    #[error("{path} is damaged: {}", advice::fact(.what))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Found and expected.
        what: String,
    },
    /// No checkpoint in the folder verifies.
    #[error("no usable checkpoint in {path}: {}", advice::fact(.what))]
    NoCheckpoint {
        /// The folder looked in.
        path: PathBuf,
        /// Each candidate and what is wrong with it.
        what: String,
    },
    /// The run folder's checkpoint belongs to another configuration.
    #[error("the checkpoint {path} was made with another configuration:\n{}", .differences.trim_end())]
    OtherRun {
        /// The checkpoint.
        path: PathBuf,
        /// One line for each key: then and now.
        differences: String,
    },
    /// A checkpoint's weights do not fit the model.
    #[error("{path} does not fit the model: {}", advice::fact(.what))]
    OtherModel {
        /// The weights file.
        path: PathBuf,
        /// The parameter, found and expected.
        what: String,
    },
    /// A model that a command has no use for.
    #[error("{path} {}", advice::fact(.what))]
    Unsuited {
        /// The model.
        path: PathBuf,
        /// What is so about it, as a predicate: `is not fine-tuned: …`.
        what: String,
    },
    /// Ranks and micro-steps do not fit together.
    #[error("{}", advice::fact(.0))]
    Layout(String),
    /// Shared work was ended on request.
    #[error("stopped on request")]
    Stopped,
    /// A validation loss is far from the best one, too often.
    #[error("step {step}: the validation loss is {loss}; {} at best", best.map_or("none".into(), |best| best.to_string()))]
    Diverged {
        /// The global step.
        step: u64,
        /// The loss.
        loss: f64,
        /// The best one.
        best: Option<f64>,
    },
    /// Weights that adapt to what they read have left all bounds.
    #[error("the loss up to segment {segment} has no finite perplexity at lr {lr}: the weights diverged")]
    AdaptationDiverged {
        /// The last segment that was read, from 1.
        segment: u64,
        /// The rate of adaptation.
        lr: f64,
    },
    /// A loss or gradient is NaN or infinite. The update was not made.
    #[error(
        "step {step}: {what} is {value}, so its update was not made; the last checkpoint is of the step before"
    )]
    NonFinite {
        /// The global step.
        step: u64,
        /// Loss or gradient norm.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// A model that is to compute something holds a NaN or an infinity.
    #[error("the weights {path} are damaged: `{name}` holds a value that is not finite")]
    WeightsNotFinite {
        /// The file.
        path: PathBuf,
        /// The parameter.
        name: String,
    },
    /// What a run goes on from holds a NaN or an infinity: weights, moments, their average or what lanes carry.
    #[error("after step {step} {what} holds a value that is not finite, so no checkpoint of it is written")]
    Spoiled {
        /// The last step that was made.
        step: u64,
        /// Which tensor, and of which rank where others have none.
        what: String,
        /// Why the run did not go back.
        because: NoWayBack,
    },
    /// The last evaluation of a run gave no finite number.
    #[error("the last evaluation, after step {step}, came to no finite number")]
    Unmeasured {
        /// The step it was made after.
        step: u64,
        /// Whether the run is over, so that the same command trains nothing.
        over: bool,
    },
    /// A class is to be drawn by logits that are no distribution.
    #[error(
        "row {row} of the logits is no distribution over {classes} classes: it has a NaN or +∞, or −∞ everywhere"
    )]
    NoDistribution {
        /// The first such row.
        row: usize,
        /// Classes of each row.
        classes: i64,
    },
    /// Ranks were given the same gradient, and hold several.
    #[error(
        "step {step}: ranks hold different gradients, whose norm is {:.4} on rank {} and {:.4} on rank {}, so no update was made",
        .norms[0], .ranks[0], .norms[1], .ranks[1]
    )]
    GradientsDiffer {
        /// The global step.
        step: u64,
        /// Rank 0 and the first one that differs from it.
        ranks: [usize; 2],
        /// Their gradients' norms.
        norms: [f64; 2],
        /// Which of them nobody agrees with, where that is known.
        suspect: Option<usize>,
    },
    /// A micro-step that was made twice gave two results.
    #[error(
        "step {step}: rank {rank} made its micro-step {micro_step} twice, and {what} differed, so no update was made"
    )]
    RepeatDiffers {
        /// The global step.
        step: u64,
        /// The rank.
        rank: usize,
        /// The micro-step's number in the job.
        micro_step: usize,
        /// What differed first.
        what: String,
    },
    /// A card was asked for, and none can be used.
    #[error("no card can be used: {0}")]
    NoCard(NoCard),
    /// Replicas that should be equal are not.
    #[error(
        "step {step}: rank {rank} does not hold what rank 0 holds, first in `{tensor}` (rank 0 has libtorch {}, rank {rank} \
         {})", .libraries[0], .libraries[1]
    )]
    ReplicasDiffer {
        /// The global step.
        step: u64,
        /// The first rank that differs.
        rank: usize,
        /// The first tensor that does: a parameter, or a table of an optimizer or an average behind its name.
        tensor: String,
        /// What libtorch is there on rank 0 and on that rank.
        libraries: [String; 2],
    },
}

/// Why a run with values that are not finite does not go back to a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoWayBack {
    /// `recovery.non_finite` does not ask for it.
    NotAsked,
    /// It did so `recovery.at_most` times.
    UsedUp,
    /// There is no checkpoint to go back to.
    NoCheckpoint,
}

impl NoWayBack {
    fn advice(self) -> &'static str {
        match self {
            Self::NotAsked => "let the run go back by recovery.non_finite=roll_back",
            Self::UsedUp => "raise recovery.at_most",
            Self::NoCheckpoint => "set checkpoint.every to fewer steps, so that there is one to go back to",
        }
    }
}

/// Keys that no run goes on with other values of, beside those of the model and the text.
const FIXED: [&str; 3] = ["train.lanes", "train.device", "task.name"];

/// Parts of the hub's names of models that are read.
const READ_OF_HUB: [&str; 4] = ["transfo-xl", "xlnet", "opus-mt", "marian"];

/// The folder that runs lie in for the most part.
const RUNS: &str = "runs";

/// What to do where a model that is not there is called by a name of Hugging Face's hub: `gpt2`, or `xlnet/xlnet-base-cased`.
fn advice_on_hub(path: &Path) -> Option<String> {
    let is_plain = |part: &Component| match part {
        Component::Normal(part) => part.to_str().is_some_and(|part| {
            part.chars().all(|c| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c))
        }),
        _ => false,
    };
    let parts: Vec<Component> = path.components().collect();
    // What lies in a folder that is there, or is to be a run, is a folder that is misspelt.
    let first = parts.first()?.as_os_str();
    let is_here = first == RUNS || Path::new(first).exists();
    (parts.len() <= 2 && parts.iter().all(is_plain) && !is_here).then(|| {
        let name = path.display().to_string();
        let is_read = READ_OF_HUB.iter().any(|known| name.to_lowercase().contains(known));
        let then = match is_read {
            true => format!(": `hf download {name} --local-dir FOLDER`"),
            false => ", by `hf download`; other types are not".into(),
        };
        format!("name a folder that is there; of Hugging Face's hub Transformer-XL, XLNet and Marian models are read, once they are fetched{then}")
    })
}

/// The length of the schedule that a run began with, where nothing but that is another one, as in a run that is made longer.
fn schedule_of(differences: &str) -> Option<&str> {
    let mut lines = differences.lines();
    let values = lines.next()?.trim_start().strip_prefix("schedule.steps: ")?;
    let (then, _) = values.split_once(" then, ")?;
    lines.next().is_none().then_some(then)
}

/// What to do where a configuration differs in these lines, `  KEY: THEN then, NOW now` each.
fn advice_on(differences: &str) -> String {
    let changeable = |line: &str| {
        let (key, values) = line.trim_start().split_once(": ")?;
        let fixed = FIXED.contains(&key) || key.starts_with("model.") || values.starts_with("fingerprint ");
        (!fixed).then(|| format!("{key:?}"))
    };
    let keys: Vec<String> = differences.lines().filter_map(changeable).collect();
    if let Some(steps) = schedule_of(differences) {
        return format!(
            "add schedule.steps={steps}: the learning rate goes as it began, and stays where it ended; \
             recovery.allow_change=[\"schedule.steps\"] lets it go on by the new number"
        );
    }
    let back = "set these keys back, or start in a new run.dir";
    match &keys[..] {
        [] => back.into(),
        keys => {
            format!("{back}; recovery.allow_change=[{}] lets a run go on with other values", keys.join(", "))
        }
    }
}

fn suspicion(whom: &str) -> String {
    format!("check memory and network of {whom}, and resume from the last checkpoint")
}

/// Of an output of any kind: who knows which option names it says so.
fn write_advice(source: &std::io::Error) -> &'static str {
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            "free some space, or choose another output, then run the same command again"
        }
        std::io::ErrorKind::AlreadyExists => "choose another output",
        _ if exit_code::of_write(source) == exit_code::CANNOT_CREATE => {
            "choose an output that can be written"
        }
        _ => "check the file system, then run the same command again",
    }
}

impl TrainError {
    /// The process exit code documented for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            TrainError::Config(e) => e.exit_code(),
            TrainError::Data(e) => e.exit_code(),
            TrainError::Collective(e) => e.exit_code() as u8,
            TrainError::Libtorch(_) | TrainError::Thread { .. } => exit_code::BUG,
            TrainError::Write { source, .. } => exit_code::of_write(source),
            TrainError::Read { source, .. } => exit_code::of_read(source),
            TrainError::NoCheckpoint { .. } => exit_code::NO_INPUT,
            TrainError::Damaged { .. } => exit_code::BAD_DATA,
            TrainError::OtherRun { .. }
            | TrainError::OtherModel { .. }
            | TrainError::Unsuited { .. }
            | TrainError::Layout(_) => exit_code::BAD_CONFIG,
            TrainError::Diverged { .. }
            | TrainError::AdaptationDiverged { .. }
            | TrainError::NonFinite { .. }
            | TrainError::WeightsNotFinite { .. }
            | TrainError::Spoiled { .. }
            | TrainError::Unmeasured { .. }
            | TrainError::NoDistribution { .. } => exit_code::NOT_A_NUMBER,
            TrainError::GradientsDiffer { .. }
            | TrainError::RepeatDiffers { .. }
            | TrainError::ReplicasDiffer { .. } => exit_code::RANKS_DIFFER,
            TrainError::NoCard(_) => exit_code::UNAVAILABLE,
            TrainError::Stopped => exit_code::PREEMPTED,
        }
    }

    /// Whether the disk would not have it, which is no fault of what was to be written.
    pub fn is_of_storage(&self) -> bool {
        match self {
            TrainError::Write { .. } => true,
            TrainError::Read { source, .. } => source.kind() != std::io::ErrorKind::NotFound,
            TrainError::Data(e) => {
                matches!(e, DataError::Output { .. } | DataError::Read { .. } | DataError::Write { .. })
            }
            _ => false,
        }
    }

    /// What the user can do about it, where that is known: a sentence in the imperative, for a line of its own.
    pub fn hint(&self) -> Option<String> {
        match self {
            TrainError::Config(e) => e.hint(),
            TrainError::Data(e) => e.hint(),
            TrainError::Collective(e) => e.hint(),
            TrainError::Write { source, .. } => Some(write_advice(source).into()),
            TrainError::Thread { what, .. }
            | TrainError::Damaged { what, .. }
            | TrainError::OtherModel { what, .. }
            | TrainError::Unsuited { what, .. }
            | TrainError::Layout(what) => advice::hint(what),
            TrainError::NoCheckpoint { path, what } => advice::hint(what).or_else(|| advice_on_hub(path)),
            TrainError::OtherRun { differences, .. } => Some(advice_on(differences)),
            TrainError::NonFinite { step, .. } => Some(format!(
                "look at the data of this step; leave it out with recovery.skip_steps=[\"{step}\"], lower optim.lr with \
                 recovery.allow_change=[\"optim.lr\"], or let the run do either by recovery.non_finite"
            )),
            TrainError::Spoiled { because, what, .. } => Some(format!(
                "{}: lower optim.lr with recovery.allow_change=[\"optim.lr\"], or {}; where the same command \
                 gets past this step, check processor and memory with `segue doctor`",
                if what.starts_with("the weight ") {
                    "the weights are not finite, whatever the data"
                } else {
                    "no other batch mends it"
                },
                because.advice()
            )),
            TrainError::Unmeasured { over: true, .. } => Some(
                "begin anew in another run.dir with a lower optim.lr, or look for an earlier model with `segue eval` on the checkpoints"
                    .into(),
            ),
            TrainError::Unmeasured { .. } => Some(
                "lower optim.lr with recovery.allow_change=[\"optim.lr\"], or look for an earlier model with `segue eval` on the checkpoints"
                    .into(),
            ),
            TrainError::Diverged { .. } => Some(
                "lower optim.lr with recovery.allow_change=[\"optim.lr\"], or raise recovery.at_most".into(),
            ),
            TrainError::AdaptationDiverged { .. } => Some("lower --lr".into()),
            TrainError::WeightsNotFinite { .. } => Some("take another checkpoint".into()),
            TrainError::NoDistribution { .. } => {
                Some("lower optim.lr, lengthen schedule.warmup, or look at the data of this step".into())
            }
            TrainError::GradientsDiffer { ranks, suspect, .. } => Some(match suspect {
                Some(rank) => suspicion(&format!("rank {rank}")),
                None => suspicion(&format!("ranks {} and {}", ranks[0], ranks[1])),
            }),
            TrainError::RepeatDiffers { rank, .. } => Some(format!(
                "check processor and memory of rank {rank}'s host with `segue doctor`, and resume from the last checkpoint"
            )),
            TrainError::ReplicasDiffer { rank, .. } => Some(suspicion(&format!("rank {rank}"))),
            TrainError::NoCard(_) => {
                Some("compute on the processor, or look at the line GPU of `segue doctor`".into())
            }
            TrainError::Libtorch(_) | TrainError::Read { .. } | TrainError::Stopped => None,
        }
    }
}

impl From<PublishError> for TrainError {
    fn from(error: PublishError) -> Self {
        match error.source.kind() {
            // No fault of the disk: the folder is a mount point.
            std::io::ErrorKind::CrossesDevices => TrainError::Data(error.into()),
            _ => TrainError::Write { path: error.path, source: error.source },
        }
    }
}

impl From<tch::TchError> for TrainError {
    fn from(error: tch::TchError) -> Self {
        // libtorch appends a C++ back trace; its first line says what happened.
        let text = error.to_string();
        TrainError::Libtorch(text.lines().next().unwrap_or_default().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_is_made_longer_is_told_how_to_keep_its_schedule() {
        let hint = |differences: &str| {
            TrainError::OtherRun { path: "a".into(), differences: differences.into() }.hint().unwrap()
        };
        let longer = hint("  schedule.steps: 2000 then, 4000 now\n");
        assert!(longer.starts_with("add schedule.steps=2000: "), "{longer}");
        assert!(longer.contains("recovery.allow_change=[\"schedule.steps\"]"), "{longer}");
        let more = hint("  schedule.steps: 2000 then, 4000 now\n  optim.lr: 0.1 then, 0.2 now\n");
        assert!(more.starts_with("set these keys back"), "{more}");
    }

    #[test]
    fn a_hint_helps_where_the_run_stands() {
        let spoiled =
            |because| TrainError::Spoiled { step: 3, what: "the moment `m`".into(), because }.hint();
        for (because, named, other) in [
            (NoWayBack::NotAsked, "recovery.non_finite=roll_back", "at_most"),
            (NoWayBack::UsedUp, "recovery.at_most", "roll_back"),
            (NoWayBack::NoCheckpoint, "checkpoint.every", "roll_back"),
        ] {
            let hint = spoiled(because).unwrap();
            assert!(hint.contains(named) && !hint.contains(other) && !hint.contains("weights"), "{hint}");
        }
        let unmeasured = |over| TrainError::Unmeasured { step: 3, over }.hint().unwrap();
        assert!(unmeasured(true).starts_with("begin anew in another run.dir"));
        assert!(unmeasured(false).starts_with("lower optim.lr with recovery.allow_change"));
    }

    #[test]
    fn keys_that_can_change_are_named() {
        let hint = |differences: &str| {
            TrainError::OtherRun { path: "step-00000001".into(), differences: differences.into() }
                .hint()
                .unwrap()
        };
        let fixed = "  data.corpus: fingerprint a then, b now\n  model.d_model: 8 then, 4 now\n  train.lanes: 8 then, 16 now\n";
        assert!(!hint(fixed).contains("allow_change"), "{}", hint(fixed));
        let some = format!("{fixed}  optim.lr: 0.5 then, 1.0 now\n  train.segment: 4 then, 8 now\n");
        assert!(
            hint(&some).contains(r#"recovery.allow_change=["optim.lr", "train.segment"]"#),
            "{}",
            hint(&some)
        );
    }

    #[test]
    fn a_name_of_the_hub_is_told_from_a_folder() {
        let hint = |path: &str| TrainError::NoCheckpoint { path: path.into(), what: "nothing".into() }.hint();
        let of_xlnet = hint("xlnet/xlnet-base-cased").unwrap();
        assert!(of_xlnet.contains("`hf download xlnet/xlnet-base-cased --local-dir FOLDER`"), "{of_xlnet}");
        let of_other = hint("gpt2").unwrap();
        assert!(of_other.contains("other types are not") && !of_other.contains("gpt2"), "{of_other}");
        for path in ["/models/gpt2", "../gpt2", "a/b/c", "src", "src/lob.rs", "runs/sst2", "a b"] {
            assert_eq!(hint(path), None, "{path}");
        }
    }
}
