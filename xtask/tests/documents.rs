//! Generated documents must be those that would be written now.

#[test]
fn generated_documents_are_fresh() {
    for (path, expected) in xtask::docs::all().unwrap() {
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == expected,
            "{} is stale: run `cargo xtask docs` and review the change",
            path.display()
        );
    }
}

#[test]
fn pages_of_measurements_are_fresh() {
    let name = "h200-pair";
    let there = std::fs::read_to_string(xtask::hardware::page_path(name)).unwrap_or_default();
    let expected = xtask::hardware::page(name).unwrap_or_default();
    assert!(!expected.is_empty() && there == expected, "run `cargo xtask hardware {name}`");
}
