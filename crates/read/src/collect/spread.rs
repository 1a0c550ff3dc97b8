//! Work over many places, side by side.

use std::thread;

use crate::root::Root;

/// Below this, starting a thread costs more than it saves.
const WORTH_A_THREAD: usize = 256;

/// Does `work` for every item, in order. Looks at a directory tree spend their time in the kernel,
/// so that a second thread nearly halves it; more would disturb a busy host for less.
pub(super) fn spread<T: Sync, R: Send>(
    root: &Root,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    if items.len() < WORTH_A_THREAD || !root.is_shareable() {
        return items.iter().map(work).collect();
    }
    let (first, second) = items.split_at(items.len() / 2);
    thread::scope(|scope| {
        // The walls are up by now, and a thread that starts behind them stands behind them.
        let other = thread::Builder::new()
            .name("reader".to_owned())
            .spawn_scoped(scope, || second.iter().map(&work).collect::<Vec<R>>());
        let mut done: Vec<R> = Vec::with_capacity(items.len());
        done.extend(first.iter().map(&work));
        match other.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(more)) => done.extend(more),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => done.extend(second.iter().map(&work)),
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_stays() {
        let root = Root::open(std::path::Path::new("/")).unwrap();
        for count in [0, 1, WORTH_A_THREAD - 1, WORTH_A_THREAD, WORTH_A_THREAD + 1, 5000] {
            let items: Vec<usize> = (0..count).collect();
            assert_eq!(spread(&root, &items, |item| *item), items);
        }
    }
}
