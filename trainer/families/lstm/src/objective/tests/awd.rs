//! What AWD-LSTM is trained for beside the loss, and that its layers learn.

use segue_dataloader::sections::{LossKind, ObjectiveConfig};
use segue_layers::recurrent::InputGate;

use super::super::super::keys::{CellKind, InitKind, Wiring};
use super::*;

fn stack(cell: CellKind) -> LstmConfig {
    let is_lstm = cell == CellKind::Lstm;
    LstmConfig {
        cell,
        wiring: Wiring::Stack,
        d_last: 6,
        d_embed: 6,
        n_layer: 3,
        two_biases: is_lstm,
        input_gate: if is_lstm { InputGate::Plain } else { InputGate::Capped },
        init: InitKind::Uniform,
        ..small()
    }
}

/// 2 · mean(h̃²) of the dropped and mean((h' − h)²) of the undropped output of the last layer, beside the mean loss.
/// Row S11.
#[test]
fn penalties_weigh_as_much_as_the_mean_loss() {
    let config = LstmConfig { output_dropout: 0.4, locked_dropout: true, ..stack(CellKind::Lstm) };
    let of = |activation_penalty, slowness_penalty| {
        let objective = ObjectiveConfig { activation_penalty, slowness_penalty, ..Default::default() };
        let model = trained(&config, objective);
        (differentiated(&model, &batch(2, 9), Some(&Noise::new(1))), model)
    };
    let ((plain, of_plain), model) = of(0.0, 0.0);
    let ((penalised, of_penalised), _) = of(2.0, 1.0);
    assert!(plain.sum.equal(&penalised.sum) && plain.auxiliary.is_none());
    let out = model.model.forward(&batch(2, 9).inputs, &model.model.memory_start(2), Some(&Noise::new(1)));
    assert_eq!(out.hidden.size(), [2, 9, 6]);
    let mut expected = 0.0;
    for lane in 0..2 {
        for t in 0..9 {
            for k in 0..6 {
                let at = |x: &Tensor, t: i64| x.double_value(&[lane, t, k]);
                expected += 2.0 * at(&out.hidden, t).powi(2) / (2.0 * 9.0 * 6.0);
                if t > 0 {
                    let change = at(&out.undropped, t) - at(&out.undropped, t - 1);
                    expected += change.powi(2) / (2.0 * 8.0 * 6.0);
                }
            }
        }
    }
    close(&penalised.auxiliary.unwrap(), &[18.0 * expected], 1e-12);
    assert!(of_plain.iter().zip(&of_penalised).any(|(one, other)| !one.allclose(other, 1e-6, 1e-9, false)));
}

/// The same over micro-steps, over the latter half of targets, with several samples, and over a single position.
/// Row S11.
#[test]
fn penalties_of_micro_batches_add_up_to_those_of_the_batch() {
    let both = || ObjectiveConfig { activation_penalty: 2.0, slowness_penalty: 1.0, ..sampled(2) };
    for targets in [LossKind::Full, LossKind::Half] {
        let mut model = trained(&stack(CellKind::Qrnn), both());
        model.targets = targets;
        let whole = batch(4, 9);
        let (loss, gradients) = differentiated(&model, &whole, None);
        let parts = [0, 2].map(|first| {
            let part = |x: &Tensor| x.narrow(0, first, 2);
            differentiated(&model, &Batch::new(part(&whole.inputs), part(&whole.targets)), None)
        });
        let [(one, of_one), (two, of_two)] = parts;
        let sum: Vec<Tensor> = of_one.iter().zip(&of_two).map(|(one, two)| one + two).collect();
        alike(&gradients, &sum, 1.0);
        close(
            &(one.auxiliary.unwrap() + two.auxiliary.unwrap()),
            &[loss.auxiliary.unwrap().double_value(&[])],
            1e-11,
        );
    }
    let model =
        trained(&stack(CellKind::Lstm), ObjectiveConfig { slowness_penalty: 1.0, ..Default::default() });
    assert!(differentiated(&model, &batch(2, 1), None).0.auxiliary.is_none());
}

/// Some 500 characters that no state can guess from those before, but by having learnt them.
const TEXT: &str = "The harbour lies under fog until nine; then gulls quarrel above crates of herring, and a boy named Piet \
    counts them twice for the auctioneer. Nobody hurries. Two buyers from Zwolle argue over an eel, a lame dog steals half \
    of it, and the constable writes down everything except the truth. By noon wind has swept the quay clean: ropes creak, \
    sails fill with bright air, and six grey boats turn west again, past the lighthouse, past the last buoy, towards a line \
    that no one on board would call a border.";

/// Layers as AWD-LSTM and its QRNN have them learn a short text by heart in some seconds.
/// Row S14.
#[test]
fn a_short_text_is_learnt_by_heart() {
    const SEGMENT: usize = 20;
    /// Far below 1.5, which is asked for.
    const LEARNT: f64 = 1.35;
    const MOST_STEPS: i32 = 1000;
    let mut alphabet: Vec<u8> = TEXT.bytes().collect();
    alphabet.sort_unstable();
    alphabet.dedup();
    let number = |byte: u8| alphabet.iter().position(|&letter| letter == byte).unwrap() as i64;
    let lanes = (TEXT.len() - 1) / SEGMENT;
    assert!((23..=26).contains(&lanes), "{lanes} lanes");
    let text: Vec<i64> = TEXT.bytes().map(number).collect();
    let rows = |from: usize| {
        Tensor::from_slice(&text[from..][..lanes * SEGMENT]).view([lanes as i64, SEGMENT as i64])
    };
    let batch = Batch::new(rows(0), rows(1));
    for cell in [CellKind::Lstm, CellKind::Qrnn] {
        let config = LstmConfig {
            vocab_size: alphabet.len(),
            d_model: 96,
            d_embed: 48,
            d_last: 48,
            n_layer: 2,
            ..stack(cell)
        };
        let parameters = Parameters::initialise(specs(&config), 5, Kind::Float);
        let model = LanguageModel::from_parameters(&config, parameters);
        let memory = model.model.memory_start(lanes as i64);
        let tensors = model.parameters.tensors();
        let mut moments: Vec<[Tensor; 2]> =
            tensors.iter().map(|tensor| [tensor.zeros_like(), tensor.zeros_like()]).collect();
        for step in 1..=MOST_STEPS {
            let loss = model.loss(&batch, &memory, None);
            let mean = loss.sum / loss.weight;
            if mean.double_value(&[]) < LEARNT.ln() {
                break;
            }
            mean.backward();
            // Adam, as its paper has it.
            tch::no_grad(|| {
                for (tensor, [mean, square]) in tensors.iter().zip(&mut moments) {
                    let mut weight = tensor.shallow_clone();
                    let gradient = weight.grad();
                    *mean = &*mean * 0.9 + &gradient * 0.1;
                    *square = &*square * 0.99 + gradient.square() * 0.01;
                    let (mean, square) =
                        (&*mean / (1.0 - 0.9f64.powi(step)), &*square / (1.0 - 0.99f64.powi(step)));
                    weight -= mean / (square.sqrt() + 1e-8) * 1e-2;
                    weight.zero_grad();
                }
            });
        }
        let perplexity = model.score(&batch, &memory).nll.mean(None::<Kind>).double_value(&[]).exp();
        assert!(perplexity < 1.5, "{cell:?}: {perplexity}");
    }
}
