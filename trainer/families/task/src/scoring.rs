//! From a model's answers to decisions, and from decisions to metrics.

use std::path::Path;

use segue_configs::counted;
use segue_kernels::TrainError;
use segue_measure::squad::Rules;
use segue_measure::{
    accuracy, binary_scores, entity_scores, err_at, macro_f1, matthews_correlation, mean_over_queries,
    ndcg_at, pearson, reciprocal_rank, spearman,
};
use segue_tasks::squad::Questions;
use segue_tasks::{
    Answer, Kind, Placed, Rankings, Records, Row, Split, TaggedSentence, Target, TaskConfig, TaskData,
    rank_answers, rank_documents, write_predictions, write_run,
};
use serde::{Deserialize, Deserializer, Serialize};

use super::model::Scores;
use super::squad::{DecodedQuestion, SpanBeam, decode, report, write_answers};

/// How good the answers to one split are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitScores {
    /// The task.
    pub task: String,
    /// The split.
    pub split: String,
    /// Answers that could be compared with what is right.
    pub count: usize,
    /// Records of the split that could not be used and are not among them (`task.skip_bad`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Metrics by name, the task's own first.
    pub metrics: Vec<Metric>,
    /// Mean loss of the examples whose answer is known, in nats or squared units; `None` where answers have no loss of
    /// their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// What speaks for answers that have nothing to do with the examples, where something does.
    pub collapsed: Option<String>,
}

/// One metric: a share of one, a correlation, or, of SQuAD alone, a share of 100.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Its value; NaN where it is not defined, in JSON null.
    #[serde(deserialize_with = "null_is_nan")]
    pub value: f64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl SplitScores {
    /// The metric of that name, or the first where it is empty.
    pub fn metric(&self, name: &str) -> Option<f64> {
        let found = self.metrics.iter().find(|metric| name.is_empty() || metric.name == name);
        found.map(|metric| metric.value)
    }

    /// One line for people.
    pub fn describe(&self) -> String {
        let metrics: Vec<String> =
            self.metrics.iter().map(|metric| format!("{} {:.4}", metric.name, metric.value)).collect();
        let left_out = match self.left_out {
            0 => String::new(),
            count => format!(", {} not scored", counted(count, "bad record")),
        };
        let loss = self.loss.map_or(String::new(), |loss| format!(", loss {loss:.4}"));
        let Self { task, split, count, .. } = self;
        format!("{task} {split}: {count} answers{left_out}: {}{loss}", metrics.join(", "))
    }
}

/// A metric of which less is better.
pub(super) const SQUARED_ERROR: &str = "mean_squared_error";
/// One that says nothing of how good answers are.
pub(super) const THRESHOLD: &str = "best_f1_threshold";

fn metric(name: &str, value: f64) -> Metric {
    Metric { name: name.into(), value }
}

/// What is answered to the records of a split, in their order.
#[derive(Debug, Clone, PartialEq)]
pub enum Answered {
    /// To rows and sentences.
    Records(Vec<Answer>),
    /// To questions on paragraphs.
    Questions(Vec<DecodedQuestion>),
    /// The documents of each query, the best first.
    Rankings(Vec<Vec<Placed>>),
}

/// Makes answers of what a model says to each example of a split.
pub fn decide(data: &TaskData, split: &Split, scores: &[Scores], task: &TaskConfig) -> Answered {
    Answered::Records(match &split.records {
        Records::Questions(questions) => {
            let beams = scores.iter().map(|scores| SpanBeam::from_scores(scores).unwrap_or_default());
            return Answered::Questions(decode(questions, &beams.collect::<Vec<_>>(), task.into()));
        }
        Records::Rankings(rankings) => return Answered::Rankings(rank_documents(&rankings.queries, scores)),
        // Rows that compete are classes of their own: the best of them is right.
        Records::Rows(rows) => match data.ranked_label() {
            Some(best) => rank_answers(rows, scores, best),
            None => rows.iter().map(|row| decide_row(data.kind, &scores[row.example as usize])).collect(),
        },
        Records::Sentences(sentences) => {
            let labels = data.labels.len();
            let outside = data.labels.iter().position(|label| label == "O").unwrap_or(labels) as u32;
            let of = |(sentence, scores): (&TaggedSentence, &Scores)| {
                let tag = |place: &Option<u32>| match place {
                    Some(place) => argmax(&scores[*place as usize * labels..][..labels]),
                    None => outside,
                };
                Answer::Tags(sentence.positions.iter().map(tag).collect())
            };
            sentences.iter().zip(scores).map(of).collect()
        }
    })
}

/// Writes answers down as the field wants them: one file for rows and sentences, a folder for questions,
/// a TREC run for documents.
pub fn write_answered(
    data: &TaskData,
    split: &Split,
    answered: &Answered,
    folder: &Path,
) -> Result<(), TrainError> {
    let plain = format!("{}-{}", data.name, split.name);
    match answered {
        // Every question has its best span; the threshold on null odds is for the scorer.
        Answered::Questions(decoded) => write_answers(&folder.join(plain), decoded, f64::INFINITY),
        Answered::Rankings(ranked) => match &split.records {
            Records::Rankings(Rankings { queries, .. }) => {
                Ok(write_run(queries, ranked, &folder.join(format!("{plain}.run")))?)
            }
            _ => Ok(()),
        },
        Answered::Records(answers) => {
            let name = split.submission.clone().unwrap_or_else(|| format!("{plain}.tsv"));
            Ok(write_predictions(split, &data.labels, answers, &folder.join(name))?)
        }
    }
}

fn decide_row(kind: Kind, scores: &[f32]) -> Answer {
    match kind {
        Kind::Regression => Answer::Number(f64::from(scores[0])),
        Kind::Choice => Answer::Option(argmax(scores)),
        _ => Answer::Class(argmax(scores)),
    }
}

/// The first of the largest.
pub fn argmax(scores: &[f32]) -> u32 {
    let better = |best: usize, i: usize| if scores[i] > scores[best] { i } else { best };
    (0..scores.len()).reduce(better).unwrap_or(0) as u32
}

/// Mean loss over the records whose answer is known: −log P of what is right, or the squared error of a number.
fn mean_loss(data: &TaskData, split: &Split, scores: &[Scores]) -> Option<f64> {
    let losses: Vec<f64> = match &split.records {
        Records::Rows(rows) if data.ranked_label().is_none() => {
            let of = |row: &Row| row_loss(&scores[row.example as usize], &row.gold);
            rows.iter().filter_map(of).collect()
        }
        Records::Sentences(sentences) => {
            let of = |(sentence, scores): (&TaggedSentence, &Scores)| {
                let labels = data.labels.len();
                let tag = |(gold, place): (&u32, &Option<u32>)| {
                    place.map(|place| surprise(&scores[place as usize * labels..][..labels], *gold))
                };
                sentence.gold.iter().zip(&sentence.positions).filter_map(tag).collect::<Vec<_>>()
            };
            sentences.iter().zip(scores).flat_map(of).collect()
        }
        _ => return None,
    };
    (!losses.is_empty()).then(|| losses.iter().sum::<f64>() / losses.len() as f64)
}

fn row_loss(scores: &[f32], gold: &Target) -> Option<f64> {
    match gold {
        Target::Class(right) | Target::Option(right) => Some(surprise(scores, *right)),
        Target::Number(right) => Some((f64::from(scores[0]) - right).powi(2)),
        _ => None,
    }
}

/// −log of the probability that softmax gives `right`, in nats.
fn surprise(scores: &[f32], right: u32) -> f64 {
    let most = scores.iter().fold(f32::NEG_INFINITY, |most, score| most.max(*score));
    let sum: f64 = scores.iter().map(|score| f64::from(score - most).exp()).sum();
    sum.ln() - f64::from(scores[right as usize] - most)
}

/// Compares `answered`, which was made of `scores`, with what is right. Records that nobody knows the answer to are left
/// out.
pub fn score(data: &TaskData, split: &Split, scores: &[Scores], answered: &Answered) -> SplitScores {
    let (count, metrics, collapsed) = match (&split.records, answered) {
        (Records::Questions(questions), Answered::Questions(decoded)) => {
            score_questions(&data.name, questions, decoded)
        }
        (Records::Rankings(rankings), Answered::Rankings(ranked)) => score_rankings(rankings, ranked),
        (Records::Rows(rows), Answered::Records(answers)) if data.kind == Kind::Regression => {
            score_numbers(rows, answers)
        }
        (Records::Rows(rows), Answered::Records(answers)) => score_classes(data, rows, answers),
        (Records::Sentences(sentences), Answered::Records(answers)) => {
            score_tags(&data.labels, sentences, answers)
        }
        _ => (0, Vec::new(), None),
    };
    SplitScores {
        task: data.name.clone(),
        split: split.name.clone(),
        count,
        left_out: split.skipped.count,
        metrics,
        loss: mean_loss(data, split, scores),
        collapsed,
    }
}

type Judged = (usize, Vec<Metric>, Option<String>);

fn score_numbers(rows: &[Row], answers: &[Answer]) -> Judged {
    let pairs = rows.iter().zip(answers).filter_map(|(row, answer)| match (&row.gold, answer) {
        (Target::Number(gold), Answer::Number(found)) => Some((*gold, *found)),
        _ => None,
    });
    let (gold, found): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let mean_square = gold.iter().zip(&found).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / gold.len() as f64;
    let (lowest, highest) =
        found.iter().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
    let spread = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
    };
    let flat = gold.len() > 1 && spread(&found) < COLLAPSED_SPREAD * spread(&gold);
    let collapsed = flat.then(|| format!("all answers lie between {lowest:.3} and {highest:.3}"));
    let metrics = vec![
        metric("pearson", pearson(&gold, &found)),
        metric("spearman", spearman(&gold, &found)),
        metric(SQUARED_ERROR, mean_square),
    ];
    (gold.len(), metrics, collapsed)
}

/// SQuAD's own scores, which are of 100. With questions that have no answer, those at the best threshold on the null
/// odds come first.
fn score_questions(task: &str, questions: &Questions, decoded: &[DecodedQuestion]) -> Judged {
    let rules = if task == SQUAD_2 { Rules::V2 } else { Rules::V1 };
    let Some(report) = report(questions, decoded, rules, f64::INFINITY) else {
        return (0, Vec::new(), None);
    };
    let mut metrics = Vec::new();
    if rules == Rules::V2 {
        metrics.push(metric("best_f1", report.best_f1));
        metrics.push(metric("best_exact", report.best_exact));
        metrics.push(metric(THRESHOLD, report.best_f1_thresh));
        metrics.extend(report.has_answer_f1.map(|f1| metric("has_answer_f1", f1)));
    }
    metrics.push(metric("f1", report.f1));
    metrics.push(metric("exact", report.exact));
    let texts = || decoded.iter().filter_map(|question| question.candidates.first()).map(|best| &best.text);
    let alike = decoded.len() > 1 && texts().all(|text| Some(text) == texts().next());
    let collapsed = alike.then(|| "every question has the same answer".to_string());
    (report.total, metrics, collapsed)
}

/// Means over the queries that anything was judged for. Documents nobody judged are not relevant.
fn score_rankings(rankings: &Rankings, ranked: &[Vec<Placed>]) -> Judged {
    let queries = rankings.queries.iter().zip(ranked).filter(|(query, _)| !query.judged.is_empty());
    let (mut ndcg, mut err, mut reciprocal) = (Vec::new(), Vec::new(), Vec::new());
    for (query, placed) in queries {
        let grades: Vec<u32> = placed.iter().map(|placed| query.candidates[placed.candidate].grade).collect();
        ndcg.push(ndcg_at(RANKS, &grades, &query.judged));
        err.push(err_at(RANKS, &grades, rankings.highest_grade));
        reciprocal.push(reciprocal_rank(&grades));
    }
    let metrics = vec![
        metric(&format!("ndcg@{RANKS}"), mean_over_queries(&ndcg)),
        metric(&format!("err@{RANKS}"), mean_over_queries(&err)),
        metric("mrr", mean_over_queries(&reciprocal)),
    ];
    let mut scores = ranked.iter().flatten().map(|placed| placed.score);
    let first = scores.next();
    let alike = ranked.iter().any(|placed| placed.len() > 1) && scores.all(|score| Some(score) == first);
    let collapsed = alike.then(|| "every document has the same score".to_string());
    (ndcg.len(), metrics, collapsed)
}

/// Ranks that readers look at (Yang 2019, table 2.18).
const RANKS: usize = 20;

/// The version that has questions without answer.
const SQUAD_2: &str = "squad2";

/// Numbers that spread less than this share of what they should are one number.
const COLLAPSED_SPREAD: f64 = 0.01;

fn score_classes(data: &TaskData, rows: &[Row], answers: &[Answer]) -> Judged {
    let judged = || {
        rows.iter().zip(answers).filter_map(|(row, answer)| match (&row.gold, answer) {
            (Target::Class(gold), Answer::Class(found)) | (Target::Option(gold), Answer::Option(found)) => {
                Some((row, *gold, *found))
            }
            _ => None,
        })
    };
    let gold: Vec<u32> = judged().map(|(_, gold, _)| gold).collect();
    let found: Vec<u32> = judged().map(|(.., found)| found).collect();
    let exact = accuracy(&gold, &found);
    let positive = data.labels.iter().position(|label| label == "1").unwrap_or(1) as u32;
    let f1 = || binary_scores(&gold, &found, positive).f1;
    let mut metrics = match data.name.as_str() {
        "cola" => vec![metric("matthews", matthews_correlation(&gold, &found)), metric("accuracy", exact)],
        "mrpc" | "qqp" => vec![metric("f1", f1()), metric("accuracy", exact)],
        "ax" => vec![metric("matthews", matthews_correlation(&gold, &found)), metric("accuracy", exact)],
        _ if data.kind == Kind::Classification && data.labels.len() > 2 => {
            vec![metric("accuracy", exact), metric("macro_f1", macro_f1(&gold, &found))]
        }
        _ => vec![metric("accuracy", exact)],
    };
    let mut groups: Vec<&str> = judged().filter_map(|(row, ..)| row.group.as_deref()).collect();
    groups.sort_unstable();
    groups.dedup();
    for group in groups {
        let of = judged().filter(|(row, ..)| row.group.as_deref() == Some(group));
        let (gold, found): (Vec<u32>, Vec<u32>) = of.map(|(_, gold, found)| (gold, found)).unzip();
        metrics.push(metric(&format!("accuracy_{group}"), accuracy(&gold, &found)));
    }
    (gold.len(), metrics, same_class(data, &gold, &found))
}

/// Says so where every answer is one class though there are others. Of options that would be chance.
fn same_class(data: &TaskData, gold: &[u32], found: &[u32]) -> Option<String> {
    let first = *found.first()?;
    let varied = gold.iter().any(|class| *class != gold[0]);
    let alike = found.len() > 1 && found.iter().all(|class| *class == first);
    let name = data.labels.get(first as usize).cloned().unwrap_or_else(|| format!("option {first}"));
    (varied && alike).then(|| format!("every answer is `{name}`"))
}

fn score_tags(labels: &[String], sentences: &[TaggedSentence], answers: &[Answer]) -> Judged {
    let name = |tag: &u32| labels.get(*tag as usize).map_or("O", String::as_str);
    let known = sentences.iter().zip(answers).filter_map(|(sentence, answer)| match answer {
        Answer::Tags(tags) if sentence.gold.len() == tags.len() => Some((&sentence.gold, tags)),
        _ => None,
    });
    let (gold, found): (Vec<_>, Vec<_>) = known.unzip();
    let flat = |tags: &[&Vec<u32>]| tags.iter().flat_map(|tags| tags.iter().copied()).collect::<Vec<u32>>();
    let (flat_gold, flat_found) = (flat(&gold), flat(&found));
    let named = |tags: &[&Vec<u32>]| {
        tags.iter().map(|tags| tags.iter().map(name).collect()).collect::<Vec<Vec<&str>>>()
    };
    let mut metrics = Vec::new();
    // Labels that are no chunks, as parts of speech, have their accuracy alone.
    if let Ok(scores) = entity_scores(&named(&gold), &named(&found)) {
        metrics.push(metric("f1", scores.scores.f1));
        metrics.push(metric("precision", scores.scores.precision));
        metrics.push(metric("recall", scores.scores.recall));
    }
    metrics.push(metric("accuracy", accuracy(&flat_gold, &flat_found)));
    let varied = flat_gold.iter().any(|tag| *tag != flat_gold[0]);
    let alike = flat_found.iter().all(|tag| *tag == flat_found[0]);
    let collapsed = (varied && alike).then(|| format!("every word is `{}`", name(&flat_found[0])));
    (flat_gold.len(), metrics, collapsed)
}
