//! What a run leaves for people: `metrics.jsonl` and TensorBoard event files.

mod metrics;
mod tensorboard;

pub use metrics::MetricsFile;
pub use tensorboard::EventFile;
