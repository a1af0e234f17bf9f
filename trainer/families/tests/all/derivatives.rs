//! Gradients of gradients through whole models: those of plain kernels against finite differences in double precision,
//! and the error that fused kernels give instead.

use segue_configs::MemoryStart;
use segue_kernels::noise::Noise;
use segue_kernels::{Kernels, ParameterSpec, Parameters, TrainError};
use segue_layers::{HeadConfig, JudgedFrom, Memory, SpanHead, SpanLabels};
use segue_transfo_xl::{Segment, TransfoXl, TransfoXlConfig};
use segue_xlnet::{Sequence, Visibility, Xlnet, XlnetConfig};
use tch::{Device, Kind, Tensor};

const BATCH: i64 = 2;
const SEGMENT: i64 = 5;
const WIDTH: i64 = 8;

fn wave(shape: &[i64], speed: f64, kind: Kind) -> Tensor {
    let count = shape.iter().product::<i64>();
    (Tensor::arange(count, (Kind::Double, Device::Cpu)) * speed).sin().view(shape).to_kind(kind)
}

fn ids(vocab: i64) -> Tensor {
    (Tensor::arange(BATCH * SEGMENT, (Kind::Int64, Device::Cpu)) * 7).remainder(vocab).view([BATCH, SEGMENT])
}

fn memory(layers: usize, kind: Kind) -> Memory {
    let layer = |i: usize| wave(&[BATCH, 4, WIDTH], 0.3 + i as f64, kind);
    Memory { layers: (0..layers).map(layer).collect(), documents: None }
}

fn transformer_xl(parameters: &Parameters) -> Tensor {
    let model = TransfoXl::new(&transfo_xl_config(), parameters);
    let kind = parameters.tensors()[0].kind();
    let (ids, memory) = (ids(11), memory(2, kind));
    let hidden = model.forward(Segment::from(&ids), &memory, Some(&Noise::new(3))).hidden;
    model.nll(&hidden, &ids.flip([1])).sum(None::<Kind>)
}

fn transfo_xl_config() -> TransfoXlConfig {
    TransfoXlConfig {
        vocab_size: 11,
        d_model: WIDTH as usize,
        d_embed: WIDTH as usize,
        n_head: 2,
        d_inner: 12,
        n_layer: 2,
        mem_len: 4,
        cutoffs: vec![4],
        div_val: 2,
        dropout: 0.2,
        dropatt: 0.2,
        init_std: 0.3,
        memory_start: MemoryStart::Empty,
        ..Default::default()
    }
}

fn xlnet_config() -> XlnetConfig {
    XlnetConfig {
        vocab_size: 11,
        d_model: WIDTH as usize,
        n_head: 2,
        d_inner: 12,
        n_layer: 2,
        mem_len: 4,
        dropout: 0.2,
        dropatt: 0.2,
        initializer_range: 0.3,
        memory_start: MemoryStart::Empty,
        ..Default::default()
    }
}

/// Both streams: the predictions' loss and a sum over contents.
fn xlnet(parameters: &Parameters) -> Tensor {
    let model = Xlnet::new(&xlnet_config(), parameters);
    let kind = parameters.tensors()[0].kind();
    let (ids, memory) = (ids(11), memory(2, kind));
    let ranks = Tensor::from_slice(&[2i64, 0, 4, 1, 3]).repeat([BATCH, 1]);
    let segments = Tensor::from_slice(&[0i64, 0, 0, 1, 1]).repeat([BATCH, 1]);
    let targets = Tensor::from_slice(&[2i64, 4]).repeat([BATCH, 1]);
    let sequence = Sequence {
        visibility: Visibility::Ranks { ranks: &ranks, halves_at: 0 },
        segments: Some(&segments),
        targets: Some(&targets),
        ..Sequence::new(&ids)
    };
    let states = model.forward(sequence, &memory, Some(&Noise::new(3)));
    let (predictions, content) = (states.predictions.unwrap(), states.content.unwrap());
    let nll = model.nll(&predictions, &ids.gather(1, &targets, false)).sum(None::<Kind>);
    nll + (&content * wave(&content.size(), 0.7, kind)).sum(None::<Kind>)
}

fn span_head(parameters: &Parameters) -> Tensor {
    let head = SpanHead::new(&HeadConfig::from(&xlnet_config()), parameters);
    let content = wave(&[BATCH, SEGMENT, WIDTH], 0.7, parameters.tensors()[0].kind());
    let at = |i: i64| Tensor::full([BATCH], i, (Kind::Int64, Device::Cpu));
    let impossible = Tensor::from_slice(&[0.0, 1.0]);
    let labels = SpanLabels {
        starts: &at(1),
        ends: &at(3),
        impossible: Some(&impossible),
        judged_from: JudgedFrom::Expected,
    };
    head.losses(&content, &at(4), None, labels, Some(&Noise::new(3))).sum(None::<Kind>)
}

/// Squares of all gradients of `loss`, summed, with its graph.
fn penalty(loss: &impl Fn(&Parameters) -> Tensor, parameters: &Parameters) -> Result<Tensor, TrainError> {
    let gradients = Tensor::f_run_backward(&[loss(parameters)], parameters.tensors(), true, true)?;
    let squares = gradients.iter().filter(|gradient| gradient.defined());
    Ok(squares.map(|gradient| gradient.square().sum(None::<Kind>)).reduce(|a, b| a + b).unwrap())
}

/// How the penalty changes along `direction`, by gradients of gradients.
fn slope(
    loss: &impl Fn(&Parameters) -> Tensor,
    parameters: &Parameters,
    direction: &[Tensor],
) -> Result<f64, TrainError> {
    let penalty = penalty(loss, parameters)?;
    let gradients = Tensor::f_run_backward(&[penalty], parameters.tensors(), false, false)?;
    let along = gradients.iter().zip(direction).filter(|(gradient, _)| gradient.defined());
    Ok(along.map(|(gradient, along)| (gradient * along).sum(Kind::Double).double_value(&[])).sum())
}

/// The same by the penalty a little before and a little behind.
fn difference(loss: &impl Fn(&Parameters) -> Tensor, parameters: &Parameters, direction: &[Tensor]) -> f64 {
    const STEP: f64 = 1e-6;
    let at = |distance: f64| {
        let moved = parameters.tensors().iter().zip(direction);
        let moved = moved.map(|(tensor, along)| tensor.detach() + along * distance).collect();
        let moved = Parameters::from_tensors(parameters.specs().to_vec(), moved, Kind::Double);
        penalty(loss, &moved).unwrap().double_value(&[])
    };
    (at(STEP) - at(-STEP)) / (2.0 * STEP)
}

fn check(specs: Vec<ParameterSpec>, loss: impl Fn(&Parameters) -> Tensor) {
    segue_kernels::libtorch::set_threads(1);
    let exact = Parameters::initialise(specs.clone(), 5, Kind::Double);
    let direction: Vec<Tensor> =
        specs.iter().enumerate().map(|(i, spec)| wave(&spec.shape, 0.4 + i as f64, Kind::Double)).collect();
    let expected = difference(&loss, &exact, &direction);
    let by = |parameters: &Parameters| slope(&loss, parameters, &direction);
    let found = by(&exact).unwrap();
    assert!(expected.abs() > 1.0 && (found / expected - 1.0).abs() < 1e-6, "{found} and not {expected}");

    let single = Parameters::initialise(specs, 5, Kind::Float);
    let plain = by(&single.with_kernels(Kernels::Plain)).unwrap();
    assert!((plain / expected - 1.0).abs() < 1e-3, "{plain} and not {expected} in single precision");
    let error = by(&single).unwrap_err().to_string();
    assert!(error.contains("has no derivative") && error.contains("Kernels::Plain"), "{error}");
}

#[test]
fn gradients_of_gradients_of_transformer_xl_are_finite_differences() {
    check(TransfoXl::specs(&transfo_xl_config()), transformer_xl);
}

#[test]
fn gradients_of_gradients_of_xlnet_are_finite_differences() {
    check(Xlnet::specs(&xlnet_config()), xlnet);
}

#[test]
fn gradients_of_gradients_of_a_head_are_finite_differences() {
    check(SpanHead::specs(&HeadConfig::from(&xlnet_config())), span_head);
}

#[test]
fn plain_and_fused_kernels_agree_without_dropout() {
    segue_kernels::libtorch::set_threads(1);
    let fused = Parameters::initialise(TransfoXl::specs(&transfo_xl_config()), 5, Kind::Float);
    let plain = fused.with_kernels(Kernels::Plain);
    assert_eq!((fused.kernels(), plain.kernels()), (Kernels::Fused, Kernels::Plain));
    let config = TransfoXlConfig { dropout: 0.0, dropatt: 0.0, ..transfo_xl_config() };
    let hidden = |parameters: &Parameters| {
        let model = TransfoXl::new(&config, parameters);
        model.forward(&ids(11), &memory(2, Kind::Float), None).hidden
    };
    let difference = (hidden(&fused) - hidden(&plain)).abs().max().double_value(&[]);
    assert!(difference > 0.0 && difference < 1e-5, "{difference}");
}
