//! Scans of recorded trees: what a copied `/proc` may look like, broken ones too.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;

use expect_test::{Expect, expect};
use rustix::fs::{CWD, FileType, Mode};

use super::*;

/// A process directory made of files (name, content) and links (number, target).
#[derive(Clone, Copy)]
struct Entry<'e> {
    files: &'e [(&'e str, &'e str)],
    links: &'e [(&'e str, &'e str)],
}

#[expect(clippy::disallowed_methods, reason = "a test makes its own tree")]
fn lay_out(dir: &Path, entry: Entry<'_>) {
    std::fs::create_dir_all(dir.join("fd")).unwrap();
    for (name, content) in entry.files {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    for (number, target) in entry.links {
        symlink(target, dir.join("fd").join(number)).unwrap();
    }
}

fn stat_line(pid: u32, state: char, flags: u32, threads: u32) -> String {
    format!(
        "{pid} (proc {pid}) {state} 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 {threads} 0 5{pid} 0 0"
    )
}

fn options(proc_dir: &Path) -> ScanOptions {
    ScanOptions { proc_dir: proc_dir.to_owned(), ..ScanOptions::default() }
}

fn render(list: &HolderList) -> String {
    let mut out = String::new();
    for p in &list.processes {
        let uid = p.uid.map_or("?".to_owned(), |uid| uid.to_string());
        writeln!(
            out,
            "{} \"{}\" since {} uid {uid} in {:?}",
            p.pid, p.comm, p.start_ticks, p.cgroup
        )
        .unwrap();
        for h in &p.held {
            let Held { path, kind, descriptors, mappings, deleted, .. } = h;
            write!(out, "  {path} {kind:?} fds {descriptors:?} maps {mappings}").unwrap();
            if *deleted {
                out.push_str(" deleted");
            }
            for place in [&h.vfio_syspath, &h.drm_address].into_iter().flatten() {
                write!(out, " at {place}").unwrap();
            }
            out.push('\n');
        }
        match &p.environment {
            Environment::NotRead => {}
            other => writeln!(out, "  {other:?}").unwrap(),
        }
    }
    for u in &list.unreadable {
        writeln!(out, "unreadable {} \"{}\" {:?} {:?}", u.pid, u.comm, u.descriptors, u.mappings)
            .unwrap();
    }
    writeln!(out, "{:?}", list.gaps()).unwrap();
    out
}

fn check(entries: &[(&str, Entry<'_>)], expected: &Expect) {
    let dir = tempfile::tempdir().unwrap();
    for (name, entry) in entries {
        lay_out(&dir.path().join(name), *entry);
    }
    let list = scan(&options(dir.path())).unwrap();
    assert!(!list.is_complete(), "a recorded tree never proves absence");
    expected.assert_eq(&render(&list));
}

#[test]
fn a_training_job_in_a_container() {
    let trainer = stat_line(40, 'S', 0, 9);
    check(
        &[(
            "40",
            Entry {
                files: &[
                    ("stat", &trainer),
                    ("status", "Name:\tproc 40\nUid:\t1000\t1000\t1000\t1000\n"),
                    ("cgroup", "0::/lxc/204/ns/user.slice\n"),
                    ("environ", "HOME=/root\0NCCL_P2P_DISABLE=1\0API_KEY=hush\0"),
                    (
                        "maps",
                        "10-20 rw-s 00000000 00:06 9 /dev/nvidia1\n\
                             20-30 rw-s 00000000 00:06 9 /dev/nvidia1\n\
                             30-40 rw-s 00000000 00:06 8 /dev/nvidia3\n",
                    ),
                ],
                links: &[
                    ("0", "/dev/null"),
                    ("11", "/dev/nvidia1"),
                    ("9", "/dev/nvidia1"),
                    ("4", "/dev/nvidiactl"),
                    ("5", "socket:[77]"),
                    ("6", "/dev/nvidia-uvm (deleted)"),
                ],
            },
        )],
        &expect![[r#"
            40 "proc 40" since 540 uid 1000 in "0::/lxc/204/ns/user.slice"
              /dev/nvidia-uvm NvidiaShared fds [6] maps 0 deleted
              /dev/nvidia1 NvidiaGpu fds [9, 11] maps 2
              /dev/nvidia3 NvidiaGpu fds [] maps 1
              /dev/nvidiactl NvidiaShared fds [4] maps 0
              Read { variables: [("NCCL_P2P_DISABLE", "1")], truncated: false }
            ["whether all processes can be seen is not known"]
        "#]],
    );
}

#[test]
fn a_guest_and_a_desktop() {
    let guest = stat_line(41, 'S', 0, 3);
    let desktop = stat_line(42, 'R', 0, 1);
    check(
        &[
            (
                "41",
                Entry {
                    files: &[
                        ("stat", &guest),
                        ("maps", ""),
                        (
                            "fdinfo/20",
                            "vfio-device-syspath: /sys/devices/pci0000:e0/0000:e1:00.0\n",
                        ),
                        ("fdinfo/21", "pos:\t0\n"),
                        ("environ", "NCCL_DEBUG=INFO\0"),
                    ],
                    links: &[
                        ("18", "/dev/vfio/vfio"),
                        ("19", "/dev/vfio/71"),
                        ("20", "anon_inode:[vfio-device]"),
                        ("21", "anon_inode:[vfio-device]"),
                    ],
                },
            ),
            (
                "42",
                Entry {
                    files: &[
                        ("stat", &desktop),
                        ("maps", ""),
                        ("fdinfo/3", "drm-driver:\tamdgpu\ndrm-pdev:\t0000:c1:00.0\n"),
                        ("environ", "PATH=/bin\0"),
                    ],
                    links: &[("3", "/dev/dri/renderD128")],
                },
            ),
        ],
        &expect![[r#"
            41 "proc 41" since 541 uid ? in ""
              /dev/vfio/71 Vfio fds [19] maps 0
              /dev/vfio/vfio Vfio fds [18] maps 0
              anon_inode:[vfio-device] VfioDevice fds [20] maps 0 at /sys/devices/pci0000:e0/0000:e1:00.0
              anon_inode:[vfio-device] VfioDevice fds [21] maps 0
            42 "proc 42" since 542 uid ? in ""
              /dev/dri/renderD128 Dri fds [3] maps 0 at 0000:c1:00.0
              Read { variables: [], truncated: false }
            ["whether all processes can be seen is not known"]
        "#]],
    );
}

#[test]
fn a_leader_that_ended_is_asked_through_its_threads() {
    let ended = stat_line(50, 'Z', 0, 2);
    let thread = stat_line(52, 'S', 0, 2);
    let alone = stat_line(60, 'Z', 0, 1);
    check(
        &[
            ("50", Entry { files: &[("stat", &ended), ("maps", "")], links: &[] }),
            ("50/task/50", Entry { files: &[("stat", &ended), ("maps", "")], links: &[] }),
            (
                "50/task/52",
                Entry { files: &[("stat", &thread), ("maps", "")], links: &[("7", "/dev/kfd")] },
            ),
            ("60", Entry { files: &[("stat", &alone), ("maps", "")], links: &[] }),
        ],
        &expect![[r#"
            50 "proc 50" since 550 uid ? in ""
              /dev/kfd Kfd fds [7] maps 0
              Unreadable { errno: 2 }
            ["whether all processes can be seen is not known"]
        "#]],
    );
}

#[test]
fn what_cannot_be_read_is_never_nothing() {
    let whole = stat_line(70, 'S', 0, 1);
    let kernel = stat_line(74, 'I', 0x0020_0040, 1);
    check(
        &[
            // No maps; a broken stat; no stat; a name that is no number; a kernel thread.
            ("70", Entry { files: &[("stat", &whole)], links: &[("3", "/dev/nvidia0")] }),
            ("71", Entry { files: &[("stat", "71 (x) S"), ("maps", "")], links: &[] }),
            ("72", Entry { files: &[], links: &[] }),
            ("self", Entry { files: &[("stat", "")], links: &[] }),
            ("74", Entry { files: &[("stat", &kernel)], links: &[("0", "/dev/nvidia0")] }),
        ],
        &expect![[r#"
            70 "proc 70" since 570 uid ? in ""
              /dev/nvidia0 NvidiaGpu fds [3] maps 0
              Unreadable { errno: 2 }
            unreadable 70 "proc 70" None Some(2)
            unreadable 71 "" Some(22) Some(22)
            unreadable 72 "" Some(2) Some(2)
            ["whether all processes can be seen is not known", "what 3 processes hold could not be read (the first: 70 \"proc 70\")"]
        "#]],
    );
}

/// Directories where files should be, pipes, links that lead out, numbers too large.
#[test]
#[expect(clippy::disallowed_methods, reason = "a test makes its own tree")]
fn a_hostile_tree_is_survived() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    lay_out(
        &secret,
        Entry {
            files: &[("stat", &stat_line(1, 'S', 0, 1)), ("maps", "")],
            links: &[("1", "/dev/nvidia0")],
        },
    );
    let tree = dir.path().join("proc");
    for name in ["80/stat", "80/fd/3", "81/fd", "99999999999", "82/maps"] {
        std::fs::create_dir_all(tree.join(name)).unwrap();
    }
    symlink(&secret, tree.join("83")).unwrap();
    rustix::fs::mknodat(CWD, tree.join("81/stat"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let stat = stat_line(82, 'S', 0, 1);
    lay_out(&tree.join("82"), Entry { files: &[("stat", &stat)], links: &[("3", "/dev/nvidia0")] });
    std::fs::write(tree.join("84"), "no directory").unwrap();
    let list = scan(&options(&tree)).unwrap();
    expect![[r#"
        82 "proc 82" since 582 uid ? in ""
          /dev/nvidia0 NvidiaGpu fds [3] maps 0
          Unreadable { errno: 2 }
        unreadable 80 "" Some(21) Some(21)
        unreadable 81 "" Some(22) Some(22)
        unreadable 82 "proc 82" None Some(21)
        unreadable 83 "" Some(20) Some(20)
        unreadable 84 "" Some(20) Some(20)
        ["whether all processes can be seen is not known", "what 5 processes hold could not be read (the first: 80 \"\")"]
    "#]].assert_eq(&render(&list));
}

#[test]
fn a_tree_that_is_not_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = scan(&options(&dir.path().join("proc"))).unwrap_err().to_string();
    assert!(error.starts_with("cannot list the processes in "), "{error}");
}

#[test]
fn a_scan_that_is_broken_off_says_so() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["90", "91"] {
        lay_out(&dir.path().join(name), Entry { files: &[], links: &[] });
    }
    let mut seen = 0;
    let end = scan_each(&options(dir.path()), |_| {
        seen += 1;
        ControlFlow::Break(())
    });
    assert_eq!((seen, end.unwrap().gaps), (1, vec!["the scan was broken off".to_owned()]));
}

#[test]
fn everyone_is_listed_if_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let stat = stat_line(95, 'S', 0, 1);
    lay_out(&dir.path().join("95"), Entry { files: &[("stat", &stat), ("maps", "")], links: &[] });
    let everyone = ScanOptions { everyone: true, ..options(dir.path()) };
    assert_eq!(scan(&options(dir.path())).unwrap().processes, []);
    let list = scan(&everyone).unwrap();
    assert_eq!(list.processes.iter().map(|p| p.pid).collect::<Vec<_>>(), [95]);
    assert_eq!(list.processes[0].held, []);
}
