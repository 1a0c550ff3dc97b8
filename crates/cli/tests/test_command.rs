//! `peerway test` against a stand-in for the driver's library.
#![expect(clippy::disallowed_methods, reason = "the binary is started as a user would start it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use peerway_gpu_fake::{Script, VARIABLE};
use serde_json::Value;

/// The shared library, which cargo builds beside this test since the test depends on its crate.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libpeerway_gpu_fake.so")
}

/// Runs `peerway test` on the stand-in with a script.
fn test(script: &str, arguments: &[&str]) -> Output {
    Script::parse(script).unwrap();
    // Removed at the end; the processes of one measurement share memory through it.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerway"));
    // Whoever runs the tests need not be allowed to see whether GPUs of this machine are in use.
    command.args(["test", "--small", "--allow-in-use"]);
    if !arguments.contains(&"--state") {
        command.arg("--state").arg(folder.path());
    }
    if !arguments.contains(&"--cuda") {
        command.arg("--cuda").arg(library());
    }
    command
        .arg("--nccl")
        .arg(library())
        .args(arguments)
        .env(VARIABLE, format!("{script} folder={}", folder.path().display()))
        .env_remove("CUDA_VISIBLE_DEVICES")
        // Somebody's setting for a server, which is not what is measured.
        .env("NCCL_ALGO", "Tree")
        .output()
        .unwrap()
}

/// The document of a run that ends with `code`, held against the schema that the program publishes.
#[track_caller]
fn check(script: &str, arguments: &[&str], code: i32) -> Value {
    let output = test(script, &[arguments, &["--depth", "quick", "--format", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{said}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert_eq!(said, "", "nobody watches: no progress");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema = Command::new(env!("CARGO_BIN_EXE_peerway")).args(["schema", "test"]).output();
    let schema: Value = serde_json::from_slice(&schema.unwrap().stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(!validator.is_valid(&serde_json::json!({})), "the schema takes anything");
    let word = |name: &str| document.get(name).and_then(Value::as_str);
    assert_eq!((word("schema"), word("host")), (Some("peerway/test/1"), Some("live")));
    document
}

fn rows(document: &Value) -> &[Value] {
    document["pairs"].as_array().unwrap()
}

#[test]
fn honest_gpus_pass() {
    let document = check("gpus=2", &[], 0);
    assert!(rows(&document).len() == 4, "{document:#}");
    for row in rows(&document) {
        assert_eq!(row["verdict"], "intact", "{row:#}");
        assert_eq!(row["damage"], Value::Null);
        assert!(row["bandwidth_bytes_per_second"].as_f64().unwrap() > 0.0);
        assert!(row["latency_seconds"].as_f64().unwrap() > 0.0);
    }
    let reduced = document["all_reduce"].as_array().unwrap();
    assert!(reduced.iter().any(|row| row["arm"] == "p2p" && row["verdict"] == "intact"));
}

#[test]
fn a_context_that_dies_in_mid_transfer_is_not_right() {
    let script = "gpus=2 memory=256m error=cuLaunchKernel:719:500";
    check(script, &[], 8);
    check("gpus=2 error=cuEventElapsedTime:719:15", &[], 8);
}

/// What is kept of a measurement.
fn kept(script: &str, code: i32) -> Value {
    let place = host();
    let state = place.path().join("var/lib/peerway");
    let (records, folder) = (place.path().display().to_string(), state.display().to_string());
    check(script, &["--records", &records, "--state", &folder], code);
    serde_json::from_slice(&std::fs::read(state.join("test/last.json")).unwrap()).unwrap()
}

#[test]
fn what_is_kept_says_how_much_was_tested_and_what_broke() {
    let last = kept("gpus=2", 0);
    assert_eq!(last["depth"], "quick");
    assert!(last["pairs"].as_array().unwrap().iter().all(|pair| pair["sampled_bytes"] == 0));
    let last = kept("gpus=2 fault=break:719 from=0 to=1", 8);
    let outcome = |from: &str| {
        let pairs = last["pairs"].as_array().unwrap();
        pairs.iter().find(|pair| pair["from"] == from).unwrap()["outcome"].clone()
    };
    let outcomes = (outcome("0000:21:00.0"), outcome("0000:41:00.0"));
    assert_eq!(outcomes, ("broken".into(), "intact".into()));
    let last = kept("gpus=2 fault=zeros kernel=nccl", 7);
    assert!(last["pairs"].as_array().unwrap().iter().all(|pair| pair["outcome"] == "damaged"));
}

#[test]
fn nccl_obeys_nobody_elses_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("environment");
    check(&format!("gpus=2 witness={}", path.display()), &[], 0);
    let environment = std::fs::read_to_string(&path).unwrap();
    assert!(environment.contains("NCCL_CONF_FILE=/dev/null\n"), "{environment}");
    assert!(!environment.contains("NCCL_ALGO"), "{environment}");
}

#[test]
fn what_killed_measurements_left_is_swept() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().display().to_string();
    let test = folder.path().join("test");
    std::fs::create_dir(&test).unwrap();
    // Numbers of processes stay below this.
    let (left, other) = (test.join("last.json.4194304"), test.join("last.json.mine"));
    std::fs::write(&left, "").unwrap();
    std::fs::write(&other, "").unwrap();
    check("gpus=2", &["--state", &state], 0);
    assert!(!left.exists() && other.exists() && test.join("last.json").exists());
}

#[test]
fn wrong_data_is_named() {
    let document = check("gpus=2 fault=drop from=0 to=1", &["21:00.0", "41:00.0"], 7);
    let damaged: Vec<&Value> =
        rows(&document).iter().filter(|row| row["verdict"] == "damaged").collect();
    assert!(!damaged.is_empty());
    for row in damaged {
        assert_eq!((&row["from"], &row["to"]), (&"0000:21:00.0".into(), &"0000:41:00.0".into()));
        assert_eq!(row["damage"], "dropped");
        assert_eq!(row["bandwidth_bytes_per_second"], Value::Null, "no speed of wrong data");
    }
}

#[test]
fn a_hang_ends() {
    let document = check("gpus=2 fault=hang from=0 to=1", &["--child-limit", "7"], 8);
    assert!(rows(&document).iter().any(|row| row["verdict"] == "hung"), "{document:#}");
    assert!(!rows(&document).iter().any(|row| row["verdict"] == "damaged"), "{document:#}");
}

#[test]
fn without_a_library_nothing_is_decided() {
    let document = check("gpus=2", &["--cuda", "/nowhere/libcuda.so.1"], 3);
    assert_eq!(document["preconditions"][0]["kind"], "no_library");
    assert_eq!(rows(&document).len(), 0);
}

#[test]
fn one_gpu_is_no_pair() {
    let document = check("gpus=1", &["--loopback"], 3);
    assert_eq!(document["preconditions"][0]["kind"], "too_few_gpus");
    assert!(document["loopback"].as_array().unwrap().iter().all(|row| row["verdict"] == "intact"));
}

#[test]
fn a_driver_that_hangs_is_a_hang() {
    let document = check("gpus=2 hang=cuInit", &["--child-limit", "7"], 8);
    assert_eq!(document["preconditions"][0]["kind"], "driver_hung");
    assert!(rows(&document).is_empty());
}

#[test]
fn bad_preconditions_leave_it_undecided() {
    for (script, kind) in [
        ("gpus=2 error=cuInit:803", "no_driver"),
        ("gpus=2 error=cuInit:100", "no_device"),
        ("gpus=2 compute-mode=2", "compute_prohibited"),
        ("gpus=2 error=cuDevicePrimaryCtxRetain:46", "exclusive_busy"),
        ("gpus=2 memory=64k", "no_memory"),
        ("gpus=3 mig=1", "mig"),
    ] {
        let document = check(script, &[], 3);
        assert_eq!(document["preconditions"][0]["kind"], kind, "{script}");
    }
}

#[test]
fn the_probe_protocol_is_spoken() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let ask = |script: &str| -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_peerway"))
            .args([
                "probe",
                "--allow-in-use",
                "--from",
                "0000:21:00.0",
                "--to",
                "0000:41:00.0",
                "--bytes",
                "65536",
            ])
            .arg("--cuda")
            .arg(library())
            .env(VARIABLE, format!("{script} folder={}", folder.path().display()))
            .env_remove("CUDA_VISIBLE_DEVICES")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        serde_json::from_str(&text).unwrap()
    };
    for (script, verdict, damage) in [
        ("gpus=2", "intact", Value::Null),
        ("gpus=2 fault=zeros", "damaged", "zeros".into()),
        ("gpus=1", "not_run", Value::Null),
    ] {
        let answer = ask(script);
        assert_eq!((&answer["protocol"], &answer["verdict"]), (&1.into(), &verdict.into()));
        assert_eq!(answer["damage"], damage, "{answer}");
        assert!(answer["detail"].is_string(), "{answer}");
    }
}

/// Files of a host with the stand-in's first two GPUs.
fn host() -> tempfile::TempDir {
    use std::fs::{create_dir_all, write};
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| place.path().join(path);
    for folder in
        ["dev", "proc/sys/kernel/random", "sys/bus/pci/devices", "sys/bus/pci/drivers/nvidia"]
    {
        create_dir_all(at(folder)).unwrap();
    }
    write(at("dev/kmsg"), "5,0,0,-;Linux version 6.12.0\n").unwrap();
    write(at("proc/sys/kernel/random/boot_id"), "b007-1\n").unwrap();
    for (number, bus) in [(1_u64, "21"), (2, "41")] {
        let real = format!("sys/devices/pci0000:{bus}/0000:{bus}:00.0");
        create_dir_all(at(&real)).unwrap();
        let file = |name: &str, text: &str| write(at(&format!("{real}/{name}")), text).unwrap();
        file("vendor", "0x10de\n");
        file("device", "0x2bb5\n");
        file("class", "0x030200\n");
        let (start, end) = (number << 40, (number << 40) + (1 << 35) - 1);
        let empty = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n";
        file("resource", &format!("{empty}{start:#018x} {end:#018x} 0x000000000014220c\n"));
        file("current_link_width", "16\n");
        file("max_link_width", "16\n");
        file("current_link_speed", "2.5 GT/s PCIe\n");
        file("max_link_speed", "32.0 GT/s PCIe\n");
        symlink("../../../bus/pci/drivers/nvidia", at(&format!("{real}/driver"))).unwrap();
        let link = at(&format!("sys/bus/pci/devices/0000:{bus}:00.0"));
        symlink(format!("../../../devices/pci0000:{bus}/0000:{bus}:00.0"), link).unwrap();
    }
    place
}

/// What a reading command says about such a host.
fn read(place: &Path, command: &str) -> Value {
    let mut reading = Command::new(env!("CARGO_BIN_EXE_peerway"));
    reading.args(command.split(' ')).args(["--format", "json", "--host"]);
    let output = reading.arg(place).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_kernel_log_is_joined_to_the_pair() {
    let place = host();
    let kmsg = place.path().join("dev/kmsg").display().to_string();
    let records = place.path().display().to_string();
    let script = format!("gpus=2 fault=zeros from=0 to=1 kmsg={kmsg}");
    let document = check(&script, &["--records", &records], 7);
    let mut refused = 0;
    for row in rows(&document) {
        let faults = row["evidence"]["faults"].as_array().unwrap();
        let hit = row["from"] == "0000:21:00.0";
        assert_eq!(!faults.is_empty(), hit, "{row:#}");
        for fault in faults {
            refused += 1;
            assert_eq!(fault["requester"], "0000:21:00.0");
            assert_eq!(fault["target"], "0000:41:00.0", "{fault:#}");
            assert_eq!(fault["kind"], "io_page_fault");
        }
    }
    assert!(refused > 0);
}

#[test]
fn the_last_result_is_shown_until_the_driver_is_bound_anew() {
    let place = host();
    let records = place.path().display().to_string();
    let state = place.path().join("var/lib/peerway").display().to_string();
    check("gpus=2", &["--records", &records, "--state", &state], 0);
    let bases = |document: &Value| -> Vec<String> {
        let pairs = document["pairs"].as_array().unwrap();
        assert_eq!(pairs.len(), 2, "{document:#}");
        pairs.iter().map(|pair| format!("{} {}", pair["basis"], pair["verdict"])).collect()
    };
    let measured = ["\"measured\" \"works\"", "\"measured\" \"works\""];
    assert_eq!(bases(&read(place.path(), "diagnose")), measured);
    let status = read(place.path(), "status");
    assert_eq!(bases(&status), measured);
    let path = read(place.path(), "path 21:00.0 41:00.0");
    let path: Vec<Value> =
        path["directions"].as_array().unwrap().iter().map(|one| one["pair"].clone()).collect();
    assert_eq!(bases(&serde_json::json!({ "pairs": path })), measured);
    assert_eq!(status["last_test"]["holds"], true, "{status:#}");
    assert!(status["last_test"]["age_seconds"].as_i64().unwrap() < 600);
    assert!(!status["last_test"]["all_reduce"].as_array().unwrap().is_empty());
    // A bind makes the link anew.
    let driver = place.path().join("sys/bus/pci/devices/0000:41:00.0/driver");
    let target = std::fs::read_link(&driver).unwrap();
    let other = driver.with_file_name("other");
    std::os::unix::fs::symlink(&target, &other).unwrap();
    std::fs::rename(&other, &driver).unwrap();
    let status = read(place.path(), "status");
    assert_eq!(status["last_test"]["holds"], false);
    assert!(bases(&status).iter().all(|basis| basis.starts_with("\"predicted\"")));
    // A boot ends everything.
    std::fs::write(place.path().join("proc/sys/kernel/random/boot_id"), "b007-2\n").unwrap();
    let why = read(place.path(), "status")["last_test"]["old_because"].clone();
    assert!(why.as_str().unwrap().contains("rebooted"), "{why}");
}

#[test]
fn an_earlier_answer_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("before.json");
    let before = check("gpus=2", &[], 0);
    std::fs::write(&file, before.to_string()).unwrap();
    let file = file.display().to_string();
    let same = check("gpus=2", &["--baseline", &file], 0);
    assert!(same["comparison"]["compared"].as_u64().unwrap() > 4, "{same:#}");
    let worse = check("gpus=2 fault=drop from=0 to=1", &["--baseline", &file], 7);
    let what = worse["comparison"]["worse"][0].clone();
    assert_eq!((&what["figure"], &what["now"]), (&"verdict".into(), &"damaged".into()));
    // Once it was twice as fast, and nothing went wrong now.
    let mut faster = before;
    faster["pairs"][0]["bandwidth_bytes_per_second"] = 1e15.into();
    std::fs::write(&file, faster.to_string()).unwrap();
    let output = test("gpus=2", &["--depth", "quick", "--baseline", &file]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("No data was wrong, and something is worse"), "{text}");
}

#[test]
fn people_get_a_page_that_fits() {
    let output = test("gpus=2 hang=cuInit", &["--child-limit", "7"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("THE DRIVER OR A GPU") && text.contains("not by peer access"),
        "{text}"
    );
    let output = test("gpus=2 fault=zeros from=1 to=0", &["--depth", "quick"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.starts_with("DATA WAS WRONG"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("1 > 0") && line.contains("zeros")), "{text}");
    assert!(text.contains("All-reduce") && text.contains("upload GB/s"), "{text}");
    // A word that is longer than a line stays whole.
    let wide = |line: &&str| line.chars().count() > 80 && line.trim().contains(' ');
    assert_eq!(text.lines().filter(wide).collect::<Vec<_>>(), Vec::<&str>::new());
}

/// Runs that are refused before anything is opened.
#[track_caller]
fn check_usage(arguments: &[&str], word: &str) {
    let output = test("gpus=2", arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(word), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn wrong_use_is_told() {
    check_usage(&["--host", "sim:kpro6"], "this host only");
    check_usage(&["21:00.0"], "<B>");
    check_usage(&["21:00.0", "21:00.0"], "--loopback");
    check_usage(&["21:00.0", "no-such-gpu"], "cannot find the GPU");
    check_usage(&["--all-pairs", "21:00.0", "41:00.0"], "cannot be used with");
    check_usage(&["--child-limit", "0"], "--child-limit");
    check_usage(&["--baseline", "/nowhere/before.json"], "cannot compare with");
    check_usage(&["--in", "101"], "lxc:ID or pid:N");
}
