//! Options that other programs have, and options of one command that are given to another.

use clap::{Command, CommandFactory};

use crate::Cli;

/// Option names of torchrun, Slurm, mpirun, fairseq, Hugging Face and NVIDIA's Transformer-XL: the command they are given to, the name, and what there is in its place.
const FOREIGN: &[(&str, &str, &str)] = &[
    ("launch", "nproc_per_node", "-n N, the ranks of all hosts"),
    ("launch", "nproc", "-n N"),
    ("launch", "np", "-n N"),
    ("launch", "num_processes", "-n N"),
    ("launch", "nnodes", "--hosts A:N,B:N"),
    ("launch", "host", "--hosts A:N,B:N"),
    ("launch", "machinefile", "--hostfile FILE"),
    ("launch", "max_restarts", "--restarts N"),
    ("launch", "node_rank", "--hosts A:N,B:N, given on one host alone"),
    ("launch", "master_addr", "--hosts A:N,B:N, given on one host alone"),
    ("launch", "master_port", "--hosts A:N,B:N, given on one host alone"),
    ("launch", "rdzv_endpoint", "--hosts A:N,B:N, given on one host alone"),
    ("launch", "rdzv_backend", "--hosts A:N,B:N, given on one host alone"),
    ("batch", "partition", "--queue QUEUE"),
    ("batch", "p", "--queue QUEUE"),
    ("batch", "q", "--queue QUEUE"),
    ("batch", "ntasks_per_node", "--ranks-per-node N"),
    ("batch", "tasks_per_node", "--ranks-per-node N"),
    ("batch", "nproc_per_node", "--ranks-per-node N"),
    ("batch", "ntasks", "--nodes N and --ranks-per-node N"),
    ("batch", "nnodes", "--nodes N"),
    ("batch", "N", "--nodes N"),
    ("batch", "gres", "--gpus-per-node N"),
    ("batch", "gpus", "--gpus-per-node N, for each host"),
    ("batch", "cpus_per_task", "--threads N"),
    ("batch", "c", "--threads N"),
    ("batch", "mem", "--memory SIZE"),
    ("batch", "job_name", "--name NAME"),
    ("batch", "J", "--name NAME"),
    ("batch", "project", "--account ACCOUNT"),
    ("batch", "A", "--account ACCOUNT"),
    ("batch", "walltime", "--time HH:MM:SS"),
    ("batch", "time_limit", "--time HH:MM:SS"),
    ("batch", "t", "--time HH:MM:SS"),
    ("batch", "a", "--array RANGE"),
    ("batch", "o", "--log FILE"),
    ("batch", "signal", "--warning SECONDS"),
    ("batch", "export", "a line of --setup"),
    ("batch", "constraint", "a line of --template"),
    ("batch", "exclusive", "a line of --template"),
    ("batch", "qos", "a line of --template"),
    ("batch", "requeue", "the default, which --no-requeue turns off"),
    ("data build", "train_file", "--train FILE"),
    ("data build", "validation_file", "--valid FILE"),
    ("data build", "test_file", "--test FILE"),
    ("data build", "trainpref", "--train FILE; of pairs with --preset pairs --source NAME --target NAME"),
    ("data build", "validpref", "--valid FILE; of pairs with --preset pairs --source NAME --target NAME"),
    ("data build", "testpref", "--test FILE; of pairs with --preset pairs --source NAME --target NAME"),
    ("data build", "destdir", "--output DIR"),
    ("data build", "output_dir", "--output DIR"),
    ("data build", "srcdict", "--tokenizer DIR"),
    ("data build", "tokenizer_name", "--tokenizer DIR"),
    ("data build", "source_lang", "--source NAME, with --preset pairs"),
    ("data build", "target_lang", "--target NAME, with --preset pairs"),
    ("data build", "only_source", "the default: --preset pairs alone has a target side"),
    ("data build", "preprocessing_num_workers", "--workers N"),
    ("predict", "model", "the folder of the model, without an option: segue predict FOLDER --input FILE"),
    (
        "predict",
        "model_name_or_path",
        "the folder of the model, without an option: segue predict FOLDER --input FILE",
    ),
    ("predict", "output", "--csv FILE"),
    ("predict", "output_dir", "--csv FILE"),
    ("predict", "batch_size", "--micro-batch N"),
    ("predict", "per_device_eval_batch_size", "--micro-batch N"),
    ("predict", "max_seq_length", "--segment TOKENS"),
    ("predict", "max_length", "--segment TOKENS"),
    ("score", "sys", "segue eval bleu --input FILE --reference FILE, for translations"),
    ("score", "ref", "segue eval bleu --input FILE --reference FILE, for translations"),
    ("eval bleu", "sys", "--input FILE"),
    ("eval bleu", "ref", "--reference FILE"),
    ("eval bleu", "beam", "--beams N"),
    ("eval bleu", "num_beams", "--beams N"),
    ("eval bleu", "lenpen", "--length-penalty A, with --length-form length"),
    ("average", "num_update_checkpoints", "--last N"),
    ("average", "num_epoch_checkpoints", "--last N"),
    ("average", "inputs", "a run folder, or checkpoints, without an option"),
    ("eval", "tgt_len", "--segment TOKENS"),
    ("eval", "tokens_per_sample", "--segment TOKENS"),
    ("eval", "context_window", "--mem-len TOKENS"),
    ("eval", "batch_size", "--lanes N"),
    ("eval", "max_sentences", "--lanes N"),
    ("eval", "path", "--model DIR"),
    ("eval", "checkpoint", "--model DIR"),
    ("eval", "restore_file", "--model DIR"),
    ("eval", "data", "--corpus DIR"),
    ("eval", "dataset", "--corpus DIR"),
    ("eval", "gen_subset", "--split SPLIT"),
    ("eval", "cuda", "--device cuda"),
    (
        "generate",
        "beam",
        "sampling: beam search is for models that translate (segue translate), and --temperature 0 takes the most probable token",
    ),
    (
        "generate",
        "num_beams",
        "sampling: beam search is for models that translate (segue translate), and --temperature 0 takes the most probable token",
    ),
    ("translate", "lenpen", "--length-penalty A, with --length-form length"),
    ("translate", "num_beams", "--beams N"),
    ("translate", "num_return_sequences", "--n-best N"),
    ("translate", "path", "--model DIR"),
    ("translate", "sampling", "--sample"),
    ("translate", "do_sample", "--sample"),
    ("translate", "sampling_topk", "--sample --top-k N"),
    ("translate", "sampling_topp", "--sample --top-p P"),
    ("generate", "max_length", "--tokens N"),
    ("generate", "max_new_tokens", "--tokens N"),
    ("generate", "max_len_b", "--tokens N"),
    ("generate", "length", "--tokens N"),
    ("generate", "eos_token_id", "--stop-at-eos, at the end of a sentence"),
    ("generate", "num_return_sequences", "--texts N"),
    ("generate", "num_samples", "--texts N"),
    ("generate", "nbest", "--texts N, each drawn by itself"),
    ("generate", "sampling", "the default; --temperature 0 takes the most probable token"),
    ("generate", "do_sample", "the default; --temperature 0 takes the most probable token"),
    ("generate", "sampling_topk", "--top-k N"),
    ("generate", "sampling_topp", "--top-p P"),
    ("generate", "path", "--model DIR"),
    ("generate", "checkpoint", "--model DIR"),
    ("generate", "cuda", "--device cuda"),
];

/// Options of `segue batch` that nothing else is called like.
const OF_BATCH: [&str; 7] = ["nodes", "ranks-per-node", "gpus-per-node", "queue", "account", "array", "time"];

/// Names this similar (Jaro-Winkler, 0 to 1) are worth suggesting where no other program has the option.
const SIMILAR: f64 = 0.85;

/// The name of an option without its dashes and its value.
fn bare(option: &str) -> &str {
    option.split('=').next().unwrap_or(option).trim_start_matches('-')
}

/// What there is in the place of an option of another program, for `command`.
pub fn in_place_of(command: &str, option: &str) -> Option<&'static str> {
    let name = bare(option).replace('-', "_");
    FOREIGN.iter().find(|(of, foreign, _)| *of == command && *foreign == name).map(|(.., own)| *own)
}

/// Whether a command has this option itself.
fn has(command: &Command, option: &str) -> bool {
    let name = bare(option);
    let short = |own: char| name.len() == 1 && name.starts_with(own) && !option.starts_with("--");
    command.get_arguments().any(|own| own.get_long() == Some(name) || own.get_short().is_some_and(short))
}

/// The command around one that trains, `launch` or `batch`, whose option this is.
pub fn owner(option: &str) -> Option<&'static str> {
    let cli = Cli::command();
    let is_of = |command: &str| cli.find_subcommand(command).is_some_and(|own| has(own, option));
    if is_of("launch") {
        return Some("launch");
    }
    (OF_BATCH.contains(&bare(option)) && is_of("batch")).then_some("batch")
}

/// What to write instead of an option that `command` does not have, which stands before the command it starts.
pub fn hint(command: &str, option: &str) -> String {
    if let Some(own) = in_place_of(command, option).or_else(|| in_place_of("launch", option)) {
        return format!("here it is {own}");
    }
    let cli = Cli::command();
    let own = cli.find_subcommand(command).into_iter().flat_map(Command::get_arguments);
    let names = own.filter_map(clap::Arg::get_long);
    let scored = names.map(|name| (strsim::jaro_winkler(name, bare(option)), name));
    match scored.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(likeness, _)| *likeness >= SIMILAR) {
        Some((_, name)) => format!("did you mean `--{name}`?"),
        None => format!("`segue {command} --help` lists its options"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is said in the place of a foreign option can be typed.
    #[test]
    fn what_stands_in_the_place_of_a_foreign_option_is_there() {
        let cli = Cli::command();
        let command_of = |path: &str| {
            path.split(' ').try_fold(&cli, |command, word| command.find_subcommand(word)).unwrap()
        };
        for (command, name, own) in FOREIGN {
            let known = command_of(command);
            let foreign = format!("--{}", name.replace('_', "-"));
            assert!(!has(known, &foreign), "segue {command} has {foreign} itself");
            assert_eq!(in_place_of(command, &foreign), Some(*own));
            // What another command does instead.
            let other = own.strip_prefix("segue ").map(|line| command_of(line.split(" -").next().unwrap()));
            for word in own.split([' ', ',']).filter(|word| word.starts_with('-')) {
                assert!(has(other.unwrap_or(known), word), "segue {command} has no {word}");
            }
        }
        assert!(OF_BATCH.iter().all(|name| has(cli.find_subcommand("batch").unwrap(), name)));
    }

    #[test]
    fn an_option_before_the_command_is_told_by_its_own_name() {
        assert_eq!(hint("batch", "--partition=gpu"), "here it is --queue QUEUE");
        assert_eq!(hint("batch", "--requeue"), "here it is the default, which --no-requeue turns off");
        assert_eq!(hint("batch", "--max-restarts"), "here it is --restarts N");
        assert_eq!(hint("launch", "--nproc_per_node"), "here it is -n N, the ranks of all hosts");
        assert_eq!(hint("batch", "--rank-per-node"), "did you mean `--ranks-per-node`?");
        assert_eq!(hint("launch", "--zzz"), "`segue launch --help` lists its options");
    }

    #[test]
    fn options_of_the_command_around_are_known() {
        assert_eq!(owner("-n"), Some("launch"));
        assert_eq!(owner("--restarts"), Some("launch"));
        assert_eq!(owner("--gpus-per-node=2"), Some("batch"));
        assert_eq!(owner("--lanes"), None);
    }
}
