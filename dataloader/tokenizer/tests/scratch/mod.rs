//! Text, and tokenizers trained on it without files.
#![allow(dead_code)]

pub mod pieces;

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
