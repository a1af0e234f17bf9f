//! T6, T7, T9 and T11: memory, how far it reaches, and which targets count.

use segue_configs::MemoryStart;
use segue_dataloader::sections::LossKind;
use segue_kernels::Carry;
use segue_language::{Batch, Objective};
use segue_layers::{Memory, NO_DOCUMENT};
use segue_transfo_xl::{LanguageModel, Segment, TransfoXl, TransfoXlConfig};
use tch::{Device, Kind, Tensor};

use crate::tiny::{continue_from, difference, model, parameters, run, tiny, tokens};

/// Row T6.
#[test]
fn chunks_with_enough_memory_equal_one_pass() {
    for pre_lnorm in [false, true] {
        let model = model(&TransfoXlConfig { pre_lnorm, ..tiny() });
        let ids = tokens(13);
        let whole = run(&model, &ids, 13);
        for chunk in [1, 2, 3, 5] {
            let found = difference(&run(&model, &ids, chunk), &whole);
            // Products of other shapes may round the last bit another way; nothing more.
            assert!(found < 1e-14, "chunk {chunk}: {found:e}");
        }
    }
}

/// Row T6.
#[test]
fn short_memory_without_a_band_does_differ() {
    let model = model(&TransfoXlConfig { mem_len: 4, ..tiny() });
    let ids = tokens(13);
    assert!(difference(&run(&model, &ids, 2), &run(&model, &ids, 13)) > 1e-3);
}

/// Row T6.
#[test]
fn no_gradient_enters_the_memory_and_backward_leaves_it_as_it_is() {
    let model = model(&tiny());
    let layers: Vec<Tensor> = (0..3)
        .map(|_| Tensor::rand([1, 5, 8], (Kind::Double, Device::Cpu)).set_requires_grad(true))
        .collect();
    let memory = Memory { layers, documents: None };
    let output = model.forward(&tokens(4), &memory, None);
    let before: Vec<Tensor> = output.memory.layers.iter().map(Tensor::copy).collect();
    output.hidden.sum(None::<Kind>).backward();
    for ((read, written), before) in memory.layers.iter().zip(&output.memory.layers).zip(&before) {
        assert!(!read.grad().defined() && !written.requires_grad());
        assert_eq!(written, before);
    }
    assert_eq!(output.memory.len(), 9);
}

/// Memory that starts as masked zeros gives what one that starts empty gives; zeros that are attended to do not.
/// Row T6.
#[test]
fn a_masked_start_equals_an_empty_one() {
    let start =
        |memory_start| run(&model(&TransfoXlConfig { memory_start, mem_len: 6, ..tiny() }), &tokens(13), 4);
    let empty = start(MemoryStart::Empty);
    assert!(difference(&start(MemoryStart::Masked), &empty) < 1e-14);
    assert!(difference(&start(MemoryStart::Zeros), &empty) > 1e-3);
}

/// With context that is read again, the memory ends where that context begins: chunks still equal one pass.
/// Row T6.
#[test]
fn context_that_comes_again_is_not_remembered_twice() {
    let model = model(&tiny());
    let ids = tokens(13);
    let whole = run(&model, &ids, 13);
    let (segment, ext_len) = (3, 2);
    let mut memory = model.memory_start(1);
    for start in (0..12).step_by(segment as usize) {
        let context = ext_len.min(start);
        let chunk = ids.narrow(1, start - context, context + segment);
        let overlap = ext_len.min(context + segment);
        let piece = Segment { overlap, ..Segment::from(&chunk) };
        let output = tch::no_grad(|| model.forward(piece, &memory, None));
        let own = output.hidden.narrow(1, context, segment);
        assert!(difference(&own, &whole.narrow(1, start, segment)) < 1e-14, "segment at {start}");
        memory = output.memory;
        assert_eq!(memory.len(), start + segment - overlap);
    }
}

/// A document under `mask` reads as if it stood alone: in a text of three documents cut anywhere, each gets the states
/// that it gets by itself.
/// Row T6.
#[test]
fn masked_documents_do_not_see_each_other() {
    // Positions are relative: where a document stands makes no difference.
    let mut model = model(&TransfoXlConfig { mem_len: 5, ..tiny() });
    model.keeps_marks = true;
    let (ids, borders) = (tokens(13), [0, 4, 9, 13]);
    let marks: Vec<i64> =
        (0..13).map(|i| borders.iter().filter(|border| **border <= i).count() as i64).collect();
    let marks = Tensor::from_slice(&marks).view([1, 13]);
    for chunk in [3, 5, 13] {
        let mut memory = model.memory_start(1);
        let mut hidden = Vec::new();
        for start in (0..13).step_by(chunk) {
            let length = (chunk as i64).min(13 - start);
            let documents = marks.narrow(1, start, length);
            let ids = ids.narrow(1, start, length);
            let piece = Segment { documents: Some(&documents), ..Segment::from(&ids) };
            let output = tch::no_grad(|| model.forward(piece, &memory, None));
            hidden.push(output.hidden);
            memory = output.memory;
        }
        let hidden = Tensor::cat(&hidden, 1);
        for border in borders.windows(2) {
            let (start, length) = (border[0], border[1] - border[0]);
            let alone = run(&model, &ids.narrow(1, start, length), length);
            // Only where memory and segment hold the whole document.
            if length <= 5 {
                let found = difference(&hidden.narrow(1, start, length), &alone);
                assert!(found < 1e-13, "chunk {chunk}, document at {start}: {found:e}");
            }
        }
    }
}

/// A lane that forgets goes on as a fresh one; the other lanes do not notice.
/// Row T6.
#[test]
fn forgetting_is_by_lane() {
    for memory_start in [MemoryStart::Empty, MemoryStart::Masked, MemoryStart::Zeros] {
        let mut model = model(&TransfoXlConfig { memory_start, mem_len: 6, ..tiny() });
        model.keeps_marks = true;
        let text = Tensor::cat(&[tokens(8), tokens(8).flip([1])], 0);
        let (_, mut memory) = continue_from(&model, &text.narrow(1, 0, 4), 4, model.memory_start(2));
        let whole = run(&model, &text, 4).narrow(1, 4, 4);
        memory.forget(&[false, true], model.memory_start(2));
        let (found, memory) = continue_from(&model, &text.narrow(1, 4, 4), 4, memory);
        let fresh = run(&model, &text.narrow(0, 1, 1).narrow(1, 4, 4), 4);
        assert!(difference(&found.narrow(0, 0, 1), &whole.narrow(0, 0, 1)) < 1e-14);
        // An empty start has no zeros to attend to, a forgotten lane of one that began with zeros has fewer of them.
        if memory_start != MemoryStart::Zeros {
            assert!(difference(&found.narrow(0, 1, 1), &fresh) < 1e-14);
            let marks = memory.documents.unwrap();
            assert_eq!(
                marks.eq(NO_DOCUMENT).sum(Kind::Int64).int64_value(&[]),
                memory.layers[0].size()[1] - 4
            );
        }
    }
}

/// Last position that a change of token 0 reaches.
fn reach(config: &TransfoXlConfig, chunk: i64) -> i64 {
    let model = model(config);
    let ids = tokens(30);
    let changed = ids.copy();
    let _ = changed.get(0).get(0).fill_(16);
    let difference =
        (run(&model, &ids, chunk) - run(&model, &changed, chunk)).abs().amax([0i64, 2].as_slice(), false);
    difference.gt(0.0).nonzero().squeeze_dim(1).max().int64_value(&[])
}

/// Reach of docs/book/src/contributing/expected-values.md: N·M + L − 1 where M is a multiple of L.
/// Row T7.
#[test]
fn a_token_reaches_as_far_as_layers_times_memory() {
    let with = |mem_len, same_length| TransfoXlConfig { mem_len, same_length, ..tiny() };
    assert_eq!(reach(&with(4, false), 4), 15);
    assert_eq!(reach(&with(4, false), 2), 13);
    assert_eq!(reach(&with(0, false), 4), 3);
    assert_eq!(reach(&with(4, true), 30), 9);
}

/// Row T9.
#[test]
fn same_length_shows_the_key_counts_of_both_references() {
    for (mem, query, torch, tensorflow) in [(5, 3, 5, 6), (4, 4, 4, 5), (6, 2, 6, 7)] {
        for (keys, expected) in [(mem, torch), (mem + 1, tensorflow)] {
            let mask = segue_layers::attention_mask(query, mem, Some(keys), (Kind::Double, Device::Cpu));
            let visible = mask.isfinite().sum_dim_intlist(1, false, Kind::Int64);
            assert_eq!(Vec::<i64>::try_from(visible).unwrap(), vec![expected; query as usize]);
        }
    }
}

/// Row T9.
#[test]
fn same_length_attention_does_not_depend_on_the_segment() {
    let model = model(&TransfoXlConfig { mem_len: 4, same_length: true, ..tiny() });
    let ids = tokens(13);
    let whole = run(&model, &ids, 13);
    for chunk in [1, 2, 3, 5] {
        assert!(difference(&run(&model, &ids, chunk), &whole) < 1e-14, "chunk {chunk}");
    }
}

/// Row T11.
#[test]
fn half_loss_counts_exactly_the_last_half_of_the_targets() {
    let config = tiny();
    for segment in [6, 7] {
        let mut objective = LanguageModel::from_parameters(&config, parameters(&config));
        let targets = tokens(segment).flip([1]).set_requires_grad(false);
        let batch = Batch::new(tokens(segment), targets.shallow_clone());
        let each = objective.score(&batch, &objective.memory_start(1)).nll;
        let full = objective.loss(&batch, &objective.memory_start(1), None);
        assert!(difference(&full.sum, &each.sum(None::<Kind>)) < 1e-12 && full.weight == segment as f64);
        objective.targets = LossKind::Half;
        let half = (segment + 1) / 2;
        let loss = objective.loss(&batch, &objective.memory_start(1), None);
        let last = each.narrow(1, segment - half, half).sum(None::<Kind>);
        assert!(difference(&loss.sum, &last) < 1e-12 && loss.weight == half as f64);
        for place in 0..segment {
            let changed = targets.copy();
            let _ = changed.narrow(1, place, 1).g_add_scalar_(1).remainder_(17);
            let other =
                objective.loss(&Batch::new(tokens(segment), changed), &objective.memory_start(1), None);
            assert_eq!(difference(&other.sum, &loss.sum) > 0.0, place >= segment - half, "target {place}");
        }
    }
}

/// The gradient of the targets that do not count is zero: what only they could train stays untrained.
/// Row T11.
#[test]
fn targets_that_do_not_count_train_nothing() {
    let config = tiny();
    let own = parameters(&config);
    let model = TransfoXl::new(&config, &own);
    let output = model.forward(&tokens(6), &model.memory_start(1), None);
    let mut objective = LanguageModel::from_parameters(&config, parameters(&config));
    objective.targets = LossKind::Half;
    let batch = Batch::new(tokens(6), tokens(6).flip([1]));
    objective.loss(&batch, &objective.memory_start(1), None).sum.backward();
    model.nll(&output.hidden.narrow(1, 3, 3), &batch.targets.narrow(1, 3, 3)).sum(None::<Kind>).backward();
    for (spec, tensor) in own.specs().iter().zip(own.tensors()) {
        let other = objective.parameters().get(&spec.name).grad();
        assert!(difference(&tensor.grad(), &other) < 1e-12, "{}", spec.name);
    }
}
