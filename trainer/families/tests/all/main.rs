//! Tests of families that take more than one crate; those of cards are a program of their own, as they are built for another machine.

mod average;
mod bounds;
mod cost;
mod derivatives;
mod engine;
mod identity;
mod lanes;
mod moment_game;
mod noise_scale;
mod planetoid;
mod precision;
mod ranking;
mod reading;
mod recipes;
mod recompute;
mod recovery;
mod reverse_copy;
mod squad;
mod tasks;
mod writing;
