//! What a run leaves for people: `metrics.jsonl`, TensorBoard event files, and sinks for other programs; of many runs, the table and
//! chart of a sweep; and charts.

mod ablation;
mod chart;
mod compared;
mod csv;
mod interval_chart;
mod mask_chart;
mod metrics;
mod mlflow;
mod own_measures;
mod scatter_chart;
mod sink;
mod statistics;
mod svg;
mod sweep_table;
mod tensorboard;
mod tsne;

pub use ablation::{CellResult, Check, Row, Summary, Verdict};
pub use chart::{LineChart, Point, Series};
pub use compared::Compared;
pub use csv::{CsvFile, csv_line};
pub use interval_chart::IntervalChart;
pub use mask_chart::MaskChart;
pub use metrics::{MetricsFile, read_metrics};
pub use mlflow::{MlflowRun, MlflowStore};
pub use own_measures::PARAMETERS;
pub use scatter_chart::ScatterChart;
pub use sink::{GoesOn, MetricRow, Sink};
pub use statistics::{Interval, median, student_t_975};
pub use tensorboard::EventFile;
pub use tsne::{TsneOptions, tsne};
