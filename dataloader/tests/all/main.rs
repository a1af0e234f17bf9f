//! Tests of corpora and of what reads them. That of the memory is a program of its own.

mod batches;
mod build;
mod columns;
mod corpus;
mod lines;
mod pairs;
mod presets;
mod records;
mod running_text;
mod scratch;
mod sentence_pairs;
mod sequences;
mod text_files;
mod training;
mod whole_documents;
