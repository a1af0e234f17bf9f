//! Least squares on a stream at a constant learning rate, where the loss of any weights is known exactly.

use segue_configs::TwoTailedVariant::Core;

use super::*;
use crate::optim::Schedule;
use crate::optim::averaging::{AveragingEvent, Exponential, Tail};

const WIDTH: usize = 10;
const STEPS: u64 = 20_000;
const RATE: f64 = 0.02;

/// Curvatures from 0.1 to 1.
fn curvature(i: usize) -> f64 {
    0.1 + 0.1 * i as f64
}

/// Risk above that of the optimum, at which all weights are 1.
fn excess(weights: &[f64]) -> f64 {
    weights.iter().enumerate().map(|(i, w)| 0.5 * curvature(i) * (w - 1.0).powi(2)).sum()
}

/// Mean excess risk of weights of several seeds, one after the other.
fn mean_excess(weights: &[f64]) -> f64 {
    mean(&weights.chunks(WIDTH).map(excess).collect::<Vec<_>>())
}

/// Stochastic gradient descent on x ~ N(0, H), y = x · 1 + N(0, 1).
struct Descent {
    seed: u64,
    weights: [f64; WIDTH],
}

impl Descent {
    fn step(&mut self, step: u64, rate: f64) {
        let noise = stream(11 + self.seed, step);
        let x: [f64; WIDTH] = std::array::from_fn(|i| curvature(i).sqrt() * noise.normal(i as u64));
        let target = x.iter().sum::<f64>() + noise.normal(WIDTH as u64);
        let error = x.iter().zip(&self.weights).map(|(x, w)| x * w).sum::<f64>() - target;
        self.weights.iter_mut().zip(x).for_each(|(w, x)| *w -= rate * error * x);
    }
}

/// Descents from several seeds, in one tensor, with a view of it for each.
struct Descents {
    descents: Vec<Descent>,
    all: Parameters,
    each: Vec<Parameters>,
}

impl Descents {
    fn new(seeds: u64) -> Self {
        let descents: Vec<Descent> = (0..seeds).map(|seed| Descent { seed, weights: [0.0; WIDTH] }).collect();
        let size = [seeds as i64, WIDTH as i64];
        let all = Tensor::zeros(size, (Kind::Double, tch::Device::Cpu));
        let of = |shape: &[i64], tensor| {
            let spec = ParameterSpec { name: "w".into(), shape: shape.to_vec(), init: Init::Zeros };
            Parameters::from_tensors(vec![spec], vec![tensor], Kind::Double)
        };
        let each = (0..seeds as i64).map(|i| of(&size[1..], all.get(i))).collect();
        Self { descents, all: of(&size, all.shallow_clone()), each }
    }

    fn step(&mut self, step: u64, rate: f64) {
        self.descents.iter_mut().for_each(|descent| descent.step(step, rate));
        let weights: Vec<f64> = self.descents.iter().flat_map(|descent| descent.weights).collect();
        let mut leaf = self.all.tensors()[0].shallow_clone();
        tch::no_grad(|| leaf.copy_(&Tensor::from_slice(&weights).view_as(&self.all.tensors()[0])));
    }
}

/// One two-tailed run.
struct Run {
    averaging: TwoTailed,
    /// Length before, and loss, at each switch.
    switches: Vec<f64>,
    /// Length and loss reported last.
    length: u64,
    loss: f64,
}

impl Run {
    fn new(period: u64) -> Self {
        Self { averaging: two_tailed(Core, period), switches: Vec::new(), length: 0, loss: f64::NAN }
    }

    fn step(&mut self, step: u64, period: u64, live: &Parameters) {
        self.averaging.fold(step, live);
        if step.is_multiple_of(period) {
            let weights = |c: &super::super::Candidate| values(c.weights.unwrap_or(live.tensors()));
            let losses: Vec<CandidateLoss> =
                self.averaging.candidates().iter().map(|c| excess(&weights(c)).into()).collect();
            let choice = self.averaging.observe(step, &losses, live);
            (self.length, self.loss) = (choice.length, choice.loss);
            if choice.events.contains(&AveragingEvent::Switched) {
                self.switches.push(choice.loss);
            }
        }
    }
}

/// Orders of the averages, and propositions 5 to 7.
/// Rows A8, A13.
#[test]
fn two_tailed_averages_converge_at_a_constant_learning_rate() {
    let seeds = 20;
    let mut descents = Descents::new(seeds);
    let mut runs: Vec<Run> = (0..seeds).map(|_| Run::new(200)).collect();
    // Row A8: the run without an average whose rate drops instead.
    let mut dropped = Descents::new(seeds);
    let keys = [
        "schedule.kind=stepped".into(),
        format!("schedule.drop_after=[{}]", STEPS / 2),
        format!("train.steps={STEPS}"),
        format!("optim.lr={RATE}"),
    ];
    let config = segue_testing::MODELS.load(None, &keys).unwrap().config;
    let drops = Schedule::new(&config.schedule, config.peak_lr(), config.schedule_steps(), None);
    let mut averages: Vec<Box<dyn Averaging>> = vec![
        Box::new(Exponential::polyak(&descents.all)),
        Box::new(Exponential::new(0.99, false, &descents.all)),
        Box::new(Exponential::new(0.999, false, &descents.all)),
        Box::new(Tail::new(10_000, 0, 1)),
    ];
    let mut early = Vec::new();
    for step in 1..=STEPS {
        descents.step(step, RATE);
        dropped.step(step, drops.rate(step));
        averages.iter_mut().for_each(|average| average.fold(step, &descents.all));
        for (run, live) in runs.iter_mut().zip(&descents.each) {
            run.step(step, 200, live);
        }
        if step == STEPS / 10 {
            early = runs.iter().map(|run| run.length).collect();
        }
    }
    let of = |average: &dyn Averaging| mean_excess(&values(average.chosen().unwrap()));
    let [polyak, ema_99, ema_999, tail] = [0, 1, 2, 3].map(|i| of(&*averages[i]));
    let raw = mean_excess(&values(descents.all.tensors()));
    let two_tailed = mean(&runs.iter().map(|run| run.loss).collect::<Vec<_>>());
    let drop = mean_excess(&values(dropped.all.tensors()));
    println!(
        "excess risk: trained {raw:.5}, lower rate for the second half {drop:.5}, Polyak {polyak:.5}, EMA .99 \
         {ema_99:.5}, EMA .999 {ema_999:.5}, tail {tail:.5}, two-tailed {two_tailed:.5}"
    );
    assert!(two_tailed < polyak && two_tailed < tail, "{two_tailed} {polyak} {tail}");
    assert!(3.0 * polyak.max(tail) < ema_999 && ema_999 < ema_99 && ema_99 < raw);
    assert!(two_tailed < drop && drop < raw);
    for (run, early) in runs.iter().zip(early) {
        assert!((2..=8).contains(&run.switches.len()), "{:?}", run.switches);
        assert!(run.switches.windows(2).all(|pair| pair[1] <= pair[0]), "{:?}", run.switches);
        assert!(run.length > 2 * early, "{} after {early}", run.length);
    }
}

/// Stochastic weight averaging with a cyclical rate (Izmailov et al. 2018): weights at the ends of cycles, where the rate is low, are better than at a
/// constant rate, and the mean of them is better still.
/// Row A8.
#[test]
fn the_mean_of_the_ends_of_cycles_is_better_than_any_of_them() {
    let seeds = 10;
    let keys = ["schedule.kind=cyclical", "schedule.cycle=100", "schedule.floor=0.1"].map(String::from);
    let own = [format!("train.steps={STEPS}"), format!("optim.lr={RATE}")];
    let config = segue_testing::MODELS.load(None, &[&keys[..], &own].concat()).unwrap().config;
    let cycle = config.schedule.cycle;
    let cycles = Schedule::new(&config.schedule, config.peak_lr(), config.schedule_steps(), None);
    let (mut constant, mut cyclical) = (Descents::new(seeds), Descents::new(seeds));
    let averages = AverageConfig { start: STEPS / 2, every: cycle, ..Default::default() };
    let mut tail = build(&averages, 1, &cyclical.all);
    let (mut raw, mut ends) = (Vec::new(), Vec::new());
    for step in 1..=STEPS {
        constant.step(step, RATE);
        cyclical.step(step, cycles.rate(step));
        tail.fold(step, &cyclical.all);
        if step > STEPS / 2 && step.is_multiple_of(cycle) {
            raw.push(mean_excess(&values(constant.all.tensors())));
            ends.push(mean_excess(&values(cyclical.all.tensors())));
        }
    }
    assert_eq!(tail.state()["count"], 100);
    let (raw, best, end) = (mean(&raw), ends.iter().copied().fold(f64::MAX, f64::min), mean(&ends));
    let average = mean_excess(&values(tail.chosen().unwrap()));
    println!(
        "excess risk: constant rate {raw:.5}, ends of cycles {end:.5}, the best {best:.5}, mean {average:.5}"
    );
    assert!(end < raw && average < best / 2.0, "{raw} {end} {best} {average}");
}

/// Row A10.
#[test]
fn the_period_of_evaluations_hardly_matters() {
    let seeds = 10;
    let mut descents = Descents::new(seeds);
    let periods = [50, 200, 800];
    let mut runs: Vec<Vec<Run>> = periods.map(|period| (0..seeds).map(|_| Run::new(period)).collect()).into();
    for step in 1..=STEPS {
        descents.step(step, RATE);
        for (runs, period) in runs.iter_mut().zip(periods) {
            for (run, live) in runs.iter_mut().zip(&descents.each) {
                run.step(step, period, live);
            }
        }
    }
    let raw = mean_excess(&values(descents.all.tensors()));
    let found: Vec<f64> =
        runs.iter().map(|runs| mean(&runs.iter().map(|run| run.loss).collect::<Vec<_>>())).collect();
    let (least, most) = found.iter().fold((f64::MAX, 0.0f64), |(a, b), x| (a.min(*x), b.max(*x)));
    assert!(most <= 2.0 * least && most < raw / 10.0, "{found:?}, trained {raw}");
}
