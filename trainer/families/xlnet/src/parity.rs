use segue_family::parity::{Cases, FORWARD_LIMIT, GRADIENT_LIMIT, gradients};
use segue_kernels::{Parameters, TrainError};
use segue_language::ModelFolder;
use segue_layers::Memory;
use tch::{Kind, Tensor};

use super::model::Xlnet;
use super::parity_heads as heads;
use super::parity_input::{Input, no_memory};
use super::sequence::Sequence;

/// Cases are `encode`, `plm` and those of the heads.
pub fn run(folder: &ModelFolder, cases: &mut Cases) -> Result<(), TrainError> {
    let (mut model, parameters) = super::load_xlnet(folder)?;
    as_the_package(&mut model);
    if cases.tensors.contains_key("encode.input_ids") {
        encode(&model, &parameters, cases)?;
    }
    if cases.tensors.contains_key("plm.input_ids") {
        permutation(&mut model, &parameters, cases)?;
    }
    see_as_much_as(&mut model, 0);
    heads::run(&model, &parameters, cases)
}

/// Length of the memory that the package keeps where its configuration gives none: all of it.
const UNBOUNDED: i64 = 1 << 32;

/// Habits of the package that are no part of a model here: a memory without a length keeps everything, and
/// same-length attention sees as many keys as the memory has positions at that moment, and itself.
fn as_the_package(model: &mut Xlnet) {
    if model.context.mem_len == 0 {
        model.context.mem_len = UNBOUNDED;
    }
    see_as_much_as(model, 0);
}

/// Same-length attention beside a memory of `mem` positions.
fn see_as_much_as(model: &mut Xlnet, mem: i64) {
    model.context.same_length = model.context.same_length.map(|_| mem + 1);
}

/// Hidden states of all layers, and gradients of their sum weighted by `cotangent`.
fn encode(model: &Xlnet, parameters: &Parameters, cases: &mut Cases) -> Result<(), TrainError> {
    let prefix = "encode.";
    let input = Input::take(model.config(), cases, prefix, 2)?;
    let memory = no_memory(model, input.ids.size()[0]);
    let mut whole = model.layer_inputs(input.sequence(), &memory);
    let states = model.forward(input.sequence(), &memory, None);
    let Some(last) = states.content else { unreachable!("content was asked for") };
    whole.push(last.detach());
    let hidden = whole.into_iter().enumerate().map(|(i, h)| (format!("hidden.{i}"), h)).collect();
    cases.compare(prefix, "hidden", FORWARD_LIMIT, hidden);
    cases.compare(prefix, "outputs", FORWARD_LIMIT, vec![("last_hidden_state".into(), last.detach())]);
    let cotangent = cases.need("encode.cotangent", Kind::Float, 3)?;
    (last * cotangent).sum(None::<Kind>).f_backward()?;
    cases.compare(prefix, "gradients", GRADIENT_LIMIT, gradients(parameters));
    Ok(())
}

/// A first segment that only leaves its memory, and a second one whose targets are predicted.
fn permutation(model: &mut Xlnet, parameters: &Parameters, cases: &mut Cases) -> Result<(), TrainError> {
    let prefix = "plm.";
    let first = cases.need_ids("plm.first_ids", 2, model.config().vocab_size)?;
    let first_segments = cases.take("plm.first_token_type_ids");
    let batch = first.size()[0];
    let sequence = Sequence { segments: first_segments.as_ref(), ..Sequence::new(&first) };
    let reversed = if model.config().bi_data { batch / 2 } else { 0 };
    let sequence = Sequence { reversed, ..sequence };
    let memory = tch::no_grad(|| model.forward(sequence, &no_memory(model, batch), None)).memory;
    cases.compare(prefix, "memories", FORWARD_LIMIT, memories("mems", &memory));
    see_as_much_as(model, memory.len());
    let input = Input::take(model.config(), cases, prefix, 2)?;
    // One-hot rows; a row of zeros would predict nothing.
    let targets = cases.need("plm.target_mapping", Kind::Float, 3)?.argmax(-1, false);
    let labels = cases.need_ids("plm.labels", 2, model.config().vocab_size)?;
    let sequence = Sequence { targets: Some(&targets), content: false, ..input.sequence() };
    let states = model.forward(sequence, &memory, None);
    let Some(predictions) = states.predictions else { unreachable!("there are targets") };
    let loss = model.nll(&predictions, &labels).mean(None::<Kind>);
    loss.f_backward()?;
    let logits = tch::no_grad(|| model.logits(&predictions));
    cases.compare(prefix, "outputs", FORWARD_LIMIT, vec![("logits".into(), logits)]);
    cases.compare(prefix, "losses", FORWARD_LIMIT, vec![("loss".into(), loss.detach())]);
    cases.compare(prefix, "new memories", FORWARD_LIMIT, memories("new_mems", &states.memory));
    cases.compare(prefix, "gradients", GRADIENT_LIMIT, gradients(parameters));
    Ok(())
}

/// `NAME.{layer}`, `[mem, batch, d_model]` each, as the package keeps them.
fn memories(name: &str, memory: &Memory) -> Vec<(String, Tensor)> {
    let layers = memory.layers.iter().enumerate();
    layers.map(|(i, m)| (format!("{name}.{i}"), m.transpose(0, 1).contiguous())).collect()
}
