//! What is driven: the address, and how to get there.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject as _;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::stream::Stream;

/// Which interface of OpenAI's is driven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Endpoint {
    /// `/chat/completions`.
    #[default]
    Chat,
    /// `/completions`.
    Completions,
}

/// A server's address, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether it is https.
    pub tls: bool,
    /// Name or address, without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path before `/chat/completions`, without a slash at its end.
    pub base: String,
    /// What the path already names.
    pub endpoint: Option<Endpoint>,
}

/// A URL that cannot be driven.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot use {url:?} as the address of a server: {why}; it should look like http://HOST:PORT"
)]
pub struct BadUrl {
    url: String,
    why: &'static str,
}

impl Target {
    /// Reads a URL: `http://host:8000`, with `/v1` or a whole path or neither.
    ///
    /// # Errors
    /// What is no such URL.
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        let bad = |why| BadUrl { url: url.to_owned(), why };
        let parsed: Uri = url.parse().map_err(|_| bad("it is no URL"))?;
        let tls = match parsed.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) => return Err(bad("its scheme is neither http nor https")),
            None => return Err(bad("it has no scheme")),
        };
        let authority = parsed.authority().ok_or_else(|| bad("it has no host"))?;
        if authority.as_str().contains('@') {
            return Err(bad("it holds a password, which belongs into --api-key-env"));
        }
        if parsed.query().is_some() {
            return Err(bad("it has a query"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(bad("it has no host"));
        }
        let port = match authority.port_u16() {
            Some(port) => port,
            None if authority.as_str() != authority.host() => {
                return Err(bad("its port is no number below 65536"));
            }
            None if tls => 443,
            None => 80,
        };
        let path = parsed.path().trim_end_matches('/');
        let (base, endpoint) = if let Some(base) = path.strip_suffix("/chat/completions") {
            (base, Some(Endpoint::Chat))
        } else if let Some(base) = path.strip_suffix("/completions") {
            (base, Some(Endpoint::Completions))
        } else if path.is_empty() {
            ("/v1", None)
        } else {
            (path, None)
        };
        Ok(Self { tls, host: host.to_owned(), port, base: base.to_owned(), endpoint })
    }

    /// `host:port` as the `Host` header has it.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The path of an interface.
    pub fn path(&self, endpoint: Endpoint) -> String {
        let name = match endpoint {
            Endpoint::Chat => "chat/completions",
            Endpoint::Completions => "completions",
        };
        format!("{}/{name}", self.base)
    }
}

/// Whom to trust over https.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Any certificate at all.
    pub insecure: bool,
    /// Certificates of authorities (PEM) beside those of the system.
    pub authorities: Option<PathBuf>,
}

/// No way to the server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name.
    #[error("cannot find {host}: {why}")]
    Name {
        /// Host.
        host: String,
        /// Why not.
        why: String,
    },
    /// The connection.
    #[error("cannot connect to {authority}: {why}")]
    Connect {
        /// Host and port.
        authority: String,
        /// Why not.
        why: String,
    },
    /// It took longer than allowed.
    #[error("cannot connect to {authority} within {} s", limit.as_secs_f64())]
    Slow {
        /// Host and port.
        authority: String,
        /// How long was waited.
        limit: Duration,
    },
    /// The certificate, or anything else of TLS.
    #[error(
        "cannot speak TLS with {authority}: {why}; --insecure takes any certificate, --ca FILE trusts one more authority"
    )]
    Tls {
        /// Host and port.
        authority: String,
        /// Why not.
        why: String,
    },
    /// The certificates to trust.
    #[error("cannot use the certificates in {path}: {why}")]
    Authorities {
        /// The file.
        path: String,
        /// Why not.
        why: String,
    },
}

/// Opens connections to a target.
#[derive(Clone)]
pub struct Connector {
    addresses: Vec<SocketAddr>,
    authority: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    limit: Duration,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connector")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl Connector {
    /// Looks the host up, once, and prepares TLS.
    ///
    /// # Errors
    /// No such host, no certificates to trust.
    pub async fn new(
        target: &Target,
        trust: &Trust,
        limit: Duration,
    ) -> Result<Self, ConnectError> {
        let name = |why: String| ConnectError::Name { host: target.host.clone(), why };
        let lookup = tokio::net::lookup_host((target.host.as_str(), target.port));
        let addresses: Vec<SocketAddr> = tokio::time::timeout(limit, lookup)
            .await
            .map_err(|_| name("no answer in time".to_owned()))?
            .map_err(|error| name(error.to_string()))?
            .collect();
        if addresses.is_empty() {
            return Err(name("it has no address".to_owned()));
        }
        let tls = if target.tls {
            let server = ServerName::try_from(target.host.clone())
                .map_err(|error| name(error.to_string()))?;
            Some((TlsConnector::from(Arc::new(trust.config()?)), server))
        } else {
            None
        };
        Ok(Self { addresses, authority: target.authority(), tls, limit })
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// It cannot be opened in time.
    pub async fn connect(&self) -> Result<Stream, ConnectError> {
        tokio::time::timeout(self.limit, self.open()).await.unwrap_or_else(|_| {
            Err(ConnectError::Slow { authority: self.authority.clone(), limit: self.limit })
        })
    }

    async fn open(&self) -> Result<Stream, ConnectError> {
        let authority = || self.authority.clone();
        let connect = |error: io::Error| ConnectError::Connect {
            authority: authority(),
            why: error.to_string(),
        };
        let stream = TcpStream::connect(self.addresses.as_slice()).await.map_err(connect)?;
        stream.set_nodelay(true).map_err(connect)?;
        let Some((tls, server)) = &self.tls else { return Ok(Stream::Plain(stream)) };
        let stream = tls.connect(server.clone(), stream).await.map_err(|error| {
            ConnectError::Tls { authority: authority(), why: error.to_string() }
        })?;
        Ok(Stream::Tls(Box::new(stream)))
    }
}

impl Trust {
    fn config(&self) -> Result<rustls::ClientConfig, ConnectError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| authorities("the built-in settings", &error))?;
        if self.insecure {
            let verifier = Arc::new(crate::insecure::AnyCertificate::new(provider));
            return Ok(builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_no_client_auth());
        }
        let mut roots = rustls::RootCertStore::empty();
        // What cannot be read of the system's is missing at the handshake, which then says so.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = &self.authorities {
            let shown = path.display().to_string();
            let certificates = rustls::pki_types::CertificateDer::pem_file_iter(path)
                .map_err(|error| authorities(&shown, &error))?;
            let mut any = false;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| authorities(&shown, &error))?;
                roots.add(certificate).map_err(|error| authorities(&shown, &error))?;
                any = true;
            }
            if !any {
                return Err(authorities(&shown, &"there are none"));
            }
        }
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

fn authorities(path: &str, why: &impl ToString) -> ConnectError {
    ConnectError::Authorities { path: path.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, tls: bool, authority: &str, path: &str) {
        let target = Target::parse(url).unwrap();
        let endpoint = target.endpoint.unwrap_or_default();
        assert_eq!(
            (target.tls, target.authority(), target.path(endpoint)),
            (tls, authority.to_owned(), path.to_owned())
        );
    }

    #[test]
    fn urls() {
        check("http://box:8000", false, "box:8000", "/v1/chat/completions");
        check("http://box", false, "box:80", "/v1/chat/completions");
        check("https://box/", true, "box:443", "/v1/chat/completions");
        check("http://[::1]:30000/v1/", false, "[::1]:30000", "/v1/chat/completions");
        check("http://box:1/a/v1/completions", false, "box:1", "/a/v1/completions");
        check("http://box:1/v1/chat/completions", false, "box:1", "/v1/chat/completions");
    }

    #[test]
    fn no_urls() {
        for url in [
            "box:8000",
            "",
            "ftp://box",
            "http://",
            "http://me:word@box",
            "http://box:99999",
            "http://box/?a",
            "http://bo x",
        ] {
            let said = Target::parse(url).unwrap_err().to_string();
            assert!(said.starts_with("cannot use"), "{said}");
        }
    }
}
