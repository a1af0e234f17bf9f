//! Sequences of pairs, against the reference's rules written down a second time over plain lists.

#[path = "scratch/pairs.rs"]
mod naive;
use crate::scratch;

use std::fs;
use std::sync::LazyLock;

use proptest::prelude::*;
use scratch::models::MODELS;
use scratch::text::sample_text;
use scratch::{all_tokens, options};
use segue_configs::Config;
use segue_data_error::DataError;
use segue_dataloader::sections::{DataConfig, PairsConfig, SegmentConfig, SpanKind, targets_per_lane};
use segue_dataloader::{
    Batch, BuildOptions, Corpus, LaneCursor, Lanes, PairLanes, PairOptions, Pairs, Preset, Split,
    TokenizerChoice, build,
};
use segue_random::{Draws, Purpose};
use segue_tokenizer::{Tokenizer, TokenizerKind, TrainOptions};

/// Lanes as a configuration says.
fn open_lanes(config: &Config, corpora: &[Corpus], split: Split) -> Result<PairLanes, DataError> {
    let options = PairOptions::of(&config.train, &config.model, &config.own)?;
    PairLanes::open(options, &config.own.get::<DataConfig>().weights, corpora, split)
}

/// A corpus of sub-word pieces with everything that the naive way needs of it.
struct Text {
    corpus: Corpus,
    tokenizer: Tokenizer,
    tokens: Vec<i64>,
    /// Flips at every sentence.
    flags: Vec<bool>,
    _folder: tempfile::TempDir,
}

impl Text {
    fn build(text: &str, tokenizer: TokenizerChoice) -> Text {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("text"), folder.path().join("corpus"));
        fs::write(&input, text).unwrap();
        let options = options(Preset::Sentences, TokenizerKind::Bpe, &input, &output);
        build(&BuildOptions { tokenizer, shard_tokens: 3000, ..options }, &()).unwrap();
        let corpus = Corpus::open(&output).unwrap();
        let tokens = all_tokens(&corpus.tokens(Split::Train).unwrap());
        let sentences = corpus.sentences(Split::Train).unwrap();
        let mut flags = vec![false; tokens.len()];
        for start in (0..sentences.len()).filter_map(|i| sentences.get(i).unwrap()) {
            flags[start as usize..].iter_mut().for_each(|flag| *flag = !*flag);
        }
        Text { tokenizer: corpus.tokenizer().unwrap(), corpus, tokens, flags, _folder: folder }
    }

    fn id(&self, token: &str) -> i64 {
        self.tokenizer.token_id(token).unwrap().into()
    }
}

fn pieces() -> TokenizerChoice {
    let special_tokens = ["<cls>", "<sep>", "<mask>"].map(String::from).to_vec();
    TokenizerChoice::Train(TrainOptions {
        vocab_size: Some(320),
        special_tokens,
        ..TrainOptions::new(TokenizerKind::Bpe)
    })
}

static TEXT: LazyLock<Text> = LazyLock::new(|| Text::build(&sample_text(900), pieces()));

fn config(keys: &[&str]) -> Config {
    let all: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
    MODELS.load(None, &all).unwrap().config
}

/// Sequences of 64 tokens, 32 of them reused, 10 targets.
const SMALL: [&str; 4] = ["train.segment=64", "model.reuse_len=32", "train.lanes=8", "train.micro_batch=4"];

fn small(keys: &[&str]) -> Config {
    config(&[&SMALL[..], keys].concat())
}

fn open(config: &Config) -> PairLanes {
    open_lanes(config, std::slice::from_ref(&TEXT.corpus), Split::Train).unwrap()
}

/// Reads a step of all lanes, found without those before it.
fn step(lanes: &PairLanes, count: usize, step: u64) -> Batch {
    let cursors: Vec<LaneCursor> = (0..count).map(|lane| lanes.cursor(lane, step)).collect();
    lanes.batch(0..count, &cursors, step).unwrap()
}

fn pairs(batch: &Batch) -> &Pairs {
    batch.pairs.as_ref().unwrap()
}

/// The piece of the text that a stream of `streams` reads.
fn piece(stream: usize, streams: usize, reversed: bool) -> (Vec<i64>, Vec<bool>) {
    let len = TEXT.tokens.len() / streams;
    let (mut tokens, mut flags) =
        (TEXT.tokens[stream * len..][..len].to_vec(), TEXT.flags[stream * len..][..len].to_vec());
    if reversed {
        tokens.reverse();
        flags.reverse();
    }
    (tokens, flags)
}

/// Whether a byte-level piece begins a word: the reference's punctuation does where it stands alone, which an apostrophe, `=` and `>` are not.
fn begins_word(token: i64) -> bool {
    let piece = TEXT.tokenizer.token(token as u32).unwrap();
    let alone =
        piece.chars().count() == 1 && piece.chars().all(|c| c.is_ascii_punctuation() && !"'=>".contains(c));
    piece.starts_with('Ġ') || piece.starts_with('Ċ') || piece.starts_with('<') || alone
}

/// What one row of a batch should be: inputs, segments, label and places of the targets.
fn naive_row(
    config: &Config,
    stream: usize,
    reversed: bool,
    pass: u64,
    offset: usize,
) -> (Vec<i64>, Vec<i64>, bool, Vec<i64>) {
    let streams = config.train.lanes / if config.own.get::<PairsConfig>().bidirectional { 2 } else { 1 };
    let (text, flags) = piece(stream, streams, reversed);
    let (segment, reused) = (config.own.get::<SegmentConfig>().segment, segment_reused(config));
    let key = [stream as u64, u64::from(reversed), pass, offset as u64];
    let mut draws = Draws::new(config.train.seed, Purpose::Pairs, &key);
    let ([a, a_end, b, b_end], follows) =
        naive::segments(&flags, offset + reused, segment - reused - 3, &mut draws);
    let (sep, cls) = (TEXT.id("<sep>"), TEXT.id("<cls>"));
    let inputs =
        [&text[offset..offset + reused], &text[a..a_end], &[sep], &text[b..b_end], &[sep, cls]].concat();
    let mut segments = vec![0; reused + a_end - a + 1];
    segments.resize(segment - 1, 1);
    segments.push(2);
    let mut draws = Draws::new(config.train.seed, Purpose::Spans, &key);
    let words = config.own.get::<PairsConfig>().spans == SpanKind::Words;
    let goal = targets_per_lane(&config.own);
    let mut chosen =
        naive::spans(&inputs[..reused], reversed, words, goal - goal / 2, begins_word, &mut draws);
    chosen.extend(naive::spans(&inputs[reused..], reversed, words, goal / 2, begins_word, &mut draws));
    let text_only = |place: &usize| chosen[*place] && inputs[*place] != sep && inputs[*place] != cls;
    let places = (0..segment).filter(text_only).map(|place| place as i64).collect();
    (inputs, segments, follows, places)
}

fn segment_reused(config: &Config) -> usize {
    config.model.reuse_len().unwrap()
}

/// Checks every row of a step against the naive way.
fn compare(config: &Config, lanes: &PairLanes, at: u64) {
    let count = config.train.lanes;
    let (batch, segment, targets) =
        (step(lanes, count, at), config.own.get::<SegmentConfig>().segment, targets_per_lane(&config.own));
    let half = config.train.micro_batch / 2;
    for lane in 0..count {
        let in_micro = lane % config.train.micro_batch;
        let (stream, reversed) = match config.own.get::<PairsConfig>().bidirectional {
            true => (lane / config.train.micro_batch * half + in_micro % half, in_micro >= half),
            false => (lane, false),
        };
        let begin = lanes.cursor(lane, at);
        let (inputs, segments, follows, places) =
            naive_row(config, stream, reversed, begin.epoch, begin.offset as usize);
        assert_eq!(batch.inputs[lane * segment..][..segment], inputs);
        let pairs = pairs(&batch);
        assert_eq!(pairs.segments[lane * segment..][..segment], segments);
        assert_eq!((pairs.follows[lane], pairs.reversed[lane]), (follows, reversed));
        assert_eq!(pairs.positions[lane * targets..][..places.len()], places);
        for (i, place) in places.iter().enumerate() {
            assert_eq!(batch.targets[lane * targets + i], inputs[*place as usize]);
        }
        let weights = &pairs.weights[lane * targets..][..targets];
        let expected: Vec<f32> = (0..targets).map(|i| f32::from(u8::from(i < places.len()))).collect();
        assert_eq!(weights, expected);
    }
}

/// Rows X2, X3.
#[test]
fn rows_are_those_of_the_rules_written_down_naively() {
    for keys in [&[][..], &["pairs.spans=words"], &["pairs.bidirectional=false"], &["model.reuse_len=20"]] {
        let config = small(keys);
        let lanes = open(&config);
        for at in (1..=3 * lanes.steps_per_pass(0)).step_by(7) {
            compare(&config, &lanes, at);
        }
    }
}

/// Row X2.
#[test]
fn half_of_the_pairs_follow_and_lengths_add_up() {
    let config = small(&[]);
    let lanes = open(&config);
    let (mut follow, mut all) = (0u64, 0u64);
    for at in 1..=1500 {
        let batch = step(&lanes, 8, at);
        let pairs = pairs(&batch);
        follow += pairs.follows.iter().filter(|follows| **follows).count() as u64;
        all += 8;
        for row in 0..8 {
            let segments = &pairs.segments[row * 64..][..64];
            let inputs = &batch.inputs[row * 64..][..64];
            let first = segments.iter().position(|segment| *segment == 1).unwrap();
            let (a, b) = (first - 1 - 32, 62 - first);
            assert_eq!(a + b, 64 - 32 - 3);
            assert_eq!((inputs[first - 1], inputs[62]), (TEXT.id("<sep>"), TEXT.id("<sep>")));
            assert_eq!((inputs[63], segments[63]), (TEXT.id("<cls>"), 2));
        }
    }
    // Every A of this text has an edge to be cut at, so that half of the pairs follow; two standard deviations.
    let rate = follow as f64 / all as f64;
    assert!((rate - 0.5).abs() < 2.0 * (0.25 / all as f64).sqrt(), "{rate} of {all}");
}

/// Row X13.
#[test]
fn any_number_of_ranks_reads_the_same_lanes() {
    let config = small(&[]);
    let lanes = open(&config);
    for at in [1, 2, 40, lanes.steps_per_pass(0) + 1] {
        let whole = step(&lanes, 8, at);
        for ranks in [1, 2, 4, 8] {
            let share = 8 / ranks;
            let mut joined = (Vec::new(), Vec::new(), Vec::new());
            for rank in 0..ranks {
                let range = rank * share..(rank + 1) * share;
                let cursors: Vec<LaneCursor> = range.clone().map(|lane| lanes.cursor(lane, at)).collect();
                let part = lanes.batch(range, &cursors, at).unwrap();
                joined.0.extend_from_slice(&part.inputs);
                joined.1.extend_from_slice(&pairs(&part).ranks);
                joined.2.extend_from_slice(&pairs(&part).reversed);
            }
            let expected =
                (whole.inputs.clone(), pairs(&whole).ranks.clone(), pairs(&whole).reversed.clone());
            assert_eq!(joined, expected, "{ranks} ranks");
        }
    }
}

/// Row X13.
#[test]
fn half_of_each_micro_batch_reads_the_same_text_backwards() {
    let config = small(&[]);
    let lanes = open(&config);
    let batch = step(&lanes, 8, 1);
    assert_eq!(pairs(&batch).reversed, [false, false, true, true, false, false, true, true]);
    let streams = [0, 1, 0, 1, 2, 3, 2, 3];
    for (lane, stream) in streams.into_iter().enumerate() {
        let (text, _) = piece(stream, 4, pairs(&batch).reversed[lane]);
        // The reused part and what follows of it.
        assert_eq!(batch.inputs[lane * 64..][..32], text[..32]);
    }
    // The same streams and draws under another layout of micro-batches.
    let other = open(&config_of_micro_batch_8());
    let moved = step(&other, 8, 1);
    let row = |batch: &Batch, lane: usize| batch.inputs[lane * 64..][..64].to_vec();
    for (lane, place) in [0, 1, 4, 5, 2, 3, 6, 7].into_iter().enumerate() {
        assert_eq!(row(&batch, lane), row(&moved, place), "lane {lane}");
    }
}

fn config_of_micro_batch_8() -> Config {
    small(&["train.micro_batch=8"])
}

/// Row X13.
#[test]
fn a_palindrome_reads_the_same_in_both_directions() {
    let words = ["deep", "blue", "water", "holds", "old", "ships"];
    let mut line: Vec<&str> = (0..3000).map(|i| words[(i * i + i / 7) % words.len()]).collect();
    let mirrored: Vec<&str> = line.iter().rev().copied().collect();
    // `<eos>` ends the line, so the same token begins it.
    line.insert(0, "<eos>");
    line.extend(mirrored);
    let training = TrainOptions {
        special_tokens: ["<cls>", "<sep>", "<mask>"].map(String::from).to_vec(),
        ..TrainOptions::new(TokenizerKind::Word)
    };
    let text = Text::build(&format!("{}\n", line.join(" ")), TokenizerChoice::Train(training));
    let mirror: Vec<i64> = text.tokens.iter().rev().copied().collect();
    assert_eq!(text.tokens, mirror, "the text is no palindrome");
    let config = config(&[
        "train.segment=64",
        "model.reuse_len=32",
        "train.lanes=2",
        "train.micro_batch=2",
        "pairs.spans=single",
    ]);
    let lanes = open_lanes(&config, std::slice::from_ref(&text.corpus), Split::Train).unwrap();
    for at in [1, 9, 100] {
        let batch = step(&lanes, 2, at);
        let (forward, backward) = batch.inputs.split_at(64);
        // One sentence: nothing to cut A at, so that it is what follows the reused part and B is one token.
        assert_eq!(forward[..32 + 28], backward[..32 + 28]);
    }
}

#[test]
fn lanes_begin_again_where_less_than_a_sequence_is_left() {
    let config = small(&[]);
    let lanes = open(&config);
    let len = TEXT.tokens.len() / 4;
    let steps = (0..len).step_by(32).filter(|begin| begin + 64 <= len).count() as u64;
    assert_eq!(lanes.steps_per_pass(0), steps);
    let mut cursors = vec![LaneCursor::default(); 8];
    for at in 1..=2 * steps + 2 {
        let batch = lanes.batch(0..8, &cursors, at).unwrap();
        assert_eq!(batch, step(&lanes, 8, at), "step {at}");
        assert_eq!(batch.restarts, [(at - 1) % steps == 0; 8]);
        cursors = batch.cursors_after;
    }
    assert_eq!(cursors[0].epoch, 2);
}

#[test]
fn frozen_draws_keep_pairs_and_targets_but_not_the_order() {
    let same = open(&small(&["pairs.draws=same"]));
    let fresh = open(&small(&[]));
    let again = same.steps_per_pass(0) + 1;
    let (first, second) = (step(&same, 8, 1), step(&same, 8, again));
    assert_eq!((&first.inputs, &first.targets), (&second.inputs, &second.targets));
    assert_ne!(pairs(&first).ranks, pairs(&second).ranks);
    assert_eq!(first, step(&fresh, 8, 1));
    assert_ne!(step(&fresh, 8, again).targets, first.targets);
}

/// Row X16.
#[test]
fn denoising_corrupts_the_targets_in_the_shares_asked_for() {
    let config = small(&["objective.kind=denoising", "objective.mask_share=0.6"]);
    let plain = open(&small(&[]));
    let lanes = open(&config);
    let mask = TEXT.id("<mask>");
    let (mut masked, mut kept, mut all) = (0u64, 0u64, 0u64);
    for at in 1..=1000 {
        let (batch, original) = (step(&lanes, 8, at), step(&plain, 8, at));
        assert_eq!(batch.targets, original.targets);
        let pairs = pairs(&batch);
        let halves: Vec<i64> = (0..8 * 64).map(|place| i64::from(place % 64 >= 32)).collect();
        assert_eq!(pairs.ranks, halves);
        let mut corrupted = vec![false; 8 * 64];
        for (i, position) in pairs.positions.iter().enumerate().filter(|(i, _)| pairs.weights[*i] > 0.0) {
            let place = i / 10 * 64 + *position as usize;
            corrupted[place] = true;
            masked += u64::from(batch.inputs[place] == mask);
            kept += u64::from(batch.inputs[place] == batch.targets[i]);
            all += 1;
        }
        for place in (0..8 * 64).filter(|place| !corrupted[*place]) {
            assert_eq!(batch.inputs[place], original.inputs[place]);
        }
    }
    // Three in ten are kept, and one in ten is random, which is seldom the token itself; five standard deviations.
    let near = |count: u64, share: f64| {
        (count as f64 / all as f64 - share).abs() < 5.0 * (share * (1.0 - share) / all as f64).sqrt() + 0.002
    };
    assert!(near(masked, 0.6) && near(kept, 0.3), "{masked} masked and {kept} kept of {all}");
}

#[test]
fn corpora_are_blended_by_weight() {
    let two = |weights: &str| {
        let config = small(&["data.corpora=[\"a\",\"b\"]", weights]);
        let lanes = open_lanes(&config, &[TEXT.corpus.clone(), TEXT.corpus.clone()], Split::Train).unwrap();
        (0..8).map(|lane| lanes.corpus_of(lane)).collect::<Vec<_>>()
    };
    assert_eq!(two("data.weights=[3,1]"), [0, 0, 0, 0, 0, 1, 0, 1]);
    assert_eq!(two("data.weights=[]"), [0, 0, 0, 0, 1, 1, 1, 1]);
    let many = vec![TEXT.corpus.clone(); 5];
    let message = open_lanes(&small(&[]), &many, Split::Train).unwrap_err().to_string();
    assert!(message.contains("5 corpora share 4 streams"), "{message}");
}

#[test]
fn a_tokenizer_without_separators_and_a_text_too_short_say_what_to_do() {
    let plain =
        Text::build(&sample_text(100), TokenizerChoice::Train(TrainOptions::new(TokenizerKind::Char)));
    let error = open_lanes(&small(&[]), std::slice::from_ref(&plain.corpus), Split::Train).unwrap_err();
    assert_eq!(error.exit_code(), 65);
    assert!(error.to_string().contains("char tokenizer has no <sep>"), "{error}");
    let long = config(&["train.segment=100000", "model.reuse_len=50000"]);
    let error = open_lanes(&long, std::slice::from_ref(&TEXT.corpus), Split::Train).unwrap_err();
    assert!(error.hint().unwrap().contains("use fewer lanes"), "{error}");
    let mixed =
        open_lanes(&small(&[]), &[TEXT.corpus.clone(), plain.corpus.clone()], Split::Train).unwrap_err();
    assert!(mixed.hint().unwrap().contains("with the same tokenizer"), "{mixed}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the settings, a batch keeps the promises of its documentation.
    #[test]
    fn any_settings_give_a_batch_that_keeps_its_promises(
        reused in 1usize..40, rest in 4usize..40, predict in 1usize..80, micro in 1usize..4, micros in 1usize..3,
        spans in 0usize..3, alpha in 1usize..9, longest in 1usize..9, bidirectional: bool, denoising: bool,
        at in 1u64..5000, seed in 0u64..1000,
    ) {
        let micro = if bidirectional { micro * 2 } else { micro };
        let segment = reused + rest;
        let predict = predict.min(2 * reused).min(2 * rest);
        let kind = ["pieces", "words", "single"][spans];
        let objective = if denoising { "denoising" } else { "permutation" };
        let keys = [
            format!("train.segment={segment}"), format!("model.reuse_len={reused}"),
            format!("pairs.num_predict={predict}"), format!("train.micro_batch={micro}"),
            format!("train.lanes={}", micro * micros), format!("pairs.spans={kind}"),
            format!("pairs.mask_alpha={alpha}"), format!("pairs.max_span={longest}"),
            format!("pairs.bidirectional={bidirectional}"), format!("objective.kind={objective}"),
            format!("train.seed={seed}"),
        ];
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let config = config(&keys);
        let lanes = open(&config);
        let count = micro * micros;
        let batch = step(&lanes, count, at);
        let pairs = pairs(&batch);
        prop_assert_eq!(batch.inputs.len(), count * segment);
        prop_assert_eq!(batch.targets.len(), count * predict);
        prop_assert_eq!(pairs.positions.len(), count * predict);
        prop_assert!(pairs.ranks.iter().all(|rank| (0..2 * segment as i64 + 2).contains(rank)));
        for row in 0..count {
            let weights = &pairs.weights[row * predict..][..predict];
            let real = weights.iter().take_while(|weight| **weight == 1.0).count();
            prop_assert!(weights[real..].iter().all(|weight| *weight == 0.0));
            let places = &pairs.positions[row * predict..][..predict];
            prop_assert!(places[..real].windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(places[real..].iter().all(|place| *place == 0));
            let ranks = &pairs.ranks[row * segment..][..segment];
            let (first, second) = ranks.split_at(reused);
            prop_assert!(first.iter().max() < second.iter().min());
            let specials = batch.inputs[row * segment..][..segment]
                .iter().filter(|id| **id == TEXT.id("<sep>") || **id == TEXT.id("<cls>")).count();
            // Three special tokens at most can be hit.
            prop_assert!(specials == 3 && predict - real <= 3);
        }
    }
}
