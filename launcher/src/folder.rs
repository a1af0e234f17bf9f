//! Output files of a command.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;
use segue_collectives::Communicator;
use segue_publish::{make_own_folders, write_file};
use segue_report::csv_line;
use serde_json::Value;

use crate::failure::{CANNOT_CREATE, Failure};

/// Whether a command may replace what is there: nobody is to lose a file to a slip.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Force {
    /// Replace output files that are there.
    #[arg(long)]
    force: bool,
}

impl Force {
    /// With what another option says.
    pub fn new(force: bool) -> Self {
        Self { force }
    }

    /// Refuses an output file that is there, if one is asked for, before the work that it is for. The user gives it by `option`.
    ///
    /// # Errors
    ///
    /// Something is there that is not to be replaced, or is no file: whatever has the place is gone once a file is published there.
    pub fn allow<'a>(self, path: impl Into<Option<&'a Path>>, option: &str) -> Result<(), Failure> {
        let Some(path) = path.into() else { return Ok(()) };
        let found =
            path.symlink_metadata().and_then(|found| if self.force { path.metadata() } else { Ok(found) });
        match found {
            Err(error) if [ErrorKind::NotFound, ErrorKind::NotADirectory].contains(&error.kind()) => Ok(()),
            Err(error) => Err(Failure::cannot_write(path, &error, option)),
            Ok(found) if found.is_dir() => {
                Err(Failure::cannot_write(path, &ErrorKind::IsADirectory.into(), option))
            }
            // `/dev/stdout` leads to a file where the output of a command goes to one.
            Ok(found) if self.force && found.is_file() && !is_of_the_system(path) => Ok(()),
            Ok(_) if self.force => Err(refused(path, "is not a file", &format!("choose another {option}"))),
            Ok(_) => Err(refused(
                path,
                "is there",
                &format!("choose another {option}, or add --force to replace it"),
            )),
        }
    }
}

/// Whether a path is a name that the system gives an open file.
fn is_of_the_system(path: &Path) -> bool {
    path.parent()
        .is_some_and(|folder| ["/dev", "/dev/fd", "/proc/self/fd"].iter().any(|own| folder == Path::new(own)))
}

fn refused(path: &Path, why: &str, hint: &str) -> Failure {
    Failure::new(CANNOT_CREATE, format!("cannot write {}: it {why}\nhint: {hint}", path.display()))
}

/// A folder that results go to.
pub struct ResultFolder {
    path: PathBuf,
}

impl ResultFolder {
    /// Makes the folder of `--output`, which has to be empty or new where files of it are not to be replaced.
    pub fn of_output(path: &Path, force: Force) -> Result<Self, Failure> {
        let is_occupied = |path: &Path| path.read_dir().is_ok_and(|mut entries| entries.next().is_some());
        if !force.force && is_occupied(path) {
            let hint = "choose an empty or a new --output, or add --force to replace files in it";
            return Err(refused(path, "is not empty", hint));
        }
        Self::create(path)
    }

    /// The same for all ranks of a job. None goes on before each has looked: it would find files of the others. A collective call.
    pub fn of_output_of_ranks(path: &Path, force: Force, comm: &dyn Communicator) -> Result<Self, Failure> {
        let folder = Self::of_output(path, force)?;
        comm.barrier()?;
        Ok(folder)
    }

    /// Makes the folder where it is not there.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(path).map_err(|e| Failure::cannot_write(path, &e, "--output"))?;
        Ok(Self { path: path.into() })
    }

    /// Makes the folder `below` in the folder `root` where it is not there. Neither it nor what lies between them may be a link.
    pub fn create_own(root: &Path, below: impl AsRef<Path>) -> Result<Self, Failure> {
        let path = root.join(&below);
        make_own_folders(root, below).map_err(|e| Failure::cannot_write(&path, &e, "run.dir"))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file; it appears whole or not at all.
    pub fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.path.join(name);
        write_file(&path, text.as_bytes()).map_err(|e| Failure::cannot_write(&path, &e.source, "--output"))
    }

    /// Writes a JSON file for reading.
    pub fn write_json(&self, name: &str, value: &Value) -> Result<(), Failure> {
        self.write(name, &format!("{value:#}\n"))
    }

    /// Writes a CSV file (RFC 4180).
    pub fn write_csv(&self, name: &str, header: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let lines = rows.iter().map(csv_line);
        self.write(name, &(csv_line(header) + &lines.collect::<String>()))
    }
}

#[cfg(test)]
mod tests {
    use segue_collectives::simulated;

    use super::*;

    #[test]
    fn results_of_a_run_stay_in_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (run, other) = (dir.path().join("run"), dir.path().join("other"));
        for folder in [&run, &other] {
            fs::create_dir(folder).unwrap();
        }
        std::os::unix::fs::symlink(&other, run.join("predictions")).unwrap();
        let refused = ResultFolder::create_own(&run, "predictions").err().unwrap();
        assert!(refused.message.ends_with("run/predictions: it is a symbolic link"), "{}", refused.message);
        assert_eq!(refused.code, CANNOT_CREATE);
        ResultFolder::create_own(&run, "own").unwrap().write("scores.json", "").unwrap();
        assert!(run.join("own/scores.json").is_file());
        // A user's own choice may be one.
        ResultFolder::create(&run.join("predictions")).unwrap();
    }

    /// Without a meeting, whoever comes last finds what the first has written in nearly every round.
    #[test]
    fn no_rank_takes_the_files_of_another_for_those_of_somebody_else() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..50 {
            let path = dir.path().join(round.to_string());
            let found = simulated::run(4, |comm| {
                let folder = ResultFolder::of_output_of_ranks(&path, Force::default(), comm)?;
                folder.write(&format!("{}.txt", comm.rank()), "")
            });
            for found in found {
                found.unwrap();
            }
        }
    }

    #[test]
    fn what_is_there_is_replaced_where_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, hanging) =
            (dir.path().join("file"), dir.path().join("link"), dir.path().join("hanging"));
        fs::write(&file, "mine").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        std::os::unix::fs::symlink(dir.path().join("gone"), &hanging).unwrap();
        let (ask, force) = (Force::default(), Force::new(true));
        assert!(ask.allow(dir.path().join("new").as_path(), "--csv").is_ok());
        for path in [&file, &link, &hanging] {
            let failure = ask.allow(path.as_path(), "--csv").unwrap_err();
            assert_eq!(failure.code, CANNOT_CREATE);
            assert!(failure.message.ends_with("it is there"), "{}", failure.message);
            assert!(failure.hint.unwrap().contains("choose another --csv, or add --force"));
            assert!(force.allow(path.as_path(), "--csv").is_ok());
        }
        // A device would be gone, and nothing printed.
        for path in [dir.path(), Path::new("/dev/null"), Path::new("/dev/stdout")] {
            assert_eq!(
                [ask, force].map(|force| force.allow(path, "--csv").unwrap_err().code),
                [CANNOT_CREATE; 2]
            );
        }
        assert_eq!(
            ResultFolder::of_output(dir.path(), ask).err().map(|failure| failure.code),
            Some(CANNOT_CREATE)
        );
        assert!(ResultFolder::of_output(dir.path(), force).is_ok());
        assert!(ResultFolder::of_output(&dir.path().join("other"), ask).is_ok());
        assert!(ResultFolder::of_output(&dir.path().join("other"), ask).is_ok());
    }
}
