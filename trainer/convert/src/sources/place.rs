//! Where a model lies in what a program has saved: in a dict or a list, under any name, and in whatever was wrapped around it.

use segue_foreign::{Kind, View};

use crate::rules::{Rule, skip};

/// A tensor that every model of the recurrent programs has.
pub const RECURRENT: &str = "encoder.weight";
/// One that every Transformer-XL of the PyTorch programs and of Hugging Face has.
pub const TRANSFORMER_XL: &str = "layers.0.dec_attn.o_net.weight";
/// One that every XLNet of Hugging Face's has.
pub const XLNET: &str = "layer.0.rel_attn.o";
/// One that every recurrent model of this program's has.
const OWN_RECURRENT: &str = "layers.0.weight_x";
/// All of them.
pub const MARKS: [&str; 4] = [TRANSFORMER_XL, XLNET, OWN_RECURRENT, RECURRENT];

/// Modules that stand anywhere between a module and its owner without being part of the model: of `torch.compile`, of FSDP, of recomputation.
const TRANSPARENT: [&str; 3] = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];
/// How many of them stand in a row, far more than any program puts there: a pickle may lead to itself.
const MOST_WRAPPERS: usize = 16;
/// First entries of a list that are not the optimizer: model and criterion.
const BEFORE_OPTIMIZER: usize = 2;

/// The line for what [`Place::name_of`] gives the optimizer.
pub const OPTIMIZER: Rule = skip("optimizer.{*}", "the optimizer's; training goes on with a fresh one");

/// What stands before the names of a model's tensors: empty, or ending in a dot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place(String);

impl Place {
    /// The one place where a tensor is called `mark`, which every model of a kind has once, and `is_one` agrees; `None` where there is none.
    /// `what`: the noun for what lies there.
    pub fn of<'n>(
        names: impl Iterator<Item = &'n str>,
        mark: &str,
        what: &str,
        is_one: impl Fn(&str) -> bool,
    ) -> Result<Option<Self>, String> {
        let before = names.filter_map(|name| name.strip_suffix(mark));
        let before = before.filter(|before| before.is_empty() || before.ends_with('.'));
        let found: Vec<&str> = before.filter(|before| is_one(before)).collect();
        match found[..] {
            [] => Ok(None),
            [one] => Ok(Some(Self(one.into()))),
            [first, second, ..] => Err(format!(
                "it holds several {what}, under `{first}` and `{second}`, and one is converted\nhint: save one of them alone"
            )),
        }
    }

    /// The same without `part`, a module that belongs to the model, at its end.
    pub fn before(self, part: &str) -> Self {
        match self.0.strip_suffix(part) {
            Some(before) if before.is_empty() || before.ends_with('.') => Self(before.into()),
            _ => self,
        }
    }

    /// The name that a tensor has in what lies here; `optimizer.NAME` of one of the optimizer's; else as it is.
    pub fn name_of(&self, name: &str) -> String {
        let inside = name.strip_prefix(&self.0).filter(|_| !self.0.is_empty());
        match (inside, self.of_the_optimizer(name)) {
            (Some(inside), _) => inside.into(),
            (None, Some(name)) => format!("optimizer.{name}"),
            (None, None) => name.into(),
        }
    }

    /// The name of a tensor in what lies here.
    pub fn inside<'n>(&self, name: &'n str) -> Option<&'n str> {
        name.strip_prefix(&self.0)
    }

    /// The rest of a name that leads to the optimizer beside the model: the third of a list, or an entry called after it.
    fn of_the_optimizer<'n>(&self, name: &'n str) -> Option<&'n str> {
        let (mut place, mut name) = (self.0.as_str(), name);
        while let (Some((own, inner)), Some((other, rest))) = (place.split_once('.'), name.split_once('.'))
            && own == other
        {
            (place, name) = (inner, rest);
        }
        let number = |part: &str| part.parse::<usize>().ok();
        let (first, rest) = name.split_once('.')?;
        let optimizer = match place.split('.').next().and_then(number) {
            Some(_) => number(first).is_some_and(|number| number >= BEFORE_OPTIMIZER),
            None => first.to_lowercase().contains("optim"),
        };
        optimizer.then_some(rest)
    }

    /// What lies here.
    pub fn follow<'f>(&self, root: View<'f>) -> Option<View<'f>> {
        self.0.split_terminator('.').try_fold(unwrapped(root), |holder, part| {
            let found = match holder.kind() {
                Kind::List | Kind::Tuple => holder.elements()?.nth(part.parse().ok()?),
                Kind::Object if holder.attribute("_modules").is_some() => holder.module(part),
                _ => holder.get(part).or_else(|| holder.attribute(part)),
            };
            found.map(unwrapped)
        })
    }

    /// What there is to say of it.
    pub fn note(&self) -> Option<String> {
        let place = self.0.strip_suffix('.')?;
        Some(format!("the model lies under `{place}`; names of its variables are those in there"))
    }
}

/// A module without what was wrapped around it and is no part of a name.
pub fn unwrapped(mut module: View<'_>) -> View<'_> {
    for _ in 0..MOST_WRAPPERS {
        match TRANSPARENT.iter().find_map(|name| module.module(name)) {
            Some(inner) => module = inner,
            None => break,
        }
    }
    module
}

/// A name without such modules.
pub fn plain(name: &str) -> String {
    let parts: Vec<&str> = name.split('.').filter(|part| !TRANSPARENT.contains(part)).collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(names: &[&str], mark: &str) -> Result<Option<Place>, String> {
        Place::of(names.iter().copied(), mark, "models", |_| true)
    }

    #[test]
    fn a_model_is_found_under_any_containers_and_wrappers() {
        for (before, names) in [
            ("", ["a.0.w", "a.0.b", "optimizer.state.0.m"]),
            ("module.", ["module.a.0.w", "module.a.0.b", "optim_states.state.0.m"]),
            (
                "state_dict.model.module.",
                ["state_dict.model.module.a.0.w", "state_dict.model.module.a.0.b", "optimizer.state.0.m"],
            ),
            ("0.", ["0.a.0.w", "0.a.0.b", "2.state.0.m"]),
            ("c.0.", ["c.0.a.0.w", "c.0.a.0.b", "c.2.state.0.m"]),
            ("c.model.", ["c.model.a.0.w", "c.model.a.0.b", "c.optimizer.state.0.m"]),
        ] {
            let place = place(&names, "a.0.w").unwrap().unwrap();
            assert_eq!(place, Place(before.into()));
            let inside = names.map(|name| place.name_of(name));
            assert!(
                inside[0] == "a.0.w" && inside[1] == "a.0.b" && inside[2].starts_with("optimizer."),
                "{inside:?}"
            );
        }
        assert_eq!(place(&["ba.0.w"], "a.0.w"), Ok(None));
        let error = place(&["x.a", "y.a"], "a").unwrap_err();
        assert!(error.contains("`x.`") && error.contains("`y.`"), "{error}");
    }

    #[test]
    fn wrappers_between_modules_are_no_part_of_a_name() {
        assert_eq!(plain("module._orig_mod.a._checkpoint_wrapped_module.b"), "module.a.b");
        assert_eq!(plain("a.my_orig_mod.b"), "a.my_orig_mod.b");
        let under = |text: &str| Place(text.into()).before("transformer.");
        assert_eq!(under("module.transformer."), Place("module.".into()));
        assert_eq!(under("transformer."), Place::default());
        assert_eq!(under("my_transformer."), Place("my_transformer.".into()));
    }
}
