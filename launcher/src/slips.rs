//! Advice on slips in command lines: options that are settings, which are overrides here, `train.lanes=4`; commands that are misspelt.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use segue_configs::{foreign, reference};
use segue_families::MODELS;

/// Commands that take overrides, and the one of them that fine-tunes.
const WITH_OVERRIDES: [&str; 3] = ["pretrain", TUNES, "plan"];
const TUNES: &str = "finetune";

/// Adds to the error of an unknown option how the setting is written here, where it is one, and leaves one command of several that are like
/// an unknown one. `words`: the command line.
pub fn advise(error: &mut clap::Error, words: &[String]) {
    match error.kind() {
        ErrorKind::UnknownArgument => advise_on_option(error, words),
        ErrorKind::InvalidSubcommand => keep_the_nearest_command(error),
        _ => {}
    }
}

/// Of the commands that clap takes for similar, the last is not always the one that is meant.
fn keep_the_nearest_command(error: &mut clap::Error) {
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

fn advise_on_option(error: &mut clap::Error, words: &[String]) {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return };
    let trains = words.iter().any(|word| WITH_OVERRIDES.contains(&word.as_str()));
    let advice =
        match (assignment(option, words), foreign::note_on(option.split('=').next().unwrap_or(option))) {
            (Some(assignment), _) => format!("settings are overrides without dashes: {assignment}"),
            (None, Some(note)) if trains => note.into(),
            _ => return,
        };
    let advice = StyledStr::from(advice);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice]));
}

/// The override that `option` stands for: a key with dashes before it, or another program's name of a setting.
fn assignment(option: &str, words: &[String]) -> Option<String> {
    let command = words.iter().find(|word| WITH_OVERRIDES.contains(&word.as_str()))?;
    let name = option.split('=').next().unwrap_or(option).trim_start_matches('-');
    let key = foreign::key_of(name).or_else(|| is_key(name).then_some(name))?;
    // Of passes over examples, fine-tuning alone knows.
    if key.starts_with("task.") && command != TUNES {
        return None;
    }
    if key.contains('=') {
        return Some(key.into());
    }
    let is_option = |word: &&String| word.split('=').next() == option.split('=').next();
    let at = words.iter().position(|word| is_option(&word))?;
    let beside = words[at].split_once('=').map(|(_, value)| value);
    let next =
        words.get(at + 1).map(String::as_str).filter(|next| !next.starts_with("--") && !next.contains('='));
    Some(format!("{key}={}", beside.or(next).unwrap_or("VALUE")))
}

/// Whether some family has this key.
fn is_key(name: &str) -> bool {
    let Some((section, key)) = name.split_once('.') else { return false };
    let sections = reference::sections(&MODELS);
    sections.iter().any(|known| known.name == section && known.keys.iter().any(|own| own.name == key))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::Cli;

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
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            let Err(mut error) = Cli::try_parse_from(&words) else { panic!("{line}") };
            advise(&mut error, &words);
            let text = error.to_string();
            assert!(text.contains(&format!("settings are overrides without dashes: {told}\n")), "{text}");
        }
        for line in
            ["segue pretrain --foo.bar=3", "segue generate --max-length 20", "segue pretrain --max_epochs 3"]
        {
            let words: Vec<String> = line.split(' ').map(String::from).collect();
            let Err(mut error) = Cli::try_parse_from(&words) else { panic!("{line}") };
            advise(&mut error, &words);
            assert!(!error.to_string().contains("overrides"), "{error}");
        }
        let words = ["segue", "pretrain", "--confg", "a"].map(String::from);
        let Err(mut error) = Cli::try_parse_from(&words) else { panic!() };
        advise(&mut error, &words);
        assert!(error.to_string().contains("'--config'"), "{error}");
        let words = ["segue", "finetun"].map(String::from);
        let Err(mut error) = Cli::try_parse_from(&words) else { panic!() };
        advise(&mut error, &words);
        assert!(
            error.to_string().contains("'finetune'") && !error.to_string().contains("'inspect'"),
            "{error}"
        );
    }
}
