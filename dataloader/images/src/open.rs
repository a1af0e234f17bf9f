use std::fmt;
use std::path::Path;

use segue_data_error::DataError;

use crate::{ImageSet, cifar_binary, cifar_python, folder, idx, svhn};

/// A part of a data set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// What is learnt from.
    Train,
    /// What is evaluated on.
    Test,
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Split::Train => "train",
            Split::Test => "test",
        })
    }
}

/// A form in which data sets are published.
struct Form {
    /// What shows it, for a message.
    files: &'static str,
    has: fn(&Path, Split) -> bool,
    read: fn(&Path, Split) -> Result<ImageSet, DataError>,
}

/// The binary version of CIFAR-10 comes before the Python version: of a folder with both, it is the faster one to read.
const FORMS: [Form; 6] = [
    Form { files: "train-images-idx3-ubyte[.gz]", has: idx::has, read: idx::read_folder },
    Form { files: "data_batch_1.bin", has: cifar_binary::has, read: cifar_binary::read_folder },
    Form { files: "data_batch_1", has: cifar_python::has, read: cifar_python::read_folder },
    Form { files: "train_32x32.mat", has: svhn::has, read: svhn::read_folder },
    Form { files: "train/CLASS/*.png", has: folder::has, read: folder::read_folder },
    Form { files: "*.png", has: folder::is_flat, read: folder::read_flat },
];

/// The form that a folder has some split in.
///
/// # Errors
///
/// A folder with none.
fn form_of(folder: &Path) -> Result<&'static Form, DataError> {
    let has = |form: &&Form| [Split::Train, Split::Test].iter().any(|split| (form.has)(folder, *split));
    FORMS.iter().find(has).ok_or_else(|| {
        let files = FORMS.map(|form| form.files).join(", ");
        let expected = format!("a data set of images, as one of {files} or the same of the test split");
        match folder.is_dir() {
            true => DataError::foreign(folder, format!("expected {expected}")),
            false => DataError::Missing { path: folder.into(), why: expected },
        }
    })
}

/// Reads a split of the data set that is in a folder, whichever form it has: MNIST's IDX files, CIFAR-10's batches, SVHN's MATLAB
/// files, or PNG files in `train/CLASS` and `test/CLASS`. PNG files in the folder itself are every split of it.
///
/// # Errors
///
/// A folder with none of them, and those of their readers.
pub fn open(folder: &Path, split: Split) -> Result<ImageSet, DataError> {
    (form_of(folder)?.read)(folder, split)
}

/// Both splits of a data set.
#[derive(Clone, Debug, PartialEq)]
pub struct Splits {
    /// The training images.
    pub train: ImageSet,
    /// The test images; `None` of a data set without.
    pub test: Option<ImageSet>,
}

impl Splits {
    /// Reads what a folder has, as [`open`] does.
    ///
    /// # Errors
    ///
    /// Those of [`open`]; test images of another size than the training images. A folder without test images is none, but one that has
    /// such files and lacks their labels is.
    pub fn open(folder: &Path) -> Result<Self, DataError> {
        let form = form_of(folder)?;
        let train = (form.read)(folder, Split::Train)?;
        let has_test = (form.has)(folder, Split::Test);
        let test = has_test.then(|| (form.read)(folder, Split::Test)).transpose()?;
        match &test {
            Some(test) if test.shape() != train.shape() => {
                let why = format!("test images have {}, training images {}", test.shape(), train.shape());
                Err(DataError::foreign(folder, why))
            }
            _ => Ok(Self { train, test }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::made::{cifar_record, gzip, idx, mat, pickled_batch, png};

    #[test]
    fn the_form_is_that_of_the_files_that_are_there() {
        let grey = png(2, 1, png::ColorType::Grayscale, png::BitDepth::Eight);
        let images = gzip(&idx(&[1, 1, 2], &[1, 2]));
        let cases = [
            (
                "IDX files",
                vec![("t10k-images-idx3-ubyte.gz", images), ("t10k-labels-idx1-ubyte", idx(&[1], &[3]))],
            ),
            (
                "CIFAR-10, binary version",
                vec![("test_batch.bin", cifar_record(1, 2)), ("test_batch", vec![])],
            ),
            ("CIFAR-10, Python version", vec![("test_batch", pickled_batch(&[1], "u1", "labels"))]),
            ("SVHN", vec![("test_32x32.mat", mat::file(false, false))]),
            ("PNG files", vec![("test/a/0.png", grey)]),
        ];
        for (source, files) in cases {
            let dir = tempfile::tempdir().unwrap();
            for (name, bytes) in files {
                let path = dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
            assert_eq!(open(dir.path(), Split::Test).unwrap().source(), source);
            let error = open(dir.path(), Split::Train).unwrap_err();
            assert_eq!(error.exit_code(), 66, "{error}");
        }
    }

    #[test]
    fn test_images_may_be_missing_and_not_their_labels() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: Vec<u8>| fs::write(dir.path().join(name), bytes).unwrap();
        write("train-images-idx3-ubyte", idx(&[2, 1, 2], &[1, 2, 3, 4]));
        write("train-labels-idx1-ubyte", idx(&[2], &[0, 1]));
        assert_eq!(Splits::open(dir.path()).unwrap().test, None);
        write("t10k-images-idx3-ubyte", idx(&[1, 1, 2], &[5, 6]));
        let error = Splits::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("t10k-labels-idx1-ubyte"), "{error}");
        write("t10k-labels-idx1-ubyte", idx(&[1], &[1]));
        assert_eq!(Splits::open(dir.path()).unwrap().test.map(|test| test.len()), Some(1));
        write("t10k-images-idx3-ubyte", idx(&[1, 2, 1], &[5, 6]));
        let error = Splits::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("test images have 1 channel of 2 x 1"), "{error}");
    }

    /// A file of a data set: its name, and its bytes.
    type File = (String, Vec<u8>);

    /// Of each form: files of the training split, and those of the test split, its images last.
    fn sets() -> [(&'static str, Vec<File>, Vec<File>); 5] {
        let idx_files = |split: &str| {
            let (images, labels) = (idx(&[1, 1, 2], &[1, 2]), idx(&[1], &[3]));
            vec![
                (format!("{split}-labels-idx1-ubyte"), labels),
                (format!("{split}-images-idx3-ubyte"), images),
            ]
        };
        let five = |ending: &str, batch: &[u8]| {
            (1..=5).map(|number| (format!("data_batch_{number}{ending}"), batch.to_vec())).collect()
        };
        let one = |name: &str, bytes: &[u8]| vec![(name.to_owned(), bytes.to_vec())];
        let (binary, python) = (cifar_record(1, 2), pickled_batch(&[1], "u1", "labels"));
        let (svhn, grey) =
            (mat::file(false, false), png(2, 1, png::ColorType::Grayscale, png::BitDepth::Eight));
        [
            ("IDX files", idx_files("train"), idx_files("t10k")),
            ("CIFAR-10, binary version", five(".bin", &binary), one("test_batch.bin", &binary)),
            ("CIFAR-10, Python version", five("", &python), one("test_batch", &python)),
            ("SVHN", one("train_32x32.mat", &svhn), one("test_32x32.mat", &svhn)),
            ("PNG files", one("train/a/0.png", &grey), one("test/a/0.png", &grey)),
        ]
    }

    fn write(folder: &Path, files: &[File]) {
        for (name, bytes) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
    }

    /// A test split that is not there is none; one that is damaged is never taken for that.
    #[test]
    fn every_form_says_whether_it_has_test_images() {
        for (source, train, test) in sets() {
            let dir = tempfile::tempdir().unwrap();
            write(dir.path(), &train);
            let found = Splits::open(dir.path()).unwrap();
            assert!(found.train.source() == source && found.test.is_none(), "{source}");
            write(dir.path(), &test);
            let found = Splits::open(dir.path()).unwrap().test.unwrap();
            assert!(found.source() == source && found.len() == open(dir.path(), Split::Test).unwrap().len());
            let (name, whole) = test.last().unwrap();
            fs::write(dir.path().join(name), &whole[..whole.len() / 2]).unwrap();
            let error = Splits::open(dir.path()).unwrap_err();
            assert_eq!(error.exit_code(), 65, "{source}: {error}");
            assert!(error.to_string().contains(name), "{source}: {error}");
        }
    }

    #[test]
    fn what_was_looked_for_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = open(dir.path(), Split::Train).unwrap_err();
        let expected = "expected a data set of images, as one of train-images-idx3-ubyte[.gz], data_batch_1.bin, \
                        data_batch_1, train_32x32.mat, train/CLASS/*.png, *.png or the same of the test split";
        assert!(error.to_string().ends_with(expected), "{error}");
        assert_eq!(error.exit_code(), 65);
        let error = open(&dir.path().join("nowhere"), Split::Train).unwrap_err();
        assert_eq!(error.exit_code(), 66);
    }
}
