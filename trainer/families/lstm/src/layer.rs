//! Layers over their parameters.

use segue_kernels::Parameters;
use segue_layers::recurrent::{
    Cell, Elman, GateNorm, Gru, Layer, Lstm, Matrix, Multiplicative, Qrnn, Recurrent, Rewired, Scales,
};
use tch::Tensor;

use super::keys::{CellKind, LstmConfig};
use super::parameters::prefix;

/// What becomes of a weight before a layer computes with it.
pub type Drop<'a> = &'a dyn Fn(Tensor) -> Tensor;

/// All layers of the model. Their recurrent weights, of a QRNN those of the inputs, go through `drop`.
pub fn layers(config: &LstmConfig, parameters: &Parameters, drop: Drop) -> Vec<Box<dyn Layer>> {
    (0..config.n_layer).map(|number| layer(config, number, parameters, drop)).collect()
}

/// Layer `number`, whose names begin with [`prefix`] of it.
pub fn layer(config: &LstmConfig, number: usize, parameters: &Parameters, drop: Drop) -> Box<dyn Layer> {
    layer_below(config, (number, &prefix(number)), parameters, drop)
}

/// A layer as layer `number` is, whose names begin with `prefix`.
pub fn layer_below(
    config: &LstmConfig,
    (number, prefix): (usize, &str),
    parameters: &Parameters,
    drop: Drop,
) -> Box<dyn Layer> {
    if config.cell == CellKind::Qrnn {
        return Box::new(qrnn(config, (number, prefix), parameters, drop));
    }
    let cell = cell(config, prefix, parameters, drop);
    let layer = Recurrent::new(cell, config.mogrifier().build(prefix, parameters));
    Box::new(layer.with_scales(Scales::build(prefix, parameters)))
}

fn qrnn(config: &LstmConfig, (number, prefix): (usize, &str), parameters: &Parameters, drop: Drop) -> Qrnn {
    let get = |name: &str| parameters.get(&format!("{prefix}{name}"));
    Qrnn {
        weight_x: drop(get("weight_x")),
        bias_f: get("bias_f"),
        bias: get("bias"),
        window: config.window_of(number),
        kernels: parameters.kernels(),
    }
}

/// The cell of the layer whose names begin with `prefix`, whose weights of the state go through `drop`; not that of a QRNN.
pub fn cell(config: &LstmConfig, prefix: &str, parameters: &Parameters, drop: Drop) -> Box<dyn Cell> {
    let get = |name: &str| parameters.get(&format!("{prefix}{name}"));
    let find = |name: &str| parameters.find(&format!("{prefix}{name}"));
    let dropped = |name: &str| drop(get(name));
    let (kernels, gate) = (parameters.kernels(), config.input_gate);
    // Nothing is dropped of factors.
    let factors = |name: &str| {
        let (left, right) = (find(&format!("{name}_left"))?, find(&format!("{name}_right"))?);
        Some(Matrix::Factors { left, right })
    };
    let bias_h = || config.two_biases.then(|| [get("bias_fh"), get("bias_h")]);
    let of_state = || config.two_biases.then(|| get("bias_h"));
    let lstm = || Lstm {
        gate,
        weight_x: factors("weight_x").unwrap_or_else(|| Matrix::Whole(get("weight_x"))),
        weight_h: factors("weight_h").unwrap_or_else(|| Matrix::Whole(dropped("weight_h"))),
        bias_f: get("bias_f"),
        bias: get("bias"),
        bias_h: bias_h(),
        norm: find("layer_norm.weight").map(|gains| GateNorm { gains }),
        kernels,
    };
    let plain = || (get("weight_x"), dropped("weight_h"), get("bias"));
    match config.cell {
        CellKind::Lstm => Box::new(lstm()),
        CellKind::Mlstm => Box::new(Multiplicative {
            inner: lstm(),
            weight_mx: get("weight_mx"),
            weight_mh: dropped("weight_mh"),
        }),
        CellKind::Rewired => {
            let (weight_x, weight_h, bias) = plain();
            let (weight_fu, weight_oc) = (dropped("weight_fu"), dropped("weight_oc"));
            let (bias_f, bias_o) = (get("bias_f"), get("bias_o"));
            Box::new(Rewired {
                gate,
                weight_x,
                weight_h,
                weight_fu,
                weight_oc,
                bias,
                bias_f,
                bias_o,
                kernels,
            })
        }
        CellKind::Gru => {
            let (weight_x, weight_h, bias) = plain();
            Box::new(Gru { weight_x, weight_h, bias, bias_h: of_state(), kernels })
        }
        CellKind::Elman => {
            let (weight_x, weight_h, bias) = plain();
            Box::new(Elman { weight_x, weight_h, bias, bias_h: of_state(), kernels })
        }
        CellKind::Qrnn => unreachable!("a quasi-recurrent layer has no cell"),
    }
}
