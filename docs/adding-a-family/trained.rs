//! A trained model: how far off it is, and the numbers that it writes.

use segue_data_error::DataError;
use segue_decode::Decoder;
use segue_family::{Answer, Asker, Question, TextStream, Trained, Words, Writer, Writes, own};
use segue_kernels::TrainError;
use serde_json::json;
use tch::{Device, Kind, Tensor};

use super::config::SlopeConfig;
use super::model::Slope;

impl Slope {
    /// The model of a folder, with its weights.
    fn of(trained: &Trained) -> Result<Self, TrainError> {
        Ok(Self::over(trained.parameters(Self::specs())?))
    }
}

/// Where it is looked at.
#[derive(Debug, clap::Args)]
pub struct ErrorOptions {
    /// The x at which y is looked at.
    #[arg(long, default_value_t = 100.0)]
    at: f64,
}

/// How far w x is from y.
pub struct SlopeError;

impl Question for SlopeError {
    type Options = ErrorOptions;
    const NAME: &'static str = "slope-error";
    const ABOUT: &'static str = "Measure how far a learnt slope is off";
    const EXAMPLE: &'static str = "  segue eval slope-error --model runs/slope --at 1000";

    fn answer(trained: Trained, options: ErrorOptions, asker: &mut Asker) -> Result<Answer, TrainError> {
        let truth = own::<SlopeConfig>(&trained.config).truth;
        let error = ((Slope::of(&trained)?.value() - truth) * options.at).abs();
        (asker.tell)(&format!("y is off by {error:.4} at x = {}", options.at));
        Ok(Answer { value: json!({ "error": error, "at": options.at }), ..Answer::default() })
    }
}

/// Numbers that it writes with.
const NUMBERS: i64 = 1000;

/// The capability: each number is w times the one before it.
pub static WRITES: Writes = Writes(|trained, _| {
    let slope = Slope::of(&trained)?.value();
    Ok(Box::new(Series { slope, device: trained.compute.device() }))
});

/// A model that writes series of numbers.
struct Series {
    slope: f64,
    device: Device,
}

impl Writer for Series {
    fn encode(&self, prompt: &str) -> Result<Vec<i64>, TrainError> {
        let number = |word: &str| match word.parse() {
            Ok(number @ 0..NUMBERS) => Ok(number),
            _ => Err(DataError::Usage(format!("`{word}` is not a number below {NUMBERS}"))),
        };
        let numbers: Vec<i64> = prompt.split_whitespace().map(number).collect::<Result<_, _>>()?;
        Ok(if numbers.is_empty() { vec![1] } else { numbers })
    }

    fn stream<'a>(&'a self, _: &[i64]) -> Box<dyn TextStream + 'a> {
        Box::new(Words::new(|token| Some(token.to_string())))
    }

    fn decoder(&self, _: usize, _: u64) -> Box<dyn Decoder + '_> {
        Box::new(NextNumber(self))
    }

    fn names(&self) -> usize {
        NUMBERS as usize
    }
}

/// The number after each: P(k) is that of a normal distribution around w times the last one. Nothing is kept of those before.
struct NextNumber<'a>(&'a Series);

impl Decoder for NextNumber<'_> {
    fn read(&mut self, _: &Tensor) {}

    fn step(&mut self, last: &Tensor) -> Tensor {
        let mean = last.to_kind(Kind::Double).unsqueeze(1) * self.0.slope; // [rows, 1]
        let distance = Tensor::arange(NUMBERS, (Kind::Double, self.0.device)) - mean;
        (distance.square() * -0.5).log_softmax(-1, None::<Kind>)
    }

    fn keep(&mut self, _: &Tensor) {}

    fn device(&self) -> Device {
        self.0.device
    }
}
