//! Headers of shards and of their indexes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = segue_dataloader::ShardHeader::parse(bytes);
    let _ = segue_dataloader::IndexHeader::parse(bytes);
});
