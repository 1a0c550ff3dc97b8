//! `path A B`: the route of a pair, hop by hop, both directions.

use peerway_core::document::path::{Direction, Hop, Path};
use peerway_core::judge::Verdict;

use crate::args::{Format, Global};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host;
use crate::output::Output;
use crate::spelling;
use crate::text::{self, wrap};

/// Runs the command.
pub fn run(global: &Global, from: &str, to: &str, output: &mut Output) -> Result<Exit, CliError> {
    let looked = host::look(global)?;
    let from = spelling::device(&looked.snapshot, from)?;
    let to = spelling::device(&looked.snapshot, to)?;
    if from.address == to.address {
        return Err(CliError::NoSuchWord {
            what: "pair of one device with itself:",
            word: from.address.to_string(),
            hint: "name two devices".to_owned(),
        });
    }
    let directions = vec![
        Direction::new(&looked.snapshot, from, to),
        Direction::new(&looked.snapshot, to, from),
    ];
    let broken = directions.iter().any(|one| one.pair.verdict == Verdict::Broken);
    let unknown = directions.iter().any(|one| one.pair.verdict == Verdict::Unknown);
    if global.format == Format::Text {
        for direction in &directions {
            output.push(&page(direction));
        }
    } else {
        output.document("path", &looked, Path { directions })?;
    }
    Ok(match (broken, unknown) {
        (true, _) => Exit::Findings,
        (false, true) => Exit::Undecided,
        (false, false) => Exit::Fine,
    })
}

fn page(direction: &Direction) -> String {
    let pair = &direction.pair;
    let verdict = text::painted(pair.verdict, text::verdict(pair.verdict));
    let mut out = wrap(
        &format!(
            "{} {verdict} ({}, {})",
            text::bold(&format!("{} -> {}", pair.from, pair.to)),
            text::basis(pair.basis),
            text::confidence(pair.confidence)
        ),
        "",
        "  ",
    );
    out.push_str(&wrap(&pair.reason, "  because ", "          "));
    for hop in &direction.hops {
        out.push_str(&hop_line(hop));
    }
    if let (Some(start), Some(size)) = (direction.target_start, direction.target_size) {
        let bits = direction
            .requester_address_bits
            .map_or_else(|| "unknown".to_owned(), |bits| format!("{bits} bits"));
        out.push_str(&wrap(
            &format!(
                "target memory {start}, {}; the requester's addresses: {bits}",
                text::bytes(size)
            ),
            "  ",
            "    ",
        ));
    }
    if let Some(rate) = direction.narrowest_bytes_per_second {
        out.push_str(&wrap(
            &format!("narrowest link {} one way, before protocol overhead", text::rate(rate)),
            "  ",
            "    ",
        ));
    }
    let codes: Vec<String> =
        pair.codes.iter().map(|code| format!("peerway explain {code}")).collect();
    out.push_str(&wrap(&codes.join("; "), "  more: ", "        "));
    out.push('\n');
    out
}

fn hop_line(hop: &Hop) -> String {
    let address = hop.address.map(|address| format!(" {address}")).unwrap_or_default();
    let mut text = format!("{}{address}", hop.kind.replace('_', " "));
    if let Some(acs) = &hop.acs {
        text = format!("{text}, ACS control: {acs}");
    }
    if hop.redirects == Some(true) {
        text.push_str(" (redirects)");
    }
    if !hop.note.is_empty() {
        text = format!("{text}, {}", hop.note);
    }
    wrap(&text, "    ", "      ")
}
