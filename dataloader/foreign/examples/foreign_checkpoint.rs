//! Reads a checkpoint of another program, without that program: a file of `torch.save`, a safetensors file, or a
//! TensorFlow checkpoint by its prefix. Nothing in a pickle is executed.
//!
//! ```text
//! cargo run -p segue-foreign --example foreign_checkpoint -- model.pt
//! ```

use std::error::Error;
use std::path::Path;

use segue_foreign::{Bundle, ElementType, RawTensor, SafetensorsFile, TorchFile};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: foreign_checkpoint PATH")?;
    for (name, tensor) in tensors(Path::new(&path))? {
        println!("{name}  {} {:?}  {}", tensor.dtype(), tensor.shape(), mean(&tensor));
    }
    Ok(())
}

/// Name and values of every tensor. Values stay in the file until they are asked for.
fn tensors(path: &Path) -> Result<Vec<(String, RawTensor)>, Box<dyn Error>> {
    if path.extension().is_some_and(|extension| extension == "safetensors") {
        let file = SafetensorsFile::open(path)?;
        let named = file.entries().iter().map(|entry| Ok((entry.name.clone(), entry.tensor()?)));
        return named.collect();
    }
    // PREFIX.index and PREFIX.data-00000-of-00001 make up a TensorFlow checkpoint; PREFIX alone is no file.
    if !path.is_file() {
        let bundle = Bundle::open(path)?;
        let named = bundle.entries().iter().map(|entry| Ok((entry.name.clone(), bundle.tensor(entry)?)));
        return named.collect();
    }
    // A state dict, a whole pickled module, or anything that holds tensors: all are found by walking the object.
    let file = TorchFile::open(path)?;
    Ok(file.tensors(file.root())?.into_iter().map(|found| (found.name, found.tensor)).collect())
}

/// The mean of a tensor of single precision.
fn mean(tensor: &RawTensor) -> String {
    if tensor.dtype() != ElementType::F32 {
        return String::new();
    }
    // In the order of the indices, whatever the strides in the file are; little-endian as all formats have it.
    let bytes = tensor.to_bytes();
    let values = bytes.as_chunks::<4>().0.iter().map(|value| f64::from(f32::from_le_bytes(*value)));
    format!("mean {:+.4e}", values.sum::<f64>() / (bytes.len() / 4).max(1) as f64)
}
