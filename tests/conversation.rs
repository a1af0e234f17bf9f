//! Conversations with `segue generate` in a pseudo-terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use segue_tests::{Workplace, alone, succeed, wait_for};
use serde_json::{Value, json};

/// Longest wait for what the program says next.
const PATIENCE: Duration = Duration::from_secs(120);
const LEFT: &str = "\x1b[D";
const UP: &str = "\x1b[A";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";

/// A program in a terminal, seen from the keyboard.
struct Conversation {
    program: Child,
    keyboard: File,
    /// The program's end of the terminal.
    terminal: File,
    screen: Receiver<Vec<u8>>,
    unread: String,
}

impl Conversation {
    /// Starts one with a model; with `stdout` elsewhere than in the terminal, if it is given.
    fn start(model: &str, stdout: Option<Stdio>) -> Self {
        Self::start_in("xterm", model, stdout)
    }

    /// The same in a terminal of a kind that `TERM` names.
    fn start_in(term: &str, model: &str, stdout: Option<Stdio>) -> Self {
        let mut command = alone(&["generate", "--model", model, "--tokens", "1"]);
        command.env("TERM", term);
        Self::of(command, stdout)
    }

    /// One with a command.
    fn of(mut command: Command, stdout: Option<Stdio>) -> Self {
        let (mut keyboard, mut terminal) = (0, 0);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let name = std::ptr::null_mut();
        // SAFETY: the call writes two file descriptors, which nobody else owns, and may be given no more than a size.
        let (keyboard, terminal) = unsafe {
            assert_eq!(libc::openpty(&mut keyboard, &mut terminal, name, std::ptr::null(), &size), 0);
            (File::from_raw_fd(keyboard), File::from_raw_fd(terminal))
        };
        let ours = || Stdio::from(terminal.try_clone().unwrap());
        command.stdin(ours()).stdout(stdout.unwrap_or_else(ours)).stderr(ours());
        // Ctrl-C is a signal to those whose terminal it is.
        let take_terminal = || {
            // SAFETY: plain system calls on stdin, which is the terminal.
            match unsafe { libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) >= 0 } {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: system calls alone are allowed between fork and exec, and it makes no others.
        unsafe { command.pre_exec(take_terminal) };
        let program = command.spawn().unwrap();
        let (sender, screen) = channel();
        let mut reader = keyboard.try_clone().unwrap();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let _ = sender.send(bytes[..count].to_vec());
            }
        });
        Self { program, keyboard, terminal, screen, unread: String::new() }
    }

    fn type_in(&mut self, keys: impl AsRef<[u8]>) {
        self.keyboard.write_all(keys.as_ref()).unwrap();
    }

    /// Reads what comes next.
    fn read(&mut self, awaited: &str) {
        let more = self.screen.recv_timeout(PATIENCE);
        let more = more.unwrap_or_else(|_| panic!("no {awaited} in {:?}", self.unread));
        self.unread.push_str(&String::from_utf8_lossy(&more));
    }

    /// Reads on until `words` are on the screen.
    fn expect(&mut self, words: &str) {
        while !self.unread.contains(words) {
            self.read(words);
        }
        self.unread = self.unread.split_once(words).unwrap().1.to_string();
    }

    /// Types a command that there is not, and reads on until the next prompt.
    fn is_answered(&mut self, command: &str) {
        self.type_in(format!("{command}\r"));
        self.expect(&format!("unknown command {command};"));
        self.expect("> ");
    }

    /// Whether the terminal shows what is typed and hands it over in lines, as a shell expects it.
    fn is_as_before(&self) -> bool {
        // SAFETY: all zeros is a valid termios, and the call writes no more than one.
        let modes = unsafe {
            let mut modes: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.terminal.as_raw_fd(), &mut modes), 0);
            modes.c_lflag
        };
        modes & libc::ECHO != 0 && modes & libc::ICANON != 0 && modes & libc::ISIG != 0
    }
}

fn model(place: &Workplace) -> String {
    succeed(alone(&place.pretrain("run", &["train.steps=1"])));
    place.text("run")
}

#[test]
fn lines_are_edited_recalled_and_ended_by_control_keys() {
    let place = Workplace::new();
    let model = model(&place);

    let mut conversation = Conversation::start(&model, None);
    conversation.expect("> ");
    conversation.type_in(format!("/nothng{LEFT}{LEFT}i\r"));
    conversation.expect("unknown command /nothing;");
    conversation.expect("> ");
    conversation.type_in(format!("{UP}\r"));
    conversation.expect("unknown command /nothing;");
    conversation.expect("> ");
    // In the middle of a line Ctrl-D takes a character away; at its end, none.
    conversation.type_in(format!("/nowhe-re{LEFT}{LEFT}{LEFT}{CTRL_D}{CTRL_D}{CTRL_D}re{CTRL_D}\r"));
    conversation.expect("unknown command /nowhere;");
    conversation.expect("> ");
    conversation.type_in(CTRL_D);
    assert_eq!(conversation.program.wait().unwrap().code(), Some(0));
    assert!(conversation.is_as_before());

    // An output that is no terminal gets the text alone.
    let output = place.path("said");
    let mut conversation = Conversation::start(&model, Some(File::create(&output).unwrap().into()));
    conversation.type_in(format!("/nothing\n{CTRL_D}"));
    assert_eq!(conversation.program.wait().unwrap().code(), Some(0));
    let said = std::fs::read_to_string(output).unwrap();
    assert_eq!(said, "> unknown command /nothing; /help lists all\n> \n");
}

#[test]
fn what_is_pasted_behind_a_line_is_the_next_one() {
    let place = Workplace::new();
    let mut conversation = Conversation::start(&model(&place), None);
    conversation.expect("> ");
    conversation.type_in("the lane\r/nothing\rof a\r/nowhere\r");
    conversation.expect("unknown command /nothing;");
    conversation.expect("unknown command /nowhere;");
    conversation.expect("> ");
    conversation.type_in(CTRL_D);
    assert_eq!(conversation.program.wait().unwrap().code(), Some(0));
}

#[test]
fn a_conversation_goes_on_after_what_cannot_be_read() {
    let place = Workplace::new();
    let model = model(&place);

    let mut conversation = Conversation::start(&model, None);
    conversation.expect("> ");
    conversation.type_in(b"the\r\xc3\xa9 l\xffane\rof a\r/nowhere\r");
    conversation.expect("a line that is not UTF-8 is left out, with what was pasted behind it");
    conversation.expect("> ");
    conversation.is_answered("/nothing");
    conversation.type_in(CTRL_D);
    assert_eq!(conversation.program.wait().unwrap().code(), Some(0));
    assert!(conversation.is_as_before());

    let output = place.path("said");
    let mut conversation = Conversation::start(&model, Some(File::create(&output).unwrap().into()));
    conversation.type_in([b"/a\xffb\n/c\0d\n/nothing", CTRL_D.as_bytes(), CTRL_D.as_bytes()].concat());
    // The end in the middle of a line is that of the conversation.
    assert_eq!(conversation.program.wait().unwrap().code(), Some(0));
    let said = std::fs::read_to_string(output).unwrap();
    let left_out = "> a line that is not UTF-8 is left out\n> a line with a NUL character is left out\n";
    assert_eq!(said, format!("{left_out}> unknown command /nothing; /help lists all\n> \n"));
}

#[test]
fn ctrl_c_stops_the_writing_then_leaves_the_line_then_ends() {
    /// More than the prompt, and what is typed, shown again at each key.
    const SOME_TEXT: usize = 2000;
    let place = Workplace::new();
    let model = model(&place);

    let mut conversation = Conversation::start(&model, None);
    conversation.expect("> ");
    conversation.type_in("/tokens 1000000000\r");
    conversation.expect("\n");
    conversation.expect("> ");
    conversation.type_in("the\r");
    while conversation.unread.len() < SOME_TEXT {
        conversation.read("text");
    }
    conversation.type_in(CTRL_C);
    conversation.is_answered("/nothing");
    for _ in 0..2 {
        conversation.type_in(format!("the lane{CTRL_C}"));
        conversation.expect("Ctrl-C again ends, as Ctrl-D does");
        conversation.expect("> ");
        conversation.is_answered("/nothing");
    }
    conversation.type_in(CTRL_C);
    conversation.expect("> ");
    conversation.type_in(CTRL_C);
    assert_eq!(conversation.program.wait().unwrap().signal(), Some(libc::SIGINT));
    assert!(conversation.is_as_before());

    // Without an editor Ctrl-C at a prompt ends at once.
    let output = place.path("said");
    let said = || std::fs::read(&output).unwrap();
    let mut conversation = Conversation::start(&model, Some(File::create(&output).unwrap().into()));
    conversation.type_in("/tokens 1000000000\nthe\n");
    wait_for("text", PATIENCE, || said().len() > SOME_TEXT);
    conversation.type_in(CTRL_C);
    conversation.type_in("/nothing\n");
    let answer = b"unknown command /nothing; /help lists all\n> ";
    wait_for("an answer", PATIENCE, || said().ends_with(answer));
    conversation.type_in(CTRL_C);
    assert_eq!(conversation.program.wait().unwrap().signal(), Some(libc::SIGINT));

    // Nor is there an editor in a terminal that cannot be edited in.
    let mut conversation = Conversation::start_in("dumb", &model, None);
    conversation.expect("> ");
    conversation.type_in(CTRL_C);
    let mut ended = None;
    wait_for("an end", PATIENCE, || {
        ended = conversation.program.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().signal(), Some(libc::SIGINT));
}

#[test]
fn a_prompt_from_a_pipe_needs_no_line_end() {
    let place = Workplace::new();
    let model = model(&place);
    let args = ["generate", "--json", "--model", &model, "--tokens", "5"];
    let expected = succeed(alone(&[&args[..], &["--prompt", "the lane"]].concat()));
    let mut program = alone(&args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    program.stdin.take().unwrap().write_all(b"the lane").unwrap();
    let output = program.wait_with_output().unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap(), expected);
}

/// Of a text from one prompt, what was drawn by then is shown.
#[test]
fn ctrl_c_ends_a_text_with_what_there_is_of_it() {
    let place = Workplace::new();
    let (model, output) = (model(&place), place.path("said"));
    let mut command =
        alone(&["generate", "--json", "--model", &model, "--prompt", "the", "--tokens", "16000000"]);
    // Without a kind of terminal there is no bar.
    command.env("TERM", "xterm");
    let mut conversation = Conversation::of(command, Some(File::create(&output).unwrap().into()));
    conversation.expect("generate [");
    conversation.type_in(CTRL_C);
    conversation.expect("stopped after ");
    assert_eq!(conversation.program.wait().unwrap().code(), Some(130));
    let said: Value = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    assert_eq!((&said["exit_code"], &said["prompt"]), (&json!(130), &json!("the")));
    assert!(said["tokens"].as_array().unwrap().len() < 16_000_000);
}

/// Who closes a terminal with a view of runs in it leaves no program behind that is busy for ever. SIGHUP does not always come.
#[test]
fn a_view_of_runs_ends_with_its_terminal() {
    let place = Workplace::new();
    let (mut keyboard, mut terminal) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: as in `Conversation::of`.
    let (mut keyboard, terminal) = unsafe {
        assert_eq!(
            libc::openpty(&mut keyboard, &mut terminal, std::ptr::null_mut(), std::ptr::null(), &size),
            0
        );
        (File::from_raw_fd(keyboard), File::from_raw_fd(terminal))
    };
    let ours = || Stdio::from(terminal.try_clone().unwrap());
    let mut command = alone(&["watch", &place.text("")]);
    command.env("TERM", "xterm").stdin(ours()).stdout(ours()).stderr(ours());
    let mut program = command.spawn().unwrap();
    drop((command, terminal));
    // It draws.
    assert!(keyboard.read(&mut [0; 64]).unwrap() > 0);
    drop(keyboard);
    let until = std::time::Instant::now() + PATIENCE;
    while program.try_wait().unwrap().is_none() {
        if std::time::Instant::now() > until {
            program.kill().unwrap();
            panic!("it goes on without a terminal");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
