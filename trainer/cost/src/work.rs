//! What a run trains, turn by turn.

use std::ops::Range;

use segue_configs::OptimConfig;
use segue_kernels::ParameterSpec;
use serde::Serialize;

use super::{Bounds, MicroStep, Role, VALUE_BYTES, product};

/// What language models read.
const TOKENS: &str = "tokens";

/// What a run trains, and what that takes: all that its family has to say of its cost.
pub struct Work {
    /// Every parameter, in the order of the forward pass, those of one network after those of another.
    pub specs: Vec<ParameterSpec>,
    /// What each of them is for.
    pub roles: Vec<Role>,
    /// The turns of a cycle that steps go through over and over, in their order: at least one, each of at least one step.
    pub turns: Vec<TurnWork>,
    /// What is held beside what is trained.
    pub beside: Beside,
    /// What is counted as tokens are: words, images.
    pub unit: &'static str,
    /// Name of each network and the range of its parameters in `specs`; empty for a single network.
    networks: Vec<(&'static str, Range<usize>)>,
}

/// Weights beside those that are trained, in values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beside {
    /// Those that stay as they are.
    pub frozen: u64,
    /// Those that each micro-step computes anew from others.
    pub computed: u64,
}

impl Beside {
    /// Bytes in memory: of what is computed the weights, what they are sums of, and their gradients.
    pub fn bytes(self) -> u64 {
        product(&[self.frozen, VALUE_BYTES]).saturating_add(product(&[3, self.computed, VALUE_BYTES]))
    }
}

/// Steps of a run that do the same, one after the other.
pub struct TurnWork {
    /// How many they are in a cycle.
    pub steps: u64,
    /// Networks that each of them updates, by their place in the family's order.
    pub networks: Vec<usize>,
    /// A micro-step of one of them.
    pub micro_step: MicroStep,
}

/// One network of several.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NetworkCost {
    /// Its name.
    pub name: &'static str,
    /// Number of its parameters.
    pub parameters: u64,
    /// Bytes of its optimizer's tables.
    pub optimizer: u64,
    /// Steps of the run that update it.
    pub updates: u64,
}

impl Work {
    /// Of one network, or of several that every step updates by the rule of `[optim]`. `role` says of a parameter's name what it is for.
    pub fn new(specs: Vec<ParameterSpec>, micro_step: MicroStep, role: impl Fn(&str) -> Role) -> Self {
        let roles = specs.iter().map(|spec| role(&spec.name)).collect();
        let turn = TurnWork { steps: 1, networks: Vec::new(), micro_step };
        let beside = Beside::default();
        Self { specs, roles, turns: vec![turn], beside, unit: TOKENS, networks: Vec::new() }
    }

    /// Of several networks, by name and in the family's order, that take turns. Panics without a step in a cycle.
    pub fn of_turns(
        networks: Vec<(&'static str, Vec<ParameterSpec>)>,
        turns: Vec<TurnWork>,
        role: impl Fn(&str) -> Role,
    ) -> Self {
        assert!(turns.iter().any(|turn| turn.steps > 0), "a cycle has at least one step");
        let turns = turns.into_iter().filter(|turn| turn.steps > 0).collect();
        let (mut specs, mut named) = (Vec::new(), Vec::new());
        for (name, own) in networks {
            named.push((name, specs.len()..specs.len() + own.len()));
            specs.extend(own);
        }
        let roles = specs.iter().map(|spec| role(&spec.name)).collect();
        Self { specs, roles, turns, beside: Beside::default(), unit: TOKENS, networks: named }
    }

    /// The same of a model that reads `unit` for tokens.
    pub fn counted_in(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    /// Parameters that a step of `turn` updates, with what they are for.
    pub fn updated_in(&self, turn: &TurnWork) -> (Vec<ParameterSpec>, Vec<Role>) {
        if self.networks.is_empty() {
            return (self.specs.clone(), self.roles.clone());
        }
        let own = turn.networks.iter().flat_map(|&n| self.networks[n].1.clone());
        own.map(|i| (self.specs[i].clone(), self.roles[i])).unzip()
    }

    /// The mean over the steps of a cycle.
    pub fn mean(&self, of: impl Fn(&MicroStep) -> f64) -> f64 {
        let steps: u64 = self.turns.iter().map(|turn| turn.steps).sum();
        let sum: f64 = self.turns.iter().map(|turn| turn.steps as f64 * of(&turn.micro_step)).sum();
        sum / steps as f64
    }

    /// The same of a value between bounds.
    pub fn mean_bounds(&self, of: impl Fn(&MicroStep) -> Bounds) -> Bounds {
        Bounds { least: self.mean(|step| of(step).least), most: self.mean(|step| of(step).most) }
    }

    /// The most of any turn.
    pub fn most(&self, of: impl Fn(&MicroStep) -> f64) -> f64 {
        self.turns.iter().map(|turn| of(&turn.micro_step)).fold(0.0, f64::max)
    }

    /// The same of a count, which is exact.
    pub fn most_of(&self, of: impl Fn(&MicroStep) -> u64) -> u64 {
        self.turns.iter().map(|turn| of(&turn.micro_step)).max().unwrap_or(0)
    }

    /// The mean of a count over the steps of a cycle, rounded down: exact where all turns have the same.
    pub fn mean_of(&self, of: impl Fn(&MicroStep) -> u64) -> u64 {
        let steps: u128 = self.turns.iter().map(|turn| u128::from(turn.steps)).sum();
        let sum: u128 =
            self.turns.iter().map(|turn| u128::from(turn.steps) * u128::from(of(&turn.micro_step))).sum();
        (sum / steps.max(1)) as u64
    }

    /// Bytes of the tables that update rules keep: of `networks`, which are its own, or of a single network by the rule of `optim`.
    pub fn moments(&self, networks: &[NetworkCost], optim: &OptimConfig) -> u64 {
        match networks {
            [] => product(&[optim.tables(), count(&self.specs), VALUE_BYTES]),
            several => several.iter().map(|network| network.optimizer).fold(0, u64::saturating_add),
        }
    }

    /// The cost of each network in a run of so many steps; empty for a single network. `tables`: how many the update rule of a network keeps.
    pub fn by_network(&self, steps: u64, tables: impl Fn(&str) -> u64) -> Vec<NetworkCost> {
        let of = |(n, (name, own)): (usize, &(&'static str, Range<usize>))| {
            let parameters = count(&self.specs[own.clone()]);
            NetworkCost {
                name,
                parameters,
                optimizer: product(&[tables(name), parameters, VALUE_BYTES]),
                updates: self.updates(n, steps),
            }
        };
        self.networks.iter().enumerate().map(of).collect()
    }

    /// How many of the first `steps` steps update network `n`.
    fn updates(&self, n: usize, steps: u64) -> u64 {
        let cycle = self.turns.iter().map(|turn| turn.steps).fold(0, u64::saturating_add);
        let within = |steps: u64| {
            let mut left = steps;
            let of_turn = |turn: &TurnWork| {
                let made = left.min(turn.steps);
                left -= made;
                if turn.networks.contains(&n) { made } else { 0 }
            };
            self.turns.iter().map(of_turn).sum::<u64>()
        };
        (steps / cycle) * within(cycle) + within(steps % cycle)
    }
}

/// Number of values of parameters.
fn count(specs: &[ParameterSpec]) -> u64 {
    specs.iter().map(|spec| spec.numel() as u64).fold(0, u64::saturating_add)
}
