//! Text one token at a time. Keys and values of what was read depend on the states that were read and not on where
//! they are seen from, so they are made once and kept; so are the keys of distances (Dai et al. 2019, §3.3).

use std::collections::VecDeque;

use segue_language::Steps;
use segue_layers::Memory;
use tch::Tensor;

use super::config::AttnType;
use super::encoding::Positions;
use super::model::TransfoXl;
use super::window::Window;

/// A model that reads one token of each lane at a time.
pub struct StepByStep<'a> {
    model: &'a TransfoXl,
    /// What was read before.
    memory: Memory,
    windows: Vec<Window>,
    /// Of each layer, `[heads, width, distances]`, the farthest first.
    position_keys: Vec<Tensor>,
    /// What each layer has read since, `[lanes, 1, d_model]` each; as many as a memory holds.
    inputs: Vec<VecDeque<Tensor>>,
}

impl<'a> StepByStep<'a> {
    /// `None` of a model whose keys depend on where they are seen from, and of a memory with marks.
    pub fn new(model: &'a TransfoXl, memory: &Memory) -> Option<Self> {
        if model.config().attn_type != AttnType::Relative || memory.documents.is_some() {
            return None;
        }
        let context = model.context;
        let limit = context.same_length.map_or(context.mem_len, |keys| context.mem_len.min(keys - 1));
        let layers = model.layers();
        tch::no_grad(|| {
            let positions = Positions::new(model.config(), &context, limit + 1, model.options(), |x| x);
            Some(Self {
                model,
                windows: layers.iter().zip(&memory.layers).map(|(l, read)| l.window(read, limit)).collect(),
                position_keys: layers.iter().filter_map(|layer| layer.position_keys(&positions)).collect(),
                inputs: layers.iter().map(|_| VecDeque::new()).collect(),
                memory: Memory {
                    layers: memory.layers.iter().map(Tensor::shallow_clone).collect(),
                    documents: None,
                },
            })
        })
    }
}

impl Steps for StepByStep<'_> {
    fn step(&mut self, ids: &Tensor) -> Tensor {
        let held = self.model.context.mem_len as usize;
        let mut hidden = self.model.embed(ids);
        for (i, layer) in self.model.layers().iter().enumerate() {
            self.inputs[i].push_back(hidden.unsqueeze(1));
            if self.inputs[i].len() > held {
                self.inputs[i].pop_front();
            }
            hidden = layer.step(&hidden, &mut self.windows[i], &self.position_keys[i]);
        }
        self.model.softmax().log_probs(&hidden)
    }

    fn keep(&mut self, lanes: &Tensor) {
        self.memory = self.memory.of_lanes(lanes);
        let inputs = self.inputs.iter_mut().flatten();
        inputs.for_each(|input| *input = input.index_select(0, lanes));
        let heads = self.model.config().n_head as i64;
        self.windows.iter_mut().for_each(|window| window.keep(lanes, heads));
    }

    fn memory(self: Box<Self>) -> Memory {
        if self.inputs.iter().all(VecDeque::is_empty) {
            return self.memory;
        }
        let read: Vec<Tensor> =
            self.inputs.iter().map(|inputs| Tensor::cat(&inputs.iter().collect::<Vec<_>>(), 1)).collect();
        self.memory.extended(&read, None, self.model.context.mem_len)
    }
}

#[cfg(test)]
mod tests {
    use segue_configs::MemoryStart;
    use segue_language::{FromMemory, NextToken};
    use tch::{Device, Kind};

    use super::*;
    use crate::{LanguageModel, TransfoXlConfig};

    const LANES: i64 = 3;

    fn small() -> TransfoXlConfig {
        TransfoXlConfig {
            vocab_size: 29,
            d_model: 16,
            n_head: 2,
            d_inner: 24,
            n_layer: 2,
            mem_len: 7,
            init_std: 0.3,
            ..Default::default()
        }
    }

    /// The ids of all lanes at one step.
    fn ids(step: i64) -> Tensor {
        ((Tensor::arange(LANES, (Kind::Int64, Device::Cpu)) + 1) * (step + 3) * 5).remainder(29)
    }

    fn apart(a: &Tensor, b: &Tensor) -> f64 {
        assert_eq!(a.size(), b.size());
        (a - b).abs().max().double_value(&[])
    }

    #[test]
    fn kept_keys_and_values_change_no_probability_and_no_memory() {
        let base = small();
        let configs = [
            base.clone(),
            TransfoXlConfig { memory_start: MemoryStart::Empty, mem_len: 1, ..base.clone() },
            TransfoXlConfig { memory_start: MemoryStart::Empty, mem_len: 50, clamp_len: 4, ..base.clone() },
            TransfoXlConfig { same_length: true, ..base.clone() },
            TransfoXlConfig { pre_lnorm: true, untie_r: true, ..base.clone() },
            TransfoXlConfig { cutoffs: vec![10, 20], div_val: 2, d_embed: 16, ..base },
        ];
        for config in configs {
            let model = LanguageModel::new(&config, 4, Kind::Double);
            let prompt = Tensor::stack(&(0..4).map(ids).collect::<Vec<_>>(), 1);
            let read = || model.read(&prompt, &model.memory_start(LANES));
            let mut kept = Box::new(StepByStep::new(&model.model, &read()).expect("relative attention"));
            let mut anew = Box::new(FromMemory { model: &model, memory: read() });
            // More than twice what the buffers hold.
            for step in 0..40 {
                let own = ids(step).narrow(0, 0, if step > 20 { 1 } else { LANES });
                let (a, b) = (kept.step(&own), anew.step(&own));
                let apart = apart(&a, &b);
                assert!(apart < 1e-11, "step {step}: {apart}, {config:?}");
                // Lanes leave and change places on the way, as texts that end and beams do.
                let changes: [(i64, &[i64]); 3] = [(7, &[2, 0, 1]), (11, &[0, 0, 2]), (20, &[1])];
                for (_, lanes) in changes.into_iter().filter(|(at, _)| *at == step) {
                    let lanes = Tensor::from_slice(lanes);
                    kept.keep(&lanes);
                    anew.keep(&lanes);
                }
            }
            let (kept, anew) = ((kept as Box<dyn Steps>).memory(), (anew as Box<dyn Steps>).memory());
            for (a, b) in kept.layers.iter().zip(&anew.layers) {
                assert!(apart(a, b) < 1e-11, "{config:?}");
            }
        }
    }

    #[test]
    fn a_memory_that_nothing_was_added_to_comes_back() {
        let model = LanguageModel::new(&small(), 4, Kind::Double);
        let memory = model.read(&ids(0).unsqueeze(1), &model.memory_start(LANES));
        let back = model.steps(Memory {
            layers: memory.layers.iter().map(Tensor::shallow_clone).collect(),
            documents: None,
        });
        assert!(back.memory().layers == memory.layers);
    }

    #[test]
    fn keys_that_depend_on_their_distance_are_made_anew() {
        for attn_type in [AttnType::Absolute, AttnType::Learned, AttnType::Shaw] {
            let model = LanguageModel::new(&TransfoXlConfig { attn_type, ..small() }, 4, Kind::Double);
            assert!(StepByStep::new(&model.model, &model.memory_start(LANES)).is_none());
        }
    }
}
