//! Tests of tokenizers.

mod added_tokens;
mod cuts;
mod detokenize;
mod growth;
mod marian;
mod offsets;
mod patterns;
mod scratch;
mod spiece;
mod subword_nmt;
mod text_stream;
mod tokenizers;
mod vocabularies;
mod xlnet_tokens;
