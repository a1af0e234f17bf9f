//! Low-rank adapters: matrices of an encoder that stay as they are, and what is learnt to be added to them (Hu et al. 2022, "LoRA", eq. 3).

use segue_configs::{ConfigError, out_of_range};
use segue_kernels::{Init, ParameterSpec, Parameters};
use segue_language::ADAPTER_FACTORS;
use segue_tasks::TaskConfig;
use tch::Tensor;

/// The adapters of an encoder: W + α/r B A in the place of each of some matrices W, `[rows, columns]`; A is `[r, columns]`, B `[rows, r]`.
#[derive(Debug, Clone)]
pub struct Adapters {
    /// α / r.
    scale: f64,
    rank: i64,
    /// Those that are adapted, by their place in the encoder.
    adapted: Vec<(usize, ParameterSpec)>,
}

impl Adapters {
    /// Those that `[task]` asks for of the parameters of an `encoder`: of matrices that belong to a layer, and of vectors of none.
    pub fn of(task: &TaskConfig, encoder: &[ParameterSpec]) -> Option<Self> {
        let rank = task.adapter_rank as i64;
        let named =
            |name: &str| task.adapter_on.is_empty() || task.adapter_on.iter().any(|on| names(on, name));
        let fits = |spec: &ParameterSpec| sides(spec).into_iter().all(|side| side > rank);
        let adapted =
            encoder.iter().enumerate().filter(|(_, spec)| is_matrix(spec) && named(&spec.name) && fits(spec));
        let adapted = adapted.map(|(i, spec)| (i, spec.clone())).collect();
        (rank > 0).then(|| Self { scale: task.adapter_alpha / rank as f64, rank, adapted })
    }

    /// The first adapted matrix that belongs to no module, which the public format cannot hold.
    pub fn first_bare(&self) -> Option<&str> {
        let mut names = self.adapted.iter().map(|(_, spec)| spec.name.as_str());
        names.find(|name| !name.ends_with(".weight"))
    }

    /// Number of values of the matrices that are adapted.
    pub fn values(&self) -> u64 {
        self.adapted.iter().map(|(_, spec)| spec.numel() as u64).sum()
    }

    /// The factors of all. A begins as the public format's does, uniform in ±1/√columns, and B with zeros: the model is at first what it was.
    pub fn specs(&self) -> Vec<ParameterSpec> {
        let of = |(_, spec): &(usize, ParameterSpec)| {
            let ([rows, columns], [a, b]) = (sides(spec), factors_of(&spec.name));
            let range = (columns as f64).sqrt().recip();
            [
                ParameterSpec { name: a, shape: vec![self.rank, columns], init: Init::Uniform { range } },
                ParameterSpec { name: b, shape: vec![rows, self.rank], init: Init::Zeros },
            ]
        };
        self.adapted.iter().flat_map(of).collect()
    }

    /// The weights of the encoder, of which `base` are those that stay: each with what its factors, found by name, add to it.
    pub fn merged(&self, base: &[&Tensor], factor: impl Fn(&str) -> Option<Tensor>) -> Vec<Tensor> {
        let mut all: Vec<Tensor> = base.iter().map(|tensor| tensor.shallow_clone()).collect();
        for (place, spec) in &self.adapted {
            let [Some(a), Some(b)] = factors_of(&spec.name).map(|name| factor(&name)) else {
                panic!("an adapter of `{}` has two factors", spec.name)
            };
            all[*place] = base[*place] + b.matmul(&a).view(spec.shape.as_slice()) * self.scale;
        }
        all
    }

    /// The parameters of the encoder `base`, which is frozen whole, with the factors among `trained` added, and the graph that leads to these.
    pub fn parameters(&self, base: &Parameters, trained: &Parameters) -> Parameters {
        let own: Vec<&Tensor> = base.tensors().iter().collect();
        let merged = self.merged(&own, |name| trained.find(name));
        Parameters::computed(base.specs().to_vec(), merged, base.kernels())
    }
}

/// Names of A and B of the matrix of this name.
fn factors_of(name: &str) -> [String; 2] {
    let module = name.strip_suffix(".weight").unwrap_or(name);
    ADAPTER_FACTORS.map(|end| format!("{module}{end}"))
}

/// Whether a parameter is the matrix of a linear map within a layer.
fn is_matrix(spec: &ParameterSpec) -> bool {
    let beside = ["bias", "embed"].iter().any(|part| spec.name.contains(part));
    spec.layer().is_some() && spec.shape.len() > 1 && !beside
}

/// Whether `on` is part of the dotted name of a parameter, from point to point.
fn names(on: &str, name: &str) -> bool {
    format!(".{name}.").contains(&format!(".{}.", on.trim_matches('.')))
}

/// Rows and columns: the first side, and all others together.
fn sides(spec: &ParameterSpec) -> [i64; 2] {
    match spec.shape.as_slice() {
        [rows, others @ ..] if !others.is_empty() => [*rows, others.iter().product()],
        _ => [1, 1],
    }
}

/// Refuses what adapters cannot be trained with; `encoder`: the parameters under the heads.
pub fn check(
    task: &TaskConfig,
    recompute: bool,
    is_frozen: bool,
    encoder: &[ParameterSpec],
) -> Result<(), ConfigError> {
    let Some(adapters) = Adapters::of(task, encoder) else { return Ok(()) };
    let refused = |why: &str| Err(out_of_range("task.adapter_rank", task.adapter_rank, why));
    if is_frozen {
        return refused("documents are ranked by vectors of words, which have no layers");
    }
    if recompute {
        return refused(
            "adapted weights are computed, and train.recompute makes layers anew over weights that are not\nhint: train.recompute=false",
        );
    }
    if task.from_scratch {
        return refused(
            "adapters are for a model that is trained already, and --from-scratch takes none of its weights",
        );
    }
    if task.freeze_embeddings || task.freeze_layers > 0 {
        return refused(
            "with adapters the whole encoder stays as it is\nhint: leave task.freeze_embeddings and task.freeze_layers out",
        );
    }
    let matrices = || encoder.iter().filter(|spec| is_matrix(spec));
    if let Some(on) = task.adapter_on.iter().find(|on| !matrices().any(|spec| names(on, &spec.name))) {
        let first = matrices().filter(|spec| spec.layer() == Some(0)).map(|spec| spec.name.as_str());
        let why = format!(
            "no matrix has it in its name\nhint: name parts of these: {}",
            first.collect::<Vec<_>>().join(", ")
        );
        return Err(out_of_range("task.adapter_on", on, &why));
    }
    if adapters.adapted.is_empty() {
        let most = matrices().map(|spec| sides(spec).into_iter().min().unwrap_or(0)).max().unwrap_or(0);
        return refused(&format!("no matrix has more rows and columns\nhint: give a rank below {most}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    fn spec(name: &str, shape: &[i64]) -> ParameterSpec {
        ParameterSpec { name: name.into(), shape: shape.to_vec(), init: Init::Normal { mean: 0.0, std: 1.0 } }
    }

    fn encoder() -> Vec<ParameterSpec> {
        vec![
            spec("word_embedding.weight", &[9, 6]),
            spec("layer.0.attn.q", &[6, 2, 3]),
            spec("layer.0.attn.r_bias", &[6, 6]),
            spec("layer.0.ff.weight", &[5, 6]),
            spec("layer.0.ff.bias", &[5]),
        ]
    }

    fn adapters(rank: usize, on: &[&str]) -> Option<Adapters> {
        let on = on.iter().map(|part| part.to_string()).collect();
        let task =
            TaskConfig { adapter_rank: rank, adapter_alpha: 6.0, adapter_on: on, ..Default::default() };
        Adapters::of(&task, &encoder())
    }

    #[test]
    fn matrices_of_layers_are_adapted() {
        assert!(adapters(0, &[]).is_none());
        let named = |rank, on: &[&str]| {
            let specs = adapters(rank, on).unwrap().specs();
            specs.iter().map(|spec| (spec.name.clone(), spec.shape.clone())).collect::<Vec<_>>()
        };
        let q = [
            ("layer.0.attn.q.lora_A.weight".to_string(), vec![2, 6]),
            ("layer.0.attn.q.lora_B.weight".into(), vec![6, 2]),
        ];
        let ff = [
            ("layer.0.ff.lora_A.weight".into(), vec![2, 6]),
            ("layer.0.ff.lora_B.weight".into(), vec![5, 2]),
        ];
        assert_eq!(named(2, &[]), [q.clone(), ff.clone()].concat());
        assert_eq!((named(2, &["attn"]), named(5, &[]).len()), (q.to_vec(), 2));
        assert_eq!(named(2, &["q", "ff.weight"]), named(2, &[]));
        for other in ["other", "f", "t"] {
            assert!(named(2, &[other]).is_empty(), "{other}");
        }
    }

    /// In double precision: W + 3 B A for α = 6 and r = 2, and gradients of A and B by the chain rule.
    #[test]
    fn what_is_added_has_the_gradients_of_its_factors() {
        let (adapters, encoder) = (adapters(2, &["ff"]).unwrap(), encoder());
        let base = Parameters::initialise(encoder.clone(), 1, Kind::Double);
        let (frozen, _) = base.freeze(&vec![true; encoder.len()]);
        let drawn = Parameters::initialise(adapters.specs(), 2, Kind::Double);
        // At first nothing is added.
        let fresh = adapters.parameters(&frozen, &drawn);
        assert!(frozen.tensors().iter().zip(fresh.tensors()).all(|(base, own)| base == own));
        tch::no_grad(|| _ = drawn.tensors()[1].shallow_clone().fill_(0.5));
        let merged = adapters.parameters(&frozen, &drawn).get("layer.0.ff.weight");
        let [a, b] = [0, 1].map(|i| drawn.tensors()[i].detach());
        let near = |x: &Tensor, y: &Tensor| assert!((x - y).abs().max().double_value(&[]) < 1e-12);
        near(&merged, &(frozen.get("layer.0.ff.weight") + b.matmul(&a) * 3.0));
        let x = Tensor::arange(30, (Kind::Double, tch::Device::Cpu)).view([5, 6]);
        (&merged * &x).sum(None::<Kind>).backward();
        near(&drawn.tensors()[0].grad(), &(b.transpose(0, 1).matmul(&x) * 3.0));
        near(&drawn.tensors()[1].grad(), &(x.matmul(&a.transpose(0, 1)) * 3.0));
        assert!(!frozen.get("layer.0.ff.weight").grad().defined());
    }
}
