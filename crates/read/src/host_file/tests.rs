use super::*;
use proptest::prelude::*;

#[track_caller]
fn check(body: &str, expected: &str) {
    let seen = match parse(body) {
        Ok(_) => "fine".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(seen, expected);
}

#[test]
fn what_is_wrong_is_said() {
    check("", "not a .host file: its first line must be \"peerway-host 1\"");
    check("GIF89a", "not a .host file: its first line must be \"peerway-host 1\"");
    check(
        "peerway-host 9\n",
        "a .host file of format 9; this program reads formats up to 1: update it",
    );
    check(
        "peerway-host 1\n//- /a\nx\n",
        "the .host file is cut: its last line, \"//- end N\", is missing",
    );
    check(
        "peerway-host 1\n//- /a\nx\n//- end 2\n",
        "the .host file is cut: 2 entries announced, 1 there",
    );
    check(
        "peerway-host 1\nstray\n//- end 0\n",
        "line 2 of the .host file: content that belongs to no entry",
    );
    check(
        "peerway-host 1\n//- /a/../../etc/passwd\nx\n//- end 1\n",
        "line 2 of the .host file: \"/a/../../etc/passwd\" is no plain absolute path",
    );
    check(
        "peerway-host 1\n//- /a\n//- /a\n//- end 2\n",
        "line 3 of the .host file: \"/a\" stands there twice",
    );
    check(
        "peerway-host 1\n//- /a !EWHAT\n//- end 1\n",
        "line 2 of the .host file: \"EWHAT\" is no error name",
    );
    check(
        "peerway-host 1\n//- /a hex 2\n0: 010203\n//- end 1\n",
        "line 3 of the .host file: bytes beyond the size of the file",
    );
    check(
        "peerway-host 1\n//- /a hex 4\n0: 0102\n1: 03\n//- end 1\n",
        "line 4 of the .host file: hex lines must go upwards and must not overlap",
    );
    check(
        "peerway-host 1\n//- end 0\n//- /a\n//- end 1\n",
        "line 3 of the .host file: an entry after the end",
    );
    check("peerway-host 1\n# fine\n\n//- /a/\n//- /a/b -> c\n//- end 2\n", "fine");
}

fn node() -> impl Strategy<Value = Node> {
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..80).prop_map(Node::File),
        "(//- |\\\\|[a-z ]|\n){0,30}".prop_map(|text| Node::File(text.into_bytes())),
        "[a-z./]{1,20}".prop_map(Node::Link),
        Just(Node::Fails(Errno::ACCESS)),
        Just(Node::Hangs),
    ]
}

proptest! {
    #[test]
    fn written_is_read_back(nodes in proptest::collection::vec(node(), 0..8)) {
        let mut writer = Writer::new("a test");
        for (index, node) in nodes.iter().enumerate() {
            writer.entry(&format!("/n{index}"), node);
        }
        let tree = parse(&writer.finish()).unwrap();
        for (index, node) in nodes.iter().enumerate() {
            let id = tree.find(0, &format!("/n{index}"), false).unwrap();
            prop_assert_eq!(tree.node(id), Some(node));
        }
    }

    #[test]
    fn any_name_is_read_back(name in "[ -.0-~\n\r\\\\]{1,9}( ->| !| hex|\\\\040)?", target in "[ -~\n\r]{0,9}") {
        prop_assume!(name != "." && name != "..");
        let path = format!("/{name}");
        for node in [Node::Link(target), Node::File(vec![0]), Node::Hangs] {
            let mut writer = Writer::new("a test");
            writer.entry(&path, &node);
            let text = writer.finish();
            let tree = parse(&text).unwrap();
            let id = tree.find(0, &path, false);
            prop_assert_eq!(id.ok().and_then(|id| tree.node(id)), Some(&node), "{}", text);
        }
    }

    #[test]
    fn hostile_text_is_refused_or_read(text in "(peerway-host 1\n)?(//- |/a|/b| -> | !| hex |[0-9a-f: ]|\n|end ){0,40}") {
        if let Err(error) = parse(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}
