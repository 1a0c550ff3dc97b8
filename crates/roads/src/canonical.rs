//! JSON in one spelling, for digests: keys in order, no blanks. Numbers are integers in everything
//! that is digested.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// SHA-256 over the canonical JSON of a value, as `sha256:` and 64 digits.
pub(crate) fn digest<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let value = serde_json::to_value(value)?;
    let mut text = String::new();
    write(&value, &mut text);
    let digits = Sha256::digest(text.as_bytes()).into_iter().map(|byte| format!("{byte:02x}"));
    Ok(format!("sha256:{}", digits.collect::<String>()))
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            // The order of a map depends on features of the library; here it must not.
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (index, (key, item)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(item, out);
            }
            out.push('}');
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            out.push_str(&plain.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling() {
        let value = serde_json::json!({"b": [1, null, "x\"y"], "a": {"d": true, "c": 2}});
        let mut text = String::new();
        write(&value, &mut text);
        assert_eq!(text, r#"{"a":{"c":2,"d":true},"b":[1,null,"x\"y"]}"#);
    }

    #[test]
    fn the_digest_of_nothing() {
        // SHA-256 of the two bytes {}.
        assert_eq!(
            digest(&serde_json::json!({})).unwrap(),
            "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }
}
