//! Frames: what is written between ranks of two stages.
//!
//! A header of fixed size, then the bytes of one tensor. The reader knows what must come, so it checks
//! every field before it makes room for a single byte.

use std::io::{self, Read, Write};

use tch::Kind;

use super::{Address, Crossing, Form};

/// Marks the start of a frame and the version of its layout.
const MAGIC: u32 = 0x4c4d_5202;
/// Most axes of a tensor.
const MAX_AXES: usize = 8;
/// magic, purpose, number format, axes, micro-batch, shard, then the shape.
const HEADER_BYTES: usize = 4 + 1 + 1 + 2 + 4 + 4 + 8 * MAX_AXES;

/// What connects two ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tie {
    /// Their stages follow each other.
    Neighbour,
    /// Their stages share a weight.
    SharedWeight,
    /// They are devices of one stage.
    Shard,
}

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The first frame of a connection; its micro-batch is the index of the stage that speaks.
    Hello(Tie),
    /// A tensor.
    Tensor(Crossing),
    /// The last frame: the end of the stream after it is no accident.
    Goodbye,
}

impl Purpose {
    fn code(self) -> u8 {
        match self {
            Self::Hello(Tie::Neighbour) => 1,
            Self::Hello(Tie::SharedWeight) => 2,
            Self::Hello(Tie::Shard) => 7,
            Self::Tensor(Crossing::Activation) => 3,
            Self::Tensor(Crossing::Gradient) => 4,
            Self::Tensor(Crossing::TiedGradient) => 5,
            Self::Goodbye => 6,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            1 => Self::Hello(Tie::Neighbour),
            2 => Self::Hello(Tie::SharedWeight),
            7 => Self::Hello(Tie::Shard),
            3 => Self::Tensor(Crossing::Activation),
            4 => Self::Tensor(Crossing::Gradient),
            5 => Self::Tensor(Crossing::TiedGradient),
            6 => Self::Goodbye,
            _ => return None,
        })
    }
}

/// What comes before the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) purpose: Purpose,
    pub(super) micro_batch: u32,
    /// Which device of its stage says hello; 0 in other frames.
    pub(super) shard: u32,
    pub(super) form: Form,
}

/// A tensor on its way.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) header: Header,
    pub(super) bytes: Vec<u8>,
}

impl Header {
    /// A header without a tensor behind it.
    fn bare(purpose: Purpose, micro_batch: u32, shard: u32) -> Self {
        Self { purpose, micro_batch, shard, form: Form { kind: Kind::Uint8, shape: vec![0] } }
    }

    /// The first words of this rank.
    pub(super) fn hello(tie: Tie, own: Address) -> Self {
        Self::bare(Purpose::Hello(tie), own.stage, own.shard)
    }

    /// The last ones.
    pub(super) fn goodbye() -> Self {
        Self::bare(Purpose::Goodbye, 0, 0)
    }

    fn encode(&self) -> io::Result<[u8; HEADER_BYTES]> {
        let axes = self.form.shape.len();
        if axes > MAX_AXES {
            return Err(invalid(format!("a tensor of {axes} axes, at most {MAX_AXES} can be sent")));
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4] = self.purpose.code();
        bytes[5] = kind_code(self.form.kind)?;
        bytes[6] = axes as u8;
        bytes[8..12].copy_from_slice(&self.micro_batch.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.shard.to_le_bytes());
        for (slot, extent) in bytes[16..].chunks_exact_mut(8).zip(&self.form.shape) {
            slot.copy_from_slice(&extent.to_le_bytes());
        }
        Ok(bytes)
    }

    fn decode(bytes: &[u8; HEADER_BYTES]) -> io::Result<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if word(0) != MAGIC {
            return Err(invalid("what came is not a frame of this version".to_owned()));
        }
        let purpose = Purpose::from_code(bytes[4])
            .ok_or_else(|| invalid(format!("a frame of unknown purpose {}", bytes[4])))?;
        let axes = usize::from(bytes[6]);
        if axes > MAX_AXES {
            return Err(invalid(format!("a frame with a tensor of {axes} axes")));
        }
        let shape = bytes[16..]
            .chunks_exact(8)
            .take(axes)
            .map(|slot| slot.try_into().map(i64::from_le_bytes).map_err(|_| invalid("cut".to_owned())))
            .collect::<io::Result<Vec<i64>>>()?;
        let form = Form { kind: kind_of(bytes[5])?, shape };
        Ok(Self { purpose, micro_batch: word(8), shard: word(12), form })
    }

    pub(super) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        stream.write_all(&self.encode()?)
    }

    pub(super) fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut bytes = [0; HEADER_BYTES];
        stream.read_exact(&mut bytes)?;
        Self::decode(&bytes)
    }
}

impl Frame {
    pub(super) fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        self.header.write(stream)?;
        stream.write_all(&self.bytes)
    }

    /// Reads a frame that must carry a tensor of this form, or the goodbye.
    pub(super) fn read(stream: &mut impl Read, crossing: Crossing, form: &Form) -> io::Result<Option<Self>> {
        let header = Header::read(stream)?;
        match header.purpose {
            Purpose::Goodbye => return Ok(None),
            Purpose::Tensor(other) if other == crossing && header.form == *form => {}
            _ => {
                return Err(invalid(format!(
                    "expected {crossing:?} of {:?} {:?}, got {:?} of {:?} {:?}",
                    form.kind, form.shape, header.purpose, header.form.kind, header.form.shape
                )));
            }
        }
        let bytes = usize::try_from(form.bytes())
            .map_err(|_| invalid(format!("a tensor of {} bytes", form.bytes())))?;
        let mut bytes = vec![0; bytes];
        stream.read_exact(&mut bytes)?;
        Ok(Some(Self { header, bytes }))
    }
}

fn kind_code(kind: Kind) -> io::Result<u8> {
    match kind {
        Kind::Uint8 => Ok(0),
        Kind::Float => Ok(1),
        Kind::BFloat16 => Ok(2),
        other => Err(invalid(format!("tensors of {other:?} are not sent"))),
    }
}

fn kind_of(code: u8) -> io::Result<Kind> {
    match code {
        0 => Ok(Kind::Uint8),
        1 => Ok(Kind::Float),
        2 => Ok(Kind::BFloat16),
        other => Err(invalid(format!("a tensor of unknown number format {other}"))),
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn form() -> Form {
        Form { kind: Kind::Float, shape: vec![2, 3] }
    }

    fn frame(crossing: Crossing, micro_batch: u32) -> Frame {
        let header = Header { purpose: Purpose::Tensor(crossing), micro_batch, shard: 0, form: form() };
        Frame { header, bytes: (0..24).collect() }
    }

    #[test]
    fn a_frame_comes_out_as_it_went_in() {
        let mut wire = Vec::new();
        frame(Crossing::Gradient, 7).write(&mut wire).unwrap();
        Header::goodbye().write(&mut wire).unwrap();
        let mut wire = wire.as_slice();
        let read = Frame::read(&mut wire, Crossing::Gradient, &form()).unwrap().unwrap();
        assert_eq!(read.header.micro_batch, 7);
        assert_eq!(read.bytes, (0..24).collect::<Vec<u8>>());
        assert!(Frame::read(&mut wire, Crossing::Gradient, &form()).unwrap().is_none());
    }

    #[test]
    fn other_tensors_than_agreed_are_refused() {
        let mut wire = Vec::new();
        frame(Crossing::Activation, 0).write(&mut wire).unwrap();
        assert!(Frame::read(&mut wire.as_slice(), Crossing::Gradient, &form()).is_err());
        let larger = Form { shape: vec![2, 4], ..form() };
        assert!(Frame::read(&mut wire.as_slice(), Crossing::Activation, &larger).is_err());
        let half = Form { kind: Kind::BFloat16, ..form() };
        assert!(Frame::read(&mut wire.as_slice(), Crossing::Activation, &half).is_err());
        assert!(Frame::read(&mut &wire[..wire.len() - 1], Crossing::Activation, &form()).is_err());
    }

    proptest! {
        /// Whatever a peer writes, reading it ends with a frame or an error.
        #[test]
        fn noise_is_refused_without_a_panic(mut wire in proptest::collection::vec(any::<u8>(), 0..200), valid in any::<bool>()) {
            if valid && wire.len() >= 4 {
                wire[..4].copy_from_slice(&MAGIC.to_le_bytes());
            }
            let _ = Frame::read(&mut wire.as_slice(), Crossing::Activation, &form());
        }
    }
}
