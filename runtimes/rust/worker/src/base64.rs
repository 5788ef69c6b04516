//! Standard base64.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// What is no character of the alphabet.
const NONE: u8 = 0xff;
/// The two characters of each twelve bits.
static PAIRS: [[u8; 2]; 4096] = pairs();
/// The six bits of each character.
static VALUES: [u8; 256] = values();

const fn pairs() -> [[u8; 2]; 4096] {
    let mut pairs = [[0; 2]; 4096];
    let mut bits = 0;
    while bits < pairs.len() {
        pairs[bits] = [ALPHABET[bits >> 6], ALPHABET[bits & 63]];
        bits += 1;
    }
    pairs
}

const fn values() -> [u8; 256] {
    let mut values = [NONE; 256];
    let mut bits = 0;
    while bits < ALPHABET.len() {
        values[ALPHABET[bits] as usize] = bits as u8;
        bits += 1;
    }
    values
}

pub fn encode(bytes: &[u8]) -> String {
    let mut text = vec![b'='; (bytes.len() + 2) / 3 * 4];
    let groups = bytes.chunks_exact(3);
    let rest = groups.remainder();
    for (group, to) in groups.zip(text.chunks_exact_mut(4)) {
        let bits = (group[0] as usize) << 16 | (group[1] as usize) << 8 | group[2] as usize;
        to[..2].copy_from_slice(&PAIRS[bits >> 12]);
        to[2..].copy_from_slice(&PAIRS[bits & 0xfff]);
    }
    if !rest.is_empty() {
        let bits = (rest[0] as usize) << 16 | (rest.get(1).copied().unwrap_or(0) as usize) << 8;
        let from = text.len() - 4;
        text[from..from + 2].copy_from_slice(&PAIRS[bits >> 12]);
        if rest.len() == 2 {
            text[from + 2] = ALPHABET[bits >> 6 & 63];
        }
    }
    // All of it is of the alphabet.
    String::from_utf8(text).unwrap_or_default()
}

/// `None` when the text is not base64; padding may be left out.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if text.ends_with('=') && text.len() % 4 != 0 {
        return None;
    }
    let text = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text).as_bytes();
    let mut bytes = vec![0; text.len() / 4 * 3];
    let groups = text.chunks_exact(4);
    let rest = groups.remainder();
    let mut seen = 0;
    for (group, to) in groups.zip(bytes.chunks_exact_mut(3)) {
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| VALUES[group[at] as usize]);
        seen |= a | b | c | d;
        let bits = ((a as u32 & 63) << 18 | (b as u32 & 63) << 12 | (c as u32 & 63) << 6 | d as u32 & 63).to_be_bytes();
        to.copy_from_slice(&bits[1..]);
    }
    let values: Vec<u8> = rest.iter().map(|&char| VALUES[char as usize]).collect();
    seen |= values.iter().fold(0, |all, value| all | value);
    // Values of characters have no higher bits.
    if seen > 63 || values.len() == 1 {
        return None;
    }
    if let [first, second, ..] = values[..] {
        bytes.push(first << 2 | second >> 4);
        bytes.extend(values.get(2).map(|third| second << 4 | third >> 2));
    }
    Some(bytes)
}
