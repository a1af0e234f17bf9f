//! Models: what turns token ids and memory into hidden states and losses. Nothing here knows of ranks.

mod adaptive;
mod attention;
mod memory;
mod transfo_xl;

pub use adaptive::{AdaptiveEmbedding, AdaptiveSoftmax};
pub use attention::{Context, attention_mask, relative_shift, sinusoids};
pub use memory::Memory;
pub use transfo_xl::{Output, TransfoXl};
