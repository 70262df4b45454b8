//! Appending as a leader and reading back, on disk and in memory.

mod place;

use ottla_storage::{Opening, ReadError};
use place::{Draft, NOW, append, on_both, read_from};

#[test]
fn what_is_appended_is_read_back_from_any_offset() {
    on_both(|place| {
        let (mut log, report) = place.open(Opening::clean(NOW));
        assert!(report.created);
        let reader = log.reader();
        assert!(reader.read(0, 1000, i64::MAX, true).expect("empty").is_empty());
        for records in [1, 3, 2] {
            append(&mut log, &Draft::of(records));
        }
        assert_eq!((log.log_start(), log.log_end(), reader.log_end()), (0, 6, 6));
        for (offset, bases) in [(0, &[0, 1, 4][..]), (1, &[1, 4]), (3, &[1, 4]), (5, &[4])] {
            for max_bytes in [1, 300, 100_000] {
                let headers = read_from(&reader, offset, max_bytes);
                let found: Vec<_> = headers.iter().map(|header| header.base_offset).collect();
                assert_eq!(found, bases, "from {offset}");
            }
        }
        for offset in [-1, 7] {
            let error = reader.read(offset, 1000, i64::MAX, true).expect_err("out of range");
            assert!(matches!(error, ReadError::OutOfRange { log_start: 0, log_end: 6 }));
        }
    });
}
