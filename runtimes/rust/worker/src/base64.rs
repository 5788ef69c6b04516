//! Standard base64.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity((bytes.len() + 2) / 3 * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, &byte| bits << 8 | byte as u32) << (8 * (3 - group.len()));
        for at in 0..4 {
            let index = (bits >> (18 - 6 * at) & 63) as usize;
            text.push(if at <= group.len() { ALPHABET[index] as char } else { '=' });
        }
    }
    text
}

/// `None` when the text is not base64; padding may be left out.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if text.ends_with('=') && text.len() % 4 != 0 {
        return None;
    }
    let text = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut count) = (0u32, 0);
    for char in text.bytes() {
        let value = match char {
            b'A'..=b'Z' => char - b'A',
            b'a'..=b'z' => char - b'a' + 26,
            b'0'..=b'9' => char - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits & 0x00ff_ffff) << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    if count == 6 {
        return None;
    }
    Some(bytes)
}
