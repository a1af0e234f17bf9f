//! What each step trains (Yang 2019, algorithm 3).

use segue_random::{Purpose, Stream};

use super::sections::TurnsConfig;
use super::variant::Variant;

/// What a batch is of, and the number of the source it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Labelled nodes; where labels spread, all nodes.
    Supervised = 0,
    /// Contexts, of the graph with probability r2 and else of labels; or edges, whose ends are to agree.
    Contexts = 1,
    /// Contexts of labels.
    LabelContexts = 2,
}

impl Task {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Supervised, Self::Contexts, Self::LabelContexts];

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Supervised => "supervised",
            Self::Contexts => "contexts",
            Self::LabelContexts => "label contexts",
        }
    }
}

/// Steps of one kind in a row.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    task: Task,
    /// The step before the first of them.
    after: u64,
    steps: u64,
}

/// The order of steps: pre-training by contexts of labels, then of the graph, then rounds of T1 supervised steps and T2 of contexts. A
/// fraction in T1 or T2 is the probability of one step more, drawn for each round.
///
/// All of it is a function of the configuration and the seed. What is kept here is how far it has been worked out.
#[derive(Debug, Clone)]
pub struct Turns {
    seed: u64,
    pretraining: [u64; 2],
    per_round: [f64; 2],
    /// Rounds begun.
    rounds: u64,
    stretch: Stretch,
    /// Stretches of the open round still to come.
    next: Option<Stretch>,
    /// Steps of each task before the stretch.
    done: [u64; 3],
}

impl Turns {
    /// Of a run of this variant with this seed.
    pub fn new(config: &TurnsConfig, variant: Variant, seed: u64) -> Self {
        let (pretraining, per_round) = if variant.spreads() || !variant.has_contexts() {
            let context_steps = if variant.has_penalty() { config.context_steps } else { 0.0 };
            ([0, 0], [config.supervised_steps, context_steps])
        } else {
            (
                [config.pretrain_label, config.pretrain_contexts],
                [config.supervised_steps, config.context_steps],
            )
        };
        let stretch = Stretch { task: Task::LabelContexts, after: 0, steps: pretraining[0] };
        let next = Some(Stretch { task: Task::Contexts, after: pretraining[0], steps: pretraining[1] });
        Self { seed, pretraining, per_round, rounds: 0, stretch, next, done: [0; 3] }
    }

    /// What step `step` (from 1) trains, and which of its task's batches it takes, from 1. Steps are asked for in rising order for the
    /// most part: one that lies back is worked out from the beginning.
    pub fn at(&mut self, step: u64) -> (Task, u64) {
        if step <= self.stretch.after {
            self.rewind();
        }
        while step > self.stretch.after + self.stretch.steps {
            self.advance();
        }
        let Stretch { task, after, .. } = self.stretch;
        (task, self.done[task as usize] + step - after)
    }

    fn rewind(&mut self) {
        let [label, graph] = self.pretraining;
        self.stretch = Stretch { task: Task::LabelContexts, after: 0, steps: label };
        self.next = Some(Stretch { task: Task::Contexts, after: label, steps: graph });
        (self.rounds, self.done) = (0, [0; 3]);
    }

    fn advance(&mut self) {
        let Stretch { task, after, steps } = self.stretch;
        self.done[task as usize] += steps;
        let end = after + steps;
        if let Some(next) = self.next.take() {
            self.stretch = next;
            return;
        }
        let draws = Stream::new(self.seed, Purpose::Mixture, &[self.rounds]);
        let steps = |n: usize| {
            let mean = self.per_round[n];
            mean.floor() as u64 + u64::from(draws.uniform(n as u64) < mean.fract())
        };
        let (supervised, contexts) = (steps(0), steps(1));
        self.rounds += 1;
        self.stretch = Stretch { task: Task::Supervised, after: end, steps: supervised };
        self.next = Some(Stretch { task: Task::Contexts, after: end + supervised, steps: contexts });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pretrain: [u64; 2], per_round: [f64; 2]) -> TurnsConfig {
        TurnsConfig {
            pretrain_label: pretrain[0],
            pretrain_contexts: pretrain[1],
            supervised_steps: per_round[0],
            context_steps: per_round[1],
            ..Default::default()
        }
    }

    /// Row P10.
    #[test]
    fn pretraining_comes_first_and_rounds_number_the_batches_of_each_source() {
        let mut turns = Turns::new(&config([2, 1], [2.0, 1.0]), Variant::Transductive, 3);
        let found: Vec<_> = (1..=9).map(|step| turns.at(step)).collect();
        let (l, c, s) = (Task::LabelContexts, Task::Contexts, Task::Supervised);
        let expected = [(l, 1), (l, 2), (c, 1), (s, 1), (s, 2), (c, 2), (s, 3), (s, 4), (c, 3)];
        assert_eq!(found, expected);
        // Asked again, from wherever.
        for step in [9, 1, 4, 4, 3, 8] {
            assert_eq!(turns.at(step), expected[step as usize - 1]);
        }
    }

    /// Of 4,000 rounds one in ten has a step of contexts: 400 of them, with a standard deviation of √(4000 · 0.1 · 0.9) = 19.
    /// Row P10.
    #[test]
    fn a_fraction_of_a_tenth_is_a_binomial_count() {
        let mut turns = Turns::new(&config([0, 0], [1.0, 0.1]), Variant::Transductive, 7);
        let mut counts = [0u64; 3];
        let mut step = 0;
        while counts[0] < 4000 {
            step += 1;
            let (task, nth) = turns.at(step);
            counts[task as usize] += 1;
            assert_eq!(nth, counts[task as usize], "step {step}");
        }
        assert!(counts[1].abs_diff(400) < 5 * 19 && counts[2] == 0, "{counts:?}");
        let of_another_seed: Vec<_> = (1..=100)
            .map(|step| Turns::new(&config([0, 0], [1.0, 0.1]), Variant::Transductive, 8).at(step))
            .collect();
        let of_this: Vec<_> = (1..=100).map(|step| turns.at(step)).collect();
        assert_ne!(of_this, of_another_seed);
    }

    /// Row P10.
    #[test]
    fn what_has_no_contexts_is_trained_by_labels_alone() {
        let of = |variant| Turns::new(&config([5, 5], [1.0, 1.0]), variant, 1);
        for variant in [Variant::Features, Variant::LabelPropagation] {
            assert_eq!(of(variant).at(9), (Task::Supervised, 9), "{variant:?}");
        }
        assert_eq!(of(Variant::Manireg).at(2), (Task::Contexts, 1));
    }
}
