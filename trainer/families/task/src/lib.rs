//! Fine-tuning (Yang 2019, §2.2.3): a pre-trained encoder, a head for each task, and what is made of answers.
//! Tasks are read by [`segue_tasks`].

mod adapter_folder;
mod adapters;
mod answer_table;
mod answering;
mod answers;
mod batch;
mod batches;
mod card;
mod chosen;
mod class_loss;
mod competition;
mod cost;
mod encoder;
mod extract;
mod folder;
mod front_matter;
mod frozen;
mod head_spec;
mod hub;
mod mixture;
mod model;
mod run;
mod scoring;
pub mod squad;
mod text_answers;

pub use adapter_folder::{extract_adapter, note_on_adapters};
pub use answering::{answering_config, answering_layers};
pub use answers::{answers, averaged};
pub use batches::batch_of_step;
pub use card::{Circumstances, model_card};
pub use chosen::{LeadMetric, beats, check_measured, chosen_by};
pub use competition::Competition;
pub use cost::{Pass, beside, work};
pub use extract::extract_task;
pub use folder::{TaskFolder, start_task_from, task_folder};
pub use front_matter::BaseModel;
pub use frozen::check_layers;
pub use head_spec::{HeadSpec, heads};
pub use hub::{heads_of, hugging_face_config, is_fine_tuned};
pub use mixture::Mixture;
pub use model::{Scores, TaskModel};
pub use run::{Finetuning, check_training, evaluate_split, fingerprint, resolve_schedule};
pub use scoring::{Answered, Metric, SplitScores, decide, score, write_answered};
pub use text_answers::PREDICTS;
