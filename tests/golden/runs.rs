//! The runs: every golden file is of one of these, with each family of kernels.

use crate::data::{self, DataSet};

/// Lists of overrides.
type Settings = &'static [&'static [&'static str]];

/// One run.
pub struct Run {
    /// The golden files' name.
    pub name: &'static str,
    /// What is trained on what.
    pub kind: Kind,
    /// Overrides of the recipe, in lists that runs share.
    pub settings: Settings,
    /// The checkpoint it goes on from, where it does not begin at step 0.
    pub resumes: Option<OldCheckpoint>,
}

/// What is trained on what.
#[derive(Clone, Copy)]
pub enum Kind {
    /// A model of a recipe.
    Pretraining {
        /// Its name.
        recipe: &'static str,
        /// The corpus or graph, where it reads one.
        corpus: Option<&'static str>,
        /// The data it is among.
        data: &'static DataSet,
    },
    /// An XLNet for a task, or several separated by commas.
    Tasks {
        /// Their names.
        names: &'static str,
        /// Sizes of the XLNet where they are not those of `tiny-xlnet`.
        sizes: Settings,
    },
}

impl Kind {
    /// A recipe on one of the texts.
    const fn on_text(recipe: &'static str, corpus: &'static str) -> Self {
        Self::Pretraining { recipe, corpus: Some(corpus), data: &data::TEXTS }
    }

    /// A recipe of a recurrent model on words.
    const fn on_lines(recipe: &'static str) -> Self {
        Self::Pretraining { recipe, corpus: Some("lines"), data: &data::LINES }
    }

    /// A recipe on a graph.
    const fn on_graph(recipe: &'static str) -> Self {
        Self::Pretraining { recipe, corpus: Some("graph"), data: &data::GRAPH }
    }

    /// A recipe that draws what it trains on.
    const fn on_draws(recipe: &'static str) -> Self {
        Self::Pretraining { recipe, corpus: None, data: &data::NOTHING }
    }

    /// What has to be made for it.
    pub fn data(&self) -> &'static DataSet {
        match self {
            Self::Pretraining { data, .. } => data,
            Self::Tasks { .. } => &data::TEXTS,
        }
    }
}

/// A checkpoint of an earlier commit, under `checkpoints/`.
pub struct OldCheckpoint {
    /// Its folder.
    pub name: &'static str,
    /// The step it was written after.
    pub step: u64,
}

/// Transformer-XL: Adam, clipping, dropout, warm-up, validation on the way, and the mean of the last weights.
pub const TINY: Run = Run {
    name: "tiny",
    kind: Kind::on_text("tiny", "corpus"),
    settings: &[&["eval.every=20", "eval.group=2", "average.start=35", "checkpoint.every=25"]],
    resumes: None,
};

/// XLNet by permutation: AdamW with weight decay, half of the lanes read backwards.
pub const TINY_XLNET: Run = Run {
    name: "tiny-xlnet",
    kind: Kind::on_text("tiny-xlnet", "pairs"),
    settings: &[&["eval.every=20", "checkpoint.every=25"]],
    resumes: None,
};

/// What both fine-tuning runs set: 160 examples of the first task are 20 steps an epoch. Their line ends as published.
const TASK_SETTINGS: [&str; 7] = [
    "schedule.end=last_step",
    "train.lanes=8",
    "train.micro_batch=2",
    "train.segment=32",
    "optim.lr=3e-3",
    "optim.weight_decay=0.01",
    "optim.layer_decay=0.9",
];

/// XLNet on one task: dropout, a linear schedule, rates that fall from layer to layer, the best model kept.
pub const FINETUNING: Run = Run {
    name: "finetuning",
    kind: Kind::Tasks { names: "sst2", sizes: &[] },
    settings: &[&TASK_SETTINGS, &["task.epochs=2.5", "eval.every=14"]],
    resumes: None,
};

/// Two tasks that share an encoder and take turns; each step passes over the other task's head.
pub const TWO_TASKS: Run = Run {
    name: "two-tasks",
    kind: Kind::Tasks { names: "sst2,cola", sizes: &[] },
    settings: &[&TASK_SETTINGS, &["task.epochs=1"]],
    resumes: None,
};

/// Goes on with memory, cursors and a mean of weights that has begun.
pub const RESUMED_PRETRAINING: Run = Run {
    name: "resumed-pretraining",
    kind: Kind::on_text("tiny", "corpus"),
    settings: &[&[
        "model.d_model=8",
        "model.d_inner=16",
        "model.mem_len=8",
        "train.lanes=4",
        "train.micro_batch=1",
        "train.segment=8",
        "train.steps=24",
        "average.start=8",
        "eval.every=10",
    ]],
    resumes: Some(OldCheckpoint { name: "pretraining", step: 12 }),
};

/// Goes on with the best value so far and the place in the epoch.
pub const RESUMED_FINETUNING: Run = Run {
    name: "resumed-finetuning",
    kind: Kind::Tasks {
        names: "sst2",
        sizes: &[&["model.d_model=8", "model.d_inner=16", "model.n_layer=1"]],
    },
    settings: &[&TASK_SETTINGS, &["task.epochs=1.5", "eval.every=8"]],
    resumes: Some(OldCheckpoint { name: "finetuning", step: 12 }),
};

/// What all runs of recurrent models set. Places of a text follow each other: evaluations of few lanes are what takes time.
const LSTM_SETTINGS: [&str; 4] = ["train.segment=12", "eval.lanes=8", "eval.group=4", "checkpoint.every=0"];

/// An LSTM: hidden states over segments and over the end of an epoch, and the mean of the last weights.
pub const LSTM: Run = Run {
    name: "lstm",
    kind: Kind::on_lines("tiny-lstm"),
    settings: &[
        &LSTM_SETTINGS,
        &[
            "model.cell=lstm",
            "model.mogrifier_rounds=0",
            "model.d_model=16",
            "train.steps=30",
            "average.start=20",
            "eval.every=15",
        ],
    ],
    resumes: None,
};

/// Mogrifier's gates before a rewired LSTM: lines in an order of each epoch, states that are dropped, RMSProp.
pub const MOGRIFIER: Run = Run {
    name: "mogrifier",
    kind: Kind::on_lines("tiny-lstm"),
    settings: &[
        &LSTM_SETTINGS,
        &[
            "data.order=lines",
            "model.d_model=16",
            "train.steps=30",
            "train.drop_state=0.05",
            "objective.loss_over=lanes",
            "optim.kind=rmsprop",
            "eval.every=15",
        ],
    ],
    resumes: None,
};

/// What both runs of AWD-LSTM set: lengths of segments as its program draws them, and the trigger of the mean, which fires early at the
/// recipe's rate.
const AWD_SETTINGS: [&str; 10] = [
    "train.lanes=8",
    "train.micro_batch=2",
    "train.varlen=false",
    "train.segment_half=0.2",
    "train.segment_spread=3",
    "train.segment_rest=true",
    "model.d_embed=6",
    "model.d_model=8",
    "model.d_last=6",
    "average.patience=1",
];

/// AWD-LSTM: weights, words and locked masks dropped, penalties on states. The mean begins after step 6 and stagnates at step 18; the run
/// goes back to its best weights and trains those.
pub const AWD: Run = Run {
    name: "awd",
    kind: Kind::on_lines("small-awd"),
    settings: &[&LSTM_SETTINGS, &AWD_SETTINGS, &["train.steps=22", "average.fine_tuning=1", "eval.every=2"]],
    resumes: None,
};

/// Goes on with hidden states, lanes in their second epoch, and a mean that the trigger has begun.
pub const RESUMED_AWD: Run = Run {
    name: "resumed-awd",
    kind: Kind::on_lines("small-awd"),
    settings: &[&LSTM_SETTINGS, &AWD_SETTINGS, &["train.steps=32", "eval.every=4"]],
    resumes: Some(OldCheckpoint { name: "awd", step: 20 }),
};

/// What both runs of Planetoid set: steps of contexts of labels, then of the graph, then rounds of a supervised step and, in half of
/// them, one of contexts.
const PLANETOID_SETTINGS: [&str; 8] = [
    "train.pretrain_label=6",
    "train.pretrain_contexts=8",
    "train.supervised_steps=1",
    "train.context_steps=0.5",
    "model.d_embed=8",
    "train.steps=40",
    "eval.every=20",
    "checkpoint.every=0",
];

/// Planetoid-T: an embedding of each node, contexts by the softmax over all nodes, means over their pairs.
pub const PLANETOID: Run = Run {
    name: "planetoid",
    kind: Kind::on_graph("planetoid-cora"),
    settings: &[&PLANETOID_SETTINGS, &["model.context_mean=true", "model.lambda=1", "optim.lr=1"]],
    resumes: None,
};

/// Planetoid-I: embeddings of features, pairs told from drawn ones, sums over them.
pub const PLANETOID_INDUCTIVE: Run = Run {
    name: "planetoid-inductive",
    kind: Kind::on_graph("planetoid-inductive"),
    settings: &[&PLANETOID_SETTINGS, &["model.contexts=negative", "optim.lr=0.5"]],
    resumes: None,
};

/// Strings read and written backwards, seen more than once in other orders: some are written without a mistake at the end, and some are not.
pub const REVERSE_COPY: Run = Run {
    name: "reverse-copy",
    kind: Kind::on_draws("reverse-copy-small"),
    settings: &[&[
        "model.tokens=4",
        "model.length=2",
        "model.parameters=3000",
        "model.mogrifier_rounds=3",
        "model.mogrifier_rank=2",
        "model.train_strings=40",
        "model.valid_strings=37",
        "model.test_strings=5",
        "train.lanes=16",
        "train.micro_batch=4",
        "train.steps=40",
        "optim.lr=1e-2",
        "optim.clip=1",
        "average.start=30",
        "eval.every=15",
        "checkpoint.every=0",
        "checkpoint.best=true",
    ]],
    resumes: None,
};

/// Two networks that take turns, an optimizer and a mean of weights for each, and the data's mean in the learner's state.
pub const MOMENT_GAME: Run = Run {
    name: "moment-game",
    kind: Kind::on_draws("moment-game"),
    settings: &[&[
        "train.lanes=16",
        "train.micro_batch=4",
        "train.steps=40",
        "average.start=20",
        "eval.every=15",
        "checkpoint.every=20",
    ]],
    resumes: None,
};
