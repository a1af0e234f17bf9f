use std::path::PathBuf;

use clap::Args;
use segue_dataloader::{CorpusInfo, RecordImport, import_records};

use crate::commands::build_progress::BuildProgress;
use crate::commands::tokenizer::load_tokenizer;
use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `segue data import-tfrecord`.
#[derive(Args)]
#[command(after_help = "\
    The records do not say where sentences begin: in the corpus a document counts as one sentence. Every \
    pass holds the same text, with other pairs and targets.\n\n\
    Example:\n  \
    segue data import-tfrecord proc_data/example \\\n      \
    --tokenizer tokenizers/xlnet --output corpora/example")]
pub struct ImportRecordsArgs {
    /// What `data_utils.py` calls `save_dir`: the folder with `corpus_info.json` and `tfrecords`.
    folder: PathBuf,
    /// Passes to take; all hold the same text, with other pairs and targets [default: the lowest one].
    #[arg(long, num_args = 1.., value_name = "N")]
    pass: Vec<u64>,
    /// Folder of the tokenizer that the records were made with; the number of ids must agree, and whether text is
    /// uncased.
    #[arg(long, value_name = "DIR")]
    tokenizer: PathBuf,
    /// Output folder of the corpus, new or empty. It appears whole or not at all; an import that was killed starts
    /// again.
    #[arg(long, value_name = "DIR")]
    pub output: PathBuf,
    /// Compress shards with zstd; they are decompressed into the cache on first use.
    #[arg(long)]
    compress: bool,
}

/// Makes a corpus of XLNet's records.
pub fn run(args: &ImportRecordsArgs, out: &Output) -> Result<CorpusInfo, Failure> {
    let import = RecordImport {
        folder: args.folder.clone(),
        passes: args.pass.clone(),
        tokenizer: load_tokenizer(&args.tokenizer, out)?,
        output: args.output.clone(),
        compress: args.compress,
    };
    let progress = BuildProgress::new(out);
    let info = import_records(&import, &progress)?;
    drop(progress);
    out.line("the records do not mark sentences: each document counts as one");
    Ok(info)
}
