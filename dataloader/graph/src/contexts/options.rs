use segue_data_error::DataError;

/// How many pairs a walk gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairsPerWalk {
    /// One, uniform over the pairs of places within the window (Yang, Cohen and Salakhutdinov 2016, algorithm 2).
    One,
    /// All of them, in the order of the first place, then of the second (the public program).
    All,
}

/// How the two nodes of a label pair are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelPairs {
    /// The first node uniform over labelled nodes, the second over those of its class, itself among them; of a negative pair, over those
    /// of other classes (the public program).
    AnchorFirst,
    /// Uniform over ordered pairs of labelled nodes with equal labels; of negative pairs, with different ones (algorithm 2).
    UniformPairs,
}

/// Where walks start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Starts {
    /// Each at a node drawn uniformly (algorithm 2).
    Uniform,
    /// At each node once in a pass, in a random order that differs from pass to pass (the public program).
    Permuted,
}

/// What pairs are drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct ContextOptions {
    /// Probability that a pair is positive, the paper's r₁. In a negative pair the second node is drawn anew.
    pub positive: f64,
    /// Probability that a pair of [`Contexts::pairs`](crate::Contexts::pairs) is from the graph and not of labels, the paper's r₂.
    pub graph: f64,
    /// Nodes of a walk: q of algorithm 2; one more than the steps of the public program.
    pub walk: usize,
    /// Largest distance of the two places of a pair in the walk: `|j − k| ≤ window`, where algorithm 2 has `|j − k| < d`.
    pub window: usize,
    /// Whether a place is paired with itself too.
    pub within: bool,
    /// How many pairs a walk gives.
    pub per_walk: PairsPerWalk,
    /// Negative pairs that follow each positive one, besides those that `positive` makes.
    pub negatives: usize,
    /// How label pairs are drawn.
    pub labels: LabelPairs,
    /// Where walks start.
    pub starts: Starts,
}

impl ContextOptions {
    /// Algorithm 2 with the paper's settings: r₁ = 5/6, q = 10, d = 3; r₂, which it tuned, is ½.
    pub fn paper() -> ContextOptions {
        ContextOptions {
            positive: 5.0 / 6.0,
            graph: 0.5,
            walk: 10,
            window: 2,
            within: true,
            per_walk: PairsPerWalk::One,
            negatives: 0,
            labels: LabelPairs::UniformPairs,
            starts: Starts::Uniform,
        }
    }

    /// The public program: all pairs at distances up to 3 of walks of 10 steps, positive ones alone.
    pub fn public_program() -> ContextOptions {
        ContextOptions {
            positive: 1.0,
            graph: 0.5,
            walk: 11,
            window: 3,
            within: true,
            per_walk: PairsPerWalk::All,
            negatives: 0,
            labels: LabelPairs::AnchorFirst,
            starts: Starts::Permuted,
        }
    }

    /// Pairs of places of a walk that are within the window, in order.
    pub fn places(&self) -> Vec<(usize, usize)> {
        let near = |first: usize| {
            let from = first.saturating_sub(self.window);
            (from..self.walk.min(first.saturating_add(self.window).saturating_add(1)))
                .map(move |second| (first, second))
        };
        (0..self.walk).flat_map(near).filter(|(first, second)| self.within || first != second).collect()
    }

    /// Refuses what no pair can be drawn by.
    pub(super) fn check(&self) -> Result<(), DataError> {
        for (name, value) in [("positive", self.positive), ("graph", self.graph)] {
            if !(0.0..=1.0).contains(&value) {
                return Err(DataError::Usage(format!(
                    "the probability `{name}` is {value}, expected 0 to 1"
                )));
            }
        }
        if self.walk == 0 || self.walk > MAX_WALK {
            return Err(DataError::Usage(format!("a walk of {} nodes, expected 1 to {MAX_WALK}", self.walk)));
        }
        match self.places().is_empty() {
            false => Ok(()),
            true => Err(DataError::Usage(format!(
                "a walk of {} nodes with a window of {} has no pair",
                self.walk, self.window
            ))),
        }
    }
}

/// Nodes a walk may have; the pairs of its places are listed.
const MAX_WALK: usize = 4096;
