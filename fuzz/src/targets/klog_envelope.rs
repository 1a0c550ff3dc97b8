//! Whatever stands in front of a message, the message is found at most once.

const MESSAGE: &[u8] = b"nvidia 0000:41:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0018 \
    address=0x24000000000 flags=0x0020]\n";

/// Runs the target.
pub fn run(data: &[u8]) {
    if data.contains(&b'\n') || data.contains(&b'=') {
        return;
    }
    let mut line = data.to_vec();
    line.extend_from_slice(MESSAGE);
    assert!(crate::shared::scan(&line).events <= 1);
}
