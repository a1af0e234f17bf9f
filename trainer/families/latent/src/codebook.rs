//! Latents that are vectors of a codebook: VQ-VAE (van den Oord et al. 2017; Melis 2023, §5.A).

use segue_kernels::{Init, ParameterSpec, Parameters};
use tch::{Kind, Tensor};

/// Below this number of recent uses a vector stays where it is.
const UNUSED: f64 = 1e-6;
const VECTORS: &str = "codebook.vectors";

/// Vectors of each latent. They are means of what they were the nearest of, in which older uses count less and less: no gradient reaches them.
#[derive(Debug)]
pub struct Codebook {
    /// `[latents, values, width]`.
    vectors: Tensor,
    /// Recent uses of each: `[latents, values]`.
    counts: Tensor,
    /// Sums of what these were the nearest of: `[latents, values, width]`.
    sums: Tensor,
    /// What is left of uses after a step.
    decay: f64,
}

impl Codebook {
    /// Standard normal vectors: `[latents, values, width]`.
    pub fn new(shape: [i64; 3], decay: f64, seed: u64) -> Self {
        let init = Init::TruncatedNormal { mean: 0.0, std: 1.0 };
        let spec = ParameterSpec { name: VECTORS.into(), shape: shape.to_vec(), init };
        let vectors = Parameters::initialise(vec![spec], seed, Kind::Float).get(VECTORS).detach();
        let counts = Tensor::ones(&shape[..2], (Kind::Float, vectors.device()));
        Self { sums: vectors.copy(), vectors, counts, decay }
    }

    /// Numbers of the vectors that are nearest to `states`, `[sentences, latents, width]`: `[sentences, latents]`.
    pub fn nearest(&self, states: &Tensor) -> Tensor {
        let difference = states.detach().unsqueeze(2) - self.vectors.unsqueeze(0);
        difference.square().sum_dim_intlist(-1, false, None::<Kind>).argmin(-1, false)
    }

    /// The vectors of those numbers: `[sentences, latents, width]`.
    pub fn vectors(&self, codes: &Tensor) -> Tensor {
        let [latents, values, width] = self.vectors.size()[..] else {
            unreachable!("vectors have three axes")
        };
        let first = Tensor::arange(latents, (Kind::Int64, codes.device())) * values;
        Tensor::embedding(&self.vectors.view([latents * values, width]), &(codes + first), -1, false, false)
    }

    /// How often each vector is used, `[latents, values]`, and sums of what it is the nearest of, `[latents, values, width]`.
    pub fn uses(&self, states: &Tensor, codes: &Tensor) -> [Tensor; 2] {
        // [latents, values, sentences]
        let used = codes.one_hot(self.vectors.size()[1]).permute([1, 2, 0]).to_kind(Kind::Float);
        let sums = used.bmm(&states.detach().transpose(0, 1));
        [used.sum_dim_intlist(-1, false, None::<Kind>), sums]
    }

    /// Moves vectors by the sums of [`Self::uses`] over a batch, one value after the other.
    pub fn follow(&mut self, uses: &[f64]) {
        let (counts, sums) = uses.split_at(self.counts.numel());
        for (own, of_batch) in [(&mut self.counts, counts), (&mut self.sums, sums)] {
            let of_batch = Tensor::from_slice(of_batch).to_kind(Kind::Float).view_as(own);
            let moved = &*own * self.decay + of_batch * (1.0 - self.decay);
            own.copy_(&moved);
        }
        let means = &self.sums / self.counts.unsqueeze(-1);
        let used = self.counts.gt(UNUSED).unsqueeze(-1);
        let moved = means.where_self(&used, &self.vectors);
        self.vectors.copy_(&moved);
    }

    /// Sums that [`Self::begin`] takes: of the values of `states` and of their squares, `[latents, width]` each.
    pub fn moments(states: &Tensor) -> Vec<Tensor> {
        [states.shallow_clone(), states.square()]
            .map(|values| values.sum_dim_intlist(0, false, None::<Kind>))
            .into()
    }

    /// Spreads vectors as what they are to be near, by the sums of [`Self::moments`] over as many sentences.
    pub fn begin(&mut self, sums: &[f64], sentences: f64) {
        let [latents, _, width] = self.vectors.size()[..] else { unreachable!("vectors have three axes") };
        let [mean, square] = [0, 1].map(|part| {
            let sums = &sums[part * sums.len() / 2..][..sums.len() / 2];
            Tensor::from_slice(sums).view([latents, 1, width]) / sentences
        });
        let deviation = (square - mean.square()).clamp_min(0.0).sqrt();
        let spread = (&self.vectors * deviation + mean).to_kind(Kind::Float);
        self.vectors.copy_(&spread);
        self.sums.copy_(&spread);
    }

    /// What a checkpoint keeps of it.
    pub fn tables(&self) -> [(&'static str, Tensor); 3] {
        [(VECTORS, &self.vectors), ("codebook.counts", &self.counts), ("codebook.sums", &self.sums)]
            .map(|(name, table)| (name, table.shallow_clone()))
    }
}

#[cfg(test)]
mod tests;
