//! Fine-tuning (Yang 2019, §2.2.3): a pre-trained encoder, a head for each task, and what is made of answers.
//! Tasks are read by [`segue_tasks`].

mod adapter_folder;
mod adapters;
mod answer_table;
mod answering;
mod answers;
mod batch;
mod card;
mod class_loss;
mod competition;
mod encoder;
mod extract;
mod folder;
mod frozen;
mod head_spec;
mod hub;
mod mixture;
mod model;
mod run;
mod scoring;
pub mod squad;
mod text_answers;

pub use adapter_folder::extract_adapter;
pub use answering::{answering_config, answering_layers};
pub use answers::{answers, averaged};
pub use card::{Circumstances, model_card};
pub use competition::Competition;
pub use extract::extract_task;
pub use folder::{TaskFolder, start_task_from, task_folder};
pub use head_spec::HeadSpec;
pub use hub::{heads_of, hugging_face_config};
pub use mixture::Mixture;
pub use model::{Scores, TaskModel};
pub use run::{Finetuning, chosen_by, evaluate_split, heads, resolve_schedule};
pub use scoring::{Answered, Metric, SplitScores, beats, check_measured, decide, score, write_answered};
pub use text_answers::PREDICTS;
