//! The runs: every golden file is of one of these, with each family of kernels.

/// One run.
pub struct Run {
    /// The golden files' name.
    pub name: &'static str,
    /// What is trained on what.
    pub kind: Kind,
    /// Overrides of the recipe.
    pub settings: &'static [&'static str],
    /// The checkpoint it goes on from, where it does not begin at step 0.
    pub resumes: Option<OldCheckpoint>,
}

/// What is trained on what.
#[derive(Clone, Copy)]
pub enum Kind {
    /// Recipe `tiny` on bytes.
    Tiny,
    /// Recipe `tiny-xlnet` on sentences in sub-word pieces.
    TinyXlnet,
    /// An XLNet for a task, or several separated by commas.
    Tasks {
        /// Their names.
        names: &'static str,
        /// Sizes of the XLNet where they are not those of `tiny-xlnet`.
        sizes: &'static [&'static str],
    },
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
    kind: Kind::Tiny,
    settings: &["eval.every=20", "eval.group=2", "average.start=35", "checkpoint.every=25"],
    resumes: None,
};

/// XLNet by permutation: AdamW with weight decay, half of the lanes read backwards.
pub const TINY_XLNET: Run = Run {
    name: "tiny-xlnet",
    kind: Kind::TinyXlnet,
    settings: &["eval.every=20", "checkpoint.every=25"],
    resumes: None,
};

/// What both fine-tuning runs set: 160 examples of the first task are 20 steps an epoch.
const TASK_SETTINGS: [&str; 6] = [
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
    settings: &[
        TASK_SETTINGS[0],
        TASK_SETTINGS[1],
        TASK_SETTINGS[2],
        TASK_SETTINGS[3],
        TASK_SETTINGS[4],
        TASK_SETTINGS[5],
        "task.epochs=2.5",
        "eval.every=14",
    ],
    resumes: None,
};

/// Two tasks that share an encoder and take turns; each step passes over the other task's head.
pub const TWO_TASKS: Run = Run {
    name: "two-tasks",
    kind: Kind::Tasks { names: "sst2,cola", sizes: &[] },
    settings: &[
        TASK_SETTINGS[0],
        TASK_SETTINGS[1],
        TASK_SETTINGS[2],
        TASK_SETTINGS[3],
        TASK_SETTINGS[4],
        TASK_SETTINGS[5],
        "task.epochs=1",
    ],
    resumes: None,
};

/// Goes on with memory, cursors and a mean of weights that has begun.
pub const RESUMED_PRETRAINING: Run = Run {
    name: "resumed-pretraining",
    kind: Kind::Tiny,
    settings: &[
        "model.d_model=8",
        "model.d_inner=16",
        "model.mem_len=8",
        "train.lanes=4",
        "train.micro_batch=1",
        "train.segment=8",
        "train.steps=24",
        "average.start=8",
        "eval.every=10",
    ],
    resumes: Some(OldCheckpoint { name: "pretraining", step: 12 }),
};

/// Goes on with the best value so far and the place in the epoch.
pub const RESUMED_FINETUNING: Run = Run {
    name: "resumed-finetuning",
    kind: Kind::Tasks { names: "sst2", sizes: &["model.d_model=8", "model.d_inner=16", "model.n_layer=1"] },
    settings: &[
        TASK_SETTINGS[0],
        TASK_SETTINGS[1],
        TASK_SETTINGS[2],
        TASK_SETTINGS[3],
        TASK_SETTINGS[4],
        TASK_SETTINGS[5],
        "task.epochs=1.5",
        "eval.every=8",
    ],
    resumes: Some(OldCheckpoint { name: "finetuning", step: 12 }),
};
