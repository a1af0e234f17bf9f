//! What the crates panic over is an error, of which the process's own hook hears nothing. A process of its own, as it
//! sets that hook.

use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_ipc::writer::StreamWriter;
use segue_columnar::table_lines;

#[test]
fn damage_that_the_crates_panic_over_is_an_error_and_no_panic() {
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    panic::set_hook(Box::new(|_| _ = HEARD.fetch_add(1, Ordering::Relaxed)));
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None]));
    let batch = RecordBatch::try_from_iter_with_nullable([("a", numbers, true)]).unwrap();
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).unwrap();
    writer.write(&batch).unwrap();
    let whole = writer.into_inner().unwrap();
    let mut contradictions = 0;
    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x7F;
        if let Err(error) = table_lines("a.arrow".as_ref(), bytes) {
            assert_eq!(error.exit_code(), 65);
            contradictions += u32::from(error.to_string().contains("contradicts itself"));
        }
    }
    assert!(contradictions > 0);
    assert_eq!(HEARD.load(Ordering::Relaxed), 0);
    // Other panics are heard.
    assert!(panic::catch_unwind(|| panic!("ours")).is_err());
    assert_eq!(HEARD.load(Ordering::Relaxed), 1);
}
