//! Published figures: every row is computed, and the page says where the model is off.

use peerway_worth::allreduce::{Arm, Levels, Times};
use peerway_worth::estimate;
use peerway_worth::hardware::Link;
use peerway_worth::published::{figures, reference, sums};

#[test]
fn every_figure_has_a_row() {
    let rows: Vec<_> = figures().iter().map(|figure| figure.row().unwrap()).collect();
    assert!(rows.len() >= 28);
    for row in &rows {
        assert!(row.model.low <= row.model.mid && row.model.mid <= row.model.high, "{row:?}");
        assert!(row.deviation().is_finite());
    }
    // Those that lie outside are named on the page; a further one has to be looked at.
    let outside: Vec<&str> =
        rows.iter().filter(|row| !row.inside()).map(|row| row.what.as_str()).collect();
    assert!(outside.len() <= 4, "{outside:?}");
    assert!(sums().iter().all(|sum| sum.row().model.mid > 0.0));
}

#[test]
fn a_measured_rate_narrows_what_is_assumed() {
    let free = estimate(&reference(1, false).unwrap()).unwrap();
    let fitted = estimate(&reference(1, true).unwrap()).unwrap();
    let width = |one: &peerway_worth::Estimate| {
        let rate = one.decode[0].tokens_per_second;
        rate.high - rate.low
    };
    assert!(width(&fitted) < 0.01 && width(&free) > 50.0);
    let calibration = fitted.calibration.unwrap();
    assert_eq!(calibration.kept, calibration.of);
    assert!(calibration.fixed_per_layer_us.unwrap().high < 100.0);
}

#[test]
fn a_rate_that_nothing_explains_is_said() {
    let mut request = reference(1, false).unwrap();
    request.measured = vec![estimate::Measured { concurrency: 1, rate: 5000.0 }];
    let estimate = estimate(&request).unwrap();
    let calibration = estimate.calibration.unwrap();
    assert_eq!((calibration.kept, calibration.notes.len()), (0, 1));
}

fn measurement(rows: &str) -> String {
    format!("{{\"all_reduce\": [{rows}]}}")
}

fn row(arm: &str, bytes: u32, seconds: f64, verdict: &str) -> String {
    format!(
        "{{\"gpus\": [\"a\", \"b\"], \"arm\": \"{arm}\", \"bytes\": {bytes}, \"seconds\": {seconds}, \
         \"verdict\": \"{verdict}\"}}"
    )
}

#[test]
fn measured_sums_take_the_place_of_assumed_ones() {
    let rows = [
        row("host", 1024, 10e-6, "intact"),
        row("host", 2048, 20e-6, "intact"),
        row("p2p", 1024, 5e-6, "damaged"),
        row("p2p", 2048, 6e-6, "intact"),
    ];
    let times = Times::from_test(&measurement(&rows.join(",")), Link::Pcie5, 2).unwrap();
    assert!((times.all_reduce(Arm::Host, Levels::MIDDLE, 1536.0) - 15e-6).abs() < 1e-12);
    assert!(!times.host.assumed && times.peer.assumed);
    assert!(times.notes.iter().any(|note| note.starts_with("1 measured rows")));
    let error = |text: &str| Times::from_test(text, Link::Pcie5, 2).unwrap_err().to_string();
    assert!(error("{}").starts_with("the measurement has no all_reduce list"));
    assert!(error("nothing").starts_with("the measurement is not JSON"));
    let alone = measurement("{\"gpus\": [\"a\"], \"arm\": \"host\"}");
    assert!(error(&alone).starts_with("the measurement has no all-reduce of 2 GPUs (it has: 1)"));
    let wrong = measurement(&row("p2p", 1024, 5e-6, "hung"));
    assert!(error(&wrong).starts_with("no arm of the measurement has two sizes"));
}
