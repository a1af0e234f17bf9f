//! Two checkpoints of another implementation, with what it has computed from them: content states without a memory,
//! and predictions after one. Both were run left to right, without dropout.

use std::fs;
use std::path::{Path, PathBuf};

use segue_convert::{ConvertOptions, Target, convert};
use segue_language::ModelFolder;
use segue_layers::Memory;
use segue_tests::SHARED;
use segue_xlnet::load_xlnet;
use segue_xlnet::{Sequence, Visibility, Xlnet};
use tch::{Device, Kind, Tensor};

/// The other program adds 1e-7 to every denominator of attention.
const LIMIT: f64 = 2e-6;

fn checkpoint(name: &str) -> Option<PathBuf> {
    let folder = Path::new(SHARED).join("data/xlnet_tiny_keras").join(name);
    if !folder.exists() {
        segue_skip::skip(segue_skip::Need::Fixtures, format!("no reference files at {}", folder.display()));
        return None;
    }
    Some(folder)
}

/// The model of a checkpoint, converted.
fn model(source: &Path) -> Xlnet {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("model");
    let options = ConvertOptions {
        overrides: ["model.mem_len=5", "model.reuse_len=0"].map(String::from).to_vec(),
        ..ConvertOptions::new(Target::HuggingFace)
    };
    convert(source, &target, &options, |_, _| {}).unwrap();
    load_xlnet(&ModelFolder::open(&segue_families::MODELS, &target).unwrap()).unwrap().0
}

/// A NumPy array of 8-byte integers or of floats.
fn npy(folder: &Path, name: &str) -> Tensor {
    let bytes = fs::read(folder.join(format!("{name}.npy"))).unwrap();
    assert!(bytes.starts_with(b"\x93NUMPY\x01"), "{name}");
    let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let (header, data) = bytes[10..].split_at(length);
    let header = std::str::from_utf8(header).unwrap();
    let kind = ["'<i8'", "'<f8'", "'<f4'"].iter().position(|kind| header.contains(kind)).unwrap();
    let kind = [Kind::Int64, Kind::Double, Kind::Float][kind];
    let (_, shape) = header.split_once("'shape': (").unwrap();
    let (shape, _) = shape.split_once(')').unwrap();
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let mut shape: Vec<i64> = sizes.map(|size| size.parse().unwrap()).collect();
    if header.contains("'fortran_order': False") {
        return Tensor::f_from_data_size(data, &shape, kind).unwrap();
    }
    // The first axis changes fastest: the transposed array in the usual order.
    shape.reverse();
    let axes: Vec<i64> = (0..shape.len() as i64).rev().collect();
    Tensor::f_from_data_size(data, &shape, kind).unwrap().permute(axes).contiguous()
}

fn difference(found: &Tensor, expected: &Tensor) -> f64 {
    assert_eq!(found.size(), expected.size());
    (found.to_kind(Kind::Double) - expected.to_kind(Kind::Double)).abs().max().double_value(&[])
}

/// Positions as ranks: each sees those before it, its content also itself.
fn left_to_right(ids: &Tensor) -> Tensor {
    Tensor::arange(ids.size()[1], (Kind::Int64, Device::Cpu)).expand_as(ids).contiguous()
}

#[test]
fn content_without_a_memory_is_that_of_another_implementation() {
    let Some(folder) = checkpoint("test_checkpoint_empty") else { return };
    let (ids, segments) = (npy(&folder, "input_ids"), npy(&folder, "seg_ids"));
    let ranks = left_to_right(&ids);
    let sequence = Sequence {
        segments: Some(&segments),
        visibility: Visibility::Ranks { ranks: &ranks, halves_at: 0 },
        ..Sequence::new(&ids)
    };
    let states =
        model(&folder).forward(sequence, &Memory::zeros(2, 2, 0, 6, (Kind::Float, Device::Cpu)), None);
    let error = difference(&states.content.unwrap(), &npy(&folder, "empty_output"));
    println!("content: {error:.1e}");
    assert!(error < LIMIT, "{error}");
}

#[test]
fn predictions_after_a_memory_are_those_of_another_implementation() {
    let Some(folder) = checkpoint("test_checkpoint_pre") else { return };
    let (ids, segments) = (npy(&folder, "input_ids"), npy(&folder, "seg_ids"));
    let ranks = left_to_right(&ids);
    let memory = Memory {
        layers: ["mems_0", "mems_1"].map(|name| npy(&folder, name).to_kind(Kind::Float)).into(),
        documents: None,
    };
    let sequence = Sequence {
        segments: Some(&segments),
        visibility: Visibility::Ranks { ranks: &ranks, halves_at: 0 },
        targets: Some(&ranks),
        ..Sequence::new(&ids)
    };
    let model = model(&folder);
    let states = model.forward(sequence, &memory, None);
    for (layer, name) in states.memory.layers.iter().zip(["pre_new_mems_0", "pre_new_mems_1"]) {
        let error = difference(layer, &npy(&folder, name));
        println!("{name}: {error:.1e}");
        assert!(error < LIMIT, "{name}: {error}");
    }
    let probabilities = model.logits(&states.predictions.unwrap()).softmax(-1, None::<Kind>);
    // Where a position was not masked, that program's prediction starts from its own token.
    let masked = npy(&folder, "input_mask").greater(0.5).unsqueeze(2);
    let at_masked = |t: &Tensor| t.masked_select(&masked);
    let error = difference(&at_masked(&probabilities), &at_masked(&npy(&folder, "pre_output")));
    println!("predictions: {error:.1e}");
    assert!(error < LIMIT, "{error}");
    let others = difference(&probabilities, &npy(&folder, "pre_output"));
    assert!(others > 10.0 * LIMIT, "the mask does matter");
}
