//! A corpus: a folder of shards with its tokenizer and `corpus.json`.

mod info;
mod open;
mod pairs;
mod stream;
mod unpack;
mod verify;

pub use info::{CORPUS_FILE, CORPUS_VERSION, CorpusInfo, Dtype, ShardInfo, Split, SplitInfo, TokenizerInfo};
pub use open::Corpus;
pub(crate) use open::{BUILD_FOLDER, TOKENIZER_FOLDER};
pub use pairs::{FaultyPairs, PairCounts, PairFault, PairSides};
pub use stream::{Boundaries, Symbol, TokenStream};
#[cfg(test)]
pub(crate) use stream::{Indexed, Text};
pub use verify::{BadBlock, VerifyReport};
