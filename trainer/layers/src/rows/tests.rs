use segue_kernels::{Init, ParameterSpec};
use tch::{Device, Kind};

use super::*;
use crate::attention::multi_head::MultiHead;
use crate::norm::Norm;

fn parameters(specs: Vec<ParameterSpec>, kind: Kind) -> Parameters {
    Parameters::initialise(specs, 3, kind)
}

fn wave(shape: &[i64], speed: f64) -> Tensor {
    let count = shape.iter().product::<i64>();
    (Tensor::arange(count, (Kind::Float, Device::Cpu)) * speed).sin().view(shape)
}

fn spec(name: &str, shape: &[i64]) -> ParameterSpec {
    ParameterSpec { name: name.into(), shape: shape.to_vec(), init: Init::Normal { mean: 0.0, std: 0.3 } }
}

fn close(found: &[f32], expected: &Tensor) {
    let found = Tensor::from_slice(found).view_as(expected);
    let error = (found - expected).abs().max().double_value(&[]);
    assert!(error < 2e-6, "{error}");
}

#[test]
fn norms_are_those_of_tensors() {
    let own = parameters(vec![spec("n.weight", &[24]), spec("n.bias", &[24])], Kind::Float);
    let mut x = values_of(&wave(&[5, 24], 0.7)).unwrap();
    RowNorm::named(&own, "n", 1e-5).unwrap().apply(&mut x);
    close(&x, &Norm::named(&own, "n", 1e-5).forward(&wave(&[5, 24], 0.7)));
}

#[test]
fn distributions_are_those_of_tensors() {
    let mut x = values_of(&(wave(&[5, 30], 0.7) * 9.0)).unwrap();
    log_softmax(&mut x, 30);
    close(&x, &(wave(&[5, 30], 0.7) * 9.0).log_softmax(-1, None::<Kind>));
}

/// Compiled for this processor, and as any processor computes them.
#[test]
fn rows_have_the_bits_of_plain_loops() {
    let x = values_of(&(wave(&[6, 40], 0.7) * 9.0)).unwrap();
    let (mut ours, mut plain) = (x.clone(), x.clone());
    log_softmax(&mut ours, 40);
    log_softmax_plain(&mut plain, 40);
    assert_eq!(ours, plain);
    norm::assert_plain(&x, 40);
    attention::assert_plain(&x, 40);
}

/// Attention of rows with maps side by side in one, and that of tensors.
#[test]
fn attention_is_that_of_tensors() {
    // Heads narrower and wider than what is added up side by side, with a rest and without.
    for (width, heads) in [(48, 4), (40, 2), (128, 2)] {
        attention_of(width, heads, 7);
    }
}

fn attention_of(width: i64, heads: i64, length: i64) {
    let specs = MultiHead::specs("a", width, Init::Uniform { range: 0.2 }, true);
    let own = parameters(specs, Kind::Float);
    let x = wave(&[1, length, width], 0.7);
    let tensors = MultiHead::new(&own, "a", heads, 0.0);
    let (expected, weights) = tensors.read_with_weights(&x, &tensors.key_values(&x), None);

    let names = ["q", "k", "v"].map(|name| format!("a.{name}_proj"));
    let width = width as usize;
    let y = mapped(&row_map(&own, &names).unwrap(), &values_of(&x).unwrap());
    let rows: Vec<&[f32]> = y.chunks(3 * width).collect();
    let from: Vec<&[f32]> = rows.iter().map(|row| &row[width..]).collect();
    let own_heads = RowHeads { heads: heads as usize, d_model: width };
    let (mut all, mut of_heads) = (Vec::new(), Vec::new());
    for (place, row) in rows.iter().enumerate() {
        let mut read = vec![f32::NAN; width];
        own_heads.read(&row[..width], &from, &mut of_heads, &mut read);
        all.extend(read);
        let mean: Vec<f32> = (0..from.len())
            .map(|at| of_heads.iter().skip(at).step_by(from.len()).sum::<f32>() / heads as f32)
            .collect();
        close(&mean, &weights.select(1, place as i64).squeeze());
    }
    close(&all, &expected);
}

#[test]
fn what_is_not_single_precision_has_no_rows() {
    let own = parameters(vec![spec("n.weight", &[4, 4]), spec("n.bias", &[4])], Kind::Double);
    assert!(row_map(&own, &["n".into()]).is_none() && RowNorm::named(&own, "n", 1e-5).is_none());
}
