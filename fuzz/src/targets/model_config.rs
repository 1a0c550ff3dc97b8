//! A model's configuration, and the sizes that follow from it.

use peerway_worth::ModelConfig;
use peerway_worth::config::Part;
use peerway_worth::precision::Precision;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(model) = ModelConfig::parse(text) else { return };
    for part in Part::ALL {
        let bytes = model.bytes(part);
        assert!(bytes.is_finite() && bytes >= 0.0, "{part:?}: {bytes}");
    }
    let windowed = model.window.map_or(0, |window| window.layers);
    assert!(windowed <= model.full_layers && model.full_layers <= model.layers, "{model:?}");
    let kept = |context: f64| model.kv_bytes(context, 1, Precision::Bfloat16);
    assert!(kept(1.0) <= kept(4096.0) && kept(4096.0).is_finite(), "{model:?}");
    assert!(model.state_bytes(None).is_finite() && model.total_parameters() >= 0.0);
}
