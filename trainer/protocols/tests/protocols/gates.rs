use segue_collectives::local::Local;
use segue_engine::Watch;
use segue_language::NextToken;
use segue_layers::recurrent::InputGate;
use segue_lstm::{CellKind, LstmConfig};
use segue_protocols::gate_moments;
use tch::{Kind, Tensor};

use super::source::{fresh, on_ranks, small, stream, symbols, text, walk};

fn tiny(cell: CellKind) -> LstmConfig {
    LstmConfig { d_model: 8, cell, mogrifier_rounds: 2, ..small() }
}

/// By the equation that every LSTM obeys, h = o ⊙ tanh(c) and c = f ⊙ c' + gate ⊙ j: gates that are measured give the states that are carried.
/// Row M22.
#[test]
fn gates_are_those_that_make_the_state() {
    let ids = Tensor::from_slice(&[97i64, 98]).view([1, 2]);
    for (cell, gate) in [
        (CellKind::Lstm, InputGate::Capped),
        (CellKind::Lstm, InputGate::Tied),
        (CellKind::Mlstm, InputGate::Plain),
        (CellKind::Rewired, InputGate::Capped),
    ] {
        let model = fresh(&LstmConfig { input_gate: gate, ..tiny(cell) }, Kind::Double);
        let start = NextToken::memory_start(&model, 1);
        let first = model.read(&ids.narrow(1, 0, 1), &start);
        let (gates, after) = model.gates(&ids, &start).unwrap();
        assert_eq!((gates.len(), gates[0][0].size()), (2, vec![1, 2, 8]));
        for (layer, [forget, input, output]) in gates.iter().enumerate() {
            let of = |memory: &segue_layers::Memory, part: usize| memory.layers[2 * layer + part].view([8]);
            let last = |gate: &Tensor| gate.select(1, 1).view([8]);
            let (forget, input, output) = (last(forget), last(input), last(output));
            let (cell, before) = (of(&after, 1), of(&first, 1));
            let hidden = &output * cell.tanh();
            assert!((&hidden - of(&after, 0)).abs().max().double_value(&[]) < 1e-12, "{gate:?}");
            // |c − f ⊙ c'| = gate · |j| stays below the gate.
            let taken = (&cell - &forget * &before).abs();
            let open = match gate {
                InputGate::Plain => input,
                InputGate::Capped => input.minimum(&(1.0 - &forget)),
                InputGate::Tied => {
                    assert!((&input + &forget - 1.0).abs().max().double_value(&[]) < 1e-15);
                    input
                }
            };
            assert!((taken - open).max().double_value(&[]) < 0.0);
        }
    }
}

/// Row M22.
#[test]
fn moments_of_gates_are_those_of_all_positions_on_any_number_of_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let letters = text(&symbols(121, 1), |_| false);
    let name = std::sync::atomic::AtomicUsize::new(0);
    let found = on_ranks(|comm| {
        let number = name.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let text = stream(&folder, &number.to_string(), &letters);
        let model = fresh(&tiny(CellKind::Lstm), Kind::Double);
        let mut nothing = |_, _| {};
        let layers =
            gate_moments(&model, &text, &walk(3, 1, 16), comm, &mut Watch::new(&mut nothing)).unwrap();
        let numbers = layers.iter().flat_map(|layer| [layer.forget, layer.input, layer.output]);
        numbers.flat_map(|gate| [gate.mean, gate.variance]).collect::<Vec<f64>>()
    });
    // All at once: lane by lane, from the whole of each.
    let text = stream(&folder, "whole", &letters);
    let model = fresh(&tiny(CellKind::Lstm), Kind::Double);
    let mut ids = vec![0; text.len() as usize];
    text.read(0, &mut ids).unwrap();
    let targets = ids.len() - 1;
    assert_eq!(targets % 3, 0, "lanes are of one length");
    let rows = Tensor::from_slice(&ids[..targets]).view([3, -1]);
    let (gates, _) = model.gates(&rows, &NextToken::memory_start(&model, 3)).unwrap();
    let expected = gates.iter().flatten().flat_map(|gate| {
        let mean = gate.mean(Kind::Double).double_value(&[]);
        [mean, (gate - mean).square().mean(Kind::Double).double_value(&[])]
    });
    for (found, expected) in found.iter().zip(expected) {
        assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
    }
}

/// Row M22.
#[test]
fn models_without_such_gates_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let text = stream(&folder, "text", &text(&symbols(30, 1), |_| false));
    let model = fresh(&LstmConfig { mogrifier_rounds: 0, ..tiny(CellKind::Gru) }, Kind::Float);
    let error =
        gate_moments(&model, &text, &walk(1, 1, 8), &Local, &mut Watch::new(&mut |_, _| {})).unwrap_err();
    assert!(error.exit_code() == 64 && error.to_string().contains("gates"), "{error}");
}
