//! Tests of tasks.

mod choice;
mod glue;
mod inputs;
mod packed;
mod ranking;
mod scratch;
mod squad;
mod text;
mod unlabelled;
mod words;
