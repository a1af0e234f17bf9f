//! The points there are.

/// What a point takes besides what ends, stops or slows a process, which all do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// Refusals of the system.
    Refusals,
    /// A spoiled tensor.
    Spoils,
}

use Takes::{Nothing, Refusals, Spoils};

/// Every point by name, in the order in which a run comes by.
pub const POINTS: [(&str, Takes); 32] = [
    // A step.
    ("step.begin", Nothing),
    ("step.forward", Nothing),
    ("step.backward", Nothing),
    ("micro-step", Spoils),
    ("reduce.bucket", Nothing),
    ("step.sum", Nothing),
    ("gradient", Spoils),
    ("step.update", Nothing),
    ("weights", Spoils),
    ("average", Spoils),
    ("evaluation.part", Nothing),
    // A checkpoint: a copy on the main thread; on the writer's, rank 0 begins and publishes, the others contribute.
    ("checkpoint.stage", Nothing),
    ("checkpoint.begin", Nothing),
    ("checkpoint.contribute", Nothing),
    ("tensors.write", Refusals),
    ("checkpoint.publish", Nothing),
    ("checkpoint.prune", Refusals),
    ("checkpoint.pruned-half", Refusals),
    // A folder that is published, each before what it is called after.
    ("folder.make", Refusals),
    ("folder.lock", Refusals),
    ("folder.sync-file", Refusals),
    ("folder.sync", Refusals),
    ("folder.rename", Refusals),
    ("folder.exchange", Refusals),
    ("folder.retire", Refusals),
    ("folder.sync-parent", Refusals),
    ("folder.remove-old", Refusals),
    // A file, and a link.
    ("file.sync", Refusals),
    ("file.rename", Refusals),
    ("link.make", Refusals),
    ("link.rename", Refusals),
    ("link.sync-parent", Refusals),
];
