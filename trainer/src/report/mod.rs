//! What a run leaves for people: `metrics.jsonl` and TensorBoard event files; and of many runs, the table and
//! chart of a sweep.

mod ablation;
mod interval_chart;
mod metrics;
mod statistics;
mod tensorboard;

pub use ablation::{CellResult, Check, Row, Summary, Verdict};
pub use interval_chart::interval_chart;
pub use metrics::MetricsFile;
pub use statistics::{Interval, student_t_975};
pub use tensorboard::EventFile;
