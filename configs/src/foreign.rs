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
    ("max_steps", "train.steps"),
    ("max_step", "train.steps"),
    ("max_update", "train.steps"),
    ("num_train_epochs", "task.epochs"),
    ("max_epochs", "task.epochs"),
    ("max_epoch", "task.epochs"),
    ("batch_size", "train.lanes"),
    ("train_batch_size", "train.lanes"),
    ("global_batch_size", "train.lanes"),
    ("per_device_train_batch_size", "train.micro_batch"),
    ("per_gpu_train_batch_size", "train.micro_batch"),
    ("micro_batch_size", "train.micro_batch"),
    ("per_device_eval_batch_size", "eval.group"),
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
    ("max_tokens", "a batch is train.lanes × train.segment tokens: set these"),
    ("arch", MODEL),
    ("model_name", MODEL),
    ("tensorboard_logdir", "log.tensorboard, on by default, writes into RUN/tensorboard"),
    ("ddp_backend", "ranks always hold replicas and add up gradients; train.collectives says by NCCL or MPI"),
    ("resume_from_checkpoint", RESUMING),
    ("restore_file", RESUMING),
    ("resume", RESUMING),
    ("restart", RESUMING),
    ("restart_dir", RESUMING),
    ("ckpt_path", RESUMING),
    (
        "report_to",
        "set log.tensorboard and log.sinks (csv, mlflow); a few lines of Python send the numbers to wandb",
    ),
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
    ("validate_interval", "set eval.every, in steps"),
    ("save_interval", "set checkpoint.every, in steps"),
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

const ACCUMULATION: &str = "it follows from train.lanes / train.micro_batch / ranks: lower train.micro_batch to accumulate over more micro-steps";
const MEASURE: &str = "fine-tuning chooses by task.metric, pre-training by the validation loss";
const RESUMING: &str = "the same command again goes on with the run, from the newest checkpoint of its run.dir; train.init_from=FOLDER begins a new run with the weights of another";
const MODEL: &str =
    "model.model_type names the family; `segue recipes` lists recipes, of which --config takes one by name";
const FLOOR: &str = "set schedule.floor, a fraction of optim.lr";
const READING: &str = "leave it out: a thread of each rank reads ahead";

/// What there is in the place of a setting of other programs, by its name, with dashes or without.
pub fn note_on(name: &str) -> Option<&'static str> {
    found(NOTES, name)
}

fn found(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches('-').replace('-', "_");
    let last = name.rsplit('.').next().unwrap_or(&name);
    list.iter().find(|(foreign, _)| *foreign == last).map(|(_, told)| *told)
}

/// The key of a setting by a name of its that other programs have, with dashes or without, and with its value where the name says that.
pub fn key_of(name: &str) -> Option<&'static str> {
    found(NAMES, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MODELS;

    #[test]
    fn a_name_is_known_with_dashes_too() {
        for (name, key) in NAMES {
            assert_eq!(key_of(&format!("--{}", name.replace('_', "-"))), Some(*key));
        }
        assert_eq!(key_of("train.lanes"), None);
        // Of a name there is one thing to say.
        assert!(NOTES.iter().all(|(name, _)| key_of(name).is_none() && note_on(name).is_some()));
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
            assert_eq!(error.hint().as_deref(), note_on(given.split('=').next().unwrap()), "{given}");
        }
    }
}
