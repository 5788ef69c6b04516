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
    let length = (bytes.len() + 2) / 3 * 4;
    let mut text = Vec::with_capacity(length);
    let done = wide::encode(bytes, &mut text);
    let groups = bytes[done..].chunks_exact(3);
    let rest = groups.remainder();
    let begun = text.len();
    text.resize(length, b'=');
    for (group, to) in groups.zip(text[begun..].chunks_exact_mut(4)) {
        let bits = (group[0] as usize) << 16 | (group[1] as usize) << 8 | group[2] as usize;
        to[..2].copy_from_slice(&PAIRS[bits >> 12]);
        to[2..].copy_from_slice(&PAIRS[bits & 0xfff]);
    }
    if !rest.is_empty() {
        let bits = (rest[0] as usize) << 16 | (rest.get(1).copied().unwrap_or(0) as usize) << 8;
        text[length - 4..length - 2].copy_from_slice(&PAIRS[bits >> 12]);
        if rest.len() == 2 {
            text[length - 2] = ALPHABET[bits >> 6 & 63];
        }
    }
    // All of it is of the alphabet.
    unsafe { String::from_utf8_unchecked(text) }
}

/// `None` when the text is not base64; padding may be left out.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    if text.ends_with('=') && text.len() % 4 != 0 {
        return None;
    }
    let text = text.strip_suffix("==").or_else(|| text.strip_suffix('=')).unwrap_or(text).as_bytes();
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let done = wide::decode(text, &mut bytes);
    let groups = text[done..].chunks_exact(4);
    let rest = groups.remainder();
    let mut seen = 0;
    let begun = bytes.len();
    bytes.resize(text.len() / 4 * 3, 0);
    for (group, to) in groups.zip(bytes[begun..].chunks_exact_mut(3)) {
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

/// Twelve bytes and sixteen characters at once: what is above takes five times as long for a body of a mebibyte.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::*;

    /// Bytes, and their characters, of one step. A step reads and writes sixteen of either.
    const BYTES: usize = 12;
    const CHARS: usize = 16;

    /// Appends the text of whole steps. Returns how many bytes it is of: the last few are never among them.
    pub fn encode(bytes: &[u8], text: &mut Vec<u8>) -> usize {
        if bytes.len() < CHARS || !is_x86_feature_detected!("ssse3") {
            return 0;
        }
        let steps = (bytes.len() - (CHARS - BYTES)) / BYTES;
        text.reserve(steps * CHARS);
        // Each step reads within `bytes` and writes within what was reserved.
        unsafe {
            encode_steps(bytes.as_ptr(), text.as_mut_ptr().add(text.len()), steps);
            text.set_len(text.len() + steps * CHARS);
        }
        steps * BYTES
    }

    /// Appends the bytes of whole steps, until one has a character that is none of the alphabet. Returns how many characters they have.
    pub fn decode(text: &[u8], bytes: &mut Vec<u8>) -> usize {
        if text.len() < CHARS || !is_x86_feature_detected!("ssse3") {
            return 0;
        }
        // A step writes four bytes more than it has.
        bytes.reserve(text.len() / CHARS * BYTES + CHARS - BYTES);
        unsafe {
            let steps = decode_steps(text.as_ptr(), bytes.as_mut_ptr().add(bytes.len()), text.len() / CHARS);
            bytes.set_len(bytes.len() + steps * BYTES);
            steps * CHARS
        }
    }

    #[target_feature(enable = "ssse3")]
    unsafe fn encode_steps(from: *const u8, to: *mut u8, steps: usize) {
        // Three bytes a b c become b a c b: each of their four sixes of bits lies within one of two words.
        let spread = _mm_setr_epi8(1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 10, 9, 11, 10);
        // What is added to a value to get its character, by its range: a to z, 0 to 9, +, /, A to Z.
        let offsets = _mm_setr_epi8(71, -4, -4, -4, -4, -4, -4, -4, -4, -4, -4, -19, -16, 65, 0, 0);
        for step in 0..steps {
            let words = _mm_shuffle_epi8(_mm_loadu_si128(from.add(step * BYTES).cast()), spread);
            // Multiplied they are shifted, each by its own distance: the first and third to the right, the others to the left.
            let right = _mm_mulhi_epu16(_mm_and_si128(words, _mm_set1_epi32(0x0fc0_fc00)), _mm_set1_epi32(0x0400_0040));
            let left = _mm_mullo_epi16(_mm_and_si128(words, _mm_set1_epi32(0x003f_03f0)), _mm_set1_epi32(0x0100_0010));
            let values = _mm_or_si128(right, left);
            // 0 for 0 to 51, then 1 to 12; and 13 for 0 to 25.
            let above = _mm_subs_epu8(values, _mm_set1_epi8(51));
            let is_upper = _mm_cmpgt_epi8(_mm_set1_epi8(26), values);
            let range = _mm_or_si128(above, _mm_and_si128(is_upper, _mm_set1_epi8(13)));
            let chars = _mm_add_epi8(values, _mm_shuffle_epi8(offsets, range));
            _mm_storeu_si128(to.add(step * CHARS).cast(), chars);
        }
    }

    #[target_feature(enable = "ssse3")]
    unsafe fn decode_steps(from: *const u8, to: *mut u8, steps: usize) -> usize {
        let half = _mm_set1_epi8(15);
        // A character is none of the alphabet when the bits of its halves have one in common.
        let of_low = _mm_setr_epi8(21, 17, 17, 17, 17, 17, 17, 17, 17, 17, 19, 26, 27, 27, 27, 26);
        let of_high = _mm_setr_epi8(16, 16, 1, 2, 4, 8, 4, 8, 16, 16, 16, 16, 16, 16, 16, 16);
        // What is added to a character to get its value, by its higher half: +, 0 to 9, A to Z, a to z; the second is that of /.
        let offsets = _mm_setr_epi8(0, 16, 19, 4, -65, -65, -71, -71, 0, 0, 0, 0, 0, 0, 0, 0);
        let gather = _mm_setr_epi8(2, 1, 0, 6, 5, 4, 10, 9, 8, 14, 13, 12, -1, -1, -1, -1);
        for step in 0..steps {
            let chars = _mm_loadu_si128(from.add(step * CHARS).cast());
            let high = _mm_and_si128(_mm_srli_epi32(chars, 4), half);
            let low = _mm_and_si128(chars, half);
            let bad = _mm_and_si128(_mm_shuffle_epi8(of_low, low), _mm_shuffle_epi8(of_high, high));
            if _mm_movemask_epi8(_mm_cmpeq_epi8(bad, _mm_setzero_si128())) != 0xffff {
                return step;
            }
            // All ones, which is -1, where it is a slash.
            let is_slash = _mm_cmpeq_epi8(chars, _mm_set1_epi8(b'/' as i8));
            let values = _mm_add_epi8(chars, _mm_shuffle_epi8(offsets, _mm_add_epi8(high, is_slash)));
            // Two sixes of bits become twelve, two of those twenty-four.
            let twelves = _mm_maddubs_epi16(values, _mm_set1_epi32(0x0140_0140));
            let both = _mm_madd_epi16(twelves, _mm_set1_epi32(0x0001_1000));
            _mm_storeu_si128(to.add(step * BYTES).cast(), _mm_shuffle_epi8(both, gather));
        }
        steps
    }
}

/// Nothing is done at once where there is no way to.
#[cfg(not(target_arch = "x86_64"))]
mod wide {
    pub fn encode(_: &[u8], _: &mut Vec<u8>) -> usize {
        0
    }

    pub fn decode(_: &[u8], _: &mut Vec<u8>) -> usize {
        0
    }
}
