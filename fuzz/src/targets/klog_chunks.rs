//! It does not matter where the input is cut.

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((size, data)) = data.split_first() else { return };
    let chunks = data.chunks(usize::from(*size) + 1);
    assert_eq!(crate::shared::found(chunks), crate::shared::found([data]));
}
