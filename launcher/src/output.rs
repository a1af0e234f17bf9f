//! Output for people: lines and progress bars on stderr, and the form of the JSON on stdout, which `main` alone writes.

use std::fmt::Write;
use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use console::Term;
use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use segue_collectives::{print_line, printable};
use serde_json::Value;

/// Redraws of a bar a second, at most.
const REDRAWS: u8 = 8;

/// A value on one line, without the control characters that JSON leaves as they are: DEL, and those above it, which a terminal may obey.
pub fn json_line(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(is_left_by_json) {
        return text;
    }
    // They stand within strings alone.
    text.chars().fold(String::with_capacity(text.len()), |mut line, c| {
        match is_left_by_json(c) {
            true => line.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => line.push(c),
        }
        line
    })
}

fn is_left_by_json(c: char) -> bool {
    c >= '\u{7f}' && c.is_control()
}

/// What a progress bar counts.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    /// Bytes of input.
    Bytes,
    /// Steps of work.
    Steps,
}

/// Where human text goes. Ranks other than 0 are silent.
pub struct Output {
    silent: bool,
    /// The bar that lines have to go above, if one is drawn.
    bar: Mutex<Option<ProgressBar>>,
}

impl Output {
    /// Output of one rank.
    pub fn new(rank: usize) -> Self {
        Self { silent: rank != 0, bar: Mutex::new(None) }
    }

    /// Prints a line to stderr.
    pub fn line(&self, text: &str) {
        if self.silent {
            return;
        }
        let bar = self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*bar {
            Some(bar) if !bar.is_hidden() => bar.println(printable(text)),
            _ => print_line(text),
        }
    }

    /// Starts a progress bar; it is drawn only on a terminal.
    pub fn progress(&self, total: u64, unit: Unit, label: &str) -> Progress<'_> {
        let target = if self.silent { ProgressDrawTarget::hidden() } else { draw_target() };
        let bar = ProgressBar::with_draw_target(Some(total), target);
        let begun = Arc::new(AtomicU64::new(0));
        bar.set_style(style(unit, begun.clone()));
        bar.set_prefix(printable(label).into_owned());
        *self.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(bar.clone());
        Progress { output: self, bar, begun }
    }
}

/// How bars look, all of them. `begun` is where this process began to count.
fn style(unit: Unit, begun: Arc<AtomicU64>) -> ProgressStyle {
    let template = match unit {
        Unit::Bytes => "{prefix} [{bar:28}] {bytes}/{total_bytes}{pace} {wide_msg}",
        Unit::Steps => "{prefix} [{bar:28}] {pos}/{len}{pace} {wide_msg}",
    };
    let pace = move |state: &ProgressState, out: &mut dyn Write| {
        let work = Work {
            begun: begun.load(Ordering::Relaxed),
            done: state.pos(),
            whole: state.len().unwrap_or(0),
            per_second: state.per_sec(),
            left: state.eta(),
        };
        // A line that cannot be made is drawn without.
        let _ = out.write_str(&work.pace(unit));
    };
    // The templates are constants; a wrong one would show in the first run.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("pace", pace).progress_chars("=> ")
}

/// How far the work behind a bar is.
struct Work {
    begun: u64,
    done: u64,
    whole: u64,
    per_second: f64,
    left: Duration,
}

impl Work {
    /// Speed and time left, each after a space; nothing before the bar has moved, as there is nothing to tell them from, nor at its end.
    fn pace(&self, unit: Unit) -> String {
        if self.done <= self.begun || self.done >= self.whole || self.per_second <= 0.0 {
            return String::new();
        }
        let speed = match unit {
            Unit::Bytes => format!(" {}/s", HumanBytes(self.per_second as u64)),
            Unit::Steps => String::new(),
        };
        format!("{speed} {:#} left", HumanDuration(self.left))
    }
}

/// A progress bar; gone when dropped.
pub struct Progress<'a> {
    output: &'a Output,
    bar: ProgressBar,
    /// Work that was done before this process.
    begun: Arc<AtomicU64>,
}

impl Progress<'_> {
    /// Work done so far.
    pub fn set(&self, position: u64) {
        self.bar.set_position(position);
    }

    /// Work done so far of a whole that is known only now.
    pub fn set_of(&self, position: u64, total: u64) {
        self.bar.set_length(total);
        self.bar.set_position(position);
    }

    /// Text at the end of the bar.
    pub fn message(&self, text: &str) {
        self.bar.set_message(printable(text).into_owned());
    }

    /// Starts counting from work that was done before: it does not count towards the time left.
    pub fn resume_at(&self, position: u64) {
        self.begun.store(position, Ordering::Relaxed);
        self.bar.set_position(position);
        self.bar.reset_eta();
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        *self.output.bar.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }
}

/// Where bars are drawn. A terminal that does not tell its size, such as that of `script` in a job, gets none: lines above a bar are filled up to the width, and the
/// bar would stand behind one that is taken for narrower than it is.
fn draw_target() -> ProgressDrawTarget {
    let term = match std::io::stderr().is_terminal() {
        true => Some(Term::buffered_stderr()),
        false => launcher_terminal().map(|(read, write)| Term::read_write_pair(read, write)),
    };
    match term.filter(|term| term.size_checked().is_some()) {
        Some(term) => ProgressDrawTarget::term(term, REDRAWS),
        None => ProgressDrawTarget::hidden(),
    }
}

/// The terminal of the `mpirun` that started this process on the same host. mpirun gives its ranks a pipe
/// as stderr, so a bar has to be drawn past it.
fn launcher_terminal() -> Option<(File, File)> {
    std::env::var_os("OMPI_COMM_WORLD_RANK")?;
    let parent = std::os::unix::process::parent_id();
    let stderr = format!("/proc/{parent}/fd/2");
    let write = OpenOptions::new().write(true).open(&stderr).ok()?;
    let read = File::open(&stderr).ok()?;
    write.is_terminal().then_some((read, write))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_on_a_terminal_gives_it_nothing_to_obey() {
        let value = serde_json::json!({ "na\u{9b}2Jme": "a\u{1b}[2J\u{7f}ü" });
        let line = json_line(&value);
        assert_eq!(line, r#"{"na\u009b2Jme":"a\u001b[2J\u007fü"}"#);
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value);
    }

    #[test]
    fn the_time_left_is_told_once_a_bar_has_moved() {
        let work = |begun, done, per_second| Work {
            begun,
            done,
            whole: 100,
            per_second,
            left: Duration::from_secs(30),
        };
        for still in [work(0, 0, 0.0), work(40, 40, 7.0), work(0, 3, 0.0), work(0, 100, 7.0)] {
            assert_eq!(still.pace(Unit::Steps), "");
            assert_eq!(still.pace(Unit::Bytes), "");
        }
        assert_eq!(work(40, 41, 0.1).pace(Unit::Steps), " 30s left");
        assert_eq!(work(0, 1, 2048.0).pace(Unit::Bytes), " 2.00 KiB/s 30s left");
    }
}
