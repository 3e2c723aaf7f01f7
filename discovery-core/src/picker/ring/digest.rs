//! The three hash functions of the rings, as their standards define them. They are fixed for ever and short, so no library is needed.

/// CRC-32 of ISO-HDLC (IEEE 802.3), on from the checksum of what came before; 0 at the beginning.
pub(super) fn crc32(before: u32, bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!before, |crc, byte| crc >> 8 ^ CRC32[usize::from(crc as u8 ^ byte)])
}

const CRC32: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut crc = at as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

/// The first half of MurmurHash3 x64 128 (A. Appleby) with seed 0, which Go's `murmur3.Sum64` is.
pub(super) fn murmur3(bytes: &[u8]) -> u64 {
    const C: [u64; 2] = [0x87C3_7B91_1142_53D5, 0x4CF5_AD43_2745_937F];
    let scramble =
        |k: u64, first: usize, turn: u32| k.wrapping_mul(C[first]).rotate_left(turn).wrapping_mul(C[1 - first]);
    let (mut h1, mut h2) = (0u64, 0u64);
    let (blocks, rest) = bytes.as_chunks::<16>();
    for block in blocks {
        let [k1, k2] = halves(block);
        h1 ^= scramble(k1, 0, 31);
        h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52DC_E729);
        h2 ^= scramble(k2, 1, 33);
        h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    let mut tail = [0; 16];
    tail[..rest.len()].copy_from_slice(rest);
    let [k1, k2] = halves(&tail);
    // What is not there is zero, and zero changes nothing.
    h1 ^= scramble(k1, 0, 31) ^ bytes.len() as u64;
    h2 ^= scramble(k2, 1, 33) ^ bytes.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    finish(h1).wrapping_add(finish(h2))
}

fn halves(block: &[u8; 16]) -> [u64; 2] {
    let both = u128::from_le_bytes(*block);
    [both as u64, (both >> 64) as u64]
}

fn finish(x: u64) -> u64 {
    let x = (x ^ x >> 33).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    let x = (x ^ x >> 33).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    x ^ x >> 33
}

/// MD5 (RFC 1321), as its four words. It is no protection against anybody; Dubbo places its points by it.
pub(super) fn md5(bytes: &[u8]) -> [u32; 4] {
    let (blocks, rest) = bytes.as_chunks::<64>();
    let state = blocks.iter().fold([0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476], md5_block);
    // One bit, zeros, and the length in bits at the end of the last block.
    let mut last = [[0u8; 64]; 2];
    last[0][..rest.len()].copy_from_slice(rest);
    last[0][rest.len()] = 0x80;
    let used = if rest.len() < 56 { 1 } else { 2 };
    last[used - 1][56..].copy_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    last[..used].iter().fold(state, md5_block)
}

fn md5_block(state: [u32; 4], block: &[u8; 64]) -> [u32; 4] {
    const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    let (words, _) = block.as_chunks::<4>();
    let [mut a, mut b, mut c, mut d] = state;
    for step in 0..64 {
        let (mixed, word) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (d & b | !d & c, 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let sum = a.wrapping_add(mixed).wrapping_add(SINES[step]).wrapping_add(u32::from_le_bytes(words[word % 16]));
        (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(TURNS[step / 16][step % 4])));
    }
    [state[0].wrapping_add(a), state[1].wrapping_add(b), state[2].wrapping_add(c), state[3].wrapping_add(d)]
}

/// The whole part of `2^32 * |sin(i + 1)|`.
const SINES: [u32; 64] = [
    0xD76A_A478,
    0xE8C7_B756,
    0x2420_70DB,
    0xC1BD_CEEE,
    0xF57C_0FAF,
    0x4787_C62A,
    0xA830_4613,
    0xFD46_9501,
    0x6980_98D8,
    0x8B44_F7AF,
    0xFFFF_5BB1,
    0x895C_D7BE,
    0x6B90_1122,
    0xFD98_7193,
    0xA679_438E,
    0x49B4_0821,
    0xF61E_2562,
    0xC040_B340,
    0x265E_5A51,
    0xE9B6_C7AA,
    0xD62F_105D,
    0x0244_1453,
    0xD8A1_E681,
    0xE7D3_FBC8,
    0x21E1_CDE6,
    0xC337_07D6,
    0xF4D5_0D87,
    0x455A_14ED,
    0xA9E3_E905,
    0xFCEF_A3F8,
    0x676F_02D9,
    0x8D2A_4C8A,
    0xFFFA_3942,
    0x8771_F681,
    0x6D9D_6122,
    0xFDE5_380C,
    0xA4BE_EA44,
    0x4BDE_CFA9,
    0xF6BB_4B60,
    0xBEBF_BC70,
    0x289B_7EC6,
    0xEAA1_27FA,
    0xD4EF_3085,
    0x0488_1D05,
    0xD9D4_D039,
    0xE6DB_99E5,
    0x1FA2_7CF8,
    0xC4AC_5665,
    0xF429_2244,
    0x432A_FF97,
    0xAB94_23A7,
    0xFC93_A039,
    0x655B_59C3,
    0x8F0C_CC92,
    0xFFEF_F47D,
    0x8584_5DD1,
    0x6FA8_7E4F,
    0xFE2C_E6E0,
    0xA301_4314,
    0x4E08_11A1,
    0xF753_7E82,
    0xBD3A_F235,
    0x2AD7_D2BB,
    0xEB86_D391,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32_of_the_catalogue() {
        assert_eq!(crc32(0, b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(crc32(0, b"1234"), b"56789"), 0xCBF4_3926);
        assert_eq!(crc32(0, b""), 0);
    }

    /// From the test suite of RFC 1321, and one longer than 55 bytes, where the length needs a block of its own.
    #[test]
    fn md5_of_the_rfc() {
        let hex = |text: &str| md5(text.as_bytes()).map(u32::swap_bytes).map(|word| format!("{word:08x}")).concat();
        assert_eq!(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hex("message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(hex(&"1234567890".repeat(8)), "57edf4a22be3c955ac49da2e2107b67a");
        assert_eq!(
            hex("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"),
            "d174ab98d277d9f5a5611c2c9f419d9f"
        );
    }

    /// From the tests of spaolacci/murmur3, which go-zero hashes with.
    #[test]
    fn murmur3_of_its_go_library() {
        assert_eq!(murmur3(b""), 0);
        assert_eq!(murmur3(b"hello"), 0xcbd8_a7b3_41bd_9b02);
        assert_eq!(murmur3(b"hello, world"), 0x342f_ac62_3a5e_bc8e);
        assert_eq!(murmur3(b"19 Jan 2038 at 3:14:07 AM"), 0xb89e_5988_b737_affc);
        assert_eq!(murmur3(b"The quick brown fox jumps over the lazy dog."), 0xcd99_481f_9ee9_02c9);
    }
}
