//! Layers over their parameters.

use tch::Tensor;

use super::config::{CellKind, LstmConfig};
use super::parameters::prefix;
use crate::Parameters;
use crate::layers::recurrent::{Cell, Elman, Gru, Layer, Lstm, Multiplicative, Qrnn, Recurrent, Rewired};

/// What becomes of a weight before a layer computes with it.
pub type Drop<'a> = &'a dyn Fn(Tensor) -> Tensor;

/// All layers of the model. Their recurrent weights, of a QRNN those of the inputs, go through `drop`.
pub fn layers(config: &LstmConfig, parameters: &Parameters, drop: Drop) -> Vec<Box<dyn Layer>> {
    (0..config.n_layer).map(|number| layer(config, number, parameters, drop)).collect()
}

/// Layer `number`, whose names begin with [`prefix`] of it.
fn layer(config: &LstmConfig, number: usize, parameters: &Parameters, drop: Drop) -> Box<dyn Layer> {
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
    Box::new(Recurrent::new(cell, config.mogrifier().build(prefix, parameters)))
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
    let dropped = |name: &str| drop(get(name));
    let (kernels, gate) = (parameters.kernels(), config.input_gate);
    let (weight_x, weight_h, bias) = (get("weight_x"), dropped("weight_h"), get("bias"));
    let bias_h = || config.two_biases.then(|| [get("bias_fh"), get("bias_h")]);
    let of_state = || config.two_biases.then(|| get("bias_h"));
    let lstm = |weight_x, weight_h, bias| {
        let (bias_f, bias_h) = (get("bias_f"), bias_h());
        Lstm { gate, weight_x, weight_h, bias_f, bias, bias_h, kernels }
    };
    match config.cell {
        CellKind::Lstm => Box::new(lstm(weight_x, weight_h, bias)),
        CellKind::Mlstm => Box::new(Multiplicative {
            inner: lstm(weight_x, weight_h, bias),
            weight_mx: get("weight_mx"),
            weight_mh: dropped("weight_mh"),
        }),
        CellKind::Rewired => Box::new(Rewired {
            gate,
            weight_x,
            weight_h,
            weight_fu: dropped("weight_fu"),
            weight_oc: dropped("weight_oc"),
            bias,
            bias_f: get("bias_f"),
            bias_o: get("bias_o"),
            kernels,
        }),
        CellKind::Gru => Box::new(Gru { weight_x, weight_h, bias, bias_h: of_state(), kernels }),
        CellKind::Elman => Box::new(Elman { weight_x, weight_h, bias, bias_h: of_state(), kernels }),
        CellKind::Qrnn => unreachable!("a quasi-recurrent layer has no cell"),
    }
}
