//! One page over HTTP: models, versions, metrics.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::http1;
use crate::target::Connector;

/// Largest page that is read.
const LARGEST: usize = 16 << 20;

/// Reads a page; the status comes with it.
///
/// # Errors
/// No connection, no answer in time, no HTTP, too large.
pub async fn fetch(
    connector: &Connector,
    authority: &str,
    path: &str,
    headers: &[(String, String)],
    limit: Duration,
) -> Result<(u16, Vec<u8>), String> {
    let mut request = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.extend([name, ": ", value, "\r\n"]);
    }
    request += "\r\n";
    tokio::time::timeout(limit, get(connector, request.as_bytes()))
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", limit.as_secs_f64())))
}

async fn get(connector: &Connector, request: &[u8]) -> Result<(u16, Vec<u8>), String> {
    let mut stream = connector.connect().await.map_err(|error| error.to_string())?;
    stream.write(request).await.map_err(|error| error.to_string())?;
    let (mut room, mut unparsed, mut page) = (vec![0; 16 << 10], Vec::new(), Vec::new());
    let mut head: Option<http1::Head> = None;
    loop {
        let read = poll_fn(|context| stream.poll_read(context, &mut room));
        let read = read.await.map_err(|error| error.to_string())?;
        if read == 0 {
            return match head {
                Some(head) if head.body.may_close() => Ok((head.status, page)),
                _ => Err("the server closed within the answer".to_owned()),
            };
        }
        unparsed.extend_from_slice(room.get(..read).unwrap_or_default());
        if head.is_none() {
            let Some((found, length)) =
                http1::head(&unparsed).map_err(|error| error.to_string())?
            else {
                continue;
            };
            unparsed.drain(..length);
            head = Some(found);
        }
        let Some(head) = &mut head else { continue };
        let mut rest = unparsed.as_slice();
        while let Some(piece) = head.body.next(&mut rest).map_err(|error| error.to_string())? {
            page.extend_from_slice(piece);
        }
        unparsed.clear();
        if page.len() > LARGEST {
            return Err(format!("the page is larger than {} MiB", LARGEST >> 20));
        }
        if head.body.ended() {
            return Ok((head.status, page));
        }
        // Lets others run on a page that never ends.
        let mut yielded = false;
        poll_fn(|context| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}
