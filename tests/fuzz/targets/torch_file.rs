//! Pickles and torch.save files, and all tensors and the vocabulary they may hold.
#![no_main]

use segue_foreign::TorchFile;
use segue_tokenizer::find_symbols;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = TorchFile::from_bytes(&bytes.to_vec().into()) else { return };
    if let Ok(tensors) = file.tensors(file.root()) {
        for named in tensors.iter().take(64) {
            named.tensor.to_bytes();
        }
    }
    if let Ok(Some(symbols)) = find_symbols(file.root()) {
        let _ = symbols.tokenizer();
    }
});
