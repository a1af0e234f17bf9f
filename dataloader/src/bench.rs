use std::time::Instant;

use rayon::prelude::*;
use segue_data_error::DataError;
use segue_tokenizer::Tokenizer;

use crate::build::worker_pool;

/// Bytes of text handed to a thread at once: enough that handing over costs nothing, little enough that all threads end
/// together.
const SHARE_BYTES: usize = 1 << 17;

/// Ids of texts, and the speed of encoding.
pub struct Encoded {
    /// 10⁶ bytes of text per second.
    pub mb_per_s: f64,
    /// Ids of each text, in the chunks that threads took.
    pub ids: Vec<Vec<Vec<u32>>>,
}

/// Encodes texts over `workers` threads and keeps all ids.
///
/// # Errors
///
/// An empty text, and one that the tokenizer cannot encode.
pub fn bench_encode(tokenizer: &Tokenizer, texts: &[&str], workers: usize) -> Result<Encoded, DataError> {
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    if bytes == 0 {
        return Err(DataError::EmptyInput { why: "the text is empty".into() });
    }
    let per_share = (texts.len() * SHARE_BYTES).div_ceil(bytes).max(1);
    let pool = worker_pool(workers)?;
    let begun = Instant::now();
    let ids: Result<Vec<Vec<Vec<u32>>>, String> = pool.install(|| {
        let shares = texts.par_chunks(per_share);
        let encoded = shares.map_init(
            || tokenizer.encoder(),
            |encoder, share| {
                let encode = |text: &&str| {
                    let mut ids = Vec::with_capacity(text.len() / 4 + 1);
                    encoder.encode(text, &mut ids).map(|()| ids)
                };
                share.iter().map(encode).collect()
            },
        );
        encoded.collect()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let ids = ids.map_err(|why| DataError::EmptyInput {
        why: format!("the tokenizer cannot encode this text: {why}"),
    })?;
    Ok(Encoded { mb_per_s: bytes as f64 / 1e6 / seconds, ids })
}
