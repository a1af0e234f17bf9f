use super::bytes::ByteTokenizer;
use super::characters::CharTokenizer;
use super::huggingface::HuggingFaceTokenizer;
use super::words::WordTokenizer;
use crate::marian::Marian;
use crate::spiece::SentencePiece;
use crate::subword_nmt::SubwordNmt;

/// What a tokenizer is made of.
pub(crate) enum Model {
    Bytes(Box<ByteTokenizer>),
    Characters(CharTokenizer),
    Words(WordTokenizer),
    HuggingFace(Box<HuggingFaceTokenizer>),
    SentencePiece(Box<SentencePiece>),
    SubwordNmt(Box<SubwordNmt>),
    Marian(Box<Marian>),
}
