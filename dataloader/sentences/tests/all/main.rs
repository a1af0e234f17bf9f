//! Tests of corpora of sentence pairs and of what reads them.

mod multi30k;
mod pairs;
mod reader;
mod scratch;
mod texts;
