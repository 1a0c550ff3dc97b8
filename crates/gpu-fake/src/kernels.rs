//! The kernels by name, done anew from their description: what each stores, compares and reports.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::machine::{Machine, code};
use crate::script::{Engine, Kind};

/// A kernel and the number of its 64-bit parameters.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    pub(crate) parameters: usize,
    run: fn(&Machine, usize, &[u64]) -> Result<f64, i32>,
}

pub(crate) const KERNELS: [Kernel; 14] = [
    Kernel { name: "pw_fill", parameters: 6, run: fill },
    Kernel { name: "pw_verify", parameters: 9, run: verify },
    Kernel { name: "pw_copy_v4", parameters: 5, run: copy_units },
    Kernel { name: "pw_copy_u32", parameters: 3, run: copy_words },
    Kernel { name: "pw_copy_volatile", parameters: 3, run: copy_words },
    Kernel { name: "pw_stream", parameters: 3, run: stream },
    Kernel { name: "pw_find", parameters: 4, run: find },
    Kernel { name: "pw_produce", parameters: 6, run: produce },
    Kernel { name: "pw_consume", parameters: 7, run: consume },
    Kernel { name: "pw_pingpong", parameters: 6, run: ping_pong },
    Kernel { name: "pw_chase", parameters: 4, run: chase },
    Kernel { name: "pw_latch", parameters: 2, run: latch },
    Kernel { name: "pw_sum_fill", parameters: 4, run: sum_fill },
    Kernel { name: "pw_sum_verify", parameters: 5, run: sum_verify },
];

/// Units that are handled in one go.
const GO: u64 = 4096;

/// Seconds that one remote access takes.
const REMOTE: f64 = 0.7e-6;

thread_local! {
    static RUNNING: Cell<&'static str> = const { Cell::new("") };
}

/// The kernel that this thread runs; empty while it runs none.
pub(crate) fn running() -> &'static str {
    RUNNING.get()
}

/// Runs something under a kernel's name.
pub(crate) fn named<T>(name: &'static str, act: impl FnOnce() -> T) -> T {
    RUNNING.set(name);
    let done = act();
    RUNNING.set("");
    done
}

impl Kernel {
    /// Runs on a GPU; gives the seconds that it would take.
    pub(crate) fn run(&self, machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
        let seconds = named(self.name, || (self.run)(machine, gpu, given))?;
        machine.arrive()?;
        Ok(seconds)
    }
}

/// The tag of a unit: the word in its upper half.
fn upper(header: u64, index: u64) -> u64 {
    scramble(header.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index)
}

/// The last stage of the `SplitMix64` generator.
fn scramble(mut word: u64) -> u64 {
    word = (word >> 30 ^ word).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word >> 27 ^ word).wrapping_mul(0x94d0_49bb_1331_11eb);
    word >> 31 ^ word
}

fn unit(header: u64, index: u64) -> u128 {
    u128::from(upper(header, index)) << 64 | u128::from(header)
}

fn length(units: u64) -> usize {
    usize::try_from(units * 16).unwrap_or(0)
}

/// Rates of the machine, in bytes per second.
pub(crate) fn rate(machine: &Machine, from: usize, to: usize, engine: Engine) -> f64 {
    const LOCAL: f64 = 2.0e12;
    const LINK: f64 = 50.0e9;
    match machine.fault(from, to, engine) {
        _ if from == to => LOCAL,
        Some(Kind::Absurd) => LINK * 40.0,
        _ => LINK,
    }
}

/// Seconds for bytes between two addresses, by the slower end.
#[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "a model of time")]
pub(crate) fn seconds(
    machine: &Machine,
    gpu: usize,
    engine: Engine,
    addresses: &[u64],
    bytes: u64,
) -> f64 {
    let far = addresses.iter().filter_map(|address| machine.place(gpu, *address).ok());
    let slowest =
        far.map(|place| rate(machine, gpu, place.gpu, engine)).fold(f64::INFINITY, f64::min);
    if slowest.is_finite() { 2.0e-6 + bytes as f64 / slowest } else { 2.0e-6 }
}

fn fill(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [base, first, index_stride, stride, units, header] = *given else {
        return Err(code::INVALID_VALUE);
    };
    let mut k = 0;
    while k < units {
        let go = if stride == 1 { GO.min(units - k) } else { 1 };
        let mut bytes = vec![0; length(go)];
        let mut index = first + k * index_stride;
        // A plain loop: this runs unoptimised in tests, over millions of units.
        for slot in bytes.as_chunks_mut::<16>().0 {
            *slot = unit(header, index).to_le_bytes();
            index += index_stride;
        }
        machine.store(gpu, Engine::Sm, base + k * stride * 16, &bytes)?;
        k += go;
    }
    Ok(seconds(machine, gpu, Engine::Sm, &[base], units * 16))
}

/// Adds to the words of a report.
fn add(machine: &Machine, gpu: usize, report: u64, slot: u64, value: u64) -> Result<(), i32> {
    let place = machine.place(gpu, report + slot * 8)?;
    let word = machine.memory_of(place.gpu)?.word(place.at);
    word.fetch_add(value, std::sync::atomic::Ordering::Relaxed);
    Ok(())
}

fn least(machine: &Machine, gpu: usize, report: u64, slot: u64, value: u64) -> Result<u64, i32> {
    let place = machine.place(gpu, report + slot * 8)?;
    let word = machine.memory_of(place.gpu)?.word(place.at);
    Ok(word.fetch_min(value, std::sync::atomic::Ordering::Relaxed))
}

fn put(machine: &Machine, gpu: usize, report: u64, slot: u64, value: u64) -> Result<(), i32> {
    machine.store(gpu, Engine::Sm, report + slot * 8, &value.to_le_bytes())
}

fn verify(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [base, first, index_stride, stride, units, header, report, bitmap, shift] = *given else {
        return Err(code::INVALID_VALUE);
    };
    if machine.script.blind {
        return Ok(0.0);
    }
    let mut k = 0;
    while k < units {
        let go = if stride == 1 { GO.min(units - k) } else { 1 };
        let mut bytes = vec![0; length(go)];
        machine.load(gpu, Engine::Sm, base + k * stride * 16, &mut bytes)?;
        let mut index = first + k * index_stride;
        for (j, found) in (k..).zip(bytes.as_chunks::<16>().0) {
            let found = u128::from_le_bytes(*found);
            let right = unit(header, index);
            index += index_stride;
            if found == right {
                continue;
            }
            add(machine, gpu, report, 0, 1)?;
            least(machine, gpu, report, 1, j)?;
            add(machine, gpu, report, 2, u64::from(found == 0))?;
            add(machine, gpu, report, 3, u64::from(found == u128::MAX))?;
            let page = j >> shift;
            let mut byte = [0];
            machine.load(gpu, Engine::Sm, bitmap + page / 8, &mut byte)?;
            machine.store(gpu, Engine::Sm, bitmap + page / 8, &[byte[0] | 1 << (page % 8)])?;
        }
        k += go;
    }
    Ok(seconds(machine, gpu, Engine::Sm, &[base], units * 16))
}

/// Moves bytes in pieces; gives the time.
pub(crate) fn move_bytes(
    machine: &Machine,
    gpu: usize,
    engine: Engine,
    (to, from): (u64, u64),
    bytes: u64,
) -> Result<f64, i32> {
    let mut done = 0;
    while done < bytes {
        let part = (bytes - done).min(1 << 16);
        let mut data = vec![0; usize::try_from(part).unwrap_or(0)];
        machine.load(gpu, engine, from + done, &mut data)?;
        machine.store(gpu, engine, to + done, &data)?;
        done += part;
    }
    Ok(seconds(machine, gpu, engine, &[to, from], bytes))
}

fn copy_units(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [to, to_stride, from, from_stride, units] = *given else { return Err(code::INVALID_VALUE) };
    if (to_stride, from_stride) == (1, 1) {
        return move_bytes(machine, gpu, Engine::Sm, (to, from), units * 16);
    }
    for k in 0..units {
        let ends = (to + k * to_stride * 16, from + k * from_stride * 16);
        move_bytes(machine, gpu, Engine::Sm, ends, 16)?;
    }
    Ok(seconds(machine, gpu, Engine::Sm, &[to, from], units * 16))
}

fn copy_words(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [to, from, words] = *given else { return Err(code::INVALID_VALUE) };
    move_bytes(machine, gpu, Engine::Sm, (to, from), words * 4)
}

fn stream(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [to, from, units] = *given else { return Err(code::INVALID_VALUE) };
    move_bytes(machine, gpu, Engine::Sm, (to, from), units * 16)
}

fn find(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [base, units, header, report] = *given else { return Err(code::INVALID_VALUE) };
    let mut k = 0;
    while k < units {
        let go = GO.min(units - k);
        let mut bytes = vec![0; length(go)];
        machine.load(gpu, Engine::Sm, base + k * 16, &mut bytes)?;
        for (j, found) in (k..).zip(bytes.as_chunks::<16>().0) {
            if found.starts_with(&header.to_le_bytes()) {
                add(machine, gpu, report, 0, 1)?;
                least(machine, gpu, report, 1, j)?;
            }
        }
        k += go;
    }
    Ok(0.0)
}

fn produce(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [payload, flags, rounds, units, header, _pause] = *given else {
        return Err(code::INVALID_VALUE);
    };
    for round in 0..rounds {
        for index in round * units..(round + 1) * units {
            let data = unit(header, index).to_le_bytes();
            machine.store(gpu, Engine::Sm, payload + index * 16, &data)?;
        }
        machine.release(gpu, flags + round * 8, round + 1)?;
    }
    Ok(0.0)
}

/// Polls until a flag has come; false when the time is up.
fn poll(
    machine: &Machine,
    gpu: usize,
    flag: u64,
    limit: u64,
    come: impl Fn(u64) -> bool,
) -> Result<bool, i32> {
    let start = Instant::now();
    let limit = Duration::from_nanos(limit);
    while !come(machine.acquire(gpu, flag)?) {
        if start.elapsed() > limit {
            return Ok(false);
        }
        std::thread::yield_now();
    }
    Ok(true)
}

fn consume(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [payload, flags, rounds, units, header, limit, report] = *given else {
        return Err(code::INVALID_VALUE);
    };
    for round in 0..rounds {
        if !poll(machine, gpu, flags + round * 8, limit, |seen| seen == round + 1)? {
            return put(machine, gpu, report, 2, 1).map(|()| 0.0);
        }
        for index in round * units..(round + 1) * units {
            let mut found = [0; 16];
            machine.load(gpu, Engine::Sm, payload + index * 16, &mut found)?;
            if found == unit(header, index).to_le_bytes() {
                continue;
            }
            add(machine, gpu, report, 0, 1)?;
            if least(machine, gpu, report, 1, index)? > index {
                machine.store(gpu, Engine::Sm, report + 32, &found)?;
            }
        }
        put(machine, gpu, report, 3, round + 1)?;
    }
    Ok(0.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "a model of time"
)]
fn ping_pong(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [mine, theirs, rounds, first, limit, report] = *given else {
        return Err(code::INVALID_VALUE);
    };
    for round in 1..=rounds {
        if first != 0 {
            machine.release(gpu, theirs, round)?;
        }
        if !poll(machine, gpu, mine, limit, |seen| seen >= round)? {
            put(machine, gpu, report, 2, 1)?;
            return Ok(0.0);
        }
        if first == 0 {
            machine.release(gpu, theirs, round)?;
        }
        put(machine, gpu, report, 0, round)?;
    }
    let took = 2.0 * REMOTE * rounds.saturating_sub(1) as f64;
    put(machine, gpu, report, 1, (took * 1e9) as u64)?;
    Ok(took)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::as_conversions,
    reason = "a model of time"
)]
fn chase(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [base, start, steps, report] = *given else { return Err(code::INVALID_VALUE) };
    let mut at = start;
    for _ in 0..steps {
        let mut word = [0; 8];
        machine.load(gpu, Engine::Sm, base + at, &mut word)?;
        at = u64::from_le_bytes(word);
    }
    put(machine, gpu, report, 0, at)?;
    let took = 2.0 * REMOTE * steps as f64;
    put(machine, gpu, report, 1, (took * 1e9) as u64)?;
    Ok(took)
}

fn latch(_machine: &Machine, _gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [flag, limit] = *given else { return Err(code::INVALID_VALUE) };
    let start = Instant::now();
    while start.elapsed() < Duration::from_nanos(limit) {
        if crate::calls::host_word(flag) != 0 {
            break;
        }
        std::thread::yield_now();
    }
    Ok(0.0)
}

/// A term of the sums.
fn term(index: u64, rank: u64, seed: u64) -> u32 {
    let bytes = scramble((rank << 40) + (seed << 48) + index).to_le_bytes();
    let [a, b, c, d, ..] = bytes;
    u32::from_le_bytes([a, b, c, d])
}

fn sum_fill(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [base, count, rank, seed] = *given else { return Err(code::INVALID_VALUE) };
    for first in (0..count).step_by(1 << 14) {
        let end = (first + (1 << 14)).min(count);
        let bytes: Vec<u8> =
            (first..end).flat_map(|index| term(index, rank, seed).to_le_bytes()).collect();
        machine.store(gpu, Engine::Sm, base + first * 4, &bytes)?;
    }
    Ok(seconds(machine, gpu, Engine::Sm, &[base], count * 4))
}

fn sum_verify(machine: &Machine, gpu: usize, given: &[u64]) -> Result<f64, i32> {
    let [base, count, ranks, seed, report] = *given else { return Err(code::INVALID_VALUE) };
    if machine.script.blind {
        return Ok(0.0);
    }
    for first in (0..count).step_by(1 << 14) {
        let end = (first + (1 << 14)).min(count);
        let mut bytes = vec![0; usize::try_from((end - first) * 4).unwrap_or(0)];
        machine.load(gpu, Engine::Sm, base + first * 4, &mut bytes)?;
        for (index, found) in (first..).zip(bytes.as_chunks::<4>().0) {
            let sum = (0..ranks).fold(0_u32, |sum, rank| sum.wrapping_add(term(index, rank, seed)));
            if u32::from_le_bytes(*found) != sum {
                add(machine, gpu, report, 0, 1)?;
                least(machine, gpu, report, 1, index)?;
            }
        }
    }
    Ok(seconds(machine, gpu, Engine::Sm, &[base], count * 4))
}

/// Whether a launch reaches over to another GPU.
pub(crate) fn reaches_over(machine: &Machine, gpu: usize, kernel: &Kernel, given: &[u64]) -> bool {
    let moves = !matches!(kernel.name, "pw_verify" | "pw_find" | "pw_consume" | "pw_latch");
    moves
        && given
            .iter()
            .any(|address| machine.place(gpu, *address).is_ok_and(|place| place.gpu != gpu))
}
