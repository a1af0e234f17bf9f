//! Masks of every site, against a pass that is written out position by position.

use super::*;

/// Rates of input, layers, state and output, and of what is projected of it.
const RATES: [f64; 5] = [0.3, 0.25, 0.4, 0.2, 0.35];
const ROUNDS: usize = 3;

/// State and input after the gates of layer `layer`'s mogrifier (Melis 2023, eq. 2.2).
fn mogrified(parameters: &Parameters, layer: usize, mut h: Tensor, mut x: Tensor) -> (Tensor, Tensor) {
    for round in 1..=ROUNDS {
        let get = |name: &str| parameters.get(&format!("{}mogrifier.{round}.{name}", prefix(layer)));
        let gate = |seen: &Tensor| (seen.matmul(&get("weight").tr()) + get("bias")).sigmoid() * 2.0;
        if round % 2 == 1 { x = gate(&h) * x } else { h = gate(&x) * h }
    }
    (h, x)
}

/// The next h and c of an LSTM with a capped input gate (Melis 2023, eq. 2.1 and §4.6).
fn stepped(parameters: &Parameters, layer: usize, (h, x): (Tensor, Tensor), c: &Tensor) -> (Tensor, Tensor) {
    let get = |name: &str| parameters.get(&format!("{}{name}", prefix(layer)));
    let bias = Tensor::cat(&[get("bias_f"), get("bias")], 0);
    let sums = x.matmul(&get("weight_x").tr()) + h.matmul(&get("weight_h").tr()) + bias;
    let gates = sums.chunk(4, 1);
    let f = gates[0].sigmoid();
    let i = gates[3].sigmoid().minimum(&(1.0 - &f));
    let c = f * c + i * gates[1].tanh();
    (gates[2].sigmoid() * c.tanh(), c)
}

/// The whole pass: h' is masked before the mogrifier sees it, by one mask for all positions of a layer; the input by one for each position. The sum
/// of layers is masked, and so is what a matrix, or each expert of a mixture, makes of it.
#[test]
fn m5_masks_come_before_a_mogrifier_and_after_what_is_projected() {
    let projected = LstmConfig {
        mogrifier_rounds: ROUNDS,
        input_embedding_ratio: 0.5,
        input_dropout: RATES[0],
        inter_layer_dropout: RATES[1],
        state_dropout: RATES[2],
        output_dropout: RATES[3],
        projection_dropout: RATES[4],
        ..small()
    };
    for config in [LstmConfig { mixture: 2, ..projected.clone() }, projected] {
        let parameters = parameters(&config);
        for (spec, tensor) in parameters.specs().iter().zip(parameters.tensors()) {
            // Biases that start at nothing would not show.
            let wave = (Tensor::arange(spec.numel() as i64, (Kind::Double, Device::Cpu)) * 0.7).sin() * 0.3;
            let _ = tch::no_grad(|| tensor.shallow_clone().g_add_(&wave.view(spec.shape.as_slice())));
        }
        let model = Model::new(&config, &parameters);
        let (ids, memory) = (ids(2, 5), model.memory_start(2));
        let noise = Noise::new(7);
        let drop = |x: &Tensor, rate: f64| dropout(x.shallow_clone(), rate, Some(&noise));
        let zeros = || Tensor::zeros([2, 8], (Kind::Double, Device::Cpu));
        let embedded = Tensor::embedding(&parameters.get(EMBEDDING), &ids.transpose(0, 1), -1, false, false);
        let mut input = drop(&embedded, RATES[0]);
        let mut sum = Tensor::zeros([5, 2, 8], (Kind::Double, Device::Cpu));
        for layer in 0..2 {
            if layer == 1 {
                input = drop(&input, RATES[1]);
            }
            let mask = drop(&zeros().ones_like(), RATES[2]);
            let (mut h, mut c) = (zeros(), zeros());
            let step = |position: i64| {
                let seen = mogrified(&parameters, layer, &h * &mask, input.get(position));
                (h, c) = stepped(&parameters, layer, seen, &c);
                h.shallow_clone()
            };
            input = Tensor::stack(&(0..5).map(step).collect::<Vec<_>>(), 0);
            sum += &input;
        }
        let hidden = drop(&sum, RATES[3]).transpose(0, 1);
        let flat = hidden.reshape([-1, 8]);
        let scores =
            |vectors: &Tensor| vectors.matmul(&parameters.get(EMBEDDING).tr()) + parameters.get(OUTPUT_BIAS);
        let expected = match config.mixture {
            1 => scores(&drop(&flat.matmul(&parameters.get(PROJECTION).tr()), RATES[4]))
                .log_softmax(-1, None::<Kind>),
            _ => {
                let get = |name: &str| parameters.get(&format!("mixture.{name}"));
                let experts = drop(&(flat.matmul(&get("weight").tr()) + get("bias")).tanh(), RATES[4]);
                let priors = flat.matmul(&get("prior").tr()).softmax(-1, None::<Kind>).unsqueeze(2);
                let each = scores(&experts.view([10, 2, 4])).softmax(-1, None::<Kind>);
                (each * priors).sum_dim_intlist(1, false, None::<Kind>).log()
            }
        };
        let noise = Noise::new(7);
        let found = model.forward(&ids, &memory, Some(&noise)).hidden;
        assert!(difference(&found, &hidden) < 1e-12, "{config:?}");
        let log_probs = model.log_probs_with(&found, Some(&noise));
        assert!(difference(&log_probs.view([10, WORDS]), &expected) < 1e-12, "{config:?}");
        // Losses have the same masks as probabilities.
        let noise = Noise::new(7);
        let found = model.forward(&ids, &memory, Some(&noise)).hidden;
        let nll = model.nll(&found, &ids, Some(&noise)).reshape([-1, 1]);
        assert!(difference(&nll, &-expected.gather(1, &ids.reshape([-1, 1]), false)) < 1e-12, "{config:?}");
        // Without noise nothing is masked.
        let quiet = model.forward(&ids, &memory, None).hidden;
        assert!(difference(&quiet, &hidden) > 1e-3);
    }
}
