use std::sync::atomic::{AtomicI64, Ordering};

use segue_data_error::DataError;
use segue_kernels::libtorch::stream::put;
use segue_kernels::{TrainError, threads};
use segue_language::{Decoder, NextToken};
use segue_layers::Memory;
use tch::{Kind, Tensor};

use super::Sampling;

/// Texts in the making, one a lane: the memory of each, its last token, and how many were drawn. They never end of
/// themselves.
pub struct Texts<'a> {
    model: &'a dyn NextToken,
    /// How each chooses, with the seed of its own draws.
    samplings: Vec<Sampling>,
    state: State<'a>,
    /// The last token of each, which has not entered its memory.
    last: Vec<i64>,
    drawn: u64,
}

/// What texts were read into: segments are read into a memory, single tokens by a decoder.
enum State<'a> {
    Reading(Memory),
    Writing(Box<dyn Decoder + 'a>),
}

impl<'a> Texts<'a> {
    /// Reads `prompts`, which are of one length, in segments of `segment` tokens. Text k goes on from prompt k as
    /// `samplings[k]` says; [`Sampling::of_text`] gives texts seeds of their own.
    ///
    /// A text depends on its prompt and its sampling, and not on the others beside it, but for the last bits of
    /// log-probabilities: a matrix product may round otherwise for more lanes.
    ///
    /// Prompts of several lengths, or a number of samplings that is not theirs, are an error.
    pub fn new(
        model: &'a dyn NextToken,
        prompts: &[&[i64]],
        segment: usize,
        samplings: Vec<Sampling>,
    ) -> Result<Self, TrainError> {
        let length = prompts.first().map_or(0, |prompt| prompt.len());
        if let Some(other) = prompts.iter().find(|prompt| prompt.len() != length) {
            let why =
                format!("prompts of {length} and of {} tokens cannot be read side by side", other.len());
            return Err(DataError::Usage(why).into());
        }
        if prompts.len() != samplings.len() {
            let why = format!("{} prompts and {} samplings", prompts.len(), samplings.len());
            return Err(DataError::Usage(why).into());
        }
        Ok(Self::reading(model, prompts, segment, samplings))
    }

    /// The same of prompts that are known to be of one length, one for each sampling.
    fn reading(
        model: &'a dyn NextToken,
        prompts: &[&[i64]],
        segment: usize,
        samplings: Vec<Sampling>,
    ) -> Self {
        let state = State::Reading(model.memory_start(prompts.len() as i64));
        // What has no prompt goes on from token 0.
        let last = prompts.iter().map(|prompt| prompt.first().copied().unwrap_or(0)).collect();
        let mut this = Self { model, samplings, state, last, drawn: 0 };
        let rest: Vec<&[i64]> = prompts.iter().map(|prompt| prompt.get(1..).unwrap_or_default()).collect();
        this.read(&rest, segment);
        this
    }

    /// Reads more of each text, `ids` of one length, in segments of `segment` tokens.
    fn read(&mut self, ids: &[&[i64]], segment: usize) {
        let length = ids.first().map_or(0, |ids| ids.len());
        // The last token waits: it enters the memory when the one after it is asked for.
        let waiting: Vec<Vec<i64>> =
            self.last.iter().zip(ids).map(|(last, ids)| [&[*last], *ids].concat()).collect();
        let mut memory = self.take_memory();
        for start in (0..length).step_by(segment.max(1)) {
            let end = length.min(start + segment.max(1));
            let part: Vec<i64> = waiting.iter().flat_map(|ids| &ids[start..end]).copied().collect();
            let part =
                self.there(Tensor::from_slice(&part).view([self.last.len() as i64, (end - start) as i64]));
            memory = self.model.read(&part, &memory);
        }
        self.state = State::Reading(memory);
        for (last, waiting) in self.last.iter_mut().zip(waiting) {
            *last = waiting[length];
        }
    }

    /// Ids where the model lives.
    fn there(&self, ids: Tensor) -> Tensor {
        put(ids, self.model.parameters().options().1)
    }

    /// The memory, which is to be put back.
    fn take_memory(&mut self) -> Memory {
        match std::mem::replace(
            &mut self.state,
            State::Reading(Memory { layers: Vec::new(), documents: None }),
        ) {
            State::Reading(memory) => memory,
            State::Writing(decoder) => decoder.memory(),
        }
    }

    /// What tells the next token of each text.
    fn decoder(&mut self) -> &mut (dyn Decoder + 'a) {
        if let State::Reading(_) = self.state {
            self.state = State::Writing(self.model.decoder(self.take_memory()));
        }
        match &mut self.state {
            State::Writing(decoder) => decoder.as_mut(),
            State::Reading(_) => unreachable!("made above"),
        }
    }

    /// Log-probabilities of the token after each text so far, one text after the other; the last tokens enter the
    /// memory.
    fn advance(&mut self) -> Vec<f64> {
        let ids = self.there(Tensor::from_slice(&self.last));
        let log_probs = self.decoder().next_log_probs(&ids);
        let flat = log_probs.reshape([-1]).to_kind(Kind::Double);
        let mut values = vec![0.0; flat.numel()];
        flat.copy_data(&mut values, flat.numel());
        values
    }
}

impl Iterator for Texts<'_> {
    type Item = Vec<i64>;

    /// Draws one token of each text. Ends at once where there are no texts.
    fn next(&mut self) -> Option<Vec<i64>> {
        let texts = self.last.len();
        if texts == 0 {
            return None;
        }
        let (log_probs, chosen) = (self.advance(), (0..texts).map(|_| AtomicI64::new(0)).collect::<Vec<_>>());
        let (vocabulary, samplings, drawn) = (log_probs.len() / texts, &self.samplings, self.drawn);
        threads::for_each(texts, |text| {
            let log_probs = &log_probs[text * vocabulary..][..vocabulary];
            chosen[text].store(samplings[text].token(log_probs, drawn), Ordering::Relaxed);
        });
        self.last = chosen.into_iter().map(AtomicI64::into_inner).collect();
        self.drawn += 1;
        Some(self.last.clone())
    }
}

/// A text in the making: [`Texts`] of one.
pub struct Generator<'a>(Texts<'a>);

impl<'a> Generator<'a> {
    /// Reads `prompt` (at least one token) in segments of `segment` tokens.
    pub fn new(model: &'a dyn NextToken, prompt: &[i64], segment: usize, sampling: Sampling) -> Self {
        Self(Texts::reading(model, &[prompt], segment, vec![sampling]))
    }

    /// Reads more text, in segments of `segment` tokens. What was read and written before stays in the
    /// memory.
    pub fn read(&mut self, ids: &[i64], segment: usize) {
        self.0.read(&[ids], segment);
    }

    /// Chooses tokens in another way from now on.
    pub fn set_sampling(&mut self, sampling: Sampling) {
        self.0.samplings = vec![sampling];
    }
}

impl Iterator for Generator<'_> {
    type Item = i64;

    /// Draws one token. The text never ends of itself.
    fn next(&mut self) -> Option<i64> {
        self.0.next()?.pop()
    }
}

#[cfg(test)]
mod tests {
    use segue_configs::MemoryStart;
    use segue_kernels::Parameters;
    use segue_transfo_xl::{LanguageModel, TransfoXlConfig};
    use segue_xlnet::{AttentionDirection, LeftToRight, Sequence, Visibility, Xlnet, XlnetConfig};

    use super::*;

    const ALL: Sampling = Sampling::ALL;

    /// A model without memory at the start, and text whose every token it has room to remember.
    fn small_model() -> LanguageModel {
        segue_kernels::libtorch::set_threads(1);
        let config = TransfoXlConfig {
            vocab_size: 60,
            d_model: 16,
            n_head: 2,
            d_inner: 24,
            n_layer: 2,
            mem_len: 100,
            init_std: 0.3,
            memory_start: MemoryStart::Empty,
            ..Default::default()
        };
        LanguageModel::new(&config, 4, Kind::Double)
    }

    #[test]
    fn t25_memory_generation_equals_recomputing_the_whole_text() {
        let model = small_model();
        memory_equals_recomputing(&model, |ids| {
            let out = model.model.forward(ids, &model.memory_start(1), None);
            model.model.log_probs(&out.hidden).get(0).get(-1)
        });
    }

    /// Text made with memory against that of `recompute`, which gives the log-probabilities after a whole text.
    fn memory_equals_recomputing(model: &dyn NextToken, recompute: impl Fn(&Tensor) -> Tensor) {
        let prompt: Vec<i64> = (0..13).map(|i| i * i % 60).collect();
        let sampling = Sampling { top_k: 40, seed: 7, ..ALL };
        let with_memory: Vec<i64> = Generator::new(model, &prompt, 5, sampling).take(30).collect();
        let mut text = prompt.clone();
        for drawn in 0..30 {
            let ids = Tensor::from_slice(&text).unsqueeze(0);
            let log_probs = Vec::<f64>::try_from(tch::no_grad(|| recompute(&ids))).unwrap();
            text.push(sampling.token(&log_probs, drawn));
        }
        assert_eq!(with_memory, text[13..]);
        let again: Vec<i64> = Generator::new(model, &prompt, 13, sampling).take(30).collect();
        assert_eq!(again, with_memory);
    }

    fn small_xlnet(attn_type: AttentionDirection) -> LeftToRight {
        segue_kernels::libtorch::set_threads(1);
        let config = XlnetConfig {
            vocab_size: 60,
            d_model: 16,
            n_head: 2,
            d_inner: 24,
            n_layer: 2,
            mem_len: 100,
            // Less than what is read at a time: what is generated from remembers all the same.
            reuse_len: 3,
            initializer_range: 0.5,
            memory_start: MemoryStart::Empty,
            attn_type,
            ..Default::default()
        };
        LeftToRight::new(&config, Parameters::initialise(Xlnet::specs(&config), 4, Kind::Double))
    }

    #[test]
    fn xlnet_generation_with_memory_equals_recomputing_the_whole_text() {
        let model = small_xlnet(AttentionDirection::Bi);
        memory_equals_recomputing(&model, |ids| {
            let longer = Tensor::cat(&[ids, &Tensor::from_slice(&[17i64]).view([1, 1])], 1);
            let length = ids.size()[1];
            let ranks = Tensor::arange(length + 1, (Kind::Int64, tch::Device::Cpu)).unsqueeze(0);
            let last = Tensor::from_slice(&[length]).view([1, 1]);
            let visibility = Visibility::Ranks { ranks: &ranks, halves_at: 0 };
            let sequence = Sequence { visibility, targets: Some(&last), ..Sequence::new(&longer) };
            let out = model.model.forward(sequence, &model.memory_start(1), None);
            model.model.logits(&out.predictions.unwrap()).log_softmax(-1, None::<Kind>).reshape([-1])
        });
    }

    #[test]
    fn a_left_to_right_xlnet_generates_as_it_was_trained() {
        let model = small_xlnet(AttentionDirection::Uni);
        memory_equals_recomputing(&model, |ids| {
            let out = model.model.forward(Sequence::new(ids), &model.memory_start(1), None);
            model.model.logits(&out.content.unwrap()).log_softmax(-1, None::<Kind>).get(0).get(-1)
        });
    }

    #[test]
    fn text_read_in_pieces_is_text_read_at_once() {
        let model = small_model();
        let greedy = Sampling { temperature: 0.0, ..ALL };
        let mut pieces = Generator::new(&model, &[1, 2, 3], 2, greedy);
        pieces.read(&[], 2);
        pieces.read(&[4, 5, 6, 7], 3);
        let whole = Generator::new(&model, &[1, 2, 3, 4, 5, 6, 7], 8, greedy);
        assert_eq!(pieces.take(10).collect::<Vec<_>>(), whole.take(10).collect::<Vec<_>>());
    }

    const TOP_40: Sampling = Sampling { top_k: 40, ..ALL };

    /// 25 tokens of each text, `lanes` of them side by side.
    fn written(model: &dyn NextToken, prompts: &[Vec<i64>], lanes: usize) -> Vec<Vec<i64>> {
        let mut written = vec![Vec::new(); prompts.len()];
        let numbers: Vec<usize> = (0..prompts.len()).collect();
        for group in numbers.chunks(lanes) {
            let own: Vec<&[i64]> = group.iter().map(|&text| prompts[text].as_slice()).collect();
            let samplings = group.iter().map(|&text| TOP_40.of_text(text as u64)).collect();
            for tokens in Texts::new(model, &own, 4, samplings).unwrap().take(25) {
                group.iter().zip(tokens).for_each(|(&text, token)| written[text].push(token));
            }
        }
        written
    }

    #[test]
    fn texts_of_a_batch_are_those_drawn_one_by_one() {
        let (uni, bi) = (small_xlnet(AttentionDirection::Uni), small_xlnet(AttentionDirection::Bi));
        let models: [&dyn NextToken; 3] = [&small_model(), &uni, &bi];
        let prompts: Vec<Vec<i64>> =
            (0..11).map(|text| (0..9).map(|i| (i * i + 7 * text) % 60).collect()).collect();
        for model in models {
            let generator = |(text, prompt): (u64, &Vec<i64>)| {
                Generator::new(model, prompt, 4, TOP_40.of_text(text)).take(25).collect()
            };
            let alone: Vec<Vec<i64>> = (0..).zip(&prompts).map(generator).collect();
            for lanes in [1, 2, 3, 64] {
                assert_eq!(written(model, &prompts, lanes), alone, "{lanes} lanes");
            }
        }
    }

    #[test]
    fn equal_prompts_are_continued_differently() {
        let model = small_model();
        let written = written(&model, &vec![vec![1, 2]; 6], 6);
        for (i, text) in written.iter().enumerate() {
            assert!(text.len() == 25 && written[..i].iter().all(|other| other != text));
        }
    }

    #[test]
    fn what_does_not_go_side_by_side_is_told() {
        let model = small_model();
        let batch =
            |prompts: &[&[i64]], samplings| Texts::new(&model, prompts, 4, vec![ALL; samplings]).err();
        let error = batch(&[&[1, 2], &[3]], 2).unwrap();
        assert!(error.to_string().contains("prompts of 2 and of 1 tokens"), "{error}");
        assert!(batch(&[&[1, 2]], 2).unwrap().to_string().contains("1 prompts and 2 samplings"));
        assert!(batch(&[&[1, 2], &[3, 4]], 2).is_none());
        assert_eq!(Texts::new(&model, &[], 4, Vec::new()).unwrap().next(), None);
    }
}
