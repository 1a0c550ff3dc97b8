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
    let parts = in_parts(root, items, |part| part.iter().map(&work).collect::<Vec<R>>());
    parts.into_iter().flatten().collect()
}

/// Does `work` for the items in one or two parts, each in order.
pub(super) fn in_parts<'a, T: Sync, R: Send>(
    root: &Root,
    items: &'a [T],
    work: impl Fn(&'a [T]) -> R + Sync,
) -> Vec<R> {
    if items.len() < WORTH_A_THREAD || !root.is_shareable() {
        return vec![work(items)];
    }
    let (first, second) = items.split_at(items.len() / 2);
    thread::scope(|scope| {
        // The walls are up by now, and a thread that starts behind them stands behind them.
        let other =
            thread::Builder::new().name("reader".to_owned()).spawn_scoped(scope, || work(second));
        let first = work(first);
        let second = match other.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(second)) => second,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => work(second),
        };
        vec![first, second]
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
