use proptest::prelude::*;

use super::*;
use crate::pattern::{NodeKind, Pattern, Patterns};

const STAT: &str = "712 (trainer) S 1 712 712 0 -1 4194560 9 8 7 6 5 4 3 2 20 0 33 0 98765 4096 10";

fn check_stat(line: &[u8], comm: &str, state: u8, threads: u64, start_ticks: u64) {
    let stat = stat(line).unwrap();
    assert_eq!((stat.comm.as_str(), stat.state), (comm, state));
    assert_eq!((stat.threads, stat.start_ticks), (threads, start_ticks));
}

#[test]
fn the_name_of_a_process_may_hold_anything() {
    check_stat(STAT.as_bytes(), "trainer", b'S', 33, 98765);
    let odd = STAT.replace("(trainer)", "(a) S 1 (b\n)");
    check_stat(odd.as_bytes(), "a) S 1 (b\n", b'S', 33, 98765);
    check_stat(
        &[b"1 (\xff\xfe)", &STAT.as_bytes()[13..]].concat(),
        "\u{fffd}\u{fffd}",
        b'S',
        33,
        98765,
    );
}

#[test]
fn kernel_threads_are_told_by_their_flag() {
    assert!(!stat(STAT.as_bytes()).unwrap().is_kernel_thread);
    let kernel = STAT.replace("4194560", "2129984");
    assert!(stat(kernel.as_bytes()).unwrap().is_kernel_thread);
}

#[test]
fn broken_stat_lines_give_nothing() {
    for line in ["", "1", "1 (x", "1 x) S", ")(", "1 (x) S 1 1 1", "1 (x)"] {
        assert_eq!(stat(line.as_bytes()), None, "{line:?}");
    }
}

#[test]
fn the_real_user_is_the_first_of_four() {
    assert_eq!(uid(b"Name:\tx\nUid:\t1000\t0\t0\t0\nGid:\t5\n"), Some(1000));
    assert_eq!(uid(b"Name:\tUid:\n"), None);
    assert_eq!(uid(b"Uid:\t-1\n"), None);
}

#[test]
fn fdinfo_is_read_by_whole_keys() {
    let text = b"pos:\t0\nflags:\t02\nvfio-device-syspath: /sys/devices/pci0000:40/0000:40:01.1\n";
    let path = Some("/sys/devices/pci0000:40/0000:40:01.1".to_owned());
    assert_eq!(fdinfo(text, "vfio-device-syspath"), path);
    assert_eq!(fdinfo(text, "vfio-device"), None);
    assert_eq!(fdinfo(b"drm-pdev:\t0000:c1:00.0", "drm-pdev"), Some("0000:c1:00.0".to_owned()));
    assert_eq!(fdinfo(b"drm-pdev:\n", "drm-pdev"), None);
}

const MAPS: &str = "\
55d0c0000000-55d0c0021000 r-xp 00002000 08:02 131 /usr/bin/python3
7f10a0000000-7f10a0001000 rw-s 00000000 00:06 842                        /dev/nvidia2
7f10a0001000-7f10a0002000 rw-s 00000000 00:06 842                        /dev/nvidia2
7f10a0002000-7f10a0003000 rw-s 00000000 00:01 9                          /dev/zero (deleted)
7f10a0003000-7f10a0004000 rw-s 00000000 00:06 844                        /dev/nvidia-uvm (deleted)
7f10a0004000-7f10a0005000 rw-s 00000000 00:0e 1                          anon_inode:[vfio-device]
7f10a0005000-7f10a0006000 r--p 00000000 08:02 77                         /srv/my notes/dev/nvidia
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
7ffc00021000-7ffc00022000 rw-p 00000000 00:00 0 ";

fn check_maps(text: &str, expected: &[&str]) {
    let patterns = Patterns::default();
    let needles = patterns.needles();
    let needles: Vec<Finder<'_>> = needles.iter().map(Finder::new).collect();
    let found: Vec<String> = mapped(text.as_bytes(), &needles)
        .into_iter()
        .filter(|mapping| patterns.find(without_mark(mapping.path).0).is_some())
        .map(|mapping| String::from_utf8_lossy(mapping.path).into_owned())
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn mapped_nodes_are_found_in_order() {
    let expected = [
        "/dev/nvidia2",
        "/dev/nvidia2",
        "/dev/nvidia-uvm (deleted)",
        "anon_inode:[vfio-device]",
        "/srv/my notes/dev/nvidia",
    ];
    check_maps(MAPS, &expected);
    check_maps(&MAPS[..MAPS.find("/srv").unwrap()], &expected[..4]);
    check_maps("", &[]);
    check_maps("/dev/nvidia0", &[]);
}

/// A file of one file system is found by the numbers of that, whatever it is called.
#[test]
fn files_of_a_file_system_are_found_by_its_numbers() {
    let field = file_system_field(DeviceNumber { major: 0, minor: 14 });
    let found = mapped(MAPS.as_bytes(), &[Finder::new(field.as_bytes())]);
    let found: Vec<u64> = found.iter().map(|mapping| mapping.inode).collect();
    assert_eq!(found, [1]);
}

#[test]
fn of_an_environment_only_switches_are_kept() {
    let environment = b"PATH=/bin\0NCCL_P2P_DISABLE=1\0TOKEN=secret\0CUDA_VISIBLE_DEVICES=\0\
        SGLANG_X=a=b\0XNCCL_Y=1\0NCCL_ODD\0VLLM_SKIP_P2P_CHECK=0\0CUDA_VISIBLE_DEVICES_2=1";
    let kept: Vec<String> =
        switches(environment).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let expected =
        ["NCCL_P2P_DISABLE=1", "CUDA_VISIBLE_DEVICES=", "SGLANG_X=a=b", "VLLM_SKIP_P2P_CHECK=0"];
    assert_eq!(kept, expected);
}

#[test]
fn character_drivers_come_without_block_devices() {
    let text =
        "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n259 blkext\n";
    assert_eq!(character_drivers(text), [(1, "mem"), (195, "nvidia"), (511, "nvidia-uvm")]);
    assert_eq!(character_drivers("nothing of the kind"), []);
}

#[test]
fn a_proc_that_hides_processes_is_told_by_its_last_mount() {
    let line =
        |options: &str| format!("22 1 0:21 / /proc rw,nosuid shared:5 - proc proc {options}\n");
    assert!(!hides_processes(&line("rw"), "/proc"));
    assert!(!hides_processes(&line("rw,hidepid=noaccess"), "/proc"));
    assert!(hides_processes(&line("rw,gid=9,hidepid=2"), "/proc"));
    assert!(hides_processes(&line("rw,hidepid=invisible"), "/proc"));
    assert!(!hides_processes(&line("rw,hidepid=2"), "/elsewhere"));
    assert!(!hides_processes(&format!("{}{}", line("rw,hidepid=2"), line("rw")), "/proc"));
}

proptest! {
    #[test]
    fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let patterns = Patterns::default();
        let needles = patterns.needles();
        let needles: Vec<Finder<'_>> = needles.iter().map(Finder::new).collect();
        for mapping in mapped(&bytes, &needles) {
            prop_assert!(!mapping.path.is_empty());
        }
        for (name, _) in switches(&bytes) {
            prop_assert!(!name.contains('='));
        }
        prop_assert!(stat(&bytes).is_none_or(|s| bytes.len() > s.comm.chars().count()));
        prop_assert!(uid(&bytes).is_none() || bytes.starts_with(b"Uid:") || bytes.contains(&b'\n'));
        prop_assert!(fdinfo(&bytes, "k").is_none_or(|v| !v.is_empty()));
    }

    #[test]
    fn a_mapping_is_found_wherever_it_stands(
        before in proptest::collection::vec("[ -~]{0,60}", 0..20),
        after in proptest::collection::vec("[ -~]{0,60}", 0..20),
    ) {
        let own = Pattern { text: "/Ω/".into(), kind: NodeKind::Other, any_file: true };
        let patterns = Patterns::new(vec![own]);
        let needles = patterns.needles();
        let needles: Vec<Finder<'_>> = needles.iter().map(Finder::new).collect();
        let line = "1-2 rw-s 00000000 00:06 842 /Ω/x".to_owned();
        let text = [before, vec![line], after].concat().join("\n");
        let file_system = DeviceNumber { major: 0, minor: 6 };
        let expected = Mapped { file_system, inode: 842, path: "/Ω/x".as_bytes() };
        prop_assert_eq!(mapped(text.as_bytes(), &needles), [expected]);
    }
}
