use segue_family::parity::{Cases, FORWARD_LIMIT, GRADIENT_LIMIT, gradients};
use segue_kernels::{ParameterSpec, Parameters, TrainError};
use segue_layers::{
    Beam, HeadConfig, JudgedFrom, SpanHead, SpanLabels, SummaryHead, by_choice, classification_losses,
    squared_errors,
};
use tch::{Kind, Tensor};

use super::Xlnet;
use super::parity_input::{Input, no_memory};

/// Runs the cases of heads that the file has.
pub fn run(model: &Xlnet, parameters: &Parameters, cases: &mut Cases) -> Result<(), TrainError> {
    for (prefix, task) in
        [("classify.", Task::Classes), ("regress.", Task::Number), ("choice.", Task::Options)]
    {
        if cases.tensors.contains_key(&format!("{prefix}input_ids")) {
            summary(model, parameters, cases, prefix, task)?;
        }
    }
    if cases.tensors.contains_key("span.input_ids") {
        span(model, parameters, cases)?;
    }
    Ok(())
}

/// What a summary is asked for.
#[derive(Clone, Copy, PartialEq)]
enum Task {
    Classes,
    Number,
    Options,
}

/// A head on the last position's state.
fn summary(
    model: &Xlnet,
    parameters: &Parameters,
    cases: &mut Cases,
    prefix: &str,
    task: Task,
) -> Result<(), TrainError> {
    let outputs = match cases.tensors.get(&format!("{prefix}head.logits_proj.bias")) {
        Some(bias) => bias.numel() as i64,
        None => return Err(cases.damaged(format!("it has no `{prefix}head.logits_proj.bias`"))),
    };
    let config = HeadConfig::from(model.config());
    let specs = SummaryHead::specs(&config, outputs);
    let own = head_parameters(cases, prefix, specs)?;
    let axes = if task == Task::Options { 3 } else { 2 };
    let options = cases.tensors[&format!("{prefix}input_ids")].size().get(1).copied().unwrap_or(1);
    let input = Input::take(model.config(), cases, prefix, axes)?;
    let content = content(model, &input);
    let logits = SummaryHead::new(&config, &own).logits(&content, None);
    let logits = if task == Task::Options { by_choice(&logits, options) } else { logits };
    let kind = if task == Task::Number { Kind::Float } else { Kind::Int64 };
    let labels = cases.need(&format!("{prefix}labels"), kind, 1)?;
    if kind == Kind::Int64 {
        cases.check_ids(&format!("{prefix}labels"), &labels, logits.size()[1] as usize)?;
    }
    let losses = match task {
        Task::Number => squared_errors(&logits, &labels),
        Task::Classes | Task::Options => classification_losses(&logits, &labels),
    };
    let loss = losses.mean(None::<Kind>);
    loss.f_backward()?;
    cases.compare(prefix, "outputs", FORWARD_LIMIT, vec![("logits".into(), logits.detach())]);
    finish(cases, prefix, &loss, &own, parameters);
    Ok(())
}

/// The head for answers in a text: its loss, and what its search finds.
fn span(model: &Xlnet, parameters: &Parameters, cases: &mut Cases) -> Result<(), TrainError> {
    let prefix = "span.";
    let config = HeadConfig::from(model.config());
    let own = head_parameters(cases, prefix, SpanHead::specs(&config))?;
    let head = SpanHead::new(&config, &own);
    let input = Input::take(model.config(), cases, prefix, 2)?;
    let (batch, segment) = (input.ids.size()[0], input.ids.size()[1]);
    let starts = cases.need_ids("span.start_positions", 1, segment as usize)?;
    let ends = cases.need_ids("span.end_positions", 1, segment as usize)?;
    // Where nobody says otherwise, the last position is <cls>.
    let last = || Tensor::full([batch], segment - 1, (Kind::Int64, input.ids.device()));
    let given = cases.take("span.cls_index");
    let impossible = cases.take("span.is_impossible").filter(|_| given.is_some());
    let cls = given.unwrap_or_else(last);
    let outside = cases.take("span.p_mask");
    let content = content(model, &input);
    let labels = SpanLabels {
        starts: &starts,
        ends: &ends,
        impossible: impossible.as_ref(),
        judged_from: JudgedFrom::Right,
    };
    let loss = head.losses(&content, &cls, outside.as_ref(), labels, None).mean(None::<Kind>);
    loss.f_backward()?;
    finish(cases, prefix, &loss, &own, parameters);
    let Some(found) = cases.tensors.get("span.infer.start_top_index") else { return Ok(()) };
    let n_starts = found.size().get(1).copied().unwrap_or(1).max(1);
    let pairs = cases.tensors.get("span.infer.end_top_index").and_then(|t| t.size().get(1).copied());
    let n_ends = pairs.unwrap_or(n_starts) / n_starts;
    let Beam { start_probabilities, starts, end_probabilities, ends, unanswerable } =
        tch::no_grad(|| head.beam(&content, &cls, outside.as_ref(), n_starts, n_ends));
    // The package's names say "log", but these are probabilities.
    let found = vec![
        ("start_top_log_probs".into(), start_probabilities),
        ("start_top_index".into(), starts),
        ("end_top_log_probs".into(), end_probabilities),
        ("end_top_index".into(), ends),
        ("cls_logits".into(), unanswerable),
    ];
    cases.compare("span.infer.", "beam", FORWARD_LIMIT, found);
    Ok(())
}

/// Takes `PREFIXhead.*` out of the cases.
fn head_parameters(
    cases: &mut Cases,
    prefix: &str,
    specs: Vec<ParameterSpec>,
) -> Result<Parameters, TrainError> {
    let mut tensors = Vec::new();
    for spec in &specs {
        let name = format!("{prefix}head.{}", spec.name);
        let tensor = cases.need(&name, Kind::Float, spec.shape.len())?;
        if tensor.size() != spec.shape {
            let what = format!("`{name}` is {:?}, expected {:?}", tensor.size(), spec.shape);
            return Err(cases.damaged(what));
        }
        tensors.push(tensor);
    }
    Ok(Parameters::from_tensors(specs, tensors, Kind::Float))
}

/// The last layer's content of sequences that all see themselves whole, without memory.
fn content(model: &Xlnet, input: &Input) -> Tensor {
    let states = model.forward(input.sequence(), &no_memory(model, input.ids.size()[0]), None);
    let Some(content) = states.content else { unreachable!("content was asked for") };
    content
}

/// Compares a loss and the gradients of head and model.
fn finish(cases: &mut Cases, prefix: &str, loss: &Tensor, head: &Parameters, model: &Parameters) {
    cases.compare(prefix, "losses", FORWARD_LIMIT, vec![("loss".into(), loss.detach())]);
    let mut found = gradients(head);
    found.extend(gradients(model));
    cases.compare(prefix, "gradients", GRADIENT_LIMIT, found);
}
