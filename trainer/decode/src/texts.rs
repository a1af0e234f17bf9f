use std::sync::atomic::{AtomicI64, Ordering};

use segue_data_error::DataError;
use segue_kernels::libtorch::stream::put;
use segue_kernels::{TrainError, threads};
use tch::{Kind, Tensor};

use super::{Decoder, Hypothesis, Sampling, Symbols};

/// A token that was drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drawn {
    /// The number of its text.
    pub text: usize,
    /// The token.
    pub token: i64,
    /// ln P of it by the model, whatever the temperature and the tokens that could not be drawn.
    pub log_prob: f64,
}

/// Texts in the making, a row of a decoder each: the last token of each, and how many were drawn. Without an end token they never end of
/// themselves.
pub struct Texts<'a> {
    decoder: Box<dyn Decoder + 'a>,
    /// The number of the text that each row is of.
    numbers: Vec<usize>,
    /// How each row chooses, with the seed of its own draws.
    samplings: Vec<Sampling>,
    /// The last token of each row, which the decoder has not read.
    last: Vec<i64>,
    drawn: u64,
    end: Option<i64>,
}

impl<'a> Texts<'a> {
    /// Reads `prompts`, which are of one length, in segments of `segment` tokens, by a fresh decoder of as many rows. Text k goes on from prompt k as
    /// `samplings[k]` says; [`Sampling::of_text`] gives texts seeds of their own.
    ///
    /// A text depends on its prompt and its sampling, and not on the others beside it, but for the last bits of
    /// log-probabilities: a matrix product may round otherwise for more rows.
    ///
    /// Prompts of several lengths, or a number of samplings that is not theirs, are an error.
    pub fn new(
        decoder: Box<dyn Decoder + 'a>,
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
        Ok(Self::reading(decoder, prompts, segment, samplings))
    }

    /// The same of prompts that are known to be of one length, one for each sampling.
    fn reading(
        decoder: Box<dyn Decoder + 'a>,
        prompts: &[&[i64]],
        segment: usize,
        samplings: Vec<Sampling>,
    ) -> Self {
        let numbers = (0..prompts.len()).collect();
        // What has no prompt goes on from token 0.
        let last = prompts.iter().map(|prompt| prompt.first().copied().unwrap_or(0)).collect();
        let mut this = Self { decoder, numbers, samplings, last, drawn: 0, end: None };
        let rest: Vec<&[i64]> = prompts.iter().map(|prompt| prompt.get(1..).unwrap_or_default()).collect();
        this.read(&rest, segment);
        this
    }

    /// The same texts, of which each ends with the first `end` that it draws, and leaves the batch then.
    pub fn ending_with(self, end: Option<i64>) -> Self {
        Self { end, ..self }
    }

    /// Reads more of each text, `ids` of one length, in segments of `segment` tokens.
    fn read(&mut self, ids: &[&[i64]], segment: usize) {
        let length = ids.first().map_or(0, |ids| ids.len());
        // The last token waits: it is read when the one after it is asked for.
        let waiting: Vec<Vec<i64>> =
            self.last.iter().zip(ids).map(|(last, ids)| [&[*last], *ids].concat()).collect();
        for start in (0..length).step_by(segment.max(1)) {
            let end = length.min(start + segment.max(1));
            let part: Vec<i64> = waiting.iter().flat_map(|ids| &ids[start..end]).copied().collect();
            let part = self.there(&part).view([self.last.len() as i64, (end - start) as i64]);
            self.decoder.read(&part);
        }
        for (last, waiting) in self.last.iter_mut().zip(waiting) {
            *last = waiting[length];
        }
    }

    /// Ids where the decoder wants them.
    fn there(&self, ids: &[i64]) -> Tensor {
        put(Tensor::from_slice(ids), self.decoder.device())
    }

    /// Log-probabilities of the token after each text so far, one text after the other, once the decoder has read their last tokens.
    fn advance(&mut self) -> Vec<f64> {
        let ids = self.there(&self.last);
        let log_probs = self.decoder.step(&ids);
        let flat = log_probs.reshape([-1]).to_kind(Kind::Double);
        let mut values = vec![0.0; flat.numel()];
        flat.copy_data(&mut values, flat.numel());
        values
    }

    /// Removes the texts that have drawn their end.
    fn leave(&mut self) {
        let Some(end) = self.end else { return };
        let stays: Vec<usize> = (0..self.last.len()).filter(|row| self.last[*row] != end).collect();
        if stays.len() == self.last.len() {
            return;
        }
        let rows: Vec<i64> = stays.iter().map(|row| *row as i64).collect();
        if !rows.is_empty() {
            let rows = self.there(&rows);
            self.decoder.keep(&rows);
        }
        self.numbers = stays.iter().map(|row| self.numbers[*row]).collect();
        self.samplings = stays.iter().map(|row| self.samplings[*row]).collect();
        self.last = stays.iter().map(|row| self.last[*row]).collect();
    }
}

impl Iterator for Texts<'_> {
    /// The next token of each text that goes on.
    type Item = Vec<Drawn>;

    /// Draws one token of each text. Ends where no text goes on.
    fn next(&mut self) -> Option<Vec<Drawn>> {
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
        let drawn_of = |row: usize| {
            let (text, token) = (self.numbers[row], self.last[row]);
            Drawn { text, token, log_prob: log_probs[row * vocabulary + token as usize] }
        };
        let drawn = (0..texts).map(drawn_of).collect();
        self.leave();
        Some(drawn)
    }
}

/// A text in the making: [`Texts`] of one.
pub struct Generator<'a>(Texts<'a>);

impl<'a> Generator<'a> {
    /// Reads `prompt` (at least one token) in segments of `segment` tokens, by a fresh decoder of one row.
    pub fn new(decoder: Box<dyn Decoder + 'a>, prompt: &[i64], segment: usize, sampling: Sampling) -> Self {
        Self(Texts::reading(decoder, &[prompt], segment, vec![sampling]))
    }

    /// The same text, which ends with the first `end` that it draws.
    pub fn ending_with(self, end: Option<i64>) -> Self {
        Self(self.0.ending_with(end))
    }

    /// Whether it has drawn its end: nothing can be read or written after that.
    pub fn has_ended(&self) -> bool {
        self.0.last.is_empty()
    }

    /// Reads more of a text that has not ended, in segments of `segment` tokens, after what was read and written before.
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

    /// Draws one token; none once the text has ended.
    fn next(&mut self) -> Option<i64> {
        self.0.next()?.pop().map(|drawn| drawn.token)
    }
}

/// Draws texts, of which text k has at most `limits[k]` tokens, its end among them, as `samplings[k]` says. `decoder` has read all but the start and has a row
/// for each text. The score of a text is its ln P.
///
/// A text depends on no other one, but for what `decoder` rounds otherwise where it has other rows.
pub fn draw_texts<'a>(
    decoder: Box<dyn Decoder + 'a>,
    limits: &[usize],
    symbols: Symbols,
    samplings: &[Sampling],
) -> Vec<Hypothesis> {
    let fresh =
        Hypothesis { tokens: Vec::new(), log_prob: 0.0, score: 0.0, ended: false, alignments: Vec::new() };
    let mut found = vec![fresh; limits.len()];
    let samplings =
        samplings.iter().map(|sampling| Sampling { exclude: symbols.never, ..*sampling }).collect();
    let start = [symbols.start];
    let starts = vec![&start[..]; limits.len()];
    let texts = Texts::reading(decoder, &starts, 1, samplings).ending_with(Some(symbols.end));
    let longest = limits.iter().copied().max().unwrap_or(0);
    for (step, tokens) in texts.take(longest).enumerate() {
        // Texts are decoded side by side until the longest one may be: what is drawn beyond a text's own limit is no part of it.
        for drawn in tokens.into_iter().filter(|drawn| step < limits[drawn.text]) {
            let text = &mut found[drawn.text];
            text.log_prob += drawn.log_prob;
            text.score = text.log_prob;
            match drawn.token == symbols.end {
                true => text.ended = true,
                false => text.tokens.push(drawn.token),
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;

    const WORDS: i64 = 5;

    /// A decoder whose next token is the sum of all that a row has read, modulo the number of words.
    struct Sums(Tensor);

    impl Decoder for Sums {
        fn read(&mut self, ids: &Tensor) {
            self.0 += ids.sum_dim_intlist(1, false, Kind::Int64);
        }

        fn step(&mut self, last: &Tensor) -> Tensor {
            self.0 += last;
            self.0.remainder(WORDS).one_hot(WORDS).to_kind(Kind::Double).log()
        }

        fn keep(&mut self, rows: &Tensor) {
            self.0 = self.0.index_select(0, rows);
        }

        fn device(&self) -> Device {
            Device::Cpu
        }
    }

    fn sums(rows: i64) -> Box<dyn Decoder> {
        Box::new(Sums(Tensor::zeros([rows], (Kind::Int64, Device::Cpu))))
    }

    const GREEDY: Sampling = Sampling { temperature: 0.0, ..Sampling::ALL };

    /// What a text of these first tokens goes on with: each token is the sum of all before it.
    fn expected(prompt: &[i64], tokens: usize) -> Vec<i64> {
        let mut text = prompt.to_vec();
        (0..tokens).for_each(|_| text.push(text.iter().sum::<i64>() % WORDS));
        text.split_off(prompt.len())
    }

    #[test]
    fn a_text_is_read_in_segments_and_written_on() {
        for segment in [1, 2, 3, 10] {
            let written: Vec<i64> = Generator::new(sums(1), &[1, 2, 4], segment, GREEDY).take(9).collect();
            assert_eq!(written, expected(&[1, 2, 4], 9), "segments of {segment}");
        }
        let mut pieces = Generator::new(sums(1), &[1], 2, GREEDY);
        pieces.read(&[], 2);
        pieces.read(&[2, 4], 2);
        assert_eq!(pieces.take(9).collect::<Vec<_>>(), expected(&[1, 2, 4], 9));
    }

    #[test]
    fn texts_that_end_leave_and_the_others_go_on_unchanged() {
        let prompts: [&[i64]; 4] = [&[1, 1], &[1, 4], &[2, 4], &[3, 3]];
        let mut written = vec![Vec::new(); prompts.len()];
        let mut side_by_side = Vec::new();
        for drawn in Texts::new(sums(4), &prompts, 8, vec![GREEDY; 4]).unwrap().ending_with(Some(0)).take(12)
        {
            side_by_side.push(drawn.len());
            drawn.into_iter().for_each(|drawn| written[drawn.text].push(drawn.token));
        }
        for (prompt, written) in prompts.iter().zip(&written) {
            let mut whole = expected(prompt, 12);
            if let Some(end) = whole.iter().position(|token| *token == 0) {
                whole.truncate(end + 1);
            }
            assert_eq!(*written, whole, "{prompt:?}");
        }
        assert_eq!(written[1], [0]);
        assert_eq!(side_by_side[..2], [4, 3], "the text that ended at once has left");
    }

    #[test]
    fn nothing_is_drawn_once_all_have_ended() {
        let mut texts = Texts::new(sums(1), &[&[1, 4]], 8, vec![GREEDY]).unwrap().ending_with(Some(0));
        let end = Drawn { text: 0, token: 0, log_prob: 0.0 };
        assert_eq!((texts.next(), texts.next()), (Some(vec![end]), None));
        let mut text = Generator::new(sums(1), &[1, 4], 8, GREEDY).ending_with(Some(0));
        assert!(!text.has_ended() && text.next() == Some(0) && text.has_ended());
    }

    #[test]
    fn what_does_not_go_side_by_side_is_told() {
        let batch = |prompts: &[&[i64]], samplings| {
            Texts::new(sums(prompts.len() as i64), prompts, 4, vec![GREEDY; samplings]).err()
        };
        let error = batch(&[&[1, 2], &[3]], 2).unwrap();
        assert!(error.to_string().contains("prompts of 2 and of 1 tokens"), "{error}");
        assert!(batch(&[&[1, 2]], 2).unwrap().to_string().contains("1 prompts and 2 samplings"));
        assert!(batch(&[&[1, 2], &[3, 4]], 2).is_none());
        assert_eq!(Texts::new(sums(0), &[], 4, Vec::new()).unwrap().next(), None);
    }

    /// A decoder whose tokens have the same probabilities whatever was read.
    struct Fixed {
        rows: i64,
        log_probs: Tensor,
    }

    impl Decoder for Fixed {
        fn read(&mut self, _: &Tensor) {}

        fn step(&mut self, last: &Tensor) -> Tensor {
            assert_eq!(last.size(), [self.rows]);
            self.log_probs.expand([self.rows, -1], false)
        }

        fn keep(&mut self, rows: &Tensor) {
            self.rows = rows.size()[0];
        }

        fn device(&self) -> Device {
            Device::Cpu
        }
    }

    #[test]
    fn drawn_texts_have_their_lengths_and_probabilities() {
        let probabilities = [0.25f64, 0.5, 0.05, 0.2];
        let symbols = Symbols { start: 3, end: 0, never: Some(3) };
        let limits: Vec<usize> = (0..2000).map(|text| 1 + text % 5).collect();
        let draw = |texts: std::ops::Range<usize>| {
            let decoder = Fixed {
                rows: texts.len() as i64,
                log_probs: Tensor::from_slice(&probabilities).log().view([1, -1]),
            };
            let samplings: Vec<_> = texts.clone().map(|text| Sampling::ALL.of_text(text as u64)).collect();
            draw_texts(Box::new(decoder), &limits[texts], symbols, &samplings)
        };
        let found = draw(0..limits.len());
        for (text, limit) in found.iter().zip(&limits) {
            assert!(text.tokens.iter().all(|token| [1, 2].contains(token)), "{text:?}");
            let length = text.tokens.len() + usize::from(text.ended);
            assert!(if text.ended { length <= *limit } else { length == *limit }, "{text:?} of {limit}");
            let ends = if text.ended { probabilities[0].ln() } else { 0.0 };
            let expected =
                text.tokens.iter().map(|token| probabilities[*token as usize].ln()).sum::<f64>() + ends;
            assert!((text.log_prob - expected).abs() < 1e-12 && text.score == text.log_prob);
        }
        // Of those that may have one token a fraction 0.25 / 0.8 ends at once: within four deviations.
        let ended = found.iter().step_by(5).filter(|text| text.ended).count() as f64;
        assert!((ended - 400.0 * 0.3125).abs() < 4.0 * (400.0f64 * 0.3125 * 0.6875).sqrt(), "{ended}");
        // A text is the same beside any others.
        assert_eq!(draw(7..8)[0], found[7]);
        assert_eq!(draw(500..900), found[500..900]);
    }
}
