//! Builds a graph of random edges, writes it, maps it and walks over it; tells what each takes.
//!
//! `/usr/bin/time -v cargo run -p segue-graph --example large_graph -- build|walk FILE [EDGES [NODES]]`

use std::path::PathBuf;
use std::time::Instant;

use segue_graph::{ContextOptions, Contexts, Graph};
use segue_random::{Draws, Purpose};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [action, path, sizes @ ..] = &args[..] else { return Err("build|walk FILE [EDGES [NODES]]".into()) };
    let path = PathBuf::from(path);
    let began = Instant::now();
    if action == "build" {
        let edges: u64 = sizes.first().map_or(Ok(10_000_000), |size| size.parse())?;
        let nodes: u64 = sizes.get(1).map_or(Ok(4_000_000), |size| size.parse())?;
        let mut draws = Draws::new(1, Purpose::Bench, &[]);
        let drawn = (0..edges).map(|_| (draws.below(nodes) as u32, draws.below(nodes) as u32, 1.0));
        let graph = Graph::from_edges(nodes as usize, drawn)?;
        println!("built {} entries of {} nodes in {:.1?}", graph.entries(), graph.nodes(), began.elapsed());
        let began = Instant::now();
        graph.write(&path)?;
        println!("written in {:.1?}", began.elapsed());
    } else {
        let graph = Graph::open(&path)?;
        println!("mapped {} entries of {} nodes in {:.1?}", graph.entries(), graph.nodes(), began.elapsed());
        let began = Instant::now();
        let contexts = Contexts::new(&graph, &[], None, ContextOptions::public_program(), 1)?;
        let pairs = contexts.graph_pairs(0..100_000).len();
        println!("{pairs} pairs of 100000 walks in {:.1?}", began.elapsed());
    }
    Ok(())
}
