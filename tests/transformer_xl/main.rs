//! The CPU proof of each row of the systems table of Transformer-XL: `t04_..` proves row T4. Rows that are commands have
//! their proof with the command: T20 to T23 and T25 in the trainer's evaluation and generation, T24 in `sweep.rs`, T26 with
//! the recipes.

mod copying;
mod data;
mod encodings;
mod memory;
mod naive;
mod softmax;
mod tiny;
mod training;
