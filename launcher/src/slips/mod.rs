//! Advice on slips in command lines: options that are settings, which are overrides here, `train.lanes=4`; commands that are misspelt.

mod options;

use std::collections::BTreeSet;

use clap::CommandFactory;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use segue_configs::{foreign, listed, reference};
use segue_families::MODELS;
use serde_json::Value;

pub use self::options::hint;
use crate::Cli;

/// Commands of one run, whose settings are overrides; those of them that are launched; and the one that fine-tunes.
pub const WITH_OVERRIDES: [&str; 3] = ["pretrain", TUNES, "plan"];
const LAUNCHED: [&str; 2] = ["pretrain", TUNES];
const TUNES: &str = "finetune";

/// Adds to the error of an unknown option how the setting is written here, where it is one, and leaves one command of several that are like
/// an unknown one. `words`: the command line.
pub fn advise(error: &mut clap::Error, words: &[String]) {
    match error.kind() {
        ErrorKind::UnknownArgument => advise_on_option(error, words),
        ErrorKind::InvalidSubcommand if named(words).1 == "generate" => advise_on_model(error),
        ErrorKind::InvalidSubcommand => keep_the_nearest_command(error),
        _ => {}
    }
}

/// Commands of other programs, each with those that do the same here.
const COMMANDS: &[(&str, &[&str])] = &[
    ("train", &["pretrain", "finetune"]),
    ("preprocess", &["data build"]),
    ("tokenize", &["tokenizer train", "data build"]),
    ("evaluate", &["eval"]),
    ("validate", &["eval"]),
    ("test", &["eval"]),
    ("infer", &["predict", "generate"]),
    ("inference", &["predict", "generate"]),
    ("lr_find", &["bench lr"]),
    ("lr-find", &["bench lr"]),
    ("export", &["convert"]),
];

/// Of the commands that clap takes for similar, the last is not always the one that is meant.
fn keep_the_nearest_command(error: &mut clap::Error) {
    if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand)
        && let Some(note) = foreign::note_on(given, false).filter(|_| given == "resume")
    {
        let told = StyledStr::from(note);
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![told]));
        return;
    }
    if let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand)
        && let Some((_, own)) = COMMANDS.iter().find(|(foreign, _)| foreign == given)
    {
        let own = own.iter().map(|name| name.to_string()).collect();
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(own));
        return;
    }
    let (Some(ContextValue::String(given)), Some(ContextValue::Strings(similar))) =
        (error.get(ContextKind::InvalidSubcommand), error.get(ContextKind::SuggestedSubcommand))
    else {
        return;
    };
    let likeness = |name: &String| strsim::jaro_winkler(given, name);
    let nearest = similar.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b))).cloned();
    if let Some(nearest) = nearest {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![nearest]));
    }
}

/// `generate` takes its model by an option, and not as a positional argument.
fn advise_on_model(error: &mut clap::Error) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let given = given.clone();
    error.remove(ContextKind::SuggestedSubcommand);
    let told = StyledStr::from(format!("the model is named by an option: `--model {given}`"));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![told]));
}

fn advise_on_option(error: &mut clap::Error, words: &[String]) {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let option = option.clone();
    let similar = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(similar)) if is_slip(&option, similar) => Some(similar.clone()),
        _ => None,
    };
    let advice = advice(&option, words);
    // Clap's own tip, to give the option as a value behind `--`, leads nowhere: no value begins with dashes.
    let told: Vec<StyledStr> = match (&advice, &similar, trains(words).is_some()) {
        (Some(advice), ..) => vec![advice.into()],
        (None, None, true) => vec![StyledStr::from(ELSEWHERE)],
        _ => Vec::new(),
    };
    match told.is_empty() {
        true => error.remove(ContextKind::Suggested),
        false => error.insert(ContextKind::Suggested, ContextValue::StyledStrs(told)),
    };
    if (advice.is_some() || similar.is_none()) && error.remove(ContextKind::SuggestedArg).is_some() {
        // Clap's has the wrong guess in it.
        error.insert(ContextKind::Usage, ContextValue::StyledStr(named(words).0.render_usage()));
    }
}

/// The command of `words`, and its name without the program's.
fn named(words: &[String]) -> (clap::Command, String) {
    let mut command = Cli::command();
    command.build();
    let mut name = Vec::new();
    for word in words.iter().skip(1) {
        match command.find_subcommand(word).cloned() {
            Some(own) => command = own,
            None => break,
        }
        name.push(word.as_str());
    }
    (command, name.join(" "))
}

/// What to say of an option of a command that trains, where nothing is known of it.
const ELSEWHERE: &str = "settings are overrides without dashes, KEY=VALUE; --print-config lists them, and the book (start/coming-from) by the names of other programs";

/// The command of `words` that takes overrides: the first of all, or the one that it starts.
fn trains(words: &[String]) -> Option<&str> {
    let mut words = words.iter().skip(1).map(String::as_str).filter(|word| !word.starts_with('-'));
    match words.next()? {
        "launch" | "batch" => words.find(|word| LAUNCHED.contains(word)),
        first => Some(first).filter(|first| WITH_OVERRIDES.contains(first)),
    }
}

/// Whether an option is a slip of the pen for `similar`: clap takes names for similar of which hardly a letter agrees.
fn is_slip(option: &str, similar: &str) -> bool {
    let bare = |name: &str| name.trim_start_matches('-').replace('_', "-");
    let (option, similar) = (bare(option), bare(similar));
    let differ = strsim::levenshtein(&option, &similar);
    differ <= 1 || 3 * differ < similar.len() || similar.starts_with(&option)
}

/// What to write in the place of an option, where that is known.
fn advice(option: &str, words: &[String]) -> Option<String> {
    let name = option.split('=').next().unwrap_or(option);
    let Some(command) = trains(words) else {
        let (_, given) = named(words);
        return match given.as_str() {
            "predict" if !option.starts_with('-') => Some(
                "what is answered is named by an option: `--input FILE`, or `--input -` of texts on stdin"
                    .into(),
            ),
            _ => options::in_place_of(&given, option).map(|own| format!("here it is {own}")),
        };
    };
    if let Some(assignment) = assignment(option, words) {
        return Some(assignment);
    }
    if let Some(note) = foreign::note_on(name, command == TUNES) {
        return Some(note.into());
    }
    if !LAUNCHED.contains(&command) {
        return options::in_place_of(command, option).map(|own| format!("here it is {own}"));
    }
    if let Some(owner) = options::owner(option) {
        return Some(format!("'{name}' is an option of `segue {owner}`, and stands before `{command}`"));
    }
    let own = options::in_place_of("launch", option)?;
    Some(format!("`segue launch` has it as {own}, before `{command}`"))
}

/// What to say of an option that stands for an override: a key with dashes before it, with its section or without, or another program's name of a setting.
fn assignment(option: &str, words: &[String]) -> Option<String> {
    let command = trains(words)?;
    let name = option.split('=').next().unwrap_or(option).trim_start_matches('-');
    if foreign::note_on(name, command == TUNES).is_some() {
        return None;
    }
    let key = foreign::key_of(name, command == TUNES).map(String::from).or_else(|| key_called(name))?;
    let key = of_task(&key).filter(|_| command == TUNES).unwrap_or(key);
    // Of passes over examples, fine-tuning alone knows.
    if key.starts_with("task.") && command != TUNES {
        return None;
    }
    let told = |assignment: String| Some(format!("settings are overrides without dashes: {assignment}"));
    if key.contains('=') {
        return told(key);
    }
    let is_option = |word: &&String| word.split('=').next() == option.split('=').next();
    let at = words.iter().position(|word| is_option(&word))?;
    let beside = words[at].split_once('=').map(|(_, value)| value);
    let next =
        words.get(at + 1).map(String::as_str).filter(|next| !next.starts_with("--") && !next.contains('='));
    let value = beside.or(next);
    if command == TUNES && key == "train.init_from" {
        return Some(format!("here it is --model {}", value.unwrap_or("DIR")));
    }
    let (value, default) = (value.map(String::from), default_of(&key));
    let value = match (value, &default) {
        (None, Some(Value::Bool(_))) => Some("true".into()),
        (Some(value), Some(Value::Bool(_))) => Some(value.to_lowercase()),
        (Some(value), Some(Value::Array(_))) if !value.starts_with('[') => {
            Some(format!("'{}'", listed(&value)))
        }
        (value, _) => value,
    };
    let value = value.as_deref();
    match (value, values_of(&key).as_slice()) {
        (Some(value), known @ [_, ..]) if known.iter().all(|own| own != value) => {
            Some(format!("{key} is one of {}", known.join(", ")))
        }
        _ => told(format!("{key}={}", value.unwrap_or("VALUE"))),
    }
}

/// Every key of every family, `section.key`, each once.
pub fn keys() -> BTreeSet<String> {
    let sections = reference::sections(&MODELS);
    let all = sections.iter().flat_map(|of| of.keys.iter().map(|key| format!("{}.{}", of.name, key.name)));
    all.collect()
}

/// What a key is where nothing is set.
fn default_of(key: &str) -> Option<Value> {
    let sections = reference::sections(&MODELS);
    let mut all =
        sections.into_iter().flat_map(|of| of.keys.into_iter().map(move |own| (of.name.clone(), own)));
    all.find(|(section, own)| format!("{section}.{}", own.name) == key)?.1.default
}

/// The values that a key may have, where they are listed.
fn values_of(key: &str) -> Vec<String> {
    let sections = reference::sections(&MODELS);
    let mut all =
        sections.into_iter().flat_map(|of| of.keys.into_iter().map(move |own| (of.name.clone(), own)));
    let found = all.find(|(section, own)| format!("{section}.{}", own.name) == key);
    found.into_iter().flat_map(|(_, own)| own.values).map(|(value, _)| value).collect()
}

/// The key of fine-tuning in the place of one of the same name in another section.
fn of_task(key: &str) -> Option<String> {
    let of_task = format!("task.{}", key.rsplit('.').next()?);
    keys().contains(&of_task).then_some(of_task)
}

/// The key that is called `name`, with its section; or without it, where one section alone has such a key, or one of those that are meant first.
fn key_called(name: &str) -> Option<String> {
    let keys = keys();
    let name = name.replace('-', "_");
    let first = ["train", "model", "optim"].map(|section| format!("{section}.{name}"));
    if let Some(exact) = [&name].into_iter().chain(&first).find(|key| keys.contains(*key)) {
        return Some(exact.clone());
    }
    let mut called = keys.into_iter().filter(|key| key.rsplit('.').next() == Some(name.as_str()));
    called.next().filter(|_| called.next().is_none())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn an_option_that_is_a_setting_is_told_as_an_override() {
        for (line, told) in [
            ("segue pretrain --train.lanes=4", "train.lanes=4"),
            ("segue pretrain --config tiny.toml --train.lanes 4", "train.lanes=4"),
            ("segue pretrain --learning_rate 1e-3", "optim.lr=1e-3"),
            ("segue pretrain --learning-rate=1e-3 run.dir=a", "optim.lr=1e-3"),
            ("segue finetune --per_device_train_batch_size 8", "train.micro_batch=8"),
            ("segue pretrain --optim.lr", "optim.lr=VALUE"),
            ("segue pretrain --lr 3", "optim.lr=3"),
            ("segue pretrain --learning_rate run.dir=a", "optim.lr=VALUE"),
            ("segue pretrain --fp16", "train.precision=fp16"),
            ("segue finetune --num_train_epochs 3", "task.epochs=3"),
        ] {
            let text = advised(line);
            assert!(text.contains(&format!("settings are overrides without dashes: {told}\n")), "{text}");
        }
        for line in ["segue pretrain --foo.bar=3", "segue generate --max-length 20"] {
            let text = advised(line);
            assert!(!text.contains("without dashes: "), "{text}");
        }
        assert!(advised("segue pretrain --confg a").contains("'--config'"));
        assert!(advised("segue predict runs/cls new.txt").contains("`--input FILE`"));
        assert!(advised("segue generate runs/a").contains("`--model runs/a`"));
        let text = advised("segue finetun");
        assert!(text.contains("'finetune'") && !text.contains("'inspect'"), "{text}");
    }

    /// What is said of a command line.
    fn advised(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(String::from).collect();
        let Err(mut error) = Cli::try_parse_from(&words) else { panic!("{line}") };
        advise(&mut error, &words);
        error.to_string()
    }

    /// Options of fairseq, of NVIDIA's Transformer-XL, of Hugging Face and of torchrun, with what is said in their place.
    #[test]
    fn options_of_other_programs_are_told_what_there_is_here() {
        for (line, told) in [
            ("segue pretrain --update-freq 4", "lower train.micro_batch"),
            ("segue pretrain --batch_chunk 4", "lower train.micro_batch"),
            ("segue pretrain --max-tokens 4096", "train.lanes × train.segment"),
            ("segue pretrain --arch transformer_lm", "segue recipes"),
            ("segue pretrain --keep-best-checkpoints 1", "checkpoint.best"),
            ("segue pretrain --tensorboard-logdir tb", "log.tensorboard"),
            ("segue pretrain --ddp-backend no_c10d", "train.collectives"),
            ("segue pretrain --mem_len 150", ": model.mem_len=150"),
            ("segue pretrain --n_layer 12", ": model.n_layer=12"),
            ("segue pretrain --d_model 410", ": model.d_model=410"),
            ("segue pretrain --seed 1", ": train.seed=1"),
            ("segue finetune --seed 1", ": train.seed=1"),
            ("segue pretrain --patience 3", ": eval.patience=3"),
            ("segue finetune --patience 3", ": task.patience=3"),
            ("segue finetune --early_stopping_patience 3", ": task.patience=3"),
            ("segue finetune --eval_strategy epoch", "set eval.every, in steps"),
            ("segue pretrain --eval-strategy steps", "set eval.every, in steps"),
            ("segue finetune --per_device_eval_batch_size 8", "fine-tuning has no such key"),
            ("segue pretrain --per_device_eval_batch_size 8", ": eval.group=8"),
            ("segue finetune --load_best_model_at_end True", "always keeps its best model"),
            ("segue finetune --dataset_name glue", "here it is --data FOLDER"),
            ("segue pretrain --lora_r 8", "belongs to fine-tuning"),
            ("segue pretrain --label-smoothing 0.1", "objective.label_smoothing"),
            ("segue pretrain --weight-decay 0.01", ": optim.weight_decay=0.01"),
            ("segue pretrain --dropout 0.1", ": model.dropout=0.1"),
            ("segue pretrain --max-epoch 3", "set train.steps"),
            ("segue pretrain --max_epochs 3", "set train.steps"),
            ("segue pretrain --warmup-ratio 0.1", "set schedule.warmup"),
            ("segue pretrain --batch-size 8", ": train.lanes=8"),
            ("segue pretrain --max-sentences 8", "train.lanes is the batch of all ranks"),
            ("segue pretrain --lr_min 1e-5", "set schedule.floor, a fraction of optim.lr"),
            ("segue pretrain --optimizer nag", "optim.kind is one of adam, adamw, lamb, sgd"),
            ("segue pretrain --optimizer adamw", ": optim.kind=adamw"),
            ("segue pretrain --gradient_checkpointing True", ": train.recompute=true"),
            ("segue finetune --target_modules q,v", ": task.adapter_on='[\"q\",\"v\"]'"),
            ("segue finetune --model_name_or_path a/b", "here it is --model a/b"),
            ("segue pretrain --restore-file x.pt", "the same command again goes on with the run"),
            ("segue pretrain --resume-from-checkpoint x", "the same command again goes on with the run"),
            ("segue pretrain -n 2", "'-n' is an option of `segue launch`, and stands before `pretrain`"),
            ("segue pretrain --restarts 2", "'--restarts' is an option of `segue launch`"),
            ("segue pretrain --gpus-per-node 2", "'--gpus-per-node' is an option of `segue batch`"),
            ("segue pretrain --nproc_per_node 2", "segue launch -n N"),
            ("segue pretrain --max-restarts 2", "`segue launch` has it as --restarts N, before `pretrain`"),
            ("segue pretrain --nnodes 2", "`segue launch` has it as --hosts"),
            ("segue pretrain --frobnicate 2", "start/coming-from"),
            ("segue eval --tgt_len 128", "here it is --segment TOKENS"),
            ("segue generate --beam 5", "segue translate"),
            ("segue generate --num_return_sequences 3", "here it is --texts N"),
            ("segue generate --do_sample", "here it is the default"),
            ("segue predict runs/a --max-length 64", "here it is --segment TOKENS"),
            ("segue data build --train_file a.txt", "here it is --train FILE"),
            ("segue data build --trainpref a", "here it is --train FILE"),
            ("segue predict runs/a --output a.csv", "here it is --csv FILE"),
            (
                "segue score --sys a.txt --ref b.txt",
                "here it is segue eval bleu --input FILE --reference FILE",
            ),
            ("segue finetune --train_file a.csv", "here it is --data FOLDER"),
            ("segue finetune --num-classes 3", "labels are those of the training file"),
            ("segue pretrain --wandb-project a", "log.tensorboard"),
            ("segue pretrain --hidden_size 64", ": model.d_model=64"),
        ] {
            let text = advised(line);
            assert!(text.contains(told), "{line}: {text}");
            assert!(!text.contains("as a value") && !text.contains("a similar argument"), "{text}");
            assert_eq!((text.matches("tip:").count(), text.matches("--eta").count()), (1, 0), "{text}");
        }
    }

    #[test]
    fn commands_of_other_programs_are_told_those_of_here() {
        for (line, told) in [
            ("segue train", "'pretrain', 'finetune'"),
            ("segue train --lr 3", "'pretrain', 'finetune'"),
            ("segue preprocess", "'data build'"),
            ("segue evaluate", "'eval'"),
            ("segue lr_find", "'bench lr'"),
            ("segue resume runs/a", "the same command again goes on with the run"),
        ] {
            let text = advised(line);
            assert!(text.contains(told), "{line}: {text}");
        }
        let cli = Cli::command();
        for (foreign, own) in COMMANDS {
            assert!(cli.find_subcommand(foreign).is_none(), "{foreign}");
            for name in *own {
                let mut words = name.split(' ');
                let first = words.next().and_then(|word| cli.find_subcommand(word)).unwrap();
                assert!(words.all(|word| first.find_subcommand(word).is_some()), "{name}");
            }
        }
    }

    #[test]
    fn a_tip_that_leads_nowhere_is_left_out() {
        for line in ["segue convert --frobnicate a", "segue eval --frobnicate 3"] {
            let text = advised(line);
            assert!(!text.contains("tip:"), "{text}");
        }
    }
}
