//! What makes a road last: files that a person can read, and that systemd and a shell take.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests start the program and others, and write their input"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const USUAL: &str = "/usr/bin/peerway";

fn run(program: &str, arguments: &[&str]) -> Output {
    let started = Command::new(program).args(arguments).output();
    started.unwrap_or_else(|error| {
        panic!("{program}: {error}; it comes with cargo xtask test (Debian package systemd)")
    })
}

fn text(output: &Output) -> String {
    [output.stdout.as_slice(), output.stderr.as_slice()]
        .iter()
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .collect()
}

/// The files of a plan, by path, with the program where it is here.
fn files(host: &str, road: &str, place: &Path) -> BTreeMap<String, (u32, String)> {
    let file = place.join(format!("{road}.json"));
    let output = Command::new(env!("CARGO_BIN_EXE_peerway"))
        .args(["--host", host, "plan", road, "--last", "--probe", "/bin/true", "-o"])
        .arg(&file)
        .env("XDG_STATE_HOME", place)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let plan: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let steps = plan["steps"].as_array().unwrap();
    steps
        .iter()
        .map(|step| &step["act"])
        .filter(|act| act["act"] == "install")
        .map(|act| {
            let word = |name: &str| act[name].as_str().unwrap().to_owned();
            let mode = u32::try_from(act["mode"].as_u64().unwrap()).unwrap();
            let content = word("content").replace(USUAL, env!("CARGO_BIN_EXE_peerway"));
            (word("path"), (mode, content))
        })
        .collect()
}

/// The goal of the plan for the map.
const DEVICES: &str = "0000:01:00.0,0000:11:00.0,0000:61:00.0,0000:71:00.0";

const ROADS: [(&str, &str); 3] = [
    ("sim:kpro6-pve7", "live-without"),
    ("sim:kpro6-pve7", "peer-map"),
    ("sim:fsp", "identity-groups"),
];

/// A unit that systemd does not understand whole is one that does something else at boot.
#[test]
fn systemd_takes_every_unit() {
    let place = tempfile::tempdir().unwrap();
    let mut seen = 0;
    for (host, road) in ROADS {
        let units = place.path().join(road);
        std::fs::create_dir(&units).unwrap();
        let mut arguments = vec!["verify".to_owned(), "--man=no".to_owned()];
        for (path, (_, content)) in files(host, road, place.path()) {
            if let Some(name) = path.strip_prefix("/etc/systemd/system/") {
                let file = units.join(name.replace('/', "-"));
                std::fs::write(&file, content).unwrap();
                if name.ends_with(".service") {
                    arguments.push(file.display().to_string());
                    seen += 1;
                }
            }
        }
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = run("systemd-analyze", &words);
        // A warning is printed, and the status is fine all the same.
        let said: Vec<String> = text(&output)
            .lines()
            .filter(|line| line.contains("peerway-"))
            .map(str::to_owned)
            .collect();
        assert!(output.status.success() && said.is_empty(), "{road}: {}", text(&output));
    }
    assert_eq!(seen, 2 + 3 + 4, "units");
    // The same check sees what is wrong.
    let bad = place.path().join("peerway-bad.service");
    std::fs::write(&bad, "[Service]\nType=oneshot\nExecStart=/no/such/program\nColour=red\n")
        .unwrap();
    let output = run("systemd-analyze", &["verify", "--man=no", bad.to_str().unwrap()]);
    assert!(text(&output).contains("peerway-bad.service"), "{}", text(&output));
}

#[test]
fn a_shell_takes_the_hook_and_the_rules_are_whole() {
    let place = tempfile::tempdir().unwrap();
    let all = files("sim:kpro6-pve7", "peer-map", place.path());
    let (mode, hook) = &all["/etc/kernel/postinst.d/zz-peerway"];
    assert_eq!(*mode, 0o755);
    let file = place.path().join("hook");
    std::fs::write(&file, hook).unwrap();
    let file = file.to_str().unwrap();
    for arguments in [vec!["-n", file], vec![file]] {
        let output = run("sh", &arguments);
        assert!(output.status.success() && text(&output).is_empty(), "{}", text(&output));
    }
    let (_, rules) = &all["/etc/udev/rules.d/90-peerway.rules"];
    for device in ["0000:01:00.0", "0000:11:00.0", "0000:61:00.0", "0000:71:00.0"] {
        assert_eq!(rules.matches(device).count(), 2, "{rules}");
    }
    // Keys and operators that udev knows (man 7 udev), separated by commas.
    for line in rules.lines().filter(|line| !line.starts_with('#')) {
        for part in line.split(", ") {
            let known = ["ACTION==", "SUBSYSTEM==", "KERNEL==", "DRIVER==", "TAG+=", "RUN+="]
                .iter()
                .chain(&["ENV{SYSTEMD_WANTS}+="])
                .find_map(|known| part.strip_prefix(known));
            let quoted = known.and_then(|value| value.strip_prefix('"')?.strip_suffix('"'));
            assert!(quoted.is_some_and(|value| !value.contains('"')), "{part}");
        }
    }
}

/// `plan` leaves a file that is there alone, and a driver binds more than once: the unit of the map
/// removes the plan of the last time first.
#[test]
fn the_unit_of_the_map_plans_anew_each_time() {
    let place = tempfile::tempdir().unwrap();
    let all = files("sim:kpro6-pve7", "peer-map", place.path());
    let (_, unit) = &all["/etc/systemd/system/peerway-map.service"];
    let acts: Vec<&str> = unit.lines().filter_map(|line| line.strip_prefix("ExecStart=")).collect();
    let at = |text: &str| acts.iter().position(|act| act.contains(text)).unwrap();
    let file = acts[at(" plan peer-map ")].rsplit_once(" -o ").unwrap().1;
    assert!(acts[at(" apply ")].contains(file), "{acts:?}");
    assert!(at(&format!("/usr/bin/rm -f {file}")) < at(" plan peer-map "), "{acts:?}");
    // A driver that binds while the unit runs leaves a mark, which one that failed finds at its end.
    let marked = at("/usr/bin/rm -f /run/peerway-map.bound");
    assert!(marked < at(" plan peer-map "), "{acts:?}");
    let (_, rules) = &all["/etc/udev/rules.d/90-peerway.rules"];
    let binds = rules.lines().filter(|line| line.starts_with("ACTION==\"bind\""));
    let marks = |line: &str| line.contains("RUN+=\"/usr/bin/touch /run/peerway-map.bound\"");
    assert_eq!(binds.map(marks).collect::<Vec<_>>(), [true; 4]);
    let after = unit.lines().find_map(|line| line.strip_prefix("ExecStopPost=/bin/sh -c '"));
    let after = after.unwrap().strip_suffix('\'').unwrap().replace("$$", "$");
    for (result, bound, again) in
        [("success", true, false), ("exit-code", false, false), ("exit-code", true, true)]
    {
        let mark = place.path().join("bound");
        if bound {
            std::fs::write(&mark, "").unwrap();
        }
        let script = after
            .replace("/run/peerway-map.bound", mark.to_str().unwrap())
            .replace("exec systemctl", "echo");
        let words =
            ["SERVICE_RESULT=".to_owned() + result, "sh".to_owned(), "-c".to_owned(), script];
        let said = text(&run("env", &words.each_ref().map(String::as_str)));
        let expected =
            if again { "--no-block --job-mode=fail start peerway-map.service\n" } else { "" };
        assert_eq!(said, expected, "{result} {bound}");
        drop(std::fs::remove_file(&mark));
    }
}

/// apt's configuration has a grammar of its own, and what it makes of the line is what a shell gets.
#[test]
fn apt_takes_the_hook_and_gives_the_shell_the_version() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let file = place.path().join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file.display().to_string()
    };
    let program = script("program", "echo \"$#: $*\"");
    let all = files("sim:kpro6-pve7", "peer-map", place.path());
    let hook =
        all["/etc/apt/apt.conf.d/90peerway"].1.replace(env!("CARGO_BIN_EXE_peerway"), &program);
    let file = place.path().join("90peerway");
    std::fs::write(&file, hook).unwrap();
    let output = run("apt-config", &["-c", file.to_str().unwrap(), "dump"]);
    let said = text(&output);
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("--if-driver")).collect();
    let [line] = lines.as_slice() else { panic!("{said}") };
    let line =
        line.strip_prefix("DPkg::Post-Invoke:: \"").and_then(|line| line.strip_suffix("\";"));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    let path = format!("{}:/usr/bin:/bin", place.path().display());
    for (modinfo, expected) in [
        ("echo 580.95.05", format!("6: roads --device {DEVICES} --if-driver 580.95.05 --warn\n")),
        ("exit 1", String::new()),
    ] {
        script("modinfo", modinfo);
        let output = Command::new("sh").args(["-c", line]).env("PATH", &path).output().unwrap();
        assert_eq!((output.status.code(), text(&output)), (Some(0), expected), "{line}");
    }
}

/// A kernel that would close a road that is in force is said, and one that would not is not.
#[test]
fn a_kernel_that_closes_a_road_in_force_is_said() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().to_str().unwrap();
    let peerway = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_peerway")).args(arguments).output().unwrap();
        (output.status.code(), text(&output))
    };
    let host = ["--host", "sim:kpro6-pve7"];
    let plan = place.path().join("plan.json").display().to_string();
    let with = |words: &[&str]| peerway(&[&host, words].concat());
    assert_eq!(with(&["plan", "peer-map", "-o", &plan]).0, Some(0));
    assert_eq!(with(&["apply", &plan, "--no-timer", "--state", state]).0, Some(0));
    assert_eq!(with(&["confirm", "--state", state]).0, Some(0));
    let changed = place.path().join("host.host").display().to_string();
    let warn = |kernel: &str| {
        peerway(&[
            "--host",
            &changed,
            "roads",
            "--device",
            DEVICES,
            "--if-kernel",
            kernel,
            "--warn",
        ])
    };
    let (code, said) = warn("5.4.0-1-pve");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("peer-map is in force, and not with kernel 5.4.0-1-pve"), "{said}");
    let (code, said) = warn("7.0.14-14-pve");
    assert_eq!((code, said.as_str()), (Some(0), ""));
}
