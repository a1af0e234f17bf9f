//! Text, tokenizers trained on it without files, and Pythons with public packages.
#![allow(dead_code)]

pub mod pieces;

use std::path::{Path, PathBuf};
use std::process::Command;

use segue_tokenizer::{Counts, Tokenizer, TrainOptions, count_text, train_on_text};

/// Text of many lines and articles, the same for the same number of lines.
pub fn sample_text(lines: usize) -> String {
    let words = ["the", "of", "lobster", "ocean", "Ünïcode", "<unk>", "1998", ",", ".", "it", "中文", "is"];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut text = String::new();
    for line in 0..lines {
        match line % 40 {
            0 => text.push_str(&format!(" \n = Article {line} = \n")),
            20 => text.push_str(" = = Section = = \n"),
            _ => {
                for _ in 0..12 {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    text.push(' ');
                    text.push_str(words[(state >> 33) as usize % words.len()]);
                }
                text.push_str(" \n");
            }
        }
    }
    text
}

/// A tokenizer of any kind but bytes.
pub fn train(text: &str, options: &TrainOptions) -> Tokenizer {
    let mut counts = Counts::default();
    count_text(text, options, &mut counts);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    train_on_text(counts, options, &pool).unwrap()
}

/// A file of the workspace, whichever crate is tested.
pub fn in_workspace(file: &str) -> PathBuf {
    let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    folders.find_map(|folder| Some(folder.join(file)).filter(|path| path.exists())).unwrap()
}

/// A Python with the packages of `tests/peers/NAME.txt`, where they are installed.
pub fn peer_python(name: &str) -> Option<String> {
    let script = in_workspace("scripts/peers.sh");
    let output = Command::new("bash").arg(script).args(["python", name]).output().ok()?;
    let python = String::from_utf8_lossy(&output.stdout).trim().to_string();
    if python.is_empty() {
        segue_skip::skip(
            segue_skip::Need::Peers,
            format!("no Python of the peers `{name}` (scripts/peers.sh installs it)"),
        );
        return None;
    }
    Some(python)
}
