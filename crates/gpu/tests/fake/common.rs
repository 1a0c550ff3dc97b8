//! The stand-in library and how tests start measurements on it.

use std::path::PathBuf;
use std::time::Duration;

use peerway_gpu::{Depth, Engine, Launch, Measurement, Mode, PairResult, Settings, measure};
use peerway_gpu_fake::{Script, VARIABLE};

/// A measurement on the stand-in.
pub(crate) struct Fake {
    pub(crate) settings: Settings,
    /// Memory that processes share; removed with this value.
    _folder: tempfile::TempDir,
}

/// The shared library, which cargo builds beside this test since the test depends on its crate.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libpeerway_gpu_fake.so")
}

impl Fake {
    /// A stand-in with this script.
    pub(crate) fn new(script: &str) -> Self {
        Script::parse(script).unwrap();
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let text = format!("{script} folder={}", folder.path().display());
        let launch = Launch {
            program: env!("CARGO_BIN_EXE_peerway-gpu-measure").into(),
            arguments: vec!["child".to_owned()],
            environment: vec![(VARIABLE.to_owned(), text)],
            unset: vec!["CUDA_VISIBLE_DEVICES".to_owned()],
            clean: false,
        };
        let mut settings = Settings::new(launch);
        settings.cuda = Some(library());
        settings.nccl = Some(library());
        settings.depth = Depth::Standard;
        settings.largest = Some((2 << 20) + 16);
        settings.spare_bytes = 64 << 20;
        settings.step_limit = Duration::from_secs(5);
        settings.together = false;
        settings.speed = false;
        settings.all_reduce_sizes.clear();
        settings.all_reduce_apart = false;
        Self { settings, _folder: folder }
    }

    /// Measures after `change` of the settings.
    pub(crate) fn measure(&self, change: impl FnOnce(&mut Settings)) -> Measurement {
        let mut settings = self.settings.clone();
        change(&mut settings);
        measure(&settings, &mut |_| {})
    }
}

/// Only small transfers with peer access, and nothing of what is not asked for.
pub(crate) fn quick(settings: &mut Settings) {
    settings.modes = vec![Mode::Peer];
    settings.sample = Some(false);
    settings.largest = Some(1 << 20);
    settings.together = false;
    settings.together_bytes = 1 << 20;
    settings.speed = false;
    settings.all_reduce_sizes.clear();
}

/// The row of a pair, by the stand-in's numbers of its GPUs.
pub(crate) fn row<'m>(
    result: &'m Measurement,
    script: &Script,
    (from, to): (usize, usize),
    mode: Mode,
    engine: Engine,
) -> &'m PairResult {
    let address = |gpu| script.address(gpu).parse().unwrap();
    let (from, to) = (address(from), address(to));
    let mut rows = result
        .pairs
        .iter()
        .filter(|row| (row.from, row.to, row.mode, row.engine) == (from, to, mode, engine));
    let found = rows.next().unwrap_or_else(|| panic!("no row {from} {to}: {result:#?}"));
    assert!(rows.next().is_none(), "two rows for {from} {to}");
    found
}
