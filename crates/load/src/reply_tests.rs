//! Answers in each dialect, cut at any byte.

use super::*;
use crate::tokens::Source;
use proptest::prelude::*;

/// An answer in chunks of the body, one an event, as servers write them.
fn http(events: &[&str]) -> Vec<u8> {
    let mut out =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            .to_vec();
    for event in events {
        out.extend_from_slice(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes());
    }
    out.extend_from_slice(b"0\r\n\r\n");
    out
}

/// What is known at the end, the moments left out.
fn account(pieces: &[&[u8]], along: bool) -> String {
    let (mut reply, mut lag) = (Reply::default(), Times::default());
    let reading = Reading { keep_text: true, stamp: Some("stamp_ns".to_owned()) };
    let mut ended = false;
    for (number, piece) in pieces.iter().enumerate() {
        assert!(!ended || piece.is_empty(), "bytes after the end");
        if piece.is_empty() {
            continue;
        }
        let now = if along { u64::try_from(number).unwrap() } else { 0 };
        ended = reply.accept(piece, now, &reading, &mut lag) == Then::Ended;
    }
    if !ended {
        reply.closed(9, &reading, &mut lag);
    }
    let outcome = reply.outcome();
    // Whatever the server counted was allowed.
    let free = reply.story.tokens.count(u64::MAX, None);
    let limit = free.usage.and_then(|usage| usage.completion).unwrap_or(1000);
    let counted = reply.story.tokens.count(limit, reply.story.finish.as_deref());
    format!(
        "{outcome:?} {:?} {} tokens {:?} in {} chunks, prompt {:?}, {} comments, {} stamps, reusable {}, {:?} {:?}",
        reply.story.finish,
        counted.tokens,
        counted.source,
        counted.chunks,
        counted.usage.and_then(|usage| usage.prompt),
        reply.story.comments,
        lag.count(),
        reply.reusable(),
        reply.story.error,
        reply.story.text,
    )
}

const SGLANG: &[&str] = &[
    "data: {\"id\":\"1f\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"reasoning_content\":null,\"tool_calls\":null},\"logprobs\":null,\"finish_reason\":null,\"matched_stop\":null}],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":12,\"completion_tokens\":0}}\n\n",
    "data: {\"id\":\"1f\",\"choices\":[{\"index\":0,\"delta\":{\"role\":null,\"content\":\"Grüße aus 東\",\"reasoning_content\":null},\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":16,\"completion_tokens\":4}}\n\n",
    "data: {\"id\":\"1f\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"京 😀\"},\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":18,\"completion_tokens\":6}}\n\n",
    "data: {\"id\":\"1f\",\"choices\":[{\"index\":0,\"delta\":{\"content\":null,\"reasoning_content\":null},\"finish_reason\":\"stop\",\"matched_stop\":7}]}\n\n",
    "data: {\"id\":\"1f\",\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":18,\"completion_tokens\":6}}\n\n",
    "data: [DONE]\n\n",
];

const VLLM: &[&str] = &[
    ": keep-alive\n\n",
    "data: {\"id\":\"c-1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n",
    "data: {\"id\":\"c-1\",\"choices\":[{\"index\":0,\"delta\":{\"reasoning\":\"hm\"}}]}\n\n",
    "data: {\"id\":\"c-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" a\\n\"},\"finish_reason\":\"length\"}]}\n\n",
    "data: {\"id\":\"c-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":9,\"completion_tokens\":4}}\n\n",
    "data: [DONE]\n\n",
];

const LLAMA_CPP: &[&str] = &[
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null}}]}\n\n",
    "data: {\"choices\":[{\"finish_reason\":null,\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n",
    "data: {\"choices\":[{\"finish_reason\":\"stop\",\"index\":0,\"delta\":{}}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"completion_tokens\":1,\"prompt_tokens\":3,\"total_tokens\":4},\"timings\":{\"predicted_n\":1}}\n\n",
    "data: [DONE]\n\n",
];

const TGI: &[&str] = &[
    "data:{\"object\":\"chat.completion.chunk\",\"id\":\"\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"one\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":null}\n\n",
    "data:{\"object\":\"chat.completion.chunk\",\"id\":\"\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":\"length\"}],\"usage\":null}\n\n",
    "data:{\"object\":\"chat.completion.chunk\",\"id\":\"\",\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":2,\"total_tokens\":4}}\n\n",
    "data: [DONE]\n\n",
];

const TENSORRT_LLM: &[&str] = &[
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}],\"stamp_ns\":0} \n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"t\"},\"finish_reason\":\"length\",\"stop_reason\":null,\"avg_decoded_tokens_per_iter\":1.0}],\"stamp_ns\":0} \n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":1,\"total_tokens\":3}} \n\n",
    "data: [DONE] \n\n",
];

const DIALECTS: [&[&str]; 5] = [SGLANG, VLLM, LLAMA_CPP, TGI, TENSORRT_LLM];

#[track_caller]
fn check(events: &[&str], expected: &str) {
    let bytes = http(events);
    assert_eq!(account(&[&bytes], true), expected);
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(account(&single, true), expected, "byte by byte");
}

#[test]
fn every_dialect_is_understood() {
    check(
        SGLANG,
        "Complete Some(\"stop\") 6 tokens ContinuousUsage in 2 chunks, prompt Some(12), 0 comments, 0 stamps, reusable true, None \"Grüße aus 東京 😀\"",
    );
    check(
        VLLM,
        "Complete Some(\"length\") 4 tokens FinalUsage in 2 chunks, prompt Some(5), 1 comments, 0 stamps, reusable true, None \"hm a\\n\"",
    );
    check(
        LLAMA_CPP,
        "Complete Some(\"stop\") 1 tokens FinalUsage in 1 chunks, prompt Some(3), 0 comments, 0 stamps, reusable true, None \"x\"",
    );
    check(
        TGI,
        "Complete Some(\"length\") 2 tokens FinalUsage in 1 chunks, prompt Some(2), 0 comments, 0 stamps, reusable true, None \"one\"",
    );
    check(
        TENSORRT_LLM,
        "Complete Some(\"length\") 1 tokens FinalUsage in 1 chunks, prompt Some(2), 0 comments, 2 stamps, reusable true, None \"t\"",
    );
}

#[test]
fn answers_that_go_wrong() {
    let error = "data: {\"error\":{\"message\":\"no memory\"}}\n\n";
    check(
        &[LLAMA_CPP[0], LLAMA_CPP[1], error, "data: [DONE]\n\n"],
        "ServerError None 1 tokens Chunks in 1 chunks, prompt None, 0 comments, 0 stamps, reusable true, Some(\"no memory\") \"x\"",
    );
    check(
        &[LLAMA_CPP[1], "{\"error\":\"no memory\"}\n"],
        "ServerError None 1 tokens Chunks in 1 chunks, prompt None, 0 comments, 0 stamps, reusable true, Some(\"no memory\") \"x\"",
    );
    check(
        &[LLAMA_CPP[1], LLAMA_CPP[2]],
        "Truncated Some(\"stop\") 1 tokens Chunks in 1 chunks, prompt None, 0 comments, 0 stamps, reusable true, Some(\"no end marker\") \"x\"",
    );
    check(
        &[LLAMA_CPP[1], "data: {\"choices\n\n", "data: [DONE]\n\n"],
        "Malformed None 1 tokens Chunks in 1 chunks, prompt None, 0 comments, 0 stamps, reusable true, Some(\"an event of the stream is no JSON\") \"x\"",
    );
    let refused =
        b"HTTP/1.1 429 Slow\r\nretry-after: 3\r\ncontent-length: 16\r\n\r\n{\"error\":\"busy\"}";
    assert!(
        account(&[refused], true).contains("Refused")
            && account(&[refused], true).contains("status 429: busy")
    );
    let plain = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    assert!(account(&[plain], true).starts_with("NotAStream"));
    assert!(account(&[b"SSH-2.0\r\n"], true).starts_with("Malformed"));
    let informed = [b"HTTP/1.1 103 Early Hints\r\n\r\n".as_slice(), &http(LLAMA_CPP)].concat();
    assert!(account(&[&informed], true).starts_with("Complete"));
}

#[test]
fn an_answer_starts_anew() {
    let (mut reply, mut lag, reading) = (Reply::default(), Times::default(), Reading::default());
    for _ in 0..3 {
        reply.reset();
        assert!(reply.untouched());
        assert_eq!(reply.accept(&http(SGLANG), 5, &reading, &mut lag), Then::Ended);
        assert_eq!(reply.outcome(), Outcome::Complete);
        let counted = reply.story.tokens.count(9, Some("stop"));
        assert_eq!((counted.tokens, counted.source), (6, Source::ContinuousUsage));
        assert_eq!(reply.story.text, "", "only where it is wanted");
    }
}

proptest! {
    #[test]
    fn cut_anywhere_the_account_is_the_same(
        dialect in 0_usize..DIALECTS.len(),
        cuts in prop::collection::vec(0_usize..2000, 0..40),
        length in 1_usize..2000,
    ) {
        let whole = http(DIALECTS[dialect]);
        // Now and then the connection closes early.
        let bytes = &whole[..length.max(200).min(whole.len())];
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(account(&pieces, false), account(&[bytes], false));
    }

    #[test]
    fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut answer = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
        answer.extend_from_slice(&bytes);
        let said = account(&[&answer], true);
        prop_assert!(!said.starts_with("Complete"));
    }
}
