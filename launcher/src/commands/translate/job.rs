//! Lines in, translations out.

use std::io::{Write, stdout};
use std::time::Instant;

use segue_cluster::signals::Interruption;
use segue_collectives::Communicator;
use segue_collectives::consensus::any_rank;
use segue_configs::counted;
use segue_data_error::DataError;
use segue_decode::Decoding;
use segue_engine::Share;
use segue_family::{Translation, Translator};
use serde_json::Value;

use super::TranslateArgs;
use super::text::{Line, Text};
use crate::commands::child::write_whole;
use crate::failure::{Failure, IO_FAILED};
use crate::output::{Output, Unit};

/// What was read, and what came of it.
#[derive(Default)]
pub struct Done {
    pub lines: u64,
    pub empty: u64,
    /// Tokens of the best translation of each.
    pub tokens: usize,
    /// Time that translating took.
    pub seconds: f64,
    /// Whether Ctrl-C has ended it.
    pub stopped: bool,
    /// Lines that could not be translated.
    pub failed: Vec<u64>,
    /// Each line's translations, where these are part of the result.
    pub sentences: Vec<Value>,
}

/// Translations of a line, or why there are none.
type Answer = Result<Vec<Translation>, String>;

/// What is to be done with each sentence.
pub struct Job<'a> {
    pub args: &'a TranslateArgs,
    pub decoding: Decoding,
    pub translator: &'a dyn Translator,
    pub quiet: bool,
    pub interruption: Interruption,
    pub comm: &'a dyn Communicator,
    pub out: &'a Output,
}

impl Job<'_> {
    /// To the file or to stdout, of rank 0. A collective call.
    pub fn run(&self, text: Text) -> Result<Done, Failure> {
        let Some(path) = &self.args.output else { return self.translate_to(text, &mut stdout().lock()) };
        let mut written = Vec::new();
        let done = self.translate_to(text, &mut written)?;
        match done.stopped {
            true => {
                self.out.line(&format!("stopped after {}; nothing was written", counted(done.lines, "line")))
            }
            false if self.comm.rank() == 0 => write_whole(path, &String::from_utf8_lossy(&written))?,
            false => {}
        }
        Ok(done)
    }

    fn translate_to(&self, text: Text, to: &mut dyn Write) -> Result<Done, Failure> {
        let bar = text.count.map(|lines| self.out.progress(lines, Unit::Steps, "translate"));
        let mut done = Done::default();
        loop {
            // While a line is waited for Ctrl-C ends the command.
            let block = text.block();
            if block.is_empty() {
                break;
            }
            let task = self.interruption.begin();
            let sentences = block.iter().map(sentence_of).collect();
            let began = Instant::now();
            let answers = self.answers(sentences)?;
            done.seconds += began.elapsed().as_secs_f64();
            for (line, answer) in block.into_iter().zip(answers) {
                self.take(line, answer, &mut done, to)?;
            }
            to.flush().map_err(not_written)?;
            if let Some(bar) = &bar {
                bar.set(done.lines);
            }
            done.stopped = any_rank(self.comm, task.is_interrupted())?;
            if done.stopped {
                break;
            }
        }
        if text.count.is_some() && done.seconds > 0.0 {
            let rate = done.tokens as f64 / done.seconds;
            self.out.line(&format!(
                "{} in {:.1} s: {rate:.0} tokens/s",
                counted(done.lines, "line"),
                done.seconds
            ));
        }
        if !done.failed.is_empty() {
            self.out.line(&format!("{} not translated", counted(done.failed.len(), "line")));
        }
        Ok(done)
    }

    /// Translations of these sentences, of which each rank has its share. A collective call.
    fn answers(&self, sentences: Vec<&str>) -> Result<Vec<Answer>, Failure> {
        let share = Share::new(self.comm, sentences.len());
        let own: Vec<&str> = share.own().map(|number| sentences[number]).collect();
        let found = self.translator.translate(&own, &self.decoding).into_iter();
        let answers = found.map(|found| found.map_err(|error| error.to_string()));
        if self.comm.world_size() == 1 {
            return Ok(answers.collect());
        }
        let bytes = |answer: Answer| serde_json::to_vec(&answer);
        let own: Vec<Vec<u8>> = answers.map(bytes).collect::<Result<_, _>>().map_err(not_read)?;
        let all = share.collect(&own)?;
        all.iter().map(|bytes| serde_json::from_slice(bytes)).collect::<Result<_, _>>().map_err(not_read)
    }

    /// Writes what came of a line; a line that cannot be translated is reported.
    fn take(&self, line: Line, answer: Answer, done: &mut Done, to: &mut dyn Write) -> Result<(), Failure> {
        done.lines += 1;
        let mut found = match (line, answer) {
            (Err(error @ DataError::BadLine { .. }), _) => {
                self.out.line(&format!("warning: {error}"));
                done.failed.push(done.lines);
                Vec::new()
            }
            // The rest of the text is not there.
            (Err(error), _) => return Err(error.into()),
            (Ok(_), Err(why)) => {
                self.out.line(&format!("warning: line {}: {why}", done.lines));
                done.failed.push(done.lines);
                Vec::new()
            }
            (Ok(sentence), Ok(found)) => {
                done.empty += u64::from(sentence.text.trim().is_empty());
                found
            }
        };
        found.truncate(self.args.n_best);
        done.tokens += found.first().map_or(0, |best| best.tokens);
        match self.quiet && self.args.output.is_none() {
            true => done.sentences.push(self.args.value(done.lines, &found)),
            false if self.comm.rank() == 0 => self.write(done.lines, &found, to).map_err(not_written)?,
            false => {}
        }
        Ok(())
    }

    /// A line for each translation; an empty one where there is none.
    fn write(&self, line: u64, found: &[Translation], to: &mut dyn Write) -> std::io::Result<()> {
        if found.is_empty() {
            writeln!(to)?;
        }
        found.iter().try_for_each(|found| writeln!(to, "{}", self.args.text(line, found)))
    }
}

/// What is translated of a line: nothing where it cannot be read or is empty.
fn sentence_of(line: &Line) -> &str {
    match line {
        Ok(sentence) if !sentence.text.trim().is_empty() => &sentence.text,
        _ => "",
    }
}

fn not_written(error: std::io::Error) -> Failure {
    Failure::new(IO_FAILED, format!("cannot write the translations: {error}"))
}

fn not_read(error: serde_json::Error) -> Failure {
    Failure::new(IO_FAILED, format!("a rank's translations cannot be read: {error}"))
}
