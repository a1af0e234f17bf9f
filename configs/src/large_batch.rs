//! What large batches ask for: a learning rate that follows the number of lanes, and a batch that begins small.

use crate::idle::Overlooked;
use crate::range::counts_in_single;
use crate::refusal::{no_effect, out_of_range};
use crate::{
    Config, ConfigError, CountOf, OptimConfig, OptimKind, RateScale, ReducePrecision, ScheduleKind, Shard,
    TrainConfig,
};

/// Keys that give `schedule.steps` an effect.
const STEPS_COUNT_BY: [&str; 1] = ["kind"];

impl TrainConfig {
    /// Of so many micro-steps one takes part in step `step`, counted from 1; 1 where all do.
    pub fn batch_stride(&self, step: u64) -> usize {
        match self.batch_warmup == 0 || step > self.batch_warmup {
            true => 1,
            // Stages are of one length; the stride halves from one to the next.
            false => self.batch_warmup_from >> (step.saturating_sub(1) / (self.batch_warmup / self.stages())),
        }
    }

    /// Stages of the batch's warm-up, in which less than all lanes take part.
    fn stages(&self) -> u64 {
        u64::from(self.batch_warmup_from.ilog2())
    }

    /// Whether micro-step `micro_step` of the job takes part in step `step`. Micro-steps take turns.
    pub fn takes_part(&self, step: u64, micro_step: usize) -> bool {
        let stride = self.batch_stride(step) as u64;
        micro_step as u64 % stride == step % stride
    }

    /// Micro-steps of the whole run, over all ranks.
    pub fn micro_steps_of_run(&self) -> u64 {
        let all = self.micro_steps() as u64;
        let small = self.batch_warmup.min(self.steps);
        let length = self.batch_warmup.checked_div(self.stages()).unwrap_or(0);
        let of_stage = |stage: u64| {
            let steps = small.saturating_sub(stage * length).min(length);
            steps.saturating_mul(all / (self.batch_warmup_from >> stage) as u64)
        };
        let of_small = (0..self.stages()).map(of_stage).fold(0, u64::saturating_add);
        (self.steps - small).saturating_mul(all).saturating_add(of_small)
    }
}

impl Config {
    /// Whether `train.steps` says how many steps a run makes. Where `task.epochs` does, the data must be read first.
    pub(crate) fn knows_steps(&self) -> bool {
        self.task.epochs == 0.0
    }

    /// Holds what counts steps against the steps of the run, once `train.steps` says what `task.epochs` comes to.
    pub fn check_steps(&self) -> Result<(), ConfigError> {
        let mut known = self.clone();
        known.task.epochs = 0.0;
        known.check_large_batch()?;
        known.check_average()
    }

    /// Peak learning rate: `optim.lr`, scaled to the number of lanes as `schedule.scale` says.
    pub fn peak_lr(&self) -> f64 {
        let ratio = self.train.lanes as f64 / self.schedule.base_lanes as f64;
        match self.schedule.scale {
            RateScale::None => self.optim.lr,
            RateScale::Linear => self.optim.lr * ratio,
            RateScale::Sqrt => self.optim.lr * ratio.sqrt(),
        }
    }

    pub(crate) fn overlooked_of_schedule(&self) -> Vec<Overlooked> {
        let schedule = &self.schedule;
        let decays = matches!(schedule.kind, ScheduleKind::Cosine | ScheduleKind::Linear);
        let why = "needs schedule.kind = \"cosine\" or \"linear\"";
        let drops = schedule.kind == ScheduleKind::Stepped;
        let of_drops = "needs schedule.kind = \"stepped\"";
        let cycles = schedule.kind == ScheduleKind::Cyclical;
        let changes = schedule.kind != ScheduleKind::Constant || schedule.warmup > 0;
        let of_change = "needs a rate that changes: another schedule.kind, or schedule.warmup above 0";
        let all: [(bool, Overlooked); 9] = [
            (changes, ("of", &["kind", "warmup"], of_change)),
            (drops, ("drop_after", &["kind"], of_drops)),
            (drops, ("drop_factor", &["kind"], of_drops)),
            (schedule.kind == ScheduleKind::Linear, ("end", &["kind"], "needs schedule.kind = \"linear\"")),
            (cycles, ("cycle", &["kind"], "needs schedule.kind = \"cyclical\"")),
            (decays, ("decay_from", &["kind"], why)),
            (decays, ("hold", &["kind"], why)),
            (decays || self.follows_schedule(), ("steps", &STEPS_COUNT_BY, why)),
            (
                schedule.scale != RateScale::None,
                ("base_lanes", &["scale"], "needs schedule.scale = \"linear\" or \"sqrt\""),
            ),
        ];
        all.into_iter().filter_map(|(counts, key)| (!counts).then_some(key)).collect()
    }

    pub(crate) fn check_large_batch(&self) -> Result<(), ConfigError> {
        self.check_schedule("schedule")?;
        for network in self.networks_of("schedule") {
            self.of_network(network).check_schedule(&format!("schedule.{network}"))?;
        }
        if self.log.noise_scale_every > 0 && self.train.micro_steps() < 2 {
            let why = "needs two micro-steps at least\nhint: lower train.micro_batch";
            return Err(out_of_range("log.noise_scale_every", self.log.noise_scale_every, why));
        }
        self.check_shard()?;
        self.check_reduce_precision()?;
        self.check_batch_warmup()
    }

    /// LAMB makes the step of a parameter as long as the parameter: a part of one does not tell.
    fn check_shard(&self) -> Result<(), ConfigError> {
        let is_lamb = |optim: &OptimConfig| optim.kind == OptimKind::Lamb;
        let mut named = self.networks_of("optim");
        let any = is_lamb(&self.optim) || named.any(|network| is_lamb(&self.of_network(network).optim));
        if self.train.shard == Shard::None || !any {
            return Ok(());
        }
        let why = "must be \"none\" with optim.kind = \"lamb\", which looks at whole parameters";
        Err(out_of_range("train.shard", format!("{:?}", self.train.shard).to_lowercase(), why))
    }

    fn check_reduce_precision(&self) -> Result<(), ConfigError> {
        if !self.train.exact || self.train.reduce_precision == ReducePrecision::F32 {
            return Ok(());
        }
        let why = "sums would be rounded otherwise at each number of ranks, and train.exact = true promises the same bits at all of them\n\
                   hint: set train.exact=false, or leave it at f32";
        Err(out_of_range("train.reduce_precision", "bf16", why))
    }

    fn check_schedule(&self, section: &str) -> Result<(), ConfigError> {
        match self.schedule.kind {
            ScheduleKind::Stepped => self.check_drops(section)?,
            ScheduleKind::Cyclical => self.check_cycle(section)?,
            ScheduleKind::Cosine | ScheduleKind::Linear => self.check_end(section)?,
            _ => {}
        }
        self.check_scale(section)
    }

    /// Where updates of a network are counted, `train.steps` does not say when the last of them is made.
    fn check_end(&self, section: &str) -> Result<(), ConfigError> {
        if self.schedule.of == CountOf::Run || self.schedule.steps > 0 {
            return Ok(());
        }
        let why = "schedule.of = \"network\" counts updates of a network; must be the number over which its rate falls";
        Err(out_of_range(format!("{section}.steps"), 0, why))
    }

    fn check_drops(&self, section: &str) -> Result<(), ConfigError> {
        let (drops, warmup, steps) = (&self.schedule.drop_after, self.schedule.warmup, self.train.steps);
        let refuse =
            |why: &str| Err(out_of_range(format!("{section}.drop_after"), format!("{drops:?}"), why));
        match drops[..] {
            [] => refuse("schedule.kind = \"stepped\" needs a step at least after which the rate drops"),
            _ if !drops.is_sorted_by(|a, b| a < b) => refuse("steps must rise"),
            [first, ..] if first < warmup.max(1) => refuse(&format!(
                "the rate would drop before it has been at its peak; steps must be at least 1 and schedule.warmup = {warmup}"
            )),
            [.., last] if self.knows_steps() && last >= steps => refuse(&format!(
                "the rate would never drop so late; steps must be below train.steps = {steps}"
            )),
            _ => Ok(()),
        }
    }

    fn check_cycle(&self, section: &str) -> Result<(), ConfigError> {
        let (cycle, warmup, steps) = (self.schedule.cycle, self.schedule.warmup, self.train.steps);
        let refuse = |why: &str| Err(out_of_range(format!("{section}.cycle"), cycle, why));
        match cycle {
            0 | 1 => refuse(
                "the rate of a cycle falls from step to step; must be at least 2 with schedule.kind = \"cyclical\"",
            ),
            _ if self.knows_steps() && cycle > steps => {
                refuse(&format!("no cycle would come to its end; must be at most train.steps = {steps}"))
            }
            _ if warmup >= cycle => refuse(&format!(
                "the first cycle would be over before the rate is at its peak; must be above the {warmup} steps of warm-up"
            )),
            _ => Ok(()),
        }
    }

    fn check_scale(&self, section: &str) -> Result<(), ConfigError> {
        if self.schedule.scale != RateScale::None && self.schedule.base_lanes == 0 {
            let why = "schedule.scale needs the number of lanes that optim.lr was chosen for";
            return Err(out_of_range(format!("{section}.base_lanes"), 0, why));
        }
        let rounds = if self.average.fine_tuning > 0 { self.average.fine_tuning_rate } else { 1.0 };
        let peaks = [self.peak_lr(), self.peak_lr() * rounds];
        match peaks.into_iter().find(|peak| !counts_in_single(*peak)) {
            None => Ok(()),
            Some(peak) => {
                let why = format!(
                    "schedule.scale and average.fine_tuning_rate make a rate of {peak:e} of it, which single precision has no room for"
                );
                Err(out_of_range(section.replacen("schedule", "optim", 1) + ".lr", self.optim.lr, &why))
            }
        }
    }

    fn check_batch_warmup(&self) -> Result<(), ConfigError> {
        let (steps, from) = (self.train.batch_warmup, self.train.batch_warmup_from);
        let refuse = |why: &str| Err(out_of_range("train.batch_warmup_from", from, why));
        let why = "must be above 1 with train.batch_warmup, and 1 without";
        match (steps > 0, from > 1) {
            (true, false) => return refuse(why),
            (false, true) => return Err(no_effect("train.batch_warmup_from", from, why)),
            _ => {}
        }
        if !from.is_power_of_two() || !self.train.micro_steps().is_multiple_of(from) {
            let micro_steps = self.train.micro_steps();
            return refuse(&format!(
                "must be a power of two that divides the {micro_steps} micro-steps of a step"
            ));
        }
        if steps == 0 {
            return Ok(());
        }
        let refuse = |why: &str| Err(out_of_range("train.batch_warmup", steps, why));
        // So that every stage gives each lane as many turns, and the lanes of a step stand at one place.
        let turns = self.train.stages() * from as u64;
        if !steps.is_multiple_of(turns) {
            return refuse(&format!(
                "must be a multiple of {turns}: whole rounds in each of {} stages",
                self.train.stages()
            ));
        }
        if !self.task.name.is_empty() {
            // Lanes wait for their turn; examples that are left out would be lost.
            return refuse("is for pre-training alone");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::MODELS;
    use crate::{Config, CountOf};

    fn load(keys: &[&str]) -> Result<Config, String> {
        let keys: Vec<String> = keys.iter().map(|key| key.to_string()).collect();
        MODELS.load(None, &keys).map(|loaded| loaded.config).map_err(|e| e.to_string())
    }

    #[test]
    fn a_schedule_of_a_networks_updates_says_its_length_where_it_ends() {
        for (keys, says) in [
            (
                &["schedule.of=network"][..],
                "`schedule.steps` = 0 is invalid: schedule.of = \"network\" counts updates",
            ),
            (&["schedule.kind=linear", "schedule.of=network"], "`schedule.steps` = 0"),
            (
                &["schedule.kind=constant", "schedule.of=network"],
                "`schedule.of` = network is invalid: needs a rate that changes",
            ),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(says), "{message}");
        }
        for keys in [
            &["schedule.of=network", "schedule.steps=10"][..],
            &["schedule.kind=constant", "schedule.warmup=3", "schedule.of=network"],
            &["schedule.kind=inverse_sqrt", "schedule.of=network"],
        ] {
            load(keys).unwrap();
        }
        let paired =
            |keys: &[&str]| load(&[&["model.model_type=paired", "schedule.kind=linear"], keys].concat());
        let message = paired(&["schedule.writer.of=network"]).unwrap_err();
        assert!(message.contains("`schedule.writer.steps` = 0"), "{message}");
        let config = paired(&["schedule.writer.of=network", "schedule.writer.steps=7"]).unwrap();
        let counts = [config.schedule.of, config.of_network("writer").schedule.of];
        assert_eq!(counts, [CountOf::Run, CountOf::Network]);
    }

    /// Goyal et al. 2017: 0.1 at 256 becomes 3.2 at 8,192. NVIDIA's Transformer-XL: 0.01 at 128 became 0.02 at 512.
    #[test]
    fn the_peak_follows_the_lanes_as_published() {
        let rate = |lr: f64, lanes: usize, scale: &str, base: usize| {
            let keys = [
                format!("optim.lr={lr}"),
                format!("train.lanes={lanes}"),
                format!("schedule.scale={scale}"),
                format!("schedule.base_lanes={base}"),
            ];
            load(&keys.each_ref().map(String::as_str)).unwrap().peak_lr()
        };
        assert!((rate(0.1, 8192, "linear", 256) - 3.2).abs() < 1e-12);
        assert!((rate(0.01, 512, "sqrt", 128) - 0.02).abs() < 1e-15);
        assert_eq!(load(&["optim.lr=0.01", "train.lanes=512"]).unwrap().peak_lr(), 0.01);
    }

    #[test]
    fn each_network_has_a_scale_of_its_own() {
        let keys =
            ["model.model_type=paired", "optim.lr=0.5", "schedule.writer.scale=linear", "train.lanes=8"];
        assert!(load(&keys).unwrap_err().contains("schedule.writer.base_lanes"));
        let config = load(&[&keys[..], &["schedule.writer.base_lanes=2"]].concat()).unwrap();
        assert_eq!(["reader", "writer"].map(|name| config.of_network(name).peak_lr()), [0.5, 2.0]);
    }

    #[test]
    fn lamb_is_not_divided_among_ranks() {
        let error = load(&["optim.kind=lamb", "train.shard=optimizer"]).unwrap_err();
        assert!(error.contains("train.shard") && error.contains("lamb"), "{error}");
        assert!(load(&["optim.kind=lamb"]).is_ok() && load(&["train.shard=gradients"]).is_ok());
    }

    #[test]
    fn sums_are_rounded_on_their_way_only_where_nobody_was_promised_their_bits() {
        let error = load(&["train.reduce_precision=bf16"]).unwrap_err();
        assert!(
            error.contains("`train.reduce_precision` = bf16") && error.contains("train.exact"),
            "{error}"
        );
        assert!(load(&["train.reduce_precision=bf16", "train.exact=false"]).is_ok());
    }

    /// Row A8.
    #[test]
    fn rates_drop_within_a_run_and_after_its_warm_up() {
        let load = |drops: &str, warmup: u64| {
            let keys = ["schedule.kind=stepped", "train.steps=50"].map(String::from);
            let own = [format!("schedule.drop_after={drops}"), format!("schedule.warmup={warmup}")];
            load(&[keys, own].concat().iter().map(String::as_str).collect::<Vec<_>>())
        };
        for (drops, warmup, named) in [
            ("[0,20]", 0, "schedule.warmup = 0"),
            ("[9,20]", 10, "schedule.warmup = 10"),
            ("[20,50]", 10, "train.steps = 50"),
        ] {
            let message = load(drops, warmup).unwrap_err();
            assert!(message.contains("`schedule.drop_after`") && message.contains(named), "{message}");
        }
        assert!(load("[1]", 0).is_ok() && load("[10,49]", 10).is_ok());
    }

    /// Row A8.
    #[test]
    fn a_cycle_has_a_fall_and_an_end_within_the_run() {
        let load = |keys: &[&str]| load(&[&["schedule.kind=cyclical", "train.steps=50"], keys].concat());
        for (keys, named) in [
            (&[][..], "`schedule.cycle` = 0"),
            (&["schedule.cycle=1"], "at least 2"),
            (&["schedule.cycle=51"], "train.steps = 50"),
            (&["schedule.cycle=4", "schedule.warmup=4"], "4 steps of warm-up"),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains("`schedule.cycle`") && message.contains(named), "{message}");
        }
        assert!(load(&["schedule.cycle=2"]).is_ok() && load(&["schedule.cycle=50"]).is_ok());
        assert!(load(&["schedule.cycle=4", "schedule.warmup=3"]).is_ok());
    }

    /// Eight micro-steps, from one of four on: two stages of eight steps each.
    const WARMUP: [&str; 4] =
        ["train.lanes=16", "train.micro_batch=2", "train.batch_warmup=16", "train.batch_warmup_from=4"];

    #[test]
    fn micro_steps_take_turns_in_growing_batches() {
        let train = load(&WARMUP).unwrap().train;
        let strides: Vec<usize> = (1..=18).map(|step| train.batch_stride(step)).collect();
        assert_eq!(strides, [[4; 8].as_slice(), &[2; 8], &[1; 2]].concat());
        let active = |step| (0..8).filter(|&m| train.takes_part(step, m)).collect::<Vec<usize>>();
        assert_eq!([1, 2, 3, 4, 5].map(active), [[1, 5], [2, 6], [3, 7], [0, 4], [1, 5]]);
        assert_eq!([9, 10].map(active), [[1, 3, 5, 7], [0, 2, 4, 6]]);
        assert_eq!(active(17), (0..8).collect::<Vec<usize>>());
    }

    #[test]
    fn the_lanes_of_a_step_have_had_as_many_turns() {
        for (from, warmup) in [(2, 2), (2, 50), (4, 8), (4, 16), (8, 24), (8, 240)] {
            let keys = [format!("train.batch_warmup={warmup}"), format!("train.batch_warmup_from={from}")];
            let config = load(&[&WARMUP[..2], &keys.each_ref().map(String::as_str)].concat()).unwrap();
            let mut turns = [0; 8];
            for step in 1..=warmup {
                let active: Vec<usize> = (0..8).filter(|&m| config.train.takes_part(step, m)).collect();
                assert_eq!(active.len(), 8 / config.train.batch_stride(step));
                assert!(
                    active.iter().all(|&m| turns[m] == turns[active[0]]),
                    "{from} {warmup} {step}: {turns:?}"
                );
                active.iter().for_each(|&m| turns[m] += 1);
            }
            assert_eq!(turns, [turns[0]; 8]);
            let after = 8 * (config.train.steps - warmup);
            assert_eq!(config.train.micro_steps_of_run(), turns.iter().sum::<u64>() + after);
        }
    }

    #[test]
    fn the_micro_steps_of_a_run_are_counted_without_its_steps() {
        for (steps, count) in [(1u64, 2u64), (8, 16), (9, 20), (16, 48), (17, 56), (1 << 40, (8 << 40) - 80)]
        {
            let steps = format!("train.steps={steps}");
            let keys = [&WARMUP[..], &[steps.as_str()]].concat();
            assert_eq!(load(&keys).unwrap().train.micro_steps_of_run(), count, "{steps}");
        }
        let longest =
            ["train.steps=1099511627776", "train.batch_warmup=1099511627776", "train.batch_warmup_from=2"];
        assert_eq!(load(&longest).unwrap().train.micro_steps_of_run(), 1 << 40);
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_key() {
        for (keys, named) in [
            (&["schedule.scale=sqrt"][..], "schedule.base_lanes"),
            (&["train.batch_warmup=10"], "train.batch_warmup_from"),
            (&["train.batch_warmup_from=2"], "train.batch_warmup_from"),
            (&["train.batch_warmup=10", "train.batch_warmup_from=4"], "train.batch_warmup_from"),
            (
                &["train.lanes=12", "train.batch_warmup=10", "train.batch_warmup_from=3"],
                "train.batch_warmup_from",
            ),
            (&[&WARMUP[..], &["train.batch_warmup=12"]].concat(), "train.batch_warmup"),
            (&["train.lanes=4", "log.noise_scale_every=5"], "log.noise_scale_every"),
            (
                &["optim.lr=1e38", "train.lanes=8", "schedule.scale=linear", "schedule.base_lanes=2"],
                "optim.lr",
            ),
            (
                &["optim.lr=1e-45", "train.lanes=8", "schedule.scale=linear", "schedule.base_lanes=32"],
                "optim.lr",
            ),
            (
                &[
                    "optim.lr=1e38",
                    "average.patience=1",
                    "eval.every=5",
                    "average.fine_tuning=1",
                    "average.fine_tuning_rate=8",
                ],
                "optim.lr",
            ),
        ] {
            let message = load(keys).unwrap_err();
            assert!(message.contains(&format!("`{named}`")), "{keys:?}: {message}");
        }
    }
}
