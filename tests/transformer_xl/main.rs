//! The CPU proof of each row T of docs/book/src/contributing/rows.md, what Transformer-XL can do: tests say which. Where a row is
//! also arithmetic of its own, more of its tests stand beside that: T22 and T23 in `trainer/protocols/src/recl.rs`, T25 in
//! `trainer/decode/src/` and `trainer/families/tests/all/writing.rs`, T26 in `trainer/families/tests/all/cost/` and `reports.rs`, T24 in `sweep.rs`.

mod copying;
mod data;
mod encodings;
mod memory;
mod naive;
mod protocols;
mod reference;
mod softmax;
mod tiny;
mod training;
