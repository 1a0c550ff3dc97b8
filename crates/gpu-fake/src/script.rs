//! What the stand-in is and how it misbehaves.

/// The environment variable with the script: words such as `gpus=3 memory=1g seed=7`.
pub const VARIABLE: &str = "PEERWAY_FAKE_GPU";

/// Where the script is where no variable gives one: in a container that has a library of its own.
pub const FILE: &str = "/etc/peerway-fake-gpu";

/// A whole script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// How many GPUs.
    pub gpus: usize,
    /// Memory of each in bytes; taken up only where it is used.
    pub memory: u64,
    /// PCI address of each; made up where not given.
    pub addresses: Vec<String>,
    /// The fault, if any.
    pub fault: Option<Fault>,
    /// Calls that fail: name, code, and how often the call works before; code -1 ends the process.
    pub errors: Vec<(String, i32, u64)>,
    /// A call that never returns.
    pub hang: Option<String>,
    /// A GPU whose name says that it is partitioned.
    pub mig: Option<usize>,
    /// Compute mode of all GPUs.
    pub compute_mode: i32,
    /// Folder for memory that several processes share; without one there is no IPC.
    pub folder: Option<String>,
    /// The check is broken: the comparing kernel finds everything right.
    pub blind: bool,
    /// File to which an IOMMU's line about each faulty pair is added, in records of `/dev/kmsg`.
    pub kmsg: Option<String>,
    /// Memory of each GPU that somebody else has.
    pub taken: u64,
    /// NCCL goes through shared memory whatever it is told.
    pub nccl_shm: bool,
    /// One bit of each queued copy between host and GPU is wrong.
    pub host_bits: bool,
    /// File into which each process that loads the library writes who it is.
    pub witness: Option<String>,
}

/// A fault of the path between GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What goes wrong.
    pub kind: Kind,
    /// Only for this requester.
    pub from: Option<usize>,
    /// Only for this target.
    pub to: Option<usize>,
    /// Only for this engine.
    pub engine: Option<Engine>,
    /// Only while this kernel runs, or `nccl`.
    pub kernel: Option<&'static str>,
    /// Only from this place of the target's memory on.
    pub above: u64,
}

/// What moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A copy engine.
    Copy,
    /// A kernel's loads and stores.
    Sm,
}

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Writes vanish.
    Drop,
    /// Reads give zeros.
    Zeros,
    /// Reads give all ones.
    Ones,
    /// The requester has a private copy of each page that it wrote.
    Mirror,
    /// Addresses beyond the window wrap around.
    Alias(u64),
    /// One bit in every so many units is wrong.
    Rare(u64),
    /// As `Rare`, but only while other transfers run.
    Loaded(u64),
    /// Some stores come after the flag that was written after them.
    Reorder(u64),
    /// Requests go to a third GPU.
    Misroute,
    /// Reads give what the page held when it was first read.
    Stale,
    /// Transfers never end.
    Hang,
    /// Access is promised and then refused with this code.
    Refuse(i32),
    /// Transfers end with this error, and the context is lost.
    Break(i32),
    /// Data is right, but the clock says that it came impossibly fast.
    Absurd,
}

impl Script {
    /// Reads a script; words that mean nothing are an error, so that no test runs without its
    /// fault by a misspelling.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut script = Self::default();
        let mut fault =
            Fault { kind: Kind::Drop, from: None, to: None, engine: None, kernel: None, above: 0 };
        let mut faulty = false;
        for word in text.split_whitespace() {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let number = || value.parse::<usize>().map_err(|error| format!("{word}: {error}"));
            match name {
                "gpus" => script.gpus = number()?,
                "memory" => script.memory = size(value)?,
                "addresses" => script.addresses = value.split(',').map(str::to_owned).collect(),
                "mig" => script.mig = Some(number()?),
                "compute-mode" => {
                    script.compute_mode =
                        value.parse().map_err(|error| format!("{word}: {error}"))?;
                }
                "folder" => script.folder = Some(value.to_owned()),
                "blind" => script.blind = true,
                "kmsg" => script.kmsg = Some(value.to_owned()),
                "witness" => script.witness = Some(value.to_owned()),
                "hang" => script.hang = Some(value.to_owned()),
                "error" => script.errors.push(error(value)?),
                "seed" => {
                    let seed = value.parse().map_err(|error| format!("{word}: {error}"))?;
                    let seeded = Self::from_seed(seed);
                    script.gpus = seeded.gpus;
                    script.fault = seeded.fault;
                }
                "fault" => {
                    fault.kind = kind(value)?;
                    faulty = true;
                }
                "from" => fault.from = Some(number()?),
                "to" => fault.to = Some(number()?),
                "engine" => fault.engine = Some(engine(value)?),
                "kernel" => fault.kernel = Some(kernel(value)?),
                "above" => fault.above = size(value)?,
                "taken" => script.taken = size(value)?,
                "nccl-shm" => script.nccl_shm = true,
                "host-bits" => script.host_bits = true,
                _ => return Err(format!("{word} means nothing")),
            }
        }
        if faulty {
            script.fault = Some(fault);
        }
        Ok(script)
    }

    /// The script that a seed stands for: a third of all seeds are honest.
    pub fn from_seed(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let gpus = if dice.roll(3) == 0 { 3 } else { 2 };
        let mut script = Self { gpus, ..Self::default() };
        if dice.roll(3) == 0 {
            return script;
        }
        let kind = match dice.roll(13) {
            0 => Kind::Drop,
            1 => Kind::Zeros,
            2 => Kind::Ones,
            3 => Kind::Mirror,
            4 => Kind::Alias(2 << 20),
            5 => Kind::Alias(512 << 20),
            6 => Kind::Rare(1 + dice.roll(1 << 16)),
            7 => Kind::Loaded(1 + dice.roll(1 << 12)),
            8 => Kind::Reorder(1 + dice.roll(300)),
            9 if gpus > 2 => Kind::Misroute,
            10 => Kind::Refuse(dice.one_of(&[205, 217, 801])),
            11 => Kind::Break(dice.one_of(&[700, 719])),
            12 => Kind::Absurd,
            _ => Kind::Stale,
        };
        let engine = match dice.roll(4) {
            0 => Some(Engine::Copy),
            1 => Some(Engine::Sm),
            _ => None,
        };
        // Order is a matter of stores by kernels alone.
        let engine = if matches!(kind, Kind::Reorder(_)) { Some(Engine::Sm) } else { engine };
        let (from, to) = if dice.roll(3) == 0 {
            (None, None)
        } else {
            let from = dice.pick(gpus);
            (Some(from), Some((from + 1 + dice.pick(gpus - 1)) % gpus))
        };
        script.fault = Some(Fault { kind, from, to, engine, kernel: None, above: 0 });
        script
    }

    /// PCI address of a GPU.
    pub fn address(&self, gpu: usize) -> String {
        match self.addresses.get(gpu) {
            Some(address) => address.clone(),
            None => format!("0000:{:02x}:00.0", 0x21 + gpu * 0x20),
        }
    }
}

impl Default for Script {
    fn default() -> Self {
        Self {
            gpus: 2,
            memory: 1 << 30,
            addresses: Vec::new(),
            fault: None,
            errors: Vec::new(),
            hang: None,
            mig: None,
            compute_mode: 0,
            folder: None,
            blind: false,
            kmsg: None,
            taken: 0,
            nccl_shm: false,
            host_bits: false,
            witness: None,
        }
    }
}

impl Fault {
    /// Whether requests of `engine` from one GPU to another are hit.
    pub fn hits(&self, from: usize, to: usize, engine: Engine) -> bool {
        self.from.is_none_or(|only| only == from)
            && self.to.is_none_or(|only| only == to)
            && self.engine.is_none_or(|only| only == engine)
    }
}

/// A generator of its own (xorshift over a Weyl sequence), so that seeds mean the same for ever.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x2545_f491_4f6c_dd1d);
        let mut word = self.0 ^ self.0 >> 33;
        for shift in [29, 32] {
            word = word.wrapping_mul(0xd6e8_feb8_6659_fd93);
            word ^= word >> shift;
        }
        word % sides.max(1)
    }

    fn one_of(&mut self, codes: &[i32]) -> i32 {
        let at = self.pick(codes.len());
        codes.get(at).copied().unwrap_or(1)
    }

    fn pick(&mut self, sides: usize) -> usize {
        let sides = u64::try_from(sides).unwrap_or(1);
        usize::try_from(self.roll(sides)).unwrap_or(0)
    }
}

fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1 << 10),
        Some(b'm') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    digits.parse::<u64>().map(|number| number * unit).map_err(|error| format!("{text}: {error}"))
}

/// `CALL:CODE` or `CALL:CODE:TIMES`.
fn error(text: &str) -> Result<(String, i32, u64), String> {
    let mut parts = text.split(':');
    let mut part = || parts.next().unwrap_or("0");
    let call = part().to_owned();
    let code = part().parse().map_err(|error| format!("{text}: {error}"))?;
    let after = part().parse().map_err(|error| format!("{text}: {error}"))?;
    Ok((call, code, after))
}

fn engine(text: &str) -> Result<Engine, String> {
    match text {
        "copy" => Ok(Engine::Copy),
        "sm" => Ok(Engine::Sm),
        _ => Err(format!("engine={text} means nothing")),
    }
}

fn kernel(text: &str) -> Result<&'static str, String> {
    let names = crate::kernels::KERNELS.iter().map(|kernel| kernel.name).chain([crate::nccl::NAME]);
    let mut names = names.filter(|name| *name == text);
    names.next().ok_or_else(|| format!("kernel={text} means nothing"))
}

fn kind(text: &str) -> Result<Kind, String> {
    let (name, value) = text.split_once(':').unwrap_or((text, ""));
    let number = || size(value);
    let code = || value.parse::<i32>().map_err(|error| format!("{text}: {error}"));
    Ok(match name {
        "drop" => Kind::Drop,
        "zeros" => Kind::Zeros,
        "ones" => Kind::Ones,
        "mirror" => Kind::Mirror,
        "alias" => Kind::Alias(number()?),
        "rare" => Kind::Rare(number()?),
        "loaded" => Kind::Loaded(number()?),
        "reorder" => Kind::Reorder(number()?),
        "misroute" => Kind::Misroute,
        "stale" => Kind::Stale,
        "hang" => Kind::Hang,
        "refuse" => Kind::Refuse(code()?),
        "break" => Kind::Break(code()?),
        "absurd" => Kind::Absurd,
        _ => return Err(format!("fault={text} means nothing")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read() {
        let script =
            Script::parse("gpus=4 memory=2g fault=alias:512m to=1 engine=sm error=cuInit:803")
                .unwrap();
        assert_eq!((script.gpus, script.memory), (4, 2 << 30));
        assert_eq!(script.errors, [("cuInit".to_owned(), 803, 0)]);
        let fault = script.fault.unwrap();
        assert_eq!(fault.kind, Kind::Alias(512 << 20));
        assert!(fault.hits(0, 1, Engine::Sm) && fault.hits(3, 1, Engine::Sm));
        assert!(!fault.hits(0, 1, Engine::Copy) && !fault.hits(1, 0, Engine::Sm));
        assert_eq!(Script::parse("fault=dorp"), Err("fault=dorp means nothing".to_owned()));
    }

    #[test]
    fn seeds_cover_every_kind() {
        let scripts: Vec<Script> = (0..400).map(Script::from_seed).collect();
        let honest = scripts.iter().filter(|script| script.fault.is_none()).count();
        assert!((80..200).contains(&honest), "{honest}");
        let named = |kind: fn(&Kind) -> bool| {
            scripts.iter().filter_map(|script| script.fault).any(|fault| kind(&fault.kind))
        };
        assert!(named(|kind| matches!(kind, Kind::Misroute)));
        assert!(named(|kind| matches!(kind, Kind::Alias(window) if *window > 2 << 20)));
        assert!(named(|kind| matches!(kind, Kind::Loaded(_))));
        assert!(named(|kind| matches!(kind, Kind::Absurd)));
    }
}
