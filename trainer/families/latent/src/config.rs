//! What the `[model]` section of latent-variable models refuses.

use std::any::Any;

use segue_configs::{
    Config, ConfigError, DeviceKind, Idle, ModelSection, OwnSections, SectionType, out_of_range, range,
};

use super::keys::{
    DataConfig, EstimatorKind, LatentConfig, LatentEvalConfig, LatentKind, ObjectiveConfig, ObjectiveKind,
};
use super::network::NetworkKind;

impl ModelSection for LatentConfig {
    const TYPE: &'static str = "latent";
    const TITLE: &'static str = "Latent variables";
    const READS: &'static [&'static str] = &["data", "objective", "eval.samples", "eval.together"];
    const SECTIONS: &'static [SectionType] = &[
        SectionType::of::<DataConfig>(),
        SectionType::of::<ObjectiveConfig>(),
        SectionType::of::<LatentEvalConfig>(),
    ];
    const NETWORKS: &'static [&'static str] = &["decoder", "encoder"];
    const TRAINS_ON_CARDS: bool = false;

    fn family() -> &'static (dyn Any + Send + Sync) {
        &super::FAMILY
    }

    fn check(&self) -> Result<(), ConfigError> {
        range::check("model", self)
    }

    fn idle(&self, sections: &OwnSections) -> Vec<Idle> {
        let objective = sections.get::<ObjectiveConfig>();
        let (latents, is_recurrent) = (self.latents, self.network == NetworkKind::Recurrent);
        let by_latents = |idle: bool, section: &str, keys: &[&str], why| {
            Idle::all(idle, section, keys, &["model.latents"], why)
        };
        let drops = self.dropout_input + self.dropout_state + self.dropout_output > 0.0;
        let rates = ["model.dropout_input", "model.dropout_state", "model.dropout_output"];
        let dropout = ["dropout_input", "dropout_state", "dropout_output"];
        let of_sentences = "needs model.network of recurrent";
        let is_codebook = latents == LatentKind::Codebook;
        [
            Idle::without_layers(Self::NETWORKS),
            by_latents(
                latents == LatentKind::Gaussian,
                "model",
                &["latent_values", "d_latent"],
                "latents are normal: needs model.latents of categorical or codebook",
            ),
            by_latents(
                latents != LatentKind::Gaussian,
                "model",
                &["committed_rate"],
                "needs model.latents of gaussian",
            ),
            by_latents(!is_codebook, "model", &["codebook_decay"], "needs model.latents of codebook"),
            by_latents(!is_codebook, "objective", &["commitment"], "needs model.latents of codebook"),
            by_latents(
                is_codebook,
                "objective",
                &["estimator", "samples", "analytic", "free_bits", "warm_up"],
                "vectors of a codebook are not drawn: needs model.latents of gaussian or categorical",
            ),
            by_latents(
                is_codebook,
                "eval",
                &["samples"],
                "vectors of a codebook are not drawn: needs model.latents of gaussian or categorical",
            ),
            Idle::all(!is_recurrent, "model", &dropout, &["model.network"], of_sentences),
            Idle::all(!is_recurrent, "data", &["max_length"], &["model.network"], of_sentences),
            Idle::all(!drops, "model", &["shared_masks"], &rates, "needs a rate of dropout above 0"),
            Idle::all(
                !objective.analytic && !is_codebook,
                "objective",
                &["free_bits"],
                &["objective.analytic"],
                "needs objective.analytic",
            ),
        ]
        .concat()
    }

    fn check_sections(&self, sections: &OwnSections) -> Result<(), ConfigError> {
        let own = sections.get::<ObjectiveConfig>();
        let data = sections.get::<DataConfig>();
        let refused = |key, value: &str, why: &str| Err(out_of_range(key, value, why));
        let is_feedforward = self.network == NetworkKind::Feedforward;
        if is_feedforward && data.symbols == 0 {
            let why = "layers without recurrence read single symbols\nhint: add data.symbols=1000, or model.network=recurrent";
            return refused("model.network", "feedforward", why);
        }
        if data.symbols > 0 && !(is_feedforward && data.corpus.is_empty()) {
            let why = "symbols stand for sentences\nhint: add model.network=feedforward, without data.corpus";
            return refused("data.symbols", &data.symbols.to_string(), why);
        }
        if self.latents == LatentKind::Codebook {
            return match own.kind {
                ObjectiveKind::Bound => Ok(()),
                _ => {
                    let why =
                        "information with a codebook is fixed by its size\nhint: leave objective.kind out";
                    refused("objective.kind", "that of drawn latents", why)
                }
            };
        }
        if self.latents == LatentKind::Categorical && own.estimator().needs_paths() {
            let why = "there is no path through categorical latents\nhint: objective.estimator=vimco, or reinforce with one sample";
            return refused("objective.estimator", "that of normal latents", why);
        }
        let counts = own.counts();
        if own.estimator == EstimatorKind::Vimco && counts.drawn() < 2 {
            let why = "a sample is held against the mean of others\nhint: raise objective.samples, or objective.estimator=reinforce";
            return refused("objective.estimator", "vimco", why);
        }
        if own.analytic && (counts.drawn() > 1 || own.estimator == EstimatorKind::DoublyReparametrized) {
            let why = "the closed form is that of one sample\nhint: objective.samples=1 with objective.estimator=reparametrized or reinforce";
            return refused("objective.analytic", "true", why);
        }
        if own.warm_up > 0 && counts.drawn() > 1 {
            let why = "with the divergence of several samples weighted, there is no bound\nhint: objective.samples=1";
            return refused("objective.warm_up", &own.warm_up.to_string(), why);
        }
        Ok(())
    }

    fn run_defaults(config: &mut Config) {
        config.train.device = DeviceKind::Cpu;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(keys: &[&str]) -> String {
        let keys: Vec<String> =
            ["model.model_type=latent"].iter().chain(keys).map(|key| key.to_string()).collect();
        let loaded = segue_testing::models::<LatentConfig>().load(None, &keys);
        loaded.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn what_cannot_be_trained_is_refused_by_key() {
        assert_eq!(refused(&[]), "");
        let categorical = "model.latents=categorical";
        assert_eq!(refused(&[categorical, "objective.estimator=vimco"]), "");
        assert_eq!(refused(&["model.network=feedforward", "data.symbols=9"]), "");
        assert_eq!(refused(&["model.latents=codebook", "model.codebook_decay=0.9"]), "");
        for (keys, why) in [
            (&[categorical][..], "no path through categorical latents"),
            (&["objective.estimator=vimco", "objective.samples=1"], "held against the mean of others"),
            (&["objective.analytic=true"], "closed form is that of one sample"),
            (&["model.latent_values=4"], "needs model.latents of categorical"),
            (&["model.shared_masks=false"], "needs a rate of dropout above 0"),
            (&["objective.information=0.3"], "needs objective.kind of kl or renyi"),
            (&["objective.samples=0"], "`objective.samples` = 0"),
            (&["objective.warm_up=5"], "there is no bound"),
            (&["objective.free_bits=0.1"], "needs objective.analytic"),
            (&["objective.encoder_steps_until=9"], "needs objective.encoder_steps above 0"),
            (&["model.network=feedforward"], "read single symbols"),
            (&["data.symbols=100"], "symbols stand for sentences"),
            (&["model.latents=codebook", "objective.kind=kl"], "fixed by its size"),
            (&["model.latents=codebook", "objective.samples=4"], "vectors of a codebook are not drawn"),
            (&["model.codebook_decay=0.5"], "needs model.latents of codebook"),
            (
                &[categorical, "objective.estimator=vimco", "model.committed_rate=0.1"],
                "needs model.latents of gaussian",
            ),
            (
                &["model.network=feedforward", "data.symbols=9", "model.dropout_state=0.1"],
                "needs model.network of recurrent",
            ),
        ] {
            let found = refused(keys);
            assert!(found.contains(why), "{keys:?}: {found}");
        }
    }
}
