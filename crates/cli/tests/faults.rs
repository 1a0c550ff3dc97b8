//! `faults` and `diagnose --import` as their users see them: documents by their schemas, files in
//! every packing, input that is no log at all.
#![expect(clippy::disallowed_methods, reason = "the binary is started as a user would start it")]
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn peerway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peerway")).args(arguments).output().unwrap()
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let output = peerway(arguments);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[track_caller]
fn valid(name: &str, document: &Value) {
    let schema = json(&["schema", name]);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(document).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(!validator.is_valid(&serde_json::json!({})));
}

/// A place with files.
struct Files {
    place: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { place: tempfile::tempdir().unwrap() }
    }

    fn put(&self, name: &str, content: &[u8]) -> String {
        let path: PathBuf = self.place.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn fault(device: &str, address: &str) -> String {
    format!(
        "[   10.000001] nvidia {device}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0018 \
         address={address} flags=0x0020]\n"
    )
}

fn log() -> String {
    format!(
        "[    9.000000] usb 1-2: new high-speed USB device number 5\n{}{}[   11.000000] \
         amd_iommu_report_page_fault: 2500 callbacks suppressed\n",
        fault("0000:11:00.0", "0x1c000000000"),
        fault("0000:21:00.0", "0x18000001000")
    )
}

#[test]
fn the_reference_host_by_the_contract() {
    let document = json(&["faults", "--host", "sim:kpro6", "--format", "json"]);
    valid("faults", &document);
    assert_eq!(document["schema"], "peerway/faults/1");
    assert_eq!((&document["events"], &document["suppressed"]), (&240.into(), &40_000.into()));
    let rows = document["requesters"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(row["count"], 60);
        assert_eq!(row["iommu"], "amd-vi");
        assert_eq!(row["kind"], "io_page_fault");
        assert_eq!(row["class"], "iommu_fault_gpu_p2p");
        assert_eq!(row["confidence"], "certain");
        assert_eq!(row["tenant"], "lxc:129");
        assert_eq!(row["addresses_truncated"], false);
        // AMD gives the direction no meaning where nothing was mapped.
        assert_eq!((&row["access"], &row["access_certain"]), (&"read+write".into(), &false.into()));
        let targets = row["targets"].as_array().unwrap();
        let inside: u64 = targets.iter().map(|target| target["count"].as_u64().unwrap()).sum();
        assert_eq!((targets.len(), inside), (3, 60));
        assert!(targets.iter().all(|target| target["bar"] == 2));
    }
    let lines = peerway(&["faults", "--host", "sim:kpro6", "--format", "jsonl"]).stdout;
    let lines: Vec<Value> = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 240);
    assert_eq!(lines[0]["time"], "9200.040000");
    assert_eq!(lines[0]["flags"], "0x0020");
    assert_eq!(lines[0]["target"]["device"], "0000:11:00.0");
}

#[test]
fn faults_make_the_diagnosis_certain() {
    let document = json(&["diagnose", "--host", "sim:kpro6", "--format", "json"]);
    valid("diagnose", &document);
    assert_eq!(document["assessment"], "iommu_fault_gpu_p2p");
    let pairs = document["pairs"].as_array().unwrap();
    let broken: Vec<&Value> = pairs.iter().filter(|pair| pair["verdict"] == "broken").collect();
    assert_eq!(broken.len(), 12);
    for pair in broken {
        assert_eq!(pair["confidence"], "certain");
        assert!(pair["codes"].as_array().unwrap().contains(&"PW0601".into()));
    }
    let status = String::from_utf8(peerway(&["status", "--host", "sim:kpro6"]).stdout).unwrap();
    assert!(status.contains("40,000 more"), "{status}");
    assert!(!status.contains("faults in the kernel log"), "{status}");
}

#[test]
fn screens_fit_eighty_columns() {
    let files = Files::new();
    let file = files.put("log", log().as_bytes());
    for arguments in [
        &["faults", "--host", "sim:kpro6"][..],
        &["faults", &file],
        &["diagnose", "--import", &file],
    ] {
        let text = String::from_utf8(peerway(arguments).stdout).unwrap();
        assert!(text.lines().count() > 4, "{text}");
        for line in text.lines() {
            let longest = line.split_whitespace().map(str::len).max();
            assert!(line.chars().count() <= 80 || longest > Some(60), "{line}");
        }
        assert!(!text.contains('\u{1b}'), "colour where there is no terminal");
    }
}

#[test]
fn marks_and_parts_of_a_log() {
    let mark = String::from_utf8(peerway(&["faults", "--host", "sim:kpro6", "--mark"]).stdout);
    let mark = mark.unwrap().trim().to_owned();
    let since = |since: &str| {
        json(&["faults", "--host", "sim:kpro6", "--since", since, "--format", "json"])["events"]
            .clone()
    };
    assert_eq!(since(&mark), 0);
    // A mark of another boot: all of this one came after it.
    let other = format!("{}{}", "0".repeat(8), &mark[8..]);
    assert_eq!(since(&other), 240);
    assert_eq!(since("9225"), 60);
    let boot = json(&["faults", "--host", "sim:kpro6", "--boot", "7", "--format", "json"]);
    assert_eq!(boot["events"], 0);
    let code = |arguments: &[&str]| peerway(arguments).status.code();
    assert_eq!(code(&["faults", "--host", "sim:kpro6", "--since", "never"]), Some(2));
    assert_eq!(code(&["faults", "--host", "sim:kpro6", "--follow"]), Some(2));
    assert_eq!(code(&["faults", "--host", "sim:kpro6"]), Some(1));
    assert_eq!(code(&["faults", "--host", "sim:kpro6", "--fail-on", "never"]), Some(0));
}

#[track_caller]
fn events(file: &str, expected: u64) {
    let document = json(&["faults", file, "--format", "json"]);
    valid("faults", &document);
    assert_eq!(document["events"], expected, "{file}");
}

fn packed(program: &str, content: &[u8]) -> Option<Vec<u8>> {
    let mut child = Command::new(program)
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let content = content.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&content));
    let output = child.wait_with_output().ok()?;
    writer.join().ok()?.ok()?;
    Some(output.stdout)
}

#[test]
fn files_in_every_packing() {
    let files = Files::new();
    let log = log();
    events(&files.put("plain", log.as_bytes()), 2);
    for program in ["gzip", "xz", "zstd"] {
        // Where the program is not installed, the reader's own tests hold its format.
        if let Some(packed) = packed(program, log.as_bytes()) {
            events(&files.put(program, &packed), 2);
            // Two of them one after the other, as rotated logs are joined.
            events(&files.put("twice", &[&packed[..], &packed[..]].concat()), 4);
        }
    }
    // A name says nothing.
    events(&files.put("kern.log.gz", log.as_bytes()), 2);
    let both = [files.put("one", log.as_bytes()), files.put("two", log.as_bytes())];
    let document = json(&["faults", &both[0], &both[1], "--format", "json"]);
    assert_eq!((&document["events"], &document["suppressed"]), (&4.into(), &5_000.into()));
}

#[test]
fn a_cut_file_counts_as_far_as_it_goes() {
    let files = Files::new();
    let Some(packed) = packed("gzip", log().repeat(2_000).as_bytes()) else { return };
    let file = files.put("cut.gz", &packed[..packed.len() / 2]);
    let output = peerway(&["faults", &file, "--format", "json", "--fail-on", "never"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["events"].as_u64().unwrap() > 100);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("read in part: the gzip stream is damaged"), "{said}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn what_is_no_log_is_no_crash() {
    let files = Files::new();
    let mut junk = Vec::new();
    let mut state = 0x9e37_79b9_u32;
    for _ in 0..400_000 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        junk.extend(state.to_le_bytes());
    }
    events(&files.put("junk", &junk), 0);
    events(&files.put("empty", b""), 0);
    events(&files.put("zeros", &vec![0; 1 << 20]), 0);
    let between = [b"\0\0".as_slice(), fault("0000:11:00.0", "0x1000").as_bytes(), b"\0"].concat();
    events(&files.put("nul", &between), 1);
    // A line of a hundred megabytes, with a message at its end.
    let mut long = vec![b'x'; 100 << 20];
    long.extend(fault("0000:11:00.0", "0x1000").as_bytes());
    events(&files.put("long", &long), 1);
    let code = |arguments: &[&str]| peerway(arguments).status.code();
    assert_eq!(code(&["faults", files.place.path().to_str().unwrap()]), Some(2));
    assert_eq!(code(&["faults", "/dev/zero"]), Some(2));
    assert_eq!(code(&["faults", "/no/such/file"]), Some(2));
}

#[test]
fn standard_input_is_a_log_too() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_peerway"))
        .args(["faults", "-", "--format", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(log().as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["events"], 2);
    // Two GPUs with addresses that look like regions: probable, for the regions are not known.
    assert_eq!(document["requesters"][0]["class"], "iommu_fault_gpu_p2p");
    assert_eq!(document["requesters"][0]["confidence"], "probable");
    assert_eq!(document["requesters"][0]["tenant"], Value::Null);
}

#[test]
fn no_log_is_no_quiet_log() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("proc")).unwrap();
    let output = peerway(&["faults", "--host", place.path().to_str().unwrap(), "--format", "json"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("no quiet log"));
}

/// The same file held against a host whose devices are known.
#[test]
fn a_file_of_a_recorded_host() {
    let files = Files::new();
    let file = files.put("log", fault("0000:01:00.0", "0x34000001000").as_bytes());
    let document = json(&["faults", &file, "--host", "sim:kpro6", "--format", "json"]);
    let row = &document["requesters"][0];
    assert_eq!(row["targets"][0]["device"], "0000:11:00.0");
    assert_eq!(row["targets"][0]["offset_first"], 0x1000);
    assert_eq!(row["tenant"], "lxc:129");
}

#[test]
fn imported_files_by_the_contract() {
    let files = Files::new();
    let log = files.put("log", log().as_bytes());
    let test = files.put("test", b"> Peer access from A (GPU0) -> A (GPU1) : Yes\nTest failed!\n");
    let document = json(&["diagnose", "--import", &log, &test, "--format", "json"]);
    valid("diagnose", &document);
    valid("import", &document);
    assert_eq!(document["assessment"], "iommu_fault_gpu_p2p");
    assert_eq!(document["gpu_p2p_related"], true);
    assert_eq!(document["events"], 2);
    let kinds: Vec<&Value> =
        document["sources"].as_array().unwrap().iter().map(|source| &source["kind"]).collect();
    assert_eq!(kinds, ["kernel_log", "peer_test"]);
    let prose = files.put("prose", b"my GPUs are slow, please help\n");
    let output = peerway(&["diagnose", "--import", &prose]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("not understood") && text.contains("peerway capture"), "{text}");
}

/// Beside the repository, not inside it.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/cases");

#[test]
fn collected_cases_as_their_finder_would_ask() {
    let folders = std::fs::read_dir(CASES).into_iter().flatten().flatten();
    let mut wrong = Vec::new();
    for folder in folders.map(|entry| entry.path()) {
        let Ok(expected) = std::fs::read(folder.join("expected.json")) else { continue };
        wrong.extend(case(&folder, &serde_json::from_slice(&expected).unwrap()));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn case(folder: &Path, expected: &Value) -> Vec<String> {
    let files: Vec<String> = expected["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| folder.join(name.as_str().unwrap()).to_str().unwrap().to_owned())
        .collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let import = json(&[&["diagnose", "--format", "json", "--import"], &files[..]].concat());
    let faults = json(&[&["faults", "--format", "json"], &files[..]].concat());
    let id = expected["id"].as_str().unwrap();
    let mut wrong = Vec::new();
    let mut same = |what: &str, seen: &Value, wanted: &Value| {
        if seen != wanted {
            wrong.push(format!("{id}: {what} {seen}, expected {wanted}"));
        }
    };
    same("assessment", &import["assessment"], &expected["kind"]);
    same("gpu_p2p_related", &import["gpu_p2p_related"], &expected["gpu_p2p_related"]);
    same("events", &faults["events"], &expected["fault_count"]);
    same("suppressed", &faults["suppressed"], &expected["suppressed_callbacks"]);
    let mut named = Vec::new();
    for (list, field) in [("requesters", "address"), ("driver_events", "device")] {
        for one in faults[list].as_array().unwrap() {
            named.extend(one[field].as_str().map(str::to_owned));
        }
    }
    for finding in import["findings"].as_array().unwrap() {
        let subjects = finding["subjects"].as_array().unwrap();
        named.extend(subjects.iter().filter_map(|one| one.as_str().map(str::to_owned)));
    }
    for device in expected["devices"].as_array().unwrap() {
        if !named.iter().any(|name| name == device.as_str().unwrap()) {
            wrong.push(format!("{id}: {device} is not named"));
        }
    }
    if expected["fault_count"] != 0 {
        let seen = addresses(&faults);
        for address in expected["addresses"].as_array().unwrap() {
            let digits = address.as_str().unwrap().trim_start_matches("0x");
            if !seen.contains(&u64::from_str_radix(digits, 16).unwrap()) {
                wrong.push(format!("{id}: address {address} is not found"));
            }
        }
    }
    wrong
}

/// Every address that a requester was refused, and those that drivers named.
fn addresses(faults: &Value) -> Vec<u64> {
    let lists = ["requesters", "driver_events"].map(|list| faults[list].as_array().unwrap());
    let all = lists.into_iter().flatten().filter_map(|one| one["addresses"].as_array()).flatten();
    all.map(|one| {
        let digits = one.as_str().unwrap().trim_start_matches("0x");
        u64::from_str_radix(digits, 16).unwrap()
    })
    .collect()
}
