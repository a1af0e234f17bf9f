//! Scalar parameters of an update, for the CPU and the GPU kernels.

/// Constants of the update of one parameter.
#[derive(Debug, Clone, Copy)]
pub(in crate::optim) struct Step {
    pub lr: f64,
    /// The gradient is divided by it.
    pub divisor: f64,
    pub beta1: f64,
    pub beta2: f64,
    /// What is left of the moments' bias towards zero, `1 − β^t`.
    pub corrections: [f64; 2],
    pub eps: f64,
    /// λ
    pub decay: f64,
    pub adapted: bool,
    /// Upper end of φ.
    pub limit: f64,
}

impl Step {
    /// What the rate is multiplied by where a parameter of length `weight` makes a step of length `step`.
    pub fn trust(&self, weight: f64, step: f64) -> f64 {
        match self.adapted && weight > 0.0 && step > 0.0 {
            true => weight.min(self.limit) / (step + self.eps),
            false => 1.0,
        }
    }
}
