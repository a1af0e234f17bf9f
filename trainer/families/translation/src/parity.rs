//! Agreement with the numbers of Hugging Face's `MarianMTModel`.

use segue_family::Trained;
use segue_family::parity::{Cases, FORWARD_LIMIT, GRADIENT_LIMIT, gradients};
use segue_kernels::{Parameters, TrainError};
use tch::{Kind, Tensor};

use super::folder;
use super::keys::TranslationConfig;
use super::model::{Transformer, padding_mask, specs};

/// What a target has where it is padded.
const IGNORED: i64 = -100;

/// The case `pairs`: of `input_ids`, `[pairs, source]`, that `lengths`, `[pairs]`, leaves something of, and `labels`, `[pairs, target]`, the states of the
/// encoder where the source is not padded, ln P of all words where the target is not, the mean `loss` of its tokens, and the gradients of that.
pub fn run(trained: Trained, cases: &mut Cases) -> Result<(), TrainError> {
    let Some(config) = trained.config.get::<TranslationConfig>() else {
        return Err(trained.is_not("a model that translates"));
    };
    let weights = folder::read(&trained.path, &trained.config)?;
    let device = trained.compute.device();
    let parameters = Parameters::from_tensors(specs(config), weights, Kind::Float).to(device);
    let model = Transformer::new(config, &parameters);
    let prefix = "pairs.";
    let Pairs { source, lengths, labels } = Pairs::take(cases, config.vocab_size)?;
    let mask = padding_mask(&lengths, source.size()[1], device);
    let states = model.encode(&source, mask.as_ref(), None);
    let places = places_of(&lengths, source.size()[1]).to_device(device);
    let width = states.size()[2];
    let encoded = states.detach().view([-1, width]).index_select(0, &places);
    cases.compare(prefix, "encoder", FORWARD_LIMIT, vec![("encoder".into(), encoded)]);
    let inputs = shifted(&labels, config.pad_token_id as i64);
    let decoded = model.decode(&inputs, &states, mask.as_ref(), None);
    let labels = labels.view([-1]);
    let places = labels.not_equal(IGNORED).nonzero().view([-1]);
    let log_probs = model.log_probs(&decoded.view([-1, width]).index_select(0, &places));
    cases.compare(prefix, "log_probs", FORWARD_LIMIT, vec![("log_probs".into(), log_probs.detach())]);
    let targets = labels.index_select(0, &places).unsqueeze(1);
    let loss = log_probs.gather(1, &targets, false).mean(Kind::Float).neg();
    loss.f_backward()?;
    cases.compare(prefix, "loss", FORWARD_LIMIT, vec![("loss".into(), loss.detach())]);
    cases.compare(prefix, "gradients", GRADIENT_LIMIT, gradients(&parameters));
    Ok(())
}

/// What the case reads.
struct Pairs {
    /// `[pairs, source]`
    source: Tensor,
    /// Tokens of each source.
    lengths: Vec<i64>,
    /// `[pairs, target]`, [`IGNORED`] where they are padded.
    labels: Tensor,
}

impl Pairs {
    fn take(cases: &mut Cases, words: usize) -> Result<Self, TrainError> {
        let source = cases.need_ids("pairs.input_ids", 2, words)?;
        let labels = cases.need("pairs.labels", Kind::Int64, 2)?;
        cases.check_ids("pairs.labels", &labels.masked_select(&labels.not_equal(IGNORED)), words)?;
        let lengths: Vec<i64> = Vec::try_from(&cases.need("pairs.lengths", Kind::Int64, 1)?)?;
        let (pairs, longest) = source.size2()?;
        if labels.size()[0] != pairs || lengths.len() as i64 != pairs {
            let what = format!(
                "`pairs.labels` are of {} pairs, `pairs.lengths` of {}, `pairs.input_ids` of {pairs}",
                labels.size()[0],
                lengths.len()
            );
            return Err(cases.damaged(what));
        }
        match lengths.iter().find(|length| !(1..=longest).contains(*length)) {
            Some(length) => {
                Err(cases.damaged(format!("`pairs.lengths` holds {length}: not one of 1 to {longest}")))
            }
            None => Ok(Self { source, lengths, labels }),
        }
    }
}

/// Places in `[rows · length]` that are no padding of rows with these `lengths`.
fn places_of(lengths: &[i64], length: i64) -> Tensor {
    let rows = lengths.iter().zip(0..);
    let places: Vec<i64> = rows.flat_map(|(own, row)| row * length..row * length + own).collect();
    Tensor::from_slice(&places)
}

/// What a decoder reads of `labels`, `[pairs, target]`, which it is to predict: each the token before, first of all padding.
fn shifted(labels: &Tensor, padding: i64) -> Tensor {
    let (pairs, length) = (labels.size()[0], labels.size()[1]);
    let start = Tensor::full([pairs, 1], padding, (Kind::Int64, labels.device()));
    let before = labels.narrow(1, 0, length - 1);
    let before = before.masked_fill(&before.eq(IGNORED), padding);
    Tensor::cat(&[start, before], 1)
}
