//! Names that settings have in other programs, for advice: Hugging Face's trainer, fairseq, Lightning, NVIDIA's Transformer-XL.

/// Such names, each with the key of the setting here, or with key and value where the name says both.
pub const NAMES: &[(&str, &str)] = &[
    ("learning_rate", "optim.lr"),
    ("lr", "optim.lr"),
    ("max_lr", "optim.lr"),
    ("wd", "optim.weight_decay"),
    ("max_grad_norm", "optim.clip"),
    ("clip_norm", "optim.clip"),
    ("gradient_clip_val", "optim.clip"),
    ("grad_clip", "optim.clip"),
    ("optimizer", "optim.kind"),
    ("optim", "optim.kind"),
    ("adam_beta1", "optim.beta1"),
    ("adam_beta2", "optim.beta2"),
    ("adam_epsilon", "optim.eps"),
    ("adam_eps", "optim.eps"),
    ("hidden_size", "model.d_model"),
    ("n_embd", "model.d_model"),
    ("num_hidden_layers", "model.n_layer"),
    ("num_attention_heads", "model.n_head"),
    ("hidden_dropout_prob", "model.dropout"),
    ("max_steps", "train.steps"),
    ("max_step", "train.steps"),
    ("max_update", "train.steps"),
    ("num_train_epochs", "task.epochs"),
    ("epochs", "task.epochs"),
    ("max_epochs", "task.epochs"),
    ("max_epoch", "task.epochs"),
    ("batch_size", "train.lanes"),
    ("train_batch_size", "train.lanes"),
    ("global_batch_size", "train.lanes"),
    ("per_device_train_batch_size", "train.micro_batch"),
    ("per_gpu_train_batch_size", "train.micro_batch"),
    ("micro_batch_size", "train.micro_batch"),
    ("per_device_eval_batch_size", "eval.group"),
    ("per_gpu_eval_batch_size", "eval.group"),
    ("eval_batch_size", "eval.lanes"),
    ("warmup_steps", "schedule.warmup"),
    ("warmup_step", "schedule.warmup"),
    ("warmup_updates", "schedule.warmup"),
    ("num_warmup_steps", "schedule.warmup"),
    ("warmup_ratio", "task.warmup_share"),
    ("warmup_proportion", "task.warmup_share"),
    ("lr_scheduler_type", "schedule.kind"),
    ("lr_scheduler", "schedule.kind"),
    ("scheduler", "schedule.kind"),
    ("eval_steps", "eval.every"),
    ("eval.steps", "eval.every"),
    ("eval_interval", "eval.every"),
    ("val_check_interval", "eval.every"),
    ("validate_interval_updates", "eval.every"),
    ("early_stopping_patience", "eval.patience"),
    ("early_stopping_threshold", "eval.min_delta"),
    ("patience", "eval.patience"),
    ("save_steps", "checkpoint.every"),
    ("save_interval_updates", "checkpoint.every"),
    ("save_total_limit", "checkpoint.keep"),
    ("keep_last_epochs", "checkpoint.keep"),
    ("load_best_model_at_end", "checkpoint.best"),
    ("keep_best_checkpoints", "checkpoint.best=true"),
    ("logging_steps", "log.every"),
    ("log_interval", "log.every"),
    ("log_every_n_steps", "log.every"),
    ("output_dir", "run.dir"),
    ("save_dir", "run.dir"),
    ("work_dir", "run.dir"),
    ("default_root_dir", "run.dir"),
    ("fp16", "train.precision=fp16"),
    ("bf16", "train.precision=bf16"),
    ("cuda", "train.device=cuda"),
    ("use_cpu", "train.device=cpu"),
    ("gradient_checkpointing", "train.recompute"),
    ("checkpoint_activations", "train.recompute"),
    ("model_name_or_path", "train.init_from"),
    ("max_seq_length", "train.segment"),
    ("max_length", "train.segment"),
    ("block_size", "train.segment"),
    ("tokens_per_sample", "train.segment"),
    ("tgt_len", "train.segment"),
    ("seq_len", "train.segment"),
    ("sequence_length", "train.segment"),
    ("model.type", "model.model_type"),
    ("eval.batch_size", "eval.lanes"),
    ("data.path", "data.corpus"),
    ("bptt", "train.segment"),
    ("data", "data.corpus"),
    ("dataset", "data.corpus"),
    ("dataset_name", "data.corpus"),
    ("dataset_path", "data.corpus"),
    ("label_smoothing", "task.label_smoothing"),
    ("label_smoothing_factor", "task.label_smoothing"),
    ("class_weights", "task.class_weights"),
    ("freeze_layers", "task.freeze_layers"),
    ("lora_r", "task.adapter_rank"),
    ("lora_rank", "task.adapter_rank"),
    ("lora_alpha", "task.adapter_alpha"),
    ("target_modules", "task.adapter_on"),
    ("num_frozen_layers", "task.freeze_layers"),
    ("freeze_embeddings", "task.freeze_embeddings"),
];

/// Names of settings that have no key here, and what there is in their place.
pub const NOTES: &[(&str, &str)] = &[
    ("gradient_accumulation_steps", ACCUMULATION),
    ("accumulate_grad_batches", ACCUMULATION),
    ("update_freq", ACCUMULATION),
    ("batch_chunk", ACCUMULATION),
    (
        "max_tokens",
        "a batch is train.lanes × train.segment tokens, in translation data.batch_tokens: set these",
    ),
    ("arch", MODEL),
    ("model_name", MODEL),
    ("model.name", MODEL),
    ("tensorboard_logdir", "log.tensorboard, on by default, writes into RUN/tensorboard"),
    ("ddp_backend", "ranks always hold replicas and add up gradients; train.collectives says by NCCL or MPI"),
    ("resume_from_checkpoint", RESUMING),
    ("restore_file", RESUMING),
    ("resume", RESUMING),
    ("restart", RESUMING),
    ("restart_dir", RESUMING),
    ("ckpt_path", RESUMING),
    ("report_to", WANDB),
    ("wandb", WANDB),
    ("wandb_project", WANDB),
    ("train_file", CORPUS),
    ("train_files", CORPUS),
    ("validation_file", CORPUS),
    ("num_classes", LABELS),
    ("num_labels", LABELS),
    ("push_to_hub", "`hf upload USER/NAME RUN/best` does it: Segue opens no connection"),
    ("hub_model_id", "`hf upload USER/NAME RUN/best` does it: Segue opens no connection"),
    ("metric_for_best_model", MEASURE),
    ("monitor", MEASURE),
    ("best_checkpoint_metric", MEASURE),
    ("greater_is_better", "leave it out: a measure knows which of its values is the better one"),
    (
        "save_top_k",
        "checkpoint.keep is the number of newest checkpoints that stay, and checkpoint.best keeps the model of the best evaluation",
    ),
    (
        "class_weight",
        "task.class_weights=[1.0, 4.0] weighs the labels in their order, task.balance_classes=true each by its number",
    ),
    ("lora_dropout", "adapters have no dropout of their own; model.dropout acts in the model"),
    ("eta_min", FLOOR),
    ("lr_min", FLOOR),
    (
        "max_sentences",
        "train.lanes is the batch of all ranks: that number times the GPUs and --update-freq; train.micro_batch is what one takes at a time",
    ),
    ("validate_interval", EVALUATIONS),
    ("eval_strategy", EVALUATIONS),
    ("evaluation_strategy", EVALUATIONS),
    ("save_interval", CHECKPOINTS),
    ("save_strategy", CHECKPOINTS),
    ("logging_strategy", "set log.every, in steps"),
    ("finetune_from_model", "train.init_from=FOLDER in pre-training, --model FOLDER in fine-tuning"),
    ("dataloader_num_workers", READING),
    ("num_workers", READING),
    ("adam_betas", "set optim.beta1 and optim.beta2"),
    ("distributed_world_size", "the number of ranks is that of the launcher: `segue launch -n N`"),
    ("multi_gpu", "each rank has a card of its own: start as many ranks, `segue launch -n N`"),
    ("gpus", "each rank has a card of its own: start as many ranks, `segue launch -n N`"),
    ("nproc_per_node", "the number of ranks is that of the launcher: `segue launch -n N`"),
    ("devices", "each rank has a card of its own: start as many ranks, `segue launch -n N`"),
];

const WANDB: &str =
    "set log.tensorboard and log.sinks (csv, mlflow); a few lines of Python send the numbers to wandb";
const CORPUS: &str = "`segue data build --train FILE` makes a corpus of text once, which data.corpus names";
const LABELS: &str = "leave it out: the labels are those of the training file";
const ACCUMULATION: &str = "it follows from train.lanes / train.micro_batch / ranks: lower train.micro_batch to accumulate over more micro-steps";
const MEASURE: &str = "fine-tuning chooses by task.metric, pre-training by the validation loss";
const RESUMING: &str = "the same command again goes on with the run, from the newest checkpoint of its run.dir; train.init_from=FOLDER begins a new run with the weights of another";
const MODEL: &str =
    "model.model_type names the family; `segue recipes` lists recipes, of which --config takes one by name";
const FLOOR: &str = "set schedule.floor, a fraction of optim.lr";
const READING: &str = "leave it out: a thread of each rank reads ahead";

const EVALUATIONS: &str = "set eval.every, in steps";
const CHECKPOINTS: &str = "set checkpoint.every, in steps";

/// Names that have a key of their own in fine-tuning.
const KEYS_OF_TUNING: &[(&str, &str)] = &[
    ("early_stopping_patience", "task.patience"),
    ("early_stopping_threshold", "task.min_delta"),
    ("patience", "task.patience"),
];

/// Names that have a key in pre-training and none in fine-tuning, and what there is in its place.
const NOTES_ON_TUNING: &[(&str, &str)] = &[
    ("per_device_eval_batch_size", SCORED),
    ("per_gpu_eval_batch_size", SCORED),
    ("eval_batch_size", SCORED),
    ("load_best_model_at_end", ALWAYS_BEST),
    ("keep_best_checkpoints", ALWAYS_BEST),
    ("train_file", TASK_FILES),
    ("validation_file", TASK_FILES),
    ("data", TASK_FILES),
    ("dataset", TASK_FILES),
    ("dataset_name", TASK_FILES),
    ("dataset_path", TASK_FILES),
];

const SCORED: &str =
    "leave it out: fine-tuning has no such key, and scores train.micro_batch examples at a time";
const ALWAYS_BEST: &str = "leave it out: fine-tuning always keeps its best model, in RUN/best";
const TASK_FILES: &str = "here it is --data FOLDER, with the files of the task that --task names: train.csv and dev.csv of your own for --task text";

/// What pre-training says of keys of fine-tuning that other programs have too; of any other, [`OF_TUNING`].
const NOTES_ON_PRETRAINING: &[(&str, &str)] = &[
    (
        "task.epochs",
        "pre-training counts steps: set train.steps; a pass over a corpus is its training tokens / (train.lanes × train.segment)",
    ),
    ("task.warmup_share", "pre-training counts steps: set schedule.warmup"),
    ("task.label_smoothing", "in translation it is objective.label_smoothing; language models have none"),
];

const OF_TUNING: &str = "it belongs to fine-tuning, and `segue pretrain` has nothing like it: leave it out";

/// Values of other programs for keys of here, and what there is in their place.
const VALUES: &[(&str, &str, &str)] =
    &[("task.class_weights", "balanced", "task.balance_classes=true does that")];

/// What there is in the place of a setting of other programs, by its name, with dashes or without. `tunes`: whether it is one of fine-tuning.
pub fn note_on(name: &str, tunes: bool) -> Option<&'static str> {
    let of_tuning = || found(NAMES, name).filter(|key| key.starts_with("task."));
    let own = match tunes {
        true => found(NOTES_ON_TUNING, name),
        false => of_tuning().map(|key| found_key(NOTES_ON_PRETRAINING, key).unwrap_or(OF_TUNING)),
    };
    own.or_else(|| found(NOTES, name))
}

/// What there is in the place of a value of other programs.
pub fn note_on_value(key: &str, value: &str) -> Option<&'static str> {
    VALUES.iter().find(|(own, foreign, _)| *own == key && *foreign == value).map(|(.., told)| *told)
}

fn found(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches('-').replace('-', "_");
    found_key(list, &name).or_else(|| found_key(list, name.rsplit('.').next().unwrap_or(&name)))
}

fn found_key(list: &[(&str, &'static str)], key: &str) -> Option<&'static str> {
    list.iter().find(|(own, _)| *own == key).map(|(_, told)| *told)
}

/// The key of a setting by a name of its that other programs have, with dashes or without, and with its value where the name says that. `tunes`: whether
/// it is one of fine-tuning.
pub fn key_of(name: &str, tunes: bool) -> Option<&'static str> {
    if note_on(name, tunes).is_some() {
        return None;
    }
    found(KEYS_OF_TUNING, name).filter(|_| tunes).or_else(|| found(NAMES, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MODELS;

    #[test]
    fn a_name_is_known_with_dashes_too() {
        for (name, key) in NAMES {
            let with_dashes = format!("--{}", name.replace('_', "-"));
            // In one of the two there is such a key.
            assert!([true, false].iter().any(|tunes| key_of(&with_dashes, *tunes) == Some(*key)), "{name}");
            for tunes in [true, false] {
                // Of a name there is one thing to say.
                assert_ne!(key_of(name, tunes).is_some(), note_on(name, tunes).is_some(), "{name}");
            }
        }
        assert_eq!(key_of("train.lanes", false), None);
        for (name, _) in NOTES {
            assert!([true, false].iter().all(|tunes| note_on(name, *tunes).is_some()), "{name}");
            assert!(NAMES.iter().all(|(other, _)| name != other), "{name}");
        }
        for (name, _) in KEYS_OF_TUNING.iter().chain(NOTES_ON_TUNING) {
            assert!(NAMES.iter().chain(NOTES).any(|(other, _)| name == other), "{name}");
        }
    }

    /// Fine-tuning and pre-training have different keys for some of them.
    #[test]
    fn a_name_is_told_the_key_of_the_command_that_it_is_given_to() {
        let hint = |keys: &[&str]| {
            let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
            MODELS.load(None, &keys).unwrap_err().hint().unwrap_or_default()
        };
        let tuning = |key: &str| hint(&["task.name=sst2", key]);
        assert_eq!(tuning("eval_strategy=epoch"), "set eval.every, in steps");
        assert_eq!(tuning("per_device_eval_batch_size=8"), SCORED);
        assert_eq!(tuning("load_best_model_at_end=true"), ALWAYS_BEST);
        assert_eq!(tuning("dataset_name=glue"), TASK_FILES);
        assert!(hint(&["num_train_epochs=3"]).contains("set train.steps"));
        assert!(hint(&["max_epoch=3"]).contains("set train.steps"));
        assert!(hint(&["warmup_ratio=0.1"]).contains("set schedule.warmup"));
        assert!(hint(&["label_smoothing_factor=0.1"]).contains("objective.label_smoothing"));
        assert_eq!(hint(&["lora_r=8"]), OF_TUNING);
        assert_eq!(hint(&["early_stopping_patience=3"]), "did you mean `eval.patience`?");
        assert_eq!(key_of("early_stopping_patience", true), Some("task.patience"));
    }

    #[test]
    fn values_of_other_programs_are_told_what_there_is() {
        assert!(note_on_value("task.class_weights", "balanced").is_some());
        assert_eq!(note_on_value("task.class_weights", "1"), None);
    }

    #[test]
    fn an_override_by_a_foreign_name_is_told_the_key() {
        for (given, key) in [("learning_rate=1e-3", "optim.lr"), ("train.max_steps=5", "train.steps")] {
            let error = MODELS.load(None, &[given.into()]).unwrap_err();
            assert_eq!(error.hint().unwrap(), format!("did you mean `{key}`?"));
        }
        let slip = MODELS.load(None, &["train.devices=cpu".into()]).unwrap_err();
        assert_eq!(slip.hint().unwrap(), "did you mean `train.device`?");
        for given in ["gradient_accumulation_steps=4", "train.report_to=wandb", "task.num_workers=8"] {
            let error = MODELS.load(None, &[given.into()]).unwrap_err();
            assert_eq!(error.hint().as_deref(), note_on(given.split('=').next().unwrap(), false), "{given}");
        }
    }
}
