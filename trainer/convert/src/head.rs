//! Chooses the head that TensorFlow's XLNet has for the layer that scores a sequence.

use std::str::FromStr;

use serde_json::{Map, Value};

use super::sources::{CHOICE, CLASSIFICATION, REGRESSION};

/// A head of TensorFlow's XLNet over the summary of a sequence. In Hugging Face's folders all of them are
/// `logits_proj`.
///
/// ```
/// use segue_convert::TensorFlowHead;
///
/// let head: TensorFlowHead = "regression:STS-B".parse().unwrap();
/// assert_eq!(head, TensorFlowHead::Regression("sts-b".into()));
/// assert!("regression".parse::<TensorFlowHead>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TensorFlowHead {
    /// Classes of a task, `model/classification_TASK/logit`.
    Classification(String),
    /// A number, `model/regression_TASK/logit`.
    Regression(String),
    /// One of several answers, `logits/dense`.
    Race,
}

impl FromStr for TensorFlowHead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The program writes tasks in lower case.
        let (kind, task) = text.split_once(':').unwrap_or((text, ""));
        let task = task.to_lowercase();
        match kind {
            "race" if task.is_empty() => Ok(Self::Race),
            "classification" if is_a_scope(&task) => Ok(Self::Classification(task)),
            "regression" if is_a_scope(&task) => Ok(Self::Regression(task)),
            _ => Err("it is classification:TASK, regression:TASK or race".into()),
        }
    }
}

/// Whether a task can be part of a variable's name.
fn is_a_scope(task: &str) -> bool {
    !task.is_empty() && task.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

impl TensorFlowHead {
    /// The head that `config.json` describes, for `outputs` scores; or what is to be said.
    pub(super) fn described(fields: &Map<String, Value>, outputs: i64) -> Result<Self, String> {
        let says =
            |key: &str, value: &str| fields.get(key).is_some_and(|found| found.to_string().contains(value));
        if says("architectures", "MultipleChoice") {
            return Ok(Self::Race);
        }
        let regression = match fields.get("problem_type") {
            Some(_) => says("problem_type", "regression"),
            None if outputs > 1 => false,
            None => {
                return Err("its head gives one score, and config.json says neither problem_type nor that it chooses \
                            among answers: say --head regression:TASK or --head race"
                    .into());
            }
        };
        let kind = if regression { "regression" } else { "classification" };
        let Some(task) = fields.get("finetuning_task").and_then(Value::as_str) else {
            return Err(format!("config.json does not say the task of its head: say --head {kind}:TASK"));
        };
        format!("{kind}:{task}").parse().map_err(|_| {
            format!("the task {task:?} of config.json cannot be part of a name: say --head {kind}:TASK")
        })
    }

    /// The scope of its layer; an error where that cannot give `outputs` scores.
    pub(super) fn scope(&self, outputs: i64) -> Result<String, String> {
        let (scope, one) = match self {
            Self::Classification(task) => (CLASSIFICATION.replace("{*}", task), false),
            Self::Regression(task) => (REGRESSION.replace("{*}", task), true),
            Self::Race => (CHOICE.to_string(), true),
        };
        match one && outputs != 1 {
            true => Err(format!("its head gives {outputs} scores, and `{scope}` gives one")),
            false => Ok(scope),
        }
    }
}

/// The flags that tell TensorFlow's XLNet how the head that `config.json` describes sums up a sequence, where it does not as they have it; an
/// error where it cannot.
pub(super) fn flags_of_summary(fields: &Map<String, Value>) -> Result<Option<String>, String> {
    let said = |key: &str| {
        fields.get(key).map(|value| value.as_str().map_or_else(|| value.to_string(), String::from))
    };
    if let Some(activation) = said("summary_activation").filter(|name| name != "tanh") {
        return Err(format!("its head has summary_activation = {activation}, and heads there have tanh"));
    }
    let mut flags = Vec::new();
    match said("summary_type").as_deref() {
        None | Some("last" | "cls_index") => {}
        Some(summary @ ("first" | "mean")) => flags.push(format!("--summary_type={summary}")),
        Some(other) => {
            return Err(format!(
                "its head has summary_type = {other}, whose variables Hugging Face does not have"
            ));
        }
    }
    if said("summary_use_proj").is_some_and(|projects| projects == "false") {
        flags.push("--use_summ_proj=False".into());
    }
    Ok((!flags.is_empty()).then(|| format!("flags of the program for its head: {}", flags.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn described(fields: Value, outputs: i64) -> Result<TensorFlowHead, String> {
        TensorFlowHead::described(fields.as_object().unwrap(), outputs)
    }

    #[test]
    fn heads_follow_from_what_the_configuration_says() {
        let choice = json!({"architectures": ["XLNetForMultipleChoice"]});
        assert_eq!(described(choice, 1), Ok(TensorFlowHead::Race));
        let regression = json!({"problem_type": "regression", "finetuning_task": "sts-b"});
        assert_eq!(described(regression, 1), Ok(TensorFlowHead::Regression("sts-b".into())));
        let classes = json!({"finetuning_task": "MNLI"});
        assert_eq!(described(classes, 3), Ok(TensorFlowHead::Classification("mnli".into())));
        assert!(described(json!({"finetuning_task": "cola"}), 1).unwrap_err().contains("--head race"));
        assert!(described(json!({}), 3).unwrap_err().contains("--head classification:TASK"));
        assert!(described(json!({"finetuning_task": "a/b"}), 3).unwrap_err().contains("a/b"));
    }

    #[test]
    fn a_summary_that_is_not_the_usual_one_is_a_flag_or_an_error() {
        let flags = |fields: Value| flags_of_summary(fields.as_object().unwrap());
        assert_eq!(
            flags(json!({"summary_type": "last", "summary_use_proj": true, "summary_activation": "tanh"})),
            Ok(None)
        );
        let told = flags(json!({"summary_type": "first", "summary_use_proj": false})).unwrap().unwrap();
        assert!(told.contains("--summary_type=first") && told.contains("--use_summ_proj=False"), "{told}");
        assert!(flags(json!({"summary_type": "attn"})).unwrap_err().contains("attn"));
        assert!(flags(json!({"summary_activation": null})).unwrap_err().contains("summary_activation"));
    }

    #[test]
    fn heads_of_one_score_do_not_hold_several() {
        assert!(TensorFlowHead::Race.scope(1).is_ok() && TensorFlowHead::Race.scope(2).is_err());
        assert!(TensorFlowHead::Regression("a".into()).scope(3).is_err());
    }
}
