use tch::Tensor;

/// The vectors that a model begins with, each word's the same wherever it stands: ids `[rows, length]` to
/// `[rows, length, d_model]`.
pub struct WordVectors(Box<dyn Fn(&Tensor) -> Tensor>);

impl WordVectors {
    /// Of a model that looks words up like this.
    pub fn new(look_up: impl Fn(&Tensor) -> Tensor + 'static) -> Self {
        Self(Box::new(look_up))
    }

    /// `ids`: `[rows, length]`; returns `[rows, length, d_model]`.
    pub fn forward(&self, ids: &Tensor) -> Tensor {
        (self.0)(ids)
    }
}
