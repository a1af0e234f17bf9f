//! Incremental decoding gives the log-probabilities of a forward pass over the whole text, for one text or a batch, also when texts end early.

use segue_configs::MemoryStart;
use segue_decode::{Generator, Sampling, Texts};
use segue_kernels::Parameters;
use segue_language::{NextToken, Writing};
use segue_lstm::LstmConfig;
use segue_transfo_xl::{LanguageModel, TransfoXlConfig};
use segue_xlnet::{AttentionDirection, LeftToRight, Sequence, Visibility, Xlnet, XlnetConfig};
use tch::{Kind, Tensor};

/// One text that a model goes on with.
fn generator<'a>(
    model: &'a dyn NextToken,
    prompt: &[i64],
    segment: usize,
    sampling: Sampling,
) -> Generator<'a> {
    Generator::new(Box::new(Writing::new(model, 1)), prompt, segment, sampling)
}

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

/// Row T25.
#[test]
fn memory_generation_equals_recomputing_the_whole_text() {
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
    let with_memory: Vec<i64> = generator(model, &prompt, 5, sampling).take(30).collect();
    let mut text = prompt.clone();
    for drawn in 0..30 {
        let ids = Tensor::from_slice(&text).unsqueeze(0);
        let log_probs = Vec::<f64>::try_from(tch::no_grad(|| recompute(&ids))).unwrap();
        text.push(sampling.token(&log_probs, drawn));
    }
    assert_eq!(with_memory, text[13..]);
    let again: Vec<i64> = generator(model, &prompt, 13, sampling).take(30).collect();
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
    let mut pieces = generator(&model, &[1, 2, 3], 2, greedy);
    pieces.read(&[], 2);
    pieces.read(&[4, 5, 6, 7], 3);
    let whole = generator(&model, &[1, 2, 3, 4, 5, 6, 7], 8, greedy);
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
        let decoder = Box::new(Writing::new(model, own.len()));
        for tokens in Texts::new(decoder, &own, 4, samplings).unwrap().take(25) {
            tokens.into_iter().for_each(|drawn| written[group[drawn.text]].push(drawn.token));
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
        let alone = |(text, prompt): (u64, &Vec<i64>)| {
            generator(model, prompt, 4, TOP_40.of_text(text)).take(25).collect()
        };
        let alone: Vec<Vec<i64>> = (0..).zip(&prompts).map(alone).collect();
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

fn small_lstm() -> segue_lstm::LanguageModel {
    segue_kernels::libtorch::set_threads(1);
    let config = LstmConfig { vocab_size: 60, d_model: 16, n_layer: 2, ..Default::default() };
    let parameters = Parameters::initialise(segue_lstm::specs(&config), 4, Kind::Double);
    segue_lstm::LanguageModel::from_parameters(&config, parameters)
}

/// Each text of a batch up to its first end, and the number of texts that went on at each step.
fn until_end(model: &dyn NextToken, prompts: &[Vec<i64>], end: i64) -> (Vec<Vec<i64>>, Vec<usize>) {
    let (mut written, mut going_on) = (vec![Vec::new(); prompts.len()], Vec::new());
    let own: Vec<&[i64]> = prompts.iter().map(Vec::as_slice).collect();
    let samplings = (0..prompts.len() as u64).map(|text| TOP_40.of_text(text)).collect();
    let texts = Texts::new(Box::new(Writing::new(model, own.len())), &own, 4, samplings).unwrap();
    for tokens in texts.ending_with(Some(end)).take(60) {
        going_on.push(tokens.len());
        tokens.into_iter().for_each(|drawn| written[drawn.text].push(drawn.token));
    }
    (written, going_on)
}

#[test]
fn texts_that_end_leave_the_others_as_they_are() {
    let (uni, bi) = (small_xlnet(AttentionDirection::Uni), small_xlnet(AttentionDirection::Bi));
    let (transfo_xl, lstm) = (small_model(), small_lstm());
    let models: [&dyn NextToken; 4] = [&transfo_xl, &lstm, &uni, &bi];
    let prompts: Vec<Vec<i64>> =
        (0..9).map(|text| (0..6).map(|i| (i * i + 7 * text) % 60).collect()).collect();
    for (number, model) in models.into_iter().enumerate() {
        let alone: Vec<Vec<i64>> = (0..)
            .zip(&prompts)
            .map(|(text, prompt)| generator(model, prompt, 4, TOP_40.of_text(text)).take(60).collect())
            .collect();
        // The token that ends most of the texts, each at another place.
        let ends = |token: &i64| alone.iter().filter(|text| text.contains(token)).count();
        let end = (0..60).max_by_key(ends).unwrap();
        let expected: Vec<Vec<i64>> = alone
            .iter()
            .map(|text| {
                let length = text.iter().position(|token| *token == end).map_or(60, |at| at + 1);
                text[..length].to_vec()
            })
            .collect();
        let (written, going_on) = until_end(model, &prompts, end);
        assert_eq!(written, expected, "model {number}");
        assert!(
            going_on.windows(2).filter(|pair| pair[1] < pair[0]).count() > 1,
            "model {number}: {going_on:?}"
        );
    }
}
