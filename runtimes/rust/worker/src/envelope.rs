//! A handler's answer as a reply. Page invocation/response.

use crate::base64;
use serde_json::{Map, Value};
use std::borrow::Cow;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
/// Characters of a value quoted in a message.
const MAX_SHOWN_CHARS: usize = 60;

/// JSON text of the reply's header without its closing brace, and the body.
pub struct Reply {
    pub head: String,
    pub body: Vec<u8>,
}

/// Reads an envelope `{ status, headers, body }` or `{ proxy }`. The error says how it breaks the response contract.
pub fn to_reply(answer: Value) -> Result<Reply, String> {
    let mut envelope = match answer {
        Value::Object(envelope) => envelope,
        other => return Err(format!("the answer must be an object with status, headers and body, got {}", show(&other))),
    };
    match envelope.remove("proxy") {
        None | Some(Value::Null) => {}
        Some(proxy) => return to_proxy(proxy),
    }
    let given = match envelope.get("status") {
        None | Some(Value::Null) => envelope.get("statusCode").unwrap_or(&Value::Null),
        Some(status) => status,
    };
    let status = to_status(given)?;
    let mut headers = to_headers(envelope.get("headers"))?;
    let (body, kind) = to_body(&mut envelope, "")?;
    if let Some(kind) = kind {
        add_type(&mut headers, kind);
    }
    let head = match headers {
        None => format!("{{\"status\":{},\"headers\":{{}}", status),
        Some(headers) => format!("{{\"status\":{},\"headers\":{}", status, Value::Object(headers)),
    };
    Ok(Reply { head, body })
}

fn to_status(value: &Value) -> Result<i64, String> {
    let integer = match value {
        Value::Number(number) => number.as_i64().or_else(|| {
            number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e9).map(|float| float as i64)
        }),
        _ => None,
    };
    match integer {
        Some(status) if (100..=599).contains(&status) => Ok(status),
        _ => Err(format!("status must be an integer from 100 to 599, got {}", show(value))),
    }
}

/// The bytes of a body and the content type they have unless the handler says otherwise.
fn to_body(envelope: &mut Map<String, Value>, prefix: &str) -> Result<(Vec<u8>, Option<&'static str>), String> {
    let body = envelope.remove("body").unwrap_or(Value::Null);
    let is_base64 = match envelope.get("is_base64") {
        None | Some(Value::Null) => false,
        Some(Value::Bool(flag)) => *flag,
        Some(other) => return Err(format!("{}is_base64 must be true or false, got {}", prefix, show(other))),
    };
    let encoded = envelope.get("body_base64").filter(|value| !value.is_null());
    if let Some(encoded) = encoded.filter(|_| is_base64 || body.is_null()) {
        return match encoded.as_str().and_then(base64::decode) {
            Some(bytes) => Ok((bytes, Some(BYTES))),
            None => Err(format!("{}body_base64 must be base64 text, got {}", prefix, show(encoded))),
        };
    }
    if is_base64 {
        return Err(format!("{}is_base64 is true, but body_base64 is missing", prefix));
    }
    match body {
        Value::Null => Ok((Vec::new(), None)),
        Value::String(text) => Ok((text.into_bytes(), Some(TEXT))),
        other => match serde_json::to_vec(&other) {
            Ok(bytes) => Ok((bytes, Some(JSON))),
            Err(error) => Err(format!("{}body cannot be written as JSON: {}", prefix, error)),
        },
    }
}

/// The edge proxy directive; its body travels as the frame's.
fn to_proxy(proxy: Value) -> Result<Reply, String> {
    let mut proxy = match proxy {
        Value::Object(proxy) => proxy,
        other => return Err(format!("proxy must be an object, got {}", show(&other))),
    };
    let mut headers = to_headers(proxy.get("headers"))?;
    let (body, kind) = to_body(&mut proxy, "proxy.")?;
    if kind == Some(JSON) {
        add_type(&mut headers, JSON);
    }
    for key in ["body_base64", "is_base64", "headers"] {
        proxy.remove(key);
    }
    if let Some(headers) = headers {
        proxy.insert("headers".into(), Value::Object(headers));
    }
    Ok(Reply { head: format!("{{\"proxy\":{}", Value::Object(proxy)), body })
}

fn add_type(headers: &mut Option<Map<String, Value>>, kind: &str) {
    let headers = headers.get_or_insert_with(Map::new);
    if !headers.keys().any(|name| name.eq_ignore_ascii_case("content-type")) {
        headers.insert("content-type".into(), kind.into());
    }
}

fn to_headers(value: Option<&Value>) -> Result<Option<Map<String, Value>>, String> {
    let given = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(given)) => given,
        Some(Value::Array(items)) if items.is_empty() => return Ok(None),
        Some(other) => return Err(format!("headers must be an object, got {}", show(other))),
    };
    let mut headers = Map::new();
    for (name, value) in given {
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("header name {} is not allowed in HTTP", Value::from(name.as_str())));
        }
        let checked = match value {
            Value::Null => continue,
            Value::Array(items) => {
                let texts: Result<Vec<_>, _> = items.iter().map(|item| to_text(name, item)).collect();
                Value::from(texts?)
            }
            other => to_text(name, other)?,
        };
        headers.insert(name.clone(), checked);
    }
    Ok(Some(headers))
}

fn to_text(name: &str, value: &Value) -> Result<Value, String> {
    let text = match value {
        Value::String(text) => Cow::Borrowed(text.as_str()),
        Value::Number(number) => Cow::Owned(number.to_string()),
        Value::Bool(flag) => Cow::Owned(flag.to_string()),
        other => {
            let rule = "must be a string, a number, a boolean or a list of them";
            return Err(format!("header \"{}\" {}, got {}", name, rule, show(other)));
        }
    };
    let bad = |char: &char| (*char < ' ' && *char != '\t') || *char == '\x7f' || *char > '\u{ff}';
    match text.chars().find(bad) {
        Some(char) => {
            let code = char as u32;
            Err(format!("header \"{}\" holds the character U+{:04X}, which HTTP does not allow there", name, code))
        }
        None => Ok(text.into()),
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A value with its type, short enough for a message; the same words in every runtime.
fn show(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(flag) => format!("{} (boolean)", flag),
        Value::Number(number) => format!("{} (number)", number),
        Value::Array(items) => format!("an array of {} item{}", items.len(), if items.len() == 1 { "" } else { "s" }),
        Value::Object(_) => "an object".into(),
        Value::String(text) => match text.char_indices().nth(MAX_SHOWN_CHARS) {
            Some((end, _)) => format!("{} (string)", Value::from(format!("{}...", &text[..end]))),
            None => format!("{} (string)", value),
        },
    }
}
