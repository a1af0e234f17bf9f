//! A conversation in the terminal: the model reads each line and continues it.

use std::io::{self, Write};

use segue_cluster::signals::Interruption;
use segue_decode::{Generator, Sampling};
use segue_family::Writer;

use super::SEGMENT;
use super::lines::{Line, Lines};

const REMEMBERS: &str = "\
Type text; the model reads it and writes on. It remembers what was read and written before.
  /reset          forget everything
";
const FORGETS: &str = "\
Type text; the model reads it and writes its answer. It remembers nothing of it.
";
const HELP: &str = "\
  /tokens N       write N tokens after each line
  /top-k K        choose among the K most probable tokens, 0 for all
  /temperature T  below 1 sharper, above 1 flatter, 0 always the most probable token
  /help           this list
  /quit           end (so does Ctrl-D)
Ctrl-C stops the model's writing.
";

/// What the model has read so far, and how it goes on.
pub struct Session<'a> {
    writer: &'a dyn Writer,
    sampling: Sampling,
    tokens: usize,
    /// The token that ends an answer before so many.
    end: Option<i64>,
    interruption: Interruption,
    generator: Option<Generator<'a>>,
}

/// What a line asks for.
#[derive(Debug, PartialEq)]
enum Request<'a> {
    Text(&'a str),
    Reset,
    Tokens(usize),
    TopK(usize),
    Temperature(f64),
    Help,
    Quit,
    Wrong(String),
}

impl<'a> Session<'a> {
    /// A session that has read nothing. `interruption` stops its writing.
    pub fn new(
        writer: &'a dyn Writer,
        sampling: Sampling,
        tokens: usize,
        end: Option<i64>,
        interruption: Interruption,
    ) -> Self {
        Self { writer, sampling, tokens, end, interruption, generator: None }
    }

    /// Answers lines of `input` on `output` until it ends or `/quit`.
    pub fn converse(&mut self, mut input: impl Lines, mut output: impl Write) -> io::Result<()> {
        loop {
            let line = match input.next_line(&mut output)? {
                Line::Text(line) => line,
                Line::LeftOut(why) => {
                    writeln!(output, "{why}")?;
                    continue;
                }
                Line::End => return writeln!(output),
            };
            match request(&line) {
                Request::Quit => return Ok(()),
                Request::Help => {
                    let head = if self.writer.remembers() { REMEMBERS } else { FORGETS };
                    write!(output, "{head}{HELP}")?;
                }
                Request::Wrong(why) => writeln!(output, "{why}")?,
                Request::Reset => self.generator = None,
                Request::Tokens(tokens) => self.tokens = tokens,
                Request::TopK(top_k) => self.change(|sampling| sampling.top_k = top_k),
                Request::Temperature(t) => self.change(|sampling| sampling.temperature = t),
                Request::Text(text) => self.go_on(text, &mut output)?,
            }
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Sampling)) {
        change(&mut self.sampling);
        if let Some(generator) = &mut self.generator {
            generator.set_sampling(self.sampling);
        }
    }

    /// Reads a line and writes on from it, token by token, until it is interrupted.
    fn go_on(&mut self, text: &str, output: &mut impl Write) -> io::Result<()> {
        let task = self.interruption.begin();
        let before = self.generator.take();
        let before = before.filter(|before| self.writer.remembers() && !before.has_ended());
        let ids = match self.writer.encode_line(text, before.is_some()) {
            Ok(ids) => ids,
            Err(why) => {
                self.generator = before;
                return writeln!(output, "{why}");
            }
        };
        self.generator = Some(match before {
            Some(mut generator) => {
                generator.read(&ids, SEGMENT);
                generator
            }
            None => Generator::new(self.writer.decoder(1, self.sampling.seed), &ids, SEGMENT, self.sampling)
                .ending_with(self.end),
        });
        let mut stream = self.writer.stream(&ids);
        let mut tokens = self.generator.iter_mut().flatten().take(self.tokens);
        while !task.is_interrupted()
            && let Some(token) = tokens.next()
        {
            write!(output, "{}", stream.push(token))?;
            output.flush()?;
        }
        writeln!(output, "{}", stream.rest())
    }
}

fn request(line: &str) -> Request<'_> {
    if !line.starts_with('/') {
        return Request::Text(line);
    }
    let (name, value) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let value = value.trim();
    let number = |make: fn(usize) -> Request<'static>| match value.parse() {
        Ok(number) => make(number),
        Err(_) => Request::Wrong(format!("{name} takes an integer, not `{value}`")),
    };
    match name {
        "/reset" => Request::Reset,
        "/help" => Request::Help,
        "/quit" => Request::Quit,
        "/tokens" => number(Request::Tokens),
        "/top-k" => number(Request::TopK),
        "/temperature" => match value.parse() {
            Ok(t) if f64::is_finite(t) && t >= 0.0 => Request::Temperature(t),
            _ => Request::Wrong(format!("/temperature takes a number of at least 0, not `{value}`")),
        },
        _ => Request::Wrong(format!("unknown command {name}; /help lists all")),
    }
}

#[cfg(test)]
mod tests {
    use segue_configs::{MemoryStart, ModelConfig};
    use segue_language::{NextToken, TextWriter, Writing, fresh_next_token};
    use segue_tokenizer::Tokenizer;
    use segue_transfo_xl::TransfoXlConfig;
    use segue_xlnet::XlnetConfig;

    use super::super::lines::PlainLines;
    use super::*;

    const GREEDY: Sampling = Sampling {
        top_k: 0,
        top_p: 1.0,
        eta: 0.0,
        temperature: 0.0,
        exclude: None,
        names: usize::MAX,
        seed: 1,
    };

    fn fresh(config: impl Into<ModelConfig>) -> Box<dyn NextToken> {
        segue_kernels::libtorch::start(1);
        fresh_next_token(&config.into(), 3).unwrap()
    }

    fn model() -> Box<dyn NextToken> {
        fresh(TransfoXlConfig {
            vocab_size: 128,
            d_model: 16,
            n_head: 2,
            d_inner: 16,
            n_layer: 1,
            mem_len: 64,
            init_std: 0.5,
            memory_start: MemoryStart::Empty,
            ..Default::default()
        })
    }

    fn xlnet() -> Box<dyn NextToken> {
        fresh(XlnetConfig {
            vocab_size: 128,
            d_model: 16,
            n_head: 2,
            d_inner: 16,
            n_layer: 1,
            mem_len: 64,
            initializer_range: 0.5,
            memory_start: MemoryStart::Empty,
            ..Default::default()
        })
    }

    fn converse_with(model: Box<dyn NextToken>, input: &str) -> String {
        let writer = TextWriter { model, tokenizer: Tokenizer::bytes(), notes: Vec::new() };
        let mut output = Vec::new();
        let mut session = Session::new(&writer, GREEDY, 5, None, Interruption::install().unwrap());
        session.converse(PlainLines::new(input.as_bytes()), &mut output).unwrap();
        String::from_utf8(output).unwrap()
    }

    fn converse(input: &str) -> String {
        converse_with(model(), input)
    }

    /// What a model writes after the bytes of `text`.
    fn continuation_by(model: &dyn NextToken, text: &str, tokens: usize) -> Vec<u32> {
        let ids: Vec<i64> = text.bytes().map(i64::from).collect();
        Generator::new(Box::new(Writing::new(model, 1)), &ids, SEGMENT, GREEDY)
            .take(tokens)
            .map(|id| id as u32)
            .collect()
    }

    fn continuation(text: &str, tokens: usize) -> Vec<u32> {
        continuation_by(model().as_ref(), text, tokens)
    }

    #[test]
    fn memory_goes_on_from_line_to_line_until_it_is_reset() {
        for fresh in [model, xlnet] {
            let model = fresh();
            let continuation = |text: &str| continuation_by(model.as_ref(), text, 5);
            let first = continuation("ab");
            let bytes = Tokenizer::bytes();
            let so_far = format!("ab{}cd", bytes.decode(&first));
            let (one, two) = (bytes.decode(&first), bytes.decode(&continuation(&so_far)));
            let told = |input| converse_with(fresh(), input);
            assert_eq!(told("ab\ncd\n/quit\n"), format!("> {one}\n> {two}\n> "));
            let anew = bytes.decode(&continuation("cd"));
            assert_eq!(told("ab\n/reset\ncd\n"), format!("> {one}\n> > {anew}\n> \n"));
        }
    }

    #[test]
    fn commands_change_the_session_and_wrong_ones_are_named() {
        let two = Tokenizer::bytes().decode(&continuation("ab", 2));
        assert_eq!(converse("/tokens 2\nab"), format!("> > {two}\n> \n"));
        assert!(converse("/tokens many\n").contains("/tokens takes an integer, not `many`"));
        assert!(converse("/temperature -1\n").contains("at least 0"));
        assert!(converse("/nothing\n").contains("/help"));
        assert!(converse("/help\n").contains("/top-k K"));
        assert_eq!(request("/top-k  7"), Request::TopK(7));
        assert_eq!(request("a /quit"), Request::Text("a /quit"));
    }
}
