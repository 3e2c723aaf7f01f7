//! What the fuzz targets reach of this crate; built with `--cfg fuzzing` alone.

/// Reads a server's answer about its health.
pub fn read_answer(answer: &[u8]) {
    let _ = crate::grpc::message::decode(answer);
}
