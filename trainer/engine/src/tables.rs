//! Tables of a learner in folders: tensors that are neither weights nor a lane's.

use std::path::Path;

use segue_kernels::TrainError;
use tch::{Kind, Tensor};

use super::fill::fill;
use super::learner::Learner;
use crate::checkpoint::{TABLES, read_tensors};

/// The tables of `learner` as a file may hold them. Panics at a type that a file would round.
pub fn tables_of(learner: &impl Learner) -> Vec<(String, Tensor)> {
    let tables = learner.tables();
    for (name, table) in &tables {
        let kind = table.kind();
        assert!(
            [Kind::Float, Kind::Int64].contains(&kind),
            "a file would round the {kind:?} of table `{name}`"
        );
    }
    tables
}

/// Fills the tables of `learner` from those in `folder`, which must have the same names, shapes and types. Nothing is filled where one has not.
pub fn restore_tables(folder: &Path, learner: &impl Learner) -> Result<(), TrainError> {
    let (tables, path) = (tables_of(learner), folder.join(TABLES));
    let refuse = |path: &Path, what: String| Err(TrainError::OtherModel { path: path.into(), what });
    if !path.is_file() {
        return match tables.first() {
            None => Ok(()),
            Some((name, _)) => {
                refuse(folder, format!("it has no {TABLES}, and the model keeps a table `{name}`"))
            }
        };
    }
    let mut file = read_tensors(&path)?;
    let mut stored = Vec::new();
    for (name, table) in &tables {
        let values = file.take(name, &table.size())?;
        if values.kind() != table.kind() {
            let (found, expected) = (values.kind(), table.kind());
            return refuse(&path, format!("table `{name}` is of {found:?}, expected {expected:?}"));
        }
        stored.push(values);
    }
    if let Some(name) = file.tensors.keys().next() {
        return refuse(&path, format!("the model keeps no table `{name}`"));
    }
    fill(tables.iter().map(|(_, table)| table).zip(stored));
    Ok(())
}

#[cfg(test)]
mod tests {
    use segue_collectives::local::Local;
    use segue_collectives::{Communicator, simulated};
    use segue_kernels::noise::Noise;
    use segue_kernels::{Init, ParameterSpec, Parameters};
    use segue_testing::MODELS;
    use tch::Device;

    use super::super::replicas::check_replicas;
    use super::super::snapshot::replicated;
    use super::*;
    use crate::checkpoint::write_tensors;
    use crate::{Engine, Loss, Turn};

    /// One weight, and tables beside it.
    struct Tabled(Parameters, Vec<(String, Tensor)>);

    impl Tabled {
        fn new(tables: &[(&str, Tensor)]) -> Self {
            let spec = ParameterSpec { name: "w".into(), shape: vec![1], init: Init::Zeros };
            let tables = tables.iter().map(|(name, table)| (name.to_string(), table.copy())).collect();
            Self(Parameters::initialise(vec![spec], 1, Kind::Float), tables)
        }

        fn values(&self) -> Vec<Vec<f64>> {
            self.1
                .iter()
                .map(|(_, table)| Vec::try_from(table.to_kind(Kind::Double).view([-1])).unwrap())
                .collect()
        }
    }

    impl Learner for Tabled {
        type Batch = ();
        type Carry = ();

        fn networks(&self) -> Vec<(&'static str, &Parameters)> {
            vec![("model", &self.0)]
        }

        fn start(&self, _: i64) {}

        fn loss(&self, _: &Turn, (): &(), _: usize, (): &(), _: &Noise) -> Loss<()> {
            Loss::of(self.0.get("w").sum(Kind::Float), 1.0, None, ())
        }

        fn tables(&self) -> Vec<(String, Tensor)> {
            self.1.iter().map(|(name, table)| (name.clone(), table.shallow_clone())).collect()
        }
    }

    fn floats(values: &[f32]) -> Tensor {
        Tensor::from_slice(values)
    }

    #[test]
    fn tables_come_back_from_a_folder_bit_by_bit() {
        let folder = tempfile::tempdir().unwrap();
        let of = |values: &[f32], count: i64| {
            Tabled::new(&[("mean", floats(values)), ("seen", Tensor::from_slice(&[count]))])
        };
        let before = of(&[0.1, -3e-30], (1 << 53) + 1);
        write_tensors(&folder.path().join(TABLES), &tables_of(&before)).unwrap();
        let after = of(&[0.0; 2], 0);
        restore_tables(folder.path(), &after).unwrap();
        assert!(after.1.iter().zip(&before.1).all(|((_, after), (_, before))| after.equal(before)));
    }

    #[test]
    fn tables_of_other_names_shapes_and_types_are_refused_and_nothing_is_filled() {
        let stored = [("mean", floats(&[1.0, 2.0])), ("seen", Tensor::from_slice(&[7_i64]))];
        let [mean, seen] = &stored;
        let with = |name: &'static str, table: Tensor| vec![(mean.0, mean.1.zeros_like()), (name, table)];
        for (kept, says) in [
            (
                vec![(mean.0, floats(&[0.0; 3])), (seen.0, seen.1.zeros_like())],
                "`mean` is [2], the model wants [3]",
            ),
            (with("count", seen.1.zeros_like()), "no tensor `count`"),
            (with("seen", floats(&[0.0])), "table `seen` is of Int64, expected Float"),
            (vec![(mean.0, mean.1.zeros_like())], "the model keeps no table `seen`"),
            (Vec::new(), "the model keeps no table `mean`"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let learner = Tabled::new(&kept);
            // A folder of before there was a table.
            assert_eq!(restore_tables(folder.path(), &learner).is_ok(), kept.is_empty());
            write_tensors(&folder.path().join(TABLES), &tables_of(&Tabled::new(&stored))).unwrap();
            let error = restore_tables(folder.path(), &learner).unwrap_err();
            assert!(error.to_string().contains(says) && error.exit_code() == 78, "{error}");
            assert!(learner.values().concat().iter().all(|value| *value == 0.0), "{says}");
        }
        let folder = tempfile::tempdir().unwrap();
        let error = restore_tables(folder.path(), &Tabled::new(&stored)).unwrap_err().to_string();
        assert!(error.contains("no tables.safetensors") && error.contains("`mean`"), "{error}");
    }

    #[test]
    #[should_panic(expected = "would round the Double of table `mean`")]
    fn a_table_that_a_file_would_round_is_no_table() {
        tables_of(&Tabled::new(&[("mean", floats(&[0.0]).to_kind(Kind::Double))]));
    }

    #[test]
    fn ranks_that_hold_other_tables_are_no_replicas() {
        let config =
            MODELS.load(None, &["train.lanes=2".into(), "train.micro_batch=1".into()]).unwrap().config;
        let check = |of_rank: fn(usize) -> f32| {
            simulated::run(2, |comm| {
                let learner = Tabled::new(&[("mean", floats(&[1.0, of_rank(comm.rank())]))]);
                let engine = Engine::new(&config, learner, comm).unwrap();
                check_replicas(3, || replicated(&engine), comm)
                    .map_err(|error| (error.to_string(), error.exit_code()))
            })
        };
        assert!(check(|_| 2.0).iter().all(Result::is_ok));
        for found in check(|rank| rank as f32) {
            let (message, code) = found.unwrap_err();
            assert!(message.contains("table.mean") && code == 81, "{message}");
        }
    }

    #[test]
    fn a_table_with_a_value_that_is_not_finite_is_not_written() {
        let config =
            MODELS.load(None, &["train.lanes=1".into(), "train.micro_batch=1".into()]).unwrap().config;
        let spoiled = |value: f32| {
            let learner =
                Tabled::new(&[("mean", floats(&[1.0, value])), ("seen", Tensor::from_slice(&[1_i64]))]);
            Engine::new(&config, learner, &Local).unwrap().first_spoiled()
        };
        assert_eq!(spoiled(1.0), None);
        assert_eq!(spoiled(f32::NAN).as_deref(), Some("the table `mean`"));
        assert_eq!(
            tables_of(&Tabled::new(&[("x", Tensor::zeros([1], (Kind::Float, Device::Cpu)))])).len(),
            1
        );
    }
}
