//! The mogrifier: input and state scale each other before a cell sees them (Melis et al. 2020; Melis 2023, §2.1).

use segue_kernels::{Init, Kernels, ParameterSpec, Parameters};
use tch::Tensor;

use super::matrix::factor_law;
use super::{Map, gates};

/// What a mogrifier is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MogrifierShape {
    /// Gates: those of odd number scale the input, those of even number the state.
    pub rounds: usize,
    /// Rank of each gate's matrix, as a product of two; 0 for one whole matrix.
    pub rank: usize,
    /// Gates have a bias.
    pub bias: bool,
    /// A gate sees the other side as the gate before left it, and not as it came.
    pub zigzag: bool,
}

/// One gate: 2σ(W s + a).
struct Gate {
    /// `[out, in]`, or the factors `[out, rank]` and `[rank, in]`.
    factors: Vec<Tensor>,
    bias: Option<Tensor>,
}

/// x^q = 2σ(Q^q h^(q−1) + a^q) ⊙ x^(q−2) for odd q, h^q = 2σ(R^q x^(q−1) + a^q) ⊙ h^(q−2) for even q (Melis 2023, eq. 2.2).
pub struct Mogrifier {
    gates: Vec<Gate>,
    zigzag: bool,
    kernels: Kernels,
}

/// Widths that gate `round`, from 1, writes and reads: x is `m` wide, h is `n` wide.
fn widths(round: usize, m: i64, n: i64) -> (i64, i64) {
    if round % 2 == 1 { (m, n) } else { (n, m) }
}

impl MogrifierShape {
    /// Its parameters below `prefix`. `weight` is the law of a whole matrix by the number of its inputs. Of factors, each is drawn so that
    /// their product varies as such a matrix does.
    pub fn specs(&self, prefix: &str, m: i64, n: i64, weight: impl Fn(i64) -> Init) -> Vec<ParameterSpec> {
        let mut specs = Vec::new();
        for round in 1..=self.rounds {
            let (out, fan_in) = widths(round, m, n);
            let mut add = |name: &str, shape: &[i64], init| {
                let name = format!("{prefix}mogrifier.{round}.{name}");
                specs.push(ParameterSpec { name, shape: shape.to_vec(), init });
            };
            match self.rank as i64 {
                0 => add("weight", &[out, fan_in], weight(fan_in)),
                rank => {
                    let init = factor_law(fan_in, rank);
                    add("left", &[out, rank], init);
                    add("right", &[rank, fan_in], init);
                }
            }
            if self.bias {
                add("bias", &[out], Init::Zeros);
            }
        }
        specs
    }

    /// The mogrifier over them; none of no rounds.
    pub fn build(&self, prefix: &str, parameters: &Parameters) -> Option<Mogrifier> {
        let gate = |round: usize| {
            let find = |name: &str| parameters.find(&format!("{prefix}mogrifier.{round}.{name}"));
            let factors = ["weight", "left", "right"].into_iter().filter_map(find).collect();
            Gate { factors, bias: find("bias") }
        };
        let gates: Vec<Gate> = (1..=self.rounds).map(gate).collect();
        (!gates.is_empty()).then(|| Mogrifier { gates, zigzag: self.zigzag, kernels: parameters.kernels() })
    }
}

impl Mogrifier {
    /// The mogrifier with its weights laid out for so many positions.
    pub fn unroll(&self, steps: usize) -> UnrolledMogrifier {
        let map = |weight: &Tensor, bias: Option<&Tensor>| Map::new(self.kernels, weight, bias, steps);
        let gate = |gate: &Gate| {
            // The factor that sees s comes last; the bias is added after the first.
            let factors = gate.factors.iter().enumerate().rev();
            factors.map(|(i, factor)| map(factor, gate.bias.as_ref().filter(|_| i == 0))).collect()
        };
        let gates = self.gates.iter().map(gate).collect();
        UnrolledMogrifier { gates, zigzag: self.zigzag, kernels: self.kernels }
    }
}

/// A mogrifier over a segment.
pub struct UnrolledMogrifier {
    /// Of each gate, the maps that s goes through.
    gates: Vec<Vec<Map>>,
    zigzag: bool,
    kernels: Kernels,
}

impl UnrolledMogrifier {
    /// What becomes of `hidden`, `[lanes, n]`, and `input`, `[lanes, m]`.
    pub fn mogrify(&self, hidden: Tensor, input: Tensor) -> (Tensor, Tensor) {
        let (mut h, mut x) = (hidden.shallow_clone(), input.shallow_clone());
        for (gate, round) in self.gates.iter().zip(1..) {
            let scales_input = round % 2 == 1;
            let seen = match (scales_input, self.zigzag) {
                (true, true) => &h,
                (true, false) => &hidden,
                (false, true) => &x,
                (false, false) => &input,
            };
            let scores = gate.iter().fold(seen.shallow_clone(), |s, map| map.apply(&s, None));
            let scaled = if scales_input { &mut x } else { &mut h };
            *scaled = gates::scaled(self.kernels, &scores, scaled);
        }
        (h, x)
    }
}
