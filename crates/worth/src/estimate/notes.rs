//! What to know of an estimate.

use super::{Context, sizes};
use crate::state;

/// Notes on an estimate.
pub(super) fn of(context: &Context<'_>) -> Vec<String> {
    let request = context.request;
    let mut notes = request.model.assumed.clone();
    for note in &mut notes {
        note.insert_str(0, "assumed of the configuration: ");
    }
    notes.extend(context.times.notes.iter().cloned());
    let sizes = sizes(context);
    if !sizes.fits {
        notes.push(format!(
            "the weights take {:.1} GB of each GPU's {:.1} GB: they do not fit, and the times below \
             are those of a GPU that had the room",
            sizes.weight_bytes_per_gpu / 1e9,
            request.gpu.memory_bytes / 1e9
        ));
    } else if sizes.kv_bytes_per_token_per_gpu > 0.0 {
        let of_a_replica = f64::from(request.concurrency) / f64::from(request.layout.replicas);
        let wanted = request.layout.own_sequences(of_a_replica)
            * (f64::from(request.prompt) + f64::from(request.output));
        if sizes.kv_tokens < wanted {
            notes.push(format!(
                "there is room for keys and values of {:.0} tokens, and {wanted:.0} are wanted: \
                 fewer sequences will run than asked for",
                sizes.kv_tokens
            ));
        }
    }
    if let Some(cap) = state::cap(request)
        && let speculates = request.draft_steps > 0
        && let Some(row) = cap
            .rows
            .iter()
            .find(|row| (row.draft_tokens > 0) == speculates)
            .filter(|row| row.running < row.asked)
    {
        notes.push(format!(
            "beside their states {} of {} requests run with the engine's defaults{}; the rates take \
             all of them as running",
            row.running,
            row.asked,
            if speculates { " and speculation" } else { "" }
        ));
    }
    notes.extend(mixed(context));
    if request.layout.tp > 1 && context.times.assumed() {
        let which = match (context.times.host.assumed, context.times.peer.assumed) {
            (true, true) => "all-reduce times are assumed",
            (true, false) => "all-reduce times through host memory are assumed",
            _ => "all-reduce times over peer access are assumed",
        };
        notes.push(format!(
            "{which}; they are the widest part of every interval here. \
             peerway test --format json measures them in seconds, --all-reduce takes the file"
        ));
        notes.push(
            "long messages through host memory were seen at 27 and 30 GB/s on two hosts, the fast end \
             of what is assumed: in prefill and with many requests P2P is likelier worth what the \
             low end says"
                .to_owned(),
        );
    }
    notes
}

/// Sums of which one way was measured and the other was not: their difference is no measurement.
fn mixed(context: &Context<'_>) -> Option<String> {
    let times = &context.times;
    (context.request.layout.tp > 1 && times.host.assumed != times.peer.assumed).then(|| {
        let (measured, assumed) = if times.host.assumed {
            ("over peer access", "through host memory")
        } else {
            ("through host memory", "over peer access")
        };
        format!(
            "sums {measured} were measured, those {assumed} are assumed: the value of P2P compares \
             the two"
        )
    })
}
