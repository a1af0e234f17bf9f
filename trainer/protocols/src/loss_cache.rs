//! Losses on disk, so that an interrupted analysis resumes.

use std::fs;
use std::path::{Path, PathBuf};

use segue_kernels::TrainError;
use serde_json::{Value, json};

/// A folder of loss tables, each under a key that says everything the losses depend on.
pub struct LossCache {
    folder: PathBuf,
}

impl LossCache {
    /// Uses a folder, which is made where it is not there.
    pub fn open(folder: &Path) -> Result<Self, TrainError> {
        let write = |source| TrainError::Write { path: folder.into(), source };
        fs::create_dir_all(folder).map_err(write)?;
        Ok(Self { folder: folder.into() })
    }

    /// The losses under `key`, if there are `count` of them. A file that is not what it should be counts
    /// as absent.
    pub fn get(&self, key: &Value, count: usize) -> Option<Vec<f64>> {
        let text = segue_publish::read_regular(self.path(key)).ok()?;
        let stored: Value = serde_json::from_slice(&text).ok()?;
        let losses: Vec<f64> = serde_json::from_value(stored.get("losses")?.clone()).ok()?;
        (stored.get("key")? == key && losses.len() == count).then_some(losses)
    }

    /// Stores losses under `key`; they appear whole or not at all.
    pub fn put(&self, key: &Value, losses: &[f64]) -> Result<(), TrainError> {
        let path = self.path(key);
        let text = format!("{}\n", json!({ "key": key, "losses": losses }));
        Ok(segue_publish::write_file(&path, text.as_bytes())?)
    }

    fn path(&self, key: &Value) -> PathBuf {
        let hash = blake3::hash(key.to_string().as_bytes()).to_hex();
        self.folder.join(format!("{}.json", &hash[..32]))
    }
}

/// Names the model of a folder: BLAKE3 of its configuration and weights.
pub fn weights_fingerprint(folder: &Path) -> Result<String, TrainError> {
    let mut hasher = blake3::Hasher::new();
    for name in ["config.json", "model.safetensors"] {
        let path = folder.join(name);
        let read = |source| TrainError::Read { path: path.clone(), source };
        hasher.update_reader(segue_publish::open_regular(&path).map_err(read)?).map_err(read)?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_come_back_bit_for_bit_and_only_under_their_key() {
        let dir = tempfile::tempdir().unwrap();
        let cache = LossCache::open(&dir.path().join("losses")).unwrap();
        let (key, losses) = (json!({ "context": 100 }), [0.1 + 0.2, f64::MIN_POSITIVE, 7.0]);
        assert_eq!(cache.get(&key, 3), None);
        cache.put(&key, &losses).unwrap();
        assert_eq!(cache.get(&key, 3).unwrap(), losses);
        assert_eq!(cache.get(&key, 2), None);
        assert_eq!(cache.get(&json!({ "context": 200 }), 3), None);
        fs::write(cache.path(&key), "{").unwrap();
        assert_eq!(cache.get(&key, 3), None);
    }
}
